//! Migrant buffers: marks, region caching, region hiding, removal, and filling regions from system buffers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::machine::{
    Machine, checked, frame, is_accessible, output_of, pattern, same, scatter, seen, server,
};
use genie_memory::{Direction, Error, Faults, Immigrating, Mark, Migrant, Protection, Reference, Space};
use genie_sys::process;

on_each_kind!(
    a_hidden_region_is_inaccessible_and_keeps_its_bytes,
    a_cached_region_stays_as_it_is,
    queues_give_the_region_used_last,
    a_failed_output_gives_the_buffer_back,
    a_failed_input_puts_the_region_back,
    a_removed_region_keeps_its_granules_for_the_server,
    what_is_dropped_half_way_is_kept_for_reuse,
    marks_follow_the_region,
    an_input_fills_a_cached_region,
    output_by_copy_on_write_survives_the_regions_departure,
    a_system_buffer_becomes_a_region_with_nothing_else_in_it,
    a_part_of_a_migrant_buffer_can_arrive,
    a_region_referenced_as_it_changes_hands_is_referenced_until_it_has,
    a_region_that_is_taken_for_input_spares_an_output_pending_from_it,
    a_length_beyond_all_addresses_fits_no_cached_region,
    a_reference_of_another_space_ends_no_input_or_output,
    a_hidden_region_never_arrives_before_it_is_reinstated,
    a_part_is_passed_on_and_the_buffer_can_be_widened_again,
);

fn addr_of(migrant: &Migrant) -> usize {
    migrant.as_ptr().addr()
}

fn mark_at(space: &Space, addr: usize) -> Option<Mark> {
    space.region_at(addr, 1).map(|(_, mark)| mark)
}

/// A migrant buffer filled with a pattern.
fn filled(space: &Space, len: usize, strong: bool, seed: u64) -> Migrant {
    let mut migrant = space.allocate_migrant(len, strong).unwrap();
    migrant.copy_from_slice(&pattern(seed, len));
    migrant
}

fn a_hidden_region_is_inaccessible_and_keeps_its_bytes(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let len = 2 * granule;
    let migrant = filled(&space, len, true, 1);
    let (addr, data) = (addr_of(&migrant), pattern(1, len));
    let before = frame(addr);
    let (mut emigrating, reference) = migrant.emigrate_referenced().unwrap();
    assert_eq!(emigrating.hide().unwrap(), 2);
    for at in [addr, addr + granule - 1, addr + len - 1] {
        let error = process::read_memory(process::own_pid(), at, &mut [0]).unwrap_err();
        assert_eq!(error.errno, genie_sys::Errno::FAULT, "{error}");
    }
    same(&seen(&reference), &data, "the server's view");
    drop(reference);
    drop(emigrating);
    assert_eq!(checked(&space).queued, 2);

    let mut immigrating = space.dequeue(len, true).unwrap();
    assert_eq!(immigrating.addr(), addr);
    assert!(!is_accessible(addr), "visible before the reply");
    assert_eq!(immigrating.reinstate().unwrap(), 2);
    assert_eq!(immigrating.reinstate().unwrap(), 0, "it is accessible");
    let migrant = immigrating.arrive(len);
    same(&migrant, &data, "the reinstated region");
    assert_eq!(frame(addr), before, "something was copied");
    assert_eq!(checked(&space).queued, 0);
}

fn a_cached_region_stays_as_it_is(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let migrant = filled(&space, granule + 1, false, 1);
    let (addr, data) = (addr_of(&migrant), pattern(1, granule + 1));
    let before = frame(addr);
    drop(migrant.emigrate().unwrap());
    assert!(is_accessible(addr));
    assert_eq!(mark_at(&space, addr), Some(Mark::WeakEmigrant));
    let migrant = space.allocate_migrant(2 * granule, false).unwrap();
    assert_eq!(addr_of(&migrant), addr);
    assert_eq!(frame(addr), before);
    same(&migrant[..granule + 1], &data, "a cached region");
    assert!(!migrant.is_strong());
}

