//! Adoption: what a swap or a move does to the pools.

use super::{Lender, pool, swap_all};
use crate::machine::{Machine, checked, output, pattern, same, scatter, seen};
use genie_memory::{Error, Passed};

on_each_kind!(
    a_swap_lets_both_sides_adopt_pages,
    a_swap_of_page_tables_lets_both_sides_adopt_pages,
    a_swap_under_output_keeps_the_pool_s_size,
    a_moved_region_takes_its_granules_from_the_pool,
);

fn a_swap_lets_both_sides_adopt_pages(machine: Machine) {
    adopt(&machine, 2);
}

fn a_swap_of_page_tables_lets_both_sides_adopt_pages(machine: Machine) {
    adopt(&machine, machine.windowed());
}

fn adopt(machine: &Machine, granules: usize) {
    let (space, len) = (machine.space(granules + 1), granules * machine.granule());
    let lender = Lender::of(&space, machine, granules + 1);
    let mut buffer = space.allocate(len).unwrap();
    buffer.fill(1);
    let addr = buffer.addresses().start;
    let mut system = space.aligned_buffer_from(lender.id, 0, len).unwrap();
    let data = pattern(1, len);
    scatter(&system.data(), &data);
    let (mine, theirs) = (machine.frame(addr), machine.frame(system.segments()[0].addr()));
    let lent = lender.addr(&space, system.segments()[0]);
    let passed = space.deliver(&mut system, &mut buffer, &swap_all(granules)).unwrap();
    assert_eq!(passed, Passed { swapped: granules as u32, ..Passed::default() });
    same(&buffer, &data, "the input");
    assert_eq!(machine.frame(addr), theirs, "the client has the lender's page");
    assert_eq!(machine.frame(lent), theirs, "which the lender still sees");
    assert_eq!(machine.frame(system.segments()[0].addr()), mine, "the lender's pool has the client's page");
    assert!(system.data().to_vec().iter().all(|byte| *byte == 1));
    assert_eq!(pool(&space, lender.id), (granules as u32 + 1, 1));
    checked(&space);
    // What each side frees goes back to where it belongs now.
    drop(system);
    drop(buffer);
    let usage = checked(&space);
    assert_eq!(
        (usage.pooled, usage.free, usage.lent),
        (granules as u32, granules as u32 + 2, granules as u32 + 1)
    );
    assert_eq!(pool(&space, lender.id), (granules as u32 + 1, 1));
    let system = space.aligned_buffer_from(lender.id, 0, len).unwrap();
    assert_eq!(machine.frame(system.segments()[0].addr()), mine, "an adopted page is lent again");
    let buffer = space.allocate(len + machine.granule()).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0), "a lent granule is zeroed before it is a client's");
    assert_eq!(checked(&space).regions as usize, granules + 1);
}

fn a_swap_under_output_keeps_the_pool_s_size(machine: Machine) {
    let Some(space) = machine.protecting_space(4) else { return };
    let granule = machine.granule();
    let lender = Lender::of(&space, &machine, 2);
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(1);
    let reference = output(&space, &buffer);
    let mut system = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    scatter(&system.data(), &pattern(1, 2 * granule));
    // The pool has no other granules, so that it must adopt some of the space's own.
    let passed = space.deliver(&mut system, &mut buffer[..2 * granule], &swap_all(2)).unwrap();
    assert_eq!(passed.swapped, 2);
    scatter(&system.data(), &pattern(2, 2 * granule));
    assert!(seen(&reference).iter().all(|byte| *byte == 1), "the output");
    same(&buffer, &pattern(1, 2 * granule), "the input");
    let usage = checked(&space);
    assert_eq!((usage.system, usage.deferred), (2, 2));
    drop(system);
    assert_eq!(checked(&space).pooled, 2, "the pool is whole while the output is pending");
    drop(reference);
    assert_eq!(checked(&space).deferred, 0);
    assert_eq!(space.pool_size(lender.id).unwrap().granules, 2);
    drop(buffer);
    assert_eq!(space.allocate(4 * granule).unwrap().len(), 4 * granule, "no granule is lost");
}

fn a_moved_region_takes_its_granules_from_the_pool(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let mut system = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    let data = pattern(1, granule + 9);
    system.data().copy_from(&data);
    let (migrant, _) = space.region_from(&mut system, data.len()).unwrap();
    same(&migrant, &data, "the region");
    assert_eq!(pool(&space, lender.id), (1, 1));
    assert_eq!(checked(&space).regions, 2);
    system.refill(granule).unwrap();
    assert!(matches!(system.refill(2 * granule), Err(Error::Lender { .. })));
    drop(system);
    migrant.emigrate().unwrap().remove().unwrap();
    assert_eq!(checked(&space).free, 6, "what was moved is the space's own");
    space.remove_lender(lender.id);
    let usage = checked(&space);
    assert_eq!((usage.free, usage.objects), (4, 1));
}
