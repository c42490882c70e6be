//! Arrivals: data in a system buffer that becomes a migrant buffer by swapping, wherever in the granules it lies.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::machine::{Machine, checked, frame, pattern, same, scatter};
use genie_memory::{Faults, Part, Passed, Space};

on_each_kind!(
    data_at_any_place_is_swapped_into_a_region,
    data_that_finds_no_region_of_its_size_is_copied,
    a_region_has_no_more_room_than_it_was_aligned_for,
    a_region_is_aligned_again,
);

fn all_of(granule: usize, offset: usize, len: usize) -> Range<u32> {
    0..(offset + len).div_ceil(granule) as u32
}

/// With protection and without: nothing has to be protected.
fn spaces(machine: &Machine, granules: usize) -> [Space; 2] {
    [machine.space(granules), machine.space_with(granules, |config| config.faults = Faults::Never)]
}

/// Regions began with a granule, so that other data was copied; and their stale bytes were saved beside data that ended within
/// a granule, for which these were protected, or the data was copied.
fn data_at_any_place_is_swapped_into_a_region(machine: Machine) {
    let granule = machine.granule();
    for space in spaces(&machine, 16) {
        for (offset, len) in
            [(100, 2 * granule), (0, granule + 5), (100, granule - 100), (granule - 1, 2), (17, granule / 2)]
        {
            // Twice: the second time, a region is found again.
            for (strong, round) in [(true, 1), (false, 2), (true, 3), (false, 4)] {
                let data = pattern(round, len);
                let mut system = space.aligned_buffer(offset, len).unwrap();
                scatter(&system.data(), &data);
                let frame_before = frame(system.segments()[0].addr());
                let (mut immigrating, reference) = space.dequeue_referenced(len, strong).unwrap();
                drop(reference);
                immigrating.align(&system, Part::all(len), len).unwrap();
                immigrating.reinstate().unwrap();
                let passed = immigrating
                    .delivery(len)
                    .unwrap()
                    .from_one(&mut system, &all_of(granule, offset, len))
                    .unwrap();
                let swapped = (offset + len).div_ceil(granule) as u32;
                assert_eq!(passed, Passed { swapped, ..Passed::default() }, "{len} bytes at {offset}");
                let migrant = immigrating.arrive(len);
                assert_eq!(migrant.as_ptr().addr() % granule, offset);
                same(&migrant, &data, "the region");
                assert_eq!(frame(migrant.as_ptr().addr()), frame_before, "something was copied");
                checked(&space);
            }
        }
        assert_eq!(space.statistics().protected, 0);
    }
}

fn data_that_finds_no_region_of_its_size_is_copied(machine: Machine) {
    let granule = machine.granule();
    for (space, strong) in spaces(&machine, 3).into_iter().zip([true, false]) {
        let data = pattern(5, granule);
        let mut system = space.aligned_buffer(100, granule).unwrap();
        scatter(&system.data(), &data);
        let mut immigrating = space.dequeue(granule, strong).unwrap();
        immigrating.align(&system, Part::all(granule), granule).unwrap();
        immigrating.reinstate().unwrap();
        let passed = immigrating
            .delivery(granule)
            .unwrap()
            .from_one(&mut system, &all_of(granule, 100, granule))
            .unwrap();
        assert_eq!(passed, Passed { copied: granule, ..Passed::default() });
        let migrant = immigrating.arrive(granule);
        same(&migrant, &data, "the region");
        checked(&space);
    }
}

/// A region that fitted shorter data, moved a part of a granule on, still took as many bytes as were asked for: those behind its
/// end, of whatever region lay there, were the buffer's, too.
fn a_region_has_no_more_room_than_it_was_aligned_for(machine: Machine) {
    let granule = machine.granule();
    let space = machine.space(16);
    let mut system = space.aligned_buffer(100, 2 * granule).unwrap();
    let aligned = || {
        let (mut immigrating, reference) = space.dequeue_referenced(2 * granule, false).unwrap();
        immigrating.align(&system, Part::all(granule), granule).unwrap();
        (immigrating, reference)
    };
    let ((mut filled, _), (arriving, _), (released, reference)) = (aligned(), aligned(), aligned());
    let swap = all_of(granule, 100, 2 * granule);
    for is_refused in [
        catch_unwind(AssertUnwindSafe(|| {
            filled.delivery(2 * granule).unwrap().from_one(&mut system, &swap).is_ok()
        }))
        .is_err(),
        catch_unwind(AssertUnwindSafe(|| arriving.arrive(2 * granule).len())).is_err(),
        catch_unwind(AssertUnwindSafe(|| released.arrive_released(reference, 2 * granule).is_ok())).is_err(),
    ] {
        assert!(is_refused, "the region ends before");
    }
    assert_eq!(filled.arrive(granule).len(), granule);
}

/// The second time, the address was moved on by less than nothing: a panic where overflow is checked.
fn a_region_is_aligned_again(machine: Machine) {
    let granule = machine.granule();
    let space = machine.space(16);
    let mut immigrating = space.dequeue(granule / 2, false).unwrap();
    for offset in [100, 17, granule - 1] {
        let system = space.aligned_buffer(offset, 1).unwrap();
        immigrating.align(&system, Part::all(1), 1).unwrap();
        assert_eq!(immigrating.addr() % granule, offset);
    }
}