fn queues_give_the_region_used_last(machine: Machine) {
    let (space, granule) = (machine.space(16), machine.granule());
    for strong in [true, false] {
        let migrants: Vec<_> = (1..5)
            .map(|granules| space.allocate_migrant(granules % 3 * granule + 1, strong).unwrap())
            .collect();
        let addresses: Vec<_> = migrants.iter().map(addr_of).collect();
        migrants.into_iter().for_each(|migrant| drop(migrant.emigrate().unwrap()));
        // The first and the fourth are of the same length; the other queue has none of it.
        let other = space.allocate_migrant(2 * granule, !strong).unwrap();
        assert!(!addresses.contains(&addr_of(&other)));
        let again: Vec<_> = (0..3).map(|_| space.allocate_migrant(2 * granule, strong).unwrap()).collect();
        let found: Vec<_> = again.iter().map(addr_of).collect();
        assert_eq!(found[..2], [addresses[3], addresses[0]], "not the last one first");
        assert!(!addresses.contains(&found[2]), "a region of another length");
        let least = space.allocate_migrant(1, strong).unwrap();
        assert_eq!(addr_of(&least), addresses[2]);
        checked(&space);
    }
}

fn a_failed_output_gives_the_buffer_back(machine: Machine) {
    let (space, len) = (machine.space(4), machine.granule() + 7);
    for (strong, hide) in [(true, true), (true, false), (false, false)] {
        let migrant = filled(&space, len, strong, 3);
        let addr = addr_of(&migrant);
        let mut emigrating = migrant.emigrate().unwrap();
        if hide {
            emigrating.hide().unwrap();
        }
        let mut migrant = emigrating.give_back().unwrap();
        assert_eq!((addr_of(&migrant), migrant.len(), migrant.is_strong()), (addr, len, strong));
        same(&migrant, &pattern(3, len), "the buffer given back");
        migrant.fill(0);
        assert_eq!(mark_at(&space, addr), Some(Mark::Immigrant));
        checked(&space);
    }
}

fn a_failed_input_puts_the_region_back(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let migrant = filled(&space, granule, true, 4);
    let addr = addr_of(&migrant);
    drop(migrant);
    let immigrating = space.dequeue(granule, true).unwrap();
    let reference = immigrating.reference().unwrap();
    drop(immigrating);
    assert!(!is_accessible(addr));
    assert_eq!((mark_at(&space, addr), checked(&space).queued), (Some(Mark::Emigrant), 1));
    drop(reference);
    let migrant = space.allocate_migrant(granule, true).unwrap();
    same(&migrant, &pattern(4, granule), "bytes of an input that failed untouched");
}

fn a_removed_region_keeps_its_granules_for_the_server(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let migrant = filled(&space, 2 * granule, true, 5);
    let (addr, region) = (addr_of(&migrant), migrant.region());
    let (emigrating, reference) = migrant.emigrate_referenced().unwrap();
    emigrating.remove().unwrap();
    assert!(!is_accessible(addr));
    assert_eq!(mark_at(&space, addr), None);
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.regions, usage.queued), (2, 0, 0));
    let fresh = space.allocate_migrant(2 * granule, true).unwrap();
    assert_ne!(fresh.region(), region);
    assert!(fresh.iter().all(|byte| *byte == 0));
    same(&seen(&reference), &pattern(5, 2 * granule), "the output");
    drop(reference);
    assert_eq!(checked(&space).deferred, 0);
}

fn what_is_dropped_half_way_is_kept_for_reuse(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    for strong in [true, false] {
        for stage in 0..4 {
            let migrant = space.allocate_migrant(granule, strong).unwrap();
            let addr = addr_of(&migrant);
            match stage {
                0 => drop(migrant),
                1 => drop(migrant.emigrate().unwrap()),
                2 => {
                    let mut emigrating = migrant.emigrate().unwrap();
                    emigrating.hide().unwrap();
                    drop(emigrating);
                }
                _ => {
                    drop(migrant.emigrate().unwrap());
                    drop(space.dequeue(granule, strong).unwrap());
                }
            }
            // What was hidden is an emigrant region, whatever it was meant for.
            let hidden = strong || stage == 2;
            let expected = if hidden { Mark::Emigrant } else { Mark::WeakEmigrant };
            assert_eq!(mark_at(&space, addr), Some(expected), "stage {stage}");
            assert_eq!(is_accessible(addr), !hidden, "stage {stage}");
            let mut again = space.allocate_migrant(granule, hidden).unwrap();
            assert_eq!(addr_of(&again), addr, "stage {stage}");
            again.fill(1);
            checked(&space);
        }
    }
}

