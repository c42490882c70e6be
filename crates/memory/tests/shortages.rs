//! Shortages: when a lender's pool is exhausted, the code that can ask the lender for more is told.

use std::sync::Arc;

use crate::machine::{self, Machine, checked};
use genie_memory::{Error, LenderId, Space};
use genie_sys::Object;
use genie_sys::lock::Mutex;

on_each_kind!(
    whoever_asked_for_it_is_told_of_each_shortage,
    the_teller_may_have_more_lent_at_once,
    nobody_is_told_of_a_lender_that_is_gone,
);

fn lend(space: &Space, lender: LenderId, granules: usize) {
    let object = Object::create(space.granule_kind(), granules * space.granule()).unwrap();
    machine::lend(space, lender, object).unwrap();
}

/// Has the shortages of a lender noted.
fn noted(space: &Space, lender: LenderId) -> Arc<Mutex<Vec<usize>>> {
    let told: Arc<Mutex<Vec<usize>>> = Arc::default();
    let noting = Arc::clone(&told);
    space.on_shortage(lender, move |asked| noting.lock().push(asked));
    told
}

fn whoever_asked_for_it_is_told_of_each_shortage(machine: Machine) {
    let (space, granule) = (machine.space(2), machine.granule());
    let [lender, other] = [space.add_lender(), space.add_lender()];
    lend(&space, lender, 2);
    let told = noted(&space, lender);
    let held = space.aligned_buffer_from(lender, 0, 2 * granule).unwrap();
    assert_eq!(*told.lock(), [], "there was enough");
    assert!(matches!(space.aligned_buffer_from(lender, 9, granule), Err(Error::Lender { .. })));
    assert!(matches!(space.system_buffer_shown(lender, lender, 1), Err(Error::Lender { .. })));
    assert!(matches!(space.system_buffer_shown(other, other, 1), Err(Error::Lender { .. })));
    assert_eq!(*told.lock(), [2 * granule, granule], "in whole granules; others' are not told");
    drop(held);
    // What is kept for other lengths is enough.
    drop(space.aligned_buffer_from(lender, 0, granule).unwrap());
    assert_eq!(told.lock().len(), 2);
    assert!(matches!(space.allocate(9 * granule), Err(Error::Limit { .. })), "the space's own has a limit");
    assert_eq!(told.lock().len(), 2);
    checked(&space);
}

fn the_teller_may_have_more_lent_at_once(machine: Machine) {
    let (space, granule) = (machine.space(1), machine.granule());
    let lender = space.add_lender();
    let lending = space.clone();
    space.on_shortage(lender, move |asked| lend(&lending, lender, asked / lending.granule()));
    let error = space.aligned_buffer_from(lender, 0, 3 * granule).unwrap_err();
    assert_eq!(error, Error::Lender { asked: 3 * granule, free: 0 });
    let buffer = space.aligned_buffer_from(lender, 0, 3 * granule).unwrap();
    assert_eq!((buffer.lender(), space.pool_size(lender).unwrap().granules), (lender, 3));
    drop(buffer);
    checked(&space);
    space.remove_lender(lender);
    assert_eq!(checked(&space).objects, 1);
}

fn nobody_is_told_of_a_lender_that_is_gone(machine: Machine) {
    let space = machine.space(1);
    let lender = space.add_lender();
    let told = noted(&space, lender);
    space.remove_lender(lender);
    assert_eq!(Arc::strong_count(&told), 1, "what was to be called is forgotten");
    assert!(matches!(space.system_buffer_shown(lender, lender, 1), Err(Error::Lender { .. })));
    space.on_shortage(lender, |_| unreachable!("the lender is gone"));
    assert!(matches!(space.system_buffer_shown(lender, lender, 1), Err(Error::Lender { .. })));
    assert_eq!(*told.lock(), []);
}
