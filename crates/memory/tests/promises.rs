//! Promised replacements: a store into a buffer under output never waits for memory.
//!
//! Once, a store waited for a free granule until the server let go of the output, though others had freed memory
//! meanwhile. Now an output is protected only when a free granule is kept for each of its granules; a store for which no
//! granule could be kept after all waits, and goes on as soon as one is free again.

use std::time::{Duration, Instant};

use crate::machine::{self, Machine, checked, output, output_of, same, seen, server};
use genie_memory::{Buffer, Direction, Error, Reference, Space, SystemBuffer};
use genie_sys::Object;

on_each_kind!(
    every_granule_under_output_can_be_replaced_in_a_full_space,
    others_leave_promised_granules_alone,
    output_without_free_granules_is_not_protected,
    outputs_of_the_same_granules_need_one_promise,
    promises_end_with_the_output_the_region_or_the_swap,
    a_space_grows_for_a_promise,
    an_input_in_place_takes_promised_granules,
    an_input_in_place_without_a_free_granule_is_refused,
    without_a_promise_a_store_waits_for_the_output,
    a_waiting_store_goes_on_where_its_region_stays_protected,
    a_waiting_store_goes_on_when_memory_is_back,
);

/// Takes all granules that the space gives.
fn hoard(space: &Space) -> Vec<Buffer> {
    std::iter::from_fn(|| space.allocate(space.granule()).ok()).collect()
}

fn every_granule_under_output_can_be_replaced_in_a_full_space(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(3 * machine.granule()).unwrap();
    buffer.fill(1);
    let reference = output(&space, &buffer);
    let hoard = hoard(&space);
    assert_eq!(hoard.len(), 2, "of 8 granules, 3 hold data and 3 are kept for stores");
    buffer.fill(2);
    assert!(seen(&reference).iter().all(|byte| *byte == 1));
    let statistics = space.statistics();
    assert_eq!((statistics.waits, statistics.replacements), (0, 3), "{statistics:?}");
    checked(&space);
}

fn others_leave_promised_granules_alone(machine: Machine) {
    let (Some(space), granule) = (machine.protecting_space(6), machine.granule()) else { return };
    let buffer = space.allocate(2 * granule).unwrap();
    let reference = output(&space, &buffer);
    let _hoard = hoard(&space);
    let refusals = [
        space.allocate(granule).unwrap_err(),
        space.aligned_buffer(0, granule).unwrap_err(),
        space.system_buffer(granule).unwrap_err(),
        space.allocate_migrant(granule, true).unwrap_err(),
    ];
    for error in refusals {
        let Error::Limit { used, limit, .. } = error else { panic!("{error}") };
        assert_eq!((used, limit), (6 * granule, 6 * granule), "what is promised is in use");
    }
    checked(&space);
    drop(reference);
    assert_eq!(hoard(&space).len(), 2, "the output's end ends its promises");
    checked(&space);
}

fn output_without_free_granules_is_not_protected(machine: Machine) {
    let (Some(space), granule) = (machine.protecting_space(5), machine.granule()) else { return };
    let mut buffer = space.allocate(3 * granule).unwrap();
    let start = buffer.addresses().start;
    let reference = space.reference(start, 3 * granule, Direction::Out).unwrap();
    let error = space.read_only(&reference).unwrap_err();
    let free = (machine.first_object(5) - 3) * granule;
    assert_eq!(error, Error::Irreplaceable { asked: 3 * granule, free });
    checked(&space);
    drop(reference);
    let _two = output_of(&space, start, 2 * granule);
    let last = space.reference(start + 2 * granule, 1, Direction::Out).unwrap();
    let error = space.read_only(&last).unwrap_err();
    assert_eq!(error, Error::Irreplaceable { asked: granule, free: 0 });
    drop(last);
    buffer.fill(1);
    assert_eq!(space.statistics().waits, 0);
    checked(&space);
}

fn outputs_of_the_same_granules_need_one_promise(machine: Machine) {
    let (Some(space), granule) = (machine.protecting_space(6), machine.granule()) else { return };
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let first = output(&space, &buffer);
    let second = output(&space, &buffer);
    drop(first);
    checked(&space);
    let third = output(&space, &buffer);
    buffer.fill(2);
    for reference in [second, third] {
        assert!(seen(&reference).iter().all(|byte| *byte == 1));
    }
    assert_eq!(space.statistics().waits, 0);
    checked(&space);
}

fn promises_end_with_the_output_the_region_or_the_swap(machine: Machine) {
    let (Some(space), granule) = (machine.protecting_space(8), machine.granule()) else { return };
    let free = |space: &Space| {
        checked(space);
        hoard(space).len()
    };
    let buffer = space.allocate(2 * granule).unwrap();
    drop(output(&space, &buffer));
    assert_eq!(free(&space), 6, "after the output");
    let reference = output(&space, &buffer);
    drop(buffer);
    assert_eq!(free(&space), 6, "after the region, whose granules are the output's still");
    drop(reference);
    let mut buffer = space.allocate(2 * granule).unwrap();
    let mut system = space.aligned_buffer(0, 2 * granule).unwrap();
    let reference = output(&space, &buffer);
    assert_eq!(free(&space), 2, "before the swap");
    space.deliver(&mut system, &mut buffer, &(0..2)).unwrap();
    drop(system);
    assert_eq!(free(&space), 4, "after the swap");
    drop((reference, buffer));
    assert_eq!(free(&space), 8);
}