fn marks_follow_the_region(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let migrant = space.allocate_migrant(granule, false).unwrap();
    let addr = addr_of(&migrant);
    let refused = |mark| {
        assert_eq!(mark_at(&space, addr), Some(mark));
        for direction in [Direction::In, Direction::Out] {
            let error = space.reference(addr, 1, direction).unwrap_err();
            assert_eq!(error, Error::Mark { addr, found: mark });
        }
    };
    assert_eq!(mark_at(&space, addr), Some(Mark::Immigrant));
    drop(space.reference(addr, granule, Direction::Out).unwrap());
    let emigrating = migrant.emigrate().unwrap();
    refused(Mark::Emigrating);
    drop(emigrating);
    refused(Mark::WeakEmigrant);
    let immigrating = space.dequeue(granule, false).unwrap();
    refused(Mark::Immigrating);
    let migrant = immigrating.arrive(granule);
    assert_eq!(mark_at(&space, addr), Some(Mark::Immigrant));
    drop(migrant);
    refused(Mark::WeakEmigrant);
    assert_eq!(checked(&space).references, 0);
}

fn an_input_fills_a_cached_region(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    for strong in [true, false] {
        let migrant = filled(&space, 2 * granule, strong, 6);
        let addr = addr_of(&migrant);
        drop(migrant);
        let mut immigrating = space.dequeue(granule + 100, strong).unwrap();
        let reference = immigrating.reference().unwrap();
        let data = pattern(7, granule + 100);
        scatter(&server(&reference), &data);
        immigrating.check(&reference).unwrap();
        drop(reference);
        immigrating.reinstate().unwrap();
        let migrant = immigrating.arrive(data.len());
        assert_eq!(addr_of(&migrant), addr);
        same(&migrant, &data, "the input");
        checked(&space);
    }
}

/// A buffer that is output by emulated copy and then moved away: the next input into its region must not reach the first
/// output.
fn output_by_copy_on_write_survives_the_regions_departure(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let len = 2 * machine.granule();
    for strong in [true, false] {
        let migrant = filled(&space, len, strong, 8);
        let reference = output_of(&space, addr_of(&migrant), len);
        drop(migrant);
        let mut immigrating = space.dequeue(len, strong).unwrap();
        let input = immigrating.reference().unwrap();
        scatter(&server(&input), &pattern(9, len));
        same(&seen(&reference), &pattern(8, len), "the output under an input");
        drop(input);
        immigrating.reinstate().unwrap();
        let mut migrant = immigrating.arrive(len);
        same(&migrant, &pattern(9, len), "the input");
        migrant.fill(1);
        same(&seen(&reference), &pattern(8, len), "the output under stores");
        drop((reference, migrant));
        checked(&space);
    }
}

fn a_system_buffer_becomes_a_region_with_nothing_else_in_it(machine: Machine) {
    let (space, granule) = (machine.space(64), machine.granule());
    let granules = machine.windowed();
    for (offset, len, filled) in [
        (0, granule, granule),
        (0, granule, 10),
        (33, 2 * granule, 2 * granule - 1),
        (granule - 1, 2, 1),
        (5, granules * granule - 5, granules * granule - 100),
        (5, granules * granule - 5, 0),
    ] {
        let mut system = space.aligned_buffer(offset, len).unwrap();
        // What others left there, beside the data as well.
        let rounded = (offset + len).div_ceil(granule) * granule;
        let mut dirty = space.aligned_buffer(0, rounded).unwrap();
        std::mem::swap(&mut system, &mut dirty);
        drop(dirty);
        system.data().fill(0xdd);
        drop(system);
        let mut system = space.aligned_buffer(offset, len).unwrap();
        let data = pattern(10, len);
        scatter(&system.data(), &data);
        let (migrant, zeroed) = space.region_from(&mut system, filled).unwrap();
        // The region consists of the granules that hold data, at least one; the buffer keeps the others.
        let kept = rounded;
        let rounded = (offset + filled).div_ceil(granule).max(1) * granule;
        assert_eq!(zeroed, rounded - filled, "{filled} of {len} bytes at {offset}");
        same(&migrant, &data[..filled], "the migrant buffer");
        assert_eq!(addr_of(&migrant) % granule, offset);
        let mut whole = vec![1; rounded];
        let start = addr_of(&migrant) - offset;
        assert_eq!(process::read_memory(process::own_pid(), start, &mut whole).unwrap(), rounded);
        whole[offset..offset + filled].fill(0);
        assert!(whole.iter().all(|byte| *byte == 0), "another party's bytes in the region");
        assert!(system.is_empty());
        let usage = checked(&space);
        let in_use = (usage.system as usize, usage.regions as usize - usage.queued as usize);
        assert_eq!(in_use, ((kept - rounded) / granule, rounded / granule));
        system.refill(len).unwrap();
        assert_eq!(checked(&space).system as usize, kept / granule);
        scatter(&system.data(), &data);
        same(&system.data().to_vec(), &data, "the refilled buffer");
        same(&migrant, &data[..filled], "the migrant buffer after the refill");
        assert_eq!(mark_at(&space, start), Some(Mark::Immigrant));
    }
}

fn a_part_of_a_migrant_buffer_can_arrive(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let immigrating = space.dequeue(2 * granule, true).unwrap();
    let migrant = immigrating.arrive(granule + 1).truncated(granule);
    assert_eq!(migrant.len(), granule);
    let (mut emigrating, reference) = migrant.emigrate_referenced().unwrap();
    assert_eq!(reference.data().to_vec().len(), granule);
    drop(reference);
    assert_eq!(emigrating.hide().unwrap(), 2, "a region is hidden whole");
}

fn a_region_referenced_as_it_changes_hands_is_referenced_until_it_has(machine: Machine) {
    for strong in [true, false] {
        let (space, granule) = (machine.space(4), machine.granule());
        let migrant = filled(&space, granule + 1, strong, 6);
        let addr = addr_of(&migrant);
        let (emigrating, reference) = migrant.emigrate_referenced().unwrap();
        assert_eq!((mark_at(&space, addr), checked(&space).references), (Some(Mark::Emigrating), 2));
        same(&seen(&reference), &pattern(6, granule + 1), "the output");
        assert_eq!(emigrating.enqueue_released(reference).faults, 0);
        assert_eq!((checked(&space).references, checked(&space).queued), (0, 2));

        let (mut immigrating, reference) = space.dequeue_referenced(granule + 1, strong).unwrap();
        assert_eq!(immigrating.addr(), addr);
        assert_eq!((mark_at(&space, addr), checked(&space).references), (Some(Mark::Immigrating), 2));
        scatter(&server(&reference), &vec![7; granule + 1]);
        immigrating.reinstate().unwrap();
        let (migrant, _) = immigrating.arrive_released(reference, 8).unwrap();
        assert_eq!((&migrant[..], mark_at(&space, addr)), (&[7; 8][..], Some(Mark::Immigrant)));
        assert_eq!((checked(&space).references, checked(&space).queued), (0, 0));
    }
}

/// The output's granule is protected, or, where nothing can be, replaced in the region when the output's borrow ends.
fn a_region_that_is_taken_for_input_spares_an_output_pending_from_it(machine: Machine) {
    for space in [machine.space(4), machine.space_with(4, |config| config.faults = Faults::Never)] {
        let granule = machine.granule();
        let migrant = filled(&space, granule, false, 8);
        let addr = addr_of(&migrant);
        let output = space.reference(addr, granule, Direction::Out).unwrap();
        let kept = space.end_borrow(addr, granule).unwrap();
        let is_protected = !matches!(space.protection(), Protection::None(_));
        assert_eq!((kept.protected, kept.replaced), if is_protected { (1, 0) } else { (0, 1) });
        drop(migrant);
        let (immigrating, reference) = space.dequeue_referenced(granule, false).unwrap();
        assert_eq!(immigrating.addr(), addr);
        scatter(&server(&reference), &vec![9; granule]);
        same(&seen(&output), &pattern(8, granule), "the output");
        let (migrant, _) = immigrating.arrive_released(reference, granule).unwrap();
        assert!(migrant.iter().all(|byte| *byte == 9), "the input");
        drop(output);
        assert_eq!(checked(&space).references, 0);
    }
}

/// Granules were counted in 32 bits without a check: 2^32 of them and one more were found in a cached region of one, and the
/// migrant buffer covered 16 TiB of other buffers' addresses.
fn a_length_beyond_all_addresses_fits_no_cached_region(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    for strong in [true, false] {
        drop(space.allocate_migrant(granule, strong).unwrap());
        for len in [(granule << 32) + 1, (granule << 32) + granule] {
            let attempts = [
                space.allocate_migrant(len, strong).map(|_| ()),
                space.dequeue(len, strong).map(|_| ()),
                space.dequeue_referenced(len, strong).map(|_| ()),
            ];
            for attempt in attempts {
                let error = attempt.expect_err("no region is that long");
                assert!(matches!(error, Error::Limit { .. }), "{error}");
            }
        }
    }
    assert_eq!(checked(&space).queued, 2);
}