fn a_space_grows_for_a_promise(machine: Machine) {
    let (Some(space), granule) =
        (machine.protecting_space(40 << 20 >> machine.granule().trailing_zeros()), machine.granule())
    else {
        return;
    };
    let buffer = space.allocate(20 << 20).unwrap();
    let before = checked(&space).objects;
    let reference = output(&space, &buffer);
    let usage = checked(&space);
    assert_eq!(usage.objects, before + 1, "of 32 MiB or less, 20 are in use and 20 are promised");
    assert_eq!(usage.free as usize * granule, 20 << 20, "all that the limit leaves");
    drop(reference);
}

fn an_input_in_place_takes_promised_granules(machine: Machine) {
    let (Some(space), granule) = (machine.protecting_space(4), machine.granule()) else { return };
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(1);
    let out = output(&space, &buffer);
    let input = space.reference(buffer.addresses().start, buffer.len(), Direction::In).unwrap();
    server(&input).fill(2);
    assert!(seen(&out).iter().all(|byte| *byte == 1) && buffer.iter().all(|byte| *byte == 2));
    checked(&space);
}

/// A full space with a pending output whose promises were broken when a lender left: the granules kept for stores were
/// the lender's, brought by a swap, and the granules that the lender had got for them are in a system buffer.
struct Broken {
    space: Space,
    buffer: Buffer,
    reference: Reference,
    system: SystemBuffer,
}

impl Broken {
    /// After so many outputs before. The buffer is full of ones.
    fn make(machine: &Machine, outputs_before: u32) -> Option<Self> {
        let (space, granule) = (machine.protecting_space(4)?, machine.granule());
        let lender = space.add_lender();
        machine::lend(&space, lender, Object::create(space.granule_kind(), 2 * granule).unwrap()).unwrap();
        let mut client = space.allocate(2 * granule).unwrap();
        let mut buffer = space.allocate(2 * granule).unwrap();
        let mut system = space.aligned_buffer_from(lender, 0, 2 * granule).unwrap();
        let swap = 0..2;
        assert_eq!(space.deliver(&mut system, &mut client, &swap).unwrap().swapped, 2);
        drop(client);
        buffer.fill(1);
        (0..outputs_before).for_each(|_| drop(output(&space, &buffer)));
        let reference = output(&space, &buffer);
        checked(&space);
        space.remove_lender(lender);
        assert_eq!(checked(&space).free, 0);
        Some(Self { space, buffer, reference, system })
    }

    /// Stores into the buffer, which waits; then does `release`, and returns the output when the store is done.
    fn store_until(self, release: impl FnOnce(SystemBuffer, Reference) -> Option<Reference>) {
        let Self { space, mut buffer, reference, system } = self;
        let pending = std::thread::scope(|scope| {
            let client = scope.spawn(|| buffer.fill(2));
            while space.statistics().waits == 0 {
                assert!(!client.is_finished(), "the store did not wait");
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(30));
            assert!(seen(&reference).iter().all(|byte| *byte == 1), "the output changed");
            assert!(!client.is_finished(), "the store did not wait");
            checked(&space);
            let pending = release(system, reference);
            let end = Instant::now() + Duration::from_secs(20);
            while !client.is_finished() {
                if Instant::now() > end {
                    eprintln!("the store still waits, twenty seconds after nothing keeps it waiting");
                    std::process::abort();
                }
                std::thread::yield_now();
            }
            pending
        });
        assert!(buffer.iter().all(|byte| *byte == 2));
        if let Some(reference) = pending {
            assert!(seen(&reference).iter().all(|byte| *byte == 1), "the output changed");
        }
        checked(&space);
    }
}

fn an_input_in_place_without_a_free_granule_is_refused(machine: Machine) {
    let Some(Broken { space, buffer, reference, system: _system }) = Broken::make(&machine, 0) else {
        return;
    };
    let start = buffer.addresses().start;
    let error = space.reference(start, buffer.len(), Direction::In).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert_eq!(checked(&space).references, 2, "only those of the output");
    same(&seen(&reference), &buffer, "the output");
    drop(reference);
    assert_eq!(space.reference(start, buffer.len(), Direction::In).unwrap().granules(), 2);
}

fn without_a_promise_a_store_waits_for_the_output(machine: Machine) {
    let Some(broken) = Broken::make(&machine, 0) else { return };
    let space = broken.space.clone();
    broken.store_until(|_system, reference| {
        drop(reference);
        None
    });
    let statistics = space.statistics();
    assert_eq!((statistics.waits, statistics.replacements), (1, 0), "{statistics:?}");
}

/// The sixteenth output in a row leaves the region protected, but not its waiting thread asleep.
fn a_waiting_store_goes_on_where_its_region_stays_protected(machine: Machine) {
    let Some(broken) = Broken::make(&machine, 15) else { return };
    broken.store_until(|_system, reference| {
        drop(reference);
        None
    });
}

fn a_waiting_store_goes_on_when_memory_is_back(machine: Machine) {
    let Some(broken) = Broken::make(&machine, 0) else { return };
    let space = broken.space.clone();
    broken.store_until(|system, reference| {
        drop(system);
        Some(reference)
    });
    assert_eq!(space.statistics().replacements, 2);
}