/// A reference was unreferenced in the tables of whichever space ended an input or output with it: an output that was pending
/// from the granules of the same numbers there lost its protection and changed under its server's eyes.
fn a_reference_of_another_space_ends_no_input_or_output(machine: Machine) {
    let (Some(space), Some(other)) = (machine.protecting_space(8), machine.protecting_space(8)) else {
        return;
    };
    let granule = machine.granule();
    let (mut buffer, foreign) = (space.allocate(granule).unwrap(), other.allocate(granule).unwrap());
    buffer.fill(1);
    let output = output_of(&space, buffer.addresses().start, granule);
    let uses: [fn(&Space, Reference); 4] = [
        |space, reference| {
            space.allocate_migrant(1, false).unwrap().emigrate().unwrap().enqueue_released(reference);
        },
        |space, reference| drop(space.dequeue(1, false).unwrap().arrive_released(reference, 1)),
        |space, reference| drop(space.dequeue(1, false).unwrap().check(&reference)),
        |space, reference| drop(space.read_only(&reference)),
    ];
    for ends in uses {
        let reference = other.reference(foreign.addresses().start, granule, Direction::Out).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| ends(&space, reference)));
        let panic = result.expect_err("a reference of another space is refused");
        assert_eq!(panic.downcast_ref(), Some(&"a reference of another space was to be used"));
        assert_eq!((checked(&space).references, checked(&other).references), (1, 0));
    }
    buffer.fill(2);
    same(&seen(&output), &vec![1; granule], "the output");
}

/// A region that had been hidden could become a migrant buffer while it was inaccessible: reading that, in safe code, was a
/// fatal fault, and so was a delivery to it.
fn a_hidden_region_never_arrives_before_it_is_reinstated(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    drop(filled(&space, granule, true, 3));
    let uses: [fn(Immigrating, Reference, &Space); 3] = [
        |immigrating, _, _| drop(immigrating.arrive(1)),
        |immigrating, reference, _| drop(immigrating.arrive_released(reference, 1)),
        |mut immigrating, _, space| {
            let mut system = space.system_buffer(1).unwrap();
            drop(immigrating.delivery(1).unwrap().from_one(&mut system, &(0..0)));
        },
    ];
    for early in uses {
        let (immigrating, reference) = space.dequeue_referenced(granule, true).unwrap();
        assert!(!is_accessible(immigrating.addr()));
        let result = catch_unwind(AssertUnwindSafe(|| early(immigrating, reference, &space)));
        let panic = result.expect_err("an inaccessible region is not used");
        assert_eq!(panic.downcast_ref(), Some(&"a hidden region was to be used before it was reinstated"));
        let usage = checked(&space);
        assert_eq!((usage.references, usage.queued), (0, 1), "it is kept for reuse");
    }
    same(&space.allocate_migrant(granule, true).unwrap(), &pattern(3, granule), "the region");
}

fn a_part_is_passed_on_and_the_buffer_can_be_widened_again(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let (len, data) = (granule + 1000, pattern(7, granule + 1000));
    let migrant = filled(&space, len, false, 7);
    let (addr, before) = (addr_of(&migrant), frame(addr_of(&migrant)));
    let (emigrating, reference) = migrant.part(10..len - 10).part(90..granule).emigrate_referenced().unwrap();
    same(&seen(&reference), &data[100..granule + 10], "the server's view");
    drop(reference);
    let migrant = emigrating.give_back().unwrap();
    assert_eq!((addr_of(&migrant), migrant.len()), (addr + 100, granule - 90));
    let migrant = migrant.widened(100, len);
    same(&migrant, &data, "the buffer that came back");
    assert_eq!((addr_of(&migrant), frame(addr)), (addr, before), "something was copied");
    let beyond = |before, len| {
        let migrant = filled(&space, granule, false, 8).part(100..200);
        catch_unwind(AssertUnwindSafe(|| migrant.widened(before, len))).unwrap_err();
    };
    beyond(101, 200);
    beyond(100, granule + 1);
    drop(migrant);
    checked(&space);
}
