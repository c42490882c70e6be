//! Transient output copy-on-write: what a server sees, and what a client may do meanwhile; page frames prove both.

use std::io::{Read, Write};

use crate::machine::{Machine, checked, frame, output, output_of, pattern, proc, same, seen, server};
use genie_memory::{Buffer, Direction, Error, Faults, Protection, Reference, Space, Stakes};
use genie_sys::userfault::{Userfault, Way};

on_each_kind!(
    a_store_after_output_does_not_reach_the_server,
    a_store_replaces_one_granule_and_no_other,
    overwriting_a_long_pending_output_takes_few_faults,
    a_store_with_no_output_pending_keeps_the_frame,
    several_outputs_of_one_granule_each_keep_their_bytes,
    the_kernels_stores_are_caught_too,
    output_outlives_its_buffer_and_its_replacements,
    an_output_without_stores_is_unprotected_when_it_completes,
    stores_into_a_long_run_rarely_fault_once_it_is_unprotected,
    a_region_at_rest_stays_protected_until_a_store,
    an_output_too_short_to_protect_is_spared_a_copy_while_the_client_does_not_store,
    a_trial_of_one_part_of_a_region_says_nothing_of_the_others,
    write_permission_waits_for_the_last_output,
    without_a_free_granule_one_cached_is_taken,
    an_input_in_place_leaves_pending_output_alone,
    output_under_an_input_in_place_is_not_protected,
    output_of_a_removed_region_needs_no_protection,
    a_region_whose_faults_cost_too_much_is_copied,
    user_mode_only_needs_a_promise,
    user_mode_only_catches_stores_and_refuses_the_kernels,
    without_faults_output_cannot_be_protected,
);

/// Overwrites all of a buffer while an output of it is pending; returns the output, and the bytes that the buffer has then.
fn overwritten(space: &Space, buffer: &mut Buffer) -> (Reference, Vec<u8>) {
    let [before, after] = [1, 2].map(|seed| pattern(seed, buffer.len()));
    buffer.copy_from_slice(&before);
    let reference = output(space, buffer);
    // In ascending order, which the C library's copies do not promise.
    buffer.chunks_mut(4096).zip(after.chunks(4096)).for_each(|(part, after)| part.copy_from_slice(after));
    same(&seen(&reference), &before, "the server's view");
    same(buffer, &after, "the client's view");
    (reference, after)
}

fn a_store_after_output_does_not_reach_the_server(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(2 * machine.granule()).unwrap();
    let (reference, after) = overwritten(&space, &mut buffer);
    let statistics = space.statistics();
    assert_eq!((statistics.replacements, statistics.waits), (2, 0), "{statistics:?}");
    checked(&space);
    assert_eq!(reference.release().faults, 2);
    same(&buffer, &after, "the client's view after the reply");
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.references, usage.regions), (0, 0, 2));
}

fn a_store_replaces_one_granule_and_no_other(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let start = buffer.addresses().start;
    let frames = || (0..3).map(|at| frame(start + at * granule)).collect::<Vec<_>>();
    let before = frames();
    let reference = output(&space, &buffer);
    buffer[granule + 7] = 2;
    // Protection of collapsed pages empties page tables, which loads fill again.
    assert!(buffer.iter().step_by(4096).all(|byte| *byte == 1));
    let after = frames();
    assert!(buffer[granule..2 * granule].iter().enumerate().all(|(at, byte)| *byte == 1 + u8::from(at == 7)));
    if machine.frame(start).is_some() {
        assert_eq!((after[0], after[2]), (before[0], before[2]), "a neighbour was copied");
        assert_ne!(after[1], before[1], "the granule was not replaced");
        let server = reference.segments()[0].addr();
        assert_eq!(frame(server + granule), before[1], "the server was given a copy");
    }
    assert_eq!(space.statistics().replacements, 1);
    drop(reference);
    checked(&space);
}

/// The sixteenth output in a row is left protected, to see whether the client stores.
fn a_store_with_no_output_pending_keeps_the_frame(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(machine.granule()).unwrap();
    buffer.fill(1);
    let start = buffer.addresses().start;
    let before = frame(start);
    (0..16).for_each(|_| drop(output(&space, &buffer)));
    assert!(proc::page_frames(start, 1)[0].write_protected, "nothing is left to try");
    buffer[3] = 9;
    assert_eq!(buffer[..5], [1, 1, 1, 9, 1]);
    assert_eq!(frame(start), before, "a granule was replaced for nobody");
    let statistics = space.statistics();
    assert_eq!((statistics.faults, statistics.replacements), (1, 0), "{statistics:?}");
    checked(&space);
}

fn several_outputs_of_one_granule_each_keep_their_bytes(machine: Machine) {
    let Some(space) = machine.protecting_space(20) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    let start = buffer.addresses().start;
    let mut pending = Vec::new();
    for step in 0..8u8 {
        // Two outputs of the same bytes each time, of unlike lengths, across the border of two granules.
        buffer[granule - 8..granule + 8].fill(step);
        pending.push((step, output_of(&space, start + granule - 8, 16)));
        pending.push((step, output_of(&space, start + granule - 4, 6)));
        if step % 2 == 1 {
            pending.swap_remove(usize::from(step) / 2);
        }
        for (step, reference) in &pending {
            assert!(seen(reference).iter().all(|byte| byte == step), "an output of step {step} changed");
        }
        checked(&space);
    }
    while let Some((step, reference)) = pending.pop() {
        assert!(seen(&reference).iter().all(|byte| *byte == step), "an output of step {step} changed");
        drop(reference);
        checked(&space);
    }
    assert_eq!(checked(&space).deferred, 0);
}

fn the_kernels_stores_are_caught_too(machine: Machine) {
    let Some(space) = machine.protecting_space(12) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    let before = pattern(1, buffer.len());
    buffer.copy_from_slice(&before);
    let reference = output(&space, &buffer);

    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"from a pipe").unwrap();
    reader.read_exact(&mut buffer[granule - 5..granule + 6]).unwrap();
    same(&seen(&reference), &before, "the server's view after a read from a pipe");
    assert_eq!(buffer[granule - 6..granule + 7][1..12], *b"from a pipe");

    let second = output(&space, &buffer);
    let zeros = std::fs::File::open("/dev/zero").unwrap().read(&mut buffer).unwrap();
    assert_eq!(zeros, 2 * granule);
    same(&seen(&reference), &before, "the first output after a read of everything");
    assert_eq!(seen(&second)[granule - 5..granule + 6], *b"from a pipe");
    assert!(buffer.iter().all(|byte| *byte == 0));
    assert_eq!(space.statistics().replacements, 4);
    drop((reference, second));
    checked(&space);
}

fn output_outlives_its_buffer_and_its_replacements(machine: Machine) {
    let Some(space) = machine.protecting_space(12) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    let first = pattern(1, buffer.len());
    buffer.copy_from_slice(&first);
    let before = output(&space, &buffer);
    buffer[granule] ^= 0xff;
    let second = buffer.to_vec();
    let after = output(&space, &buffer);
    drop(buffer);
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.regions), (4, 0), "three granules and one replaced");
    let mut other = space.allocate(8 * granule).unwrap();
    other.fill(0xcc);
    same(&seen(&before), &first, "the first output");
    same(&seen(&after), &second, "the second output");
    drop(before);
    assert_eq!(checked(&space).deferred, 3);
    same(&seen(&after), &second, "the second output after the first");
    drop(after);
    assert_eq!(checked(&space).deferred, 0);
}

fn an_output_without_stores_is_unprotected_when_it_completes(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(4 * machine.granule()).unwrap();
    for round in 1..=15u8 {
        buffer.fill(round);
        let reference = output(&space, &buffer);
        let protected = proc::page_frames(buffer.addresses().start, buffer.len());
        assert!(protected.iter().all(|page| page.write_protected), "a page is writable under output");
        drop(reference);
        let protected = proc::page_frames(buffer.addresses().start, buffer.len());
        assert!(!protected.iter().any(|page| page.write_protected), "a page stayed protected");
    }
    let statistics = space.statistics();
    assert_eq!((statistics.faults, statistics.protected, statistics.reinstated), (0, 60, 60));
}

/// Unprotecting 4 KiB pages leaves a fault for the next store into each of them, which costs more than copying the page.
fn stores_into_a_long_run_rarely_fault_once_it_is_unprotected(machine: Machine) {
    let Some(space) = machine.protecting_space(if machine.is_large() { 8 } else { 1024 }) else { return };
    let mut buffer = space.allocate((1 << 20).max(machine.granule())).unwrap();
    let pages = buffer.len() as u64 / 4096;
    let mut store = |value: u8| {
        let before = proc::minor_faults();
        buffer.iter_mut().step_by(4096).for_each(|byte| *byte = value);
        let faults = proc::minor_faults() - before;
        // A sanitizer notes stores in memory of its own, which it maps anew with the pages, and which faults then.
        assert!(cfg!(sanitized) || faults < pages / 8, "{faults} faults for {pages} pages");
        assert!(buffer.iter().step_by(4096).all(|byte| *byte == value));
        output(&space, &buffer)
    };
    // Replies unprotect the runs of fifteen outputs; the sixteenth is left protected, so that a store unprotects it.
    (1..=17).for_each(|value| drop(store(value)));
    let statistics = space.statistics();
    assert_eq!((statistics.faults, statistics.replacements), (1, 0), "{statistics:?}");
    checked(&space);
}

fn a_region_at_rest_stays_protected_until_a_store(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(4 * machine.granule()).unwrap();
    (0..16).for_each(|_| drop(output(&space, &buffer)));
    let before = space.statistics();
    for _ in 0..50 {
        let reference = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
        assert_eq!(space.read_only(&reference).unwrap(), 0, "it was protected again");
    }
    assert_eq!(space.statistics(), before, "a region at rest costs nothing");
    // One fault frees all of it, wherever the store is.
    buffer.iter_mut().rev().for_each(|byte| *byte = 5);
    let after = space.statistics();
    assert_eq!((after.faults - before.faults, after.reinstated - before.reinstated), (1, 4));
    assert_eq!(after.replacements, 0);
    drop(output(&space, &buffer));
    buffer.fill(6);
    assert_eq!(space.statistics().faults, after.faults, "a region that woke up faults again");
}

/// Four copies cost as much as a failed trial: the first trial comes with the 32nd output.
const SHORT: Stakes = Stakes { copying: 10_000, protecting: 15_000 };

fn an_output_too_short_to_protect_is_spared_a_copy_while_the_client_does_not_store(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    space.set_replacement_cost(25_000);
    let mut buffer = space.allocate(2 * machine.granule()).unwrap();
    let (addr, len) = (buffer.addresses().start, buffer.len());
    let pass = || {
        let spared = space.spares_copy(addr, len, SHORT);
        spared.then(|| drop(output_of(&space, addr, len)));
        spared
    };
    assert_eq!((1..=200).find(|_| pass()), Some(32), "the first trial");
    let before = space.statistics();
    assert!((0..200).all(|_| pass()), "a region at rest was to be copied");
    assert_eq!(space.statistics(), before, "a region at rest costs nothing");
    buffer[len - 1] = 1;
    buffer[0] = 1;
    assert_eq!(space.statistics().faults, before.faults + 1, "one store frees all of the region");
    // What rest has saved pays for the next trial, which fails; the one after that is put off for twice as long.
    assert!(pass());
    buffer[0] = 2;
    let copied = (0..1000).take_while(|_| !pass()).count();
    assert_eq!(copied, 2 * 32 - 1);
    checked(&space);
}

/// An owner that uses the parts of its region in turn never stores into the part that is on trial before it outputs others.
fn a_trial_of_one_part_of_a_region_says_nothing_of_the_others(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    space.set_replacement_cost(25_000);
    let granule = machine.granule();
    let mut buffer = space.allocate(4 * granule).unwrap();
    let addr = buffer.addresses().start;
    let mut spared = 0;
    for round in 0..95 {
        let part = addr + round % 4 * granule;
        buffer[round % 4 * granule] = round as u8;
        if space.spares_copy(part, granule, SHORT) {
            spared += 1;
            drop(output_of(&space, part, granule));
        }
    }
    assert_eq!((spared, space.statistics().faults), (1, 1), "of 95 outputs");
}

fn write_permission_waits_for_the_last_output(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(4 * granule).unwrap();
    let start = buffer.addresses().start;
    let protected = |at: usize| proc::page_frames(start + at * granule, 1)[0].write_protected;
    let whole = output(&space, &buffer);
    let part = output_of(&space, start + granule, 2 * granule);
    drop(whole);
    assert!(protected(1) && protected(2), "a pending output lost its protection");
    buffer[granule] = 1;
    assert_eq!(seen(&part)[0], 0);
    drop(part);
    assert!((0..4).all(|at| !protected(at)), "neighbours stayed protected");
    checked(&space);
}

fn without_a_free_granule_one_cached_is_taken(machine: Machine) {
    let Some(space) = machine.protecting_space(4) else { return };
    let granule = machine.granule();
    drop(space.aligned_buffer(0, granule).unwrap());
    drop(space.allocate_migrant(granule, true).unwrap());
    let mut buffer = space.allocate(2 * granule).unwrap();
    let reference = output(&space, &buffer);
    buffer.fill(1);
    assert!(seen(&reference).iter().all(|byte| *byte == 0));
    let statistics = space.statistics();
    assert_eq!((statistics.waits, statistics.replacements), (0, 2), "{statistics:?}");
    let usage = checked(&space);
    assert_eq!((usage.pooled, usage.queued, usage.deferred), (0, 0, 2));
}

fn an_input_in_place_leaves_pending_output_alone(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(1);
    let start = buffer.addresses().start;
    let out = output(&space, &buffer);
    let input = space.reference(start + granule - 10, 20, Direction::In).unwrap();
    server(&input).fill(2);
    assert!(seen(&out).iter().all(|byte| *byte == 1), "the output changed");
    let fresh = |at: &usize| (granule - 10..granule + 10).contains(at);
    assert!(buffer.iter().enumerate().all(|(at, byte)| *byte == 1 + u8::from(fresh(&at))));
    checked(&space);
    drop((out, input));
    assert!(buffer.iter().enumerate().all(|(at, byte)| *byte == 1 + u8::from(fresh(&at))));
    checked(&space);
}

/// Of 512 granules of 4 KiB, the first two fault, and then each 64th.
fn overwriting_a_long_pending_output_takes_few_faults(machine: Machine) {
    let Some(space) = machine.protecting_space(if machine.is_large() { 8 } else { 2048 }) else { return };
    space.set_replacement_cost(15_000);
    let mut buffer = space.allocate((2 << 20).max(2 * machine.granule())).unwrap();
    let (reference, after) = overwritten(&space, &mut buffer);
    let granules = buffer.len() / machine.granule();
    let statistics = space.statistics();
    assert_eq!(statistics.replacements, granules as u64);
    assert!(statistics.faults <= 1 + granules.div_ceil(64).max(1) as u64, "{statistics:?}");
    checked(&space);
    drop(reference);
    same(&buffer, &after, "the client's view after the reply");
    assert_eq!(checked(&space).deferred, 0);
    // Eight faults that replace 64 granules each have cost more than the output has saved.
    let next = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
    assert_eq!(space.read_only_if_it_pays(&next, STAKES).unwrap().is_none(), !machine.is_large());
}

/// The server's stores go through another address, where no protection stops them (thesis §3.2.4).
fn output_under_an_input_in_place_is_not_protected(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let buffer = space.allocate(2 * machine.granule()).unwrap();
    let start = buffer.addresses().start;
    let input = space.reference(start, 1, Direction::In).unwrap();
    let out = space.reference(start, buffer.len(), Direction::Out).unwrap();
    let error = space.read_only(&out).unwrap_err();
    assert!(matches!(error, Error::Unprotectable { .. }), "{error}");
    drop(input);
    assert_eq!(space.read_only(&out).unwrap(), 2);
}

fn output_of_a_removed_region_needs_no_protection(machine: Machine) {
    let Some(space) = machine.protecting_space(4) else { return };
    let mut buffer = space.allocate(machine.granule()).unwrap();
    buffer.fill(1);
    let out = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
    drop(buffer);
    // The next region is at the same addresses, but other granules.
    let mut next = space.allocate(machine.granule()).unwrap();
    assert_eq!(space.read_only(&out).unwrap(), 0);
    next.fill(2);
    assert!(seen(&out).iter().all(|byte| *byte == 1));
    assert_eq!(space.statistics().faults, 0);
}

/// Protecting an output saves 100 us.
const STAKES: Stakes = Stakes { copying: 150_000, protecting: 50_000 };

fn a_region_whose_faults_cost_too_much_is_copied(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    space.set_replacement_cost(250_000);
    let mut buffer = space.allocate(machine.granule()).unwrap();
    let mut protected = 0;
    for round in 0..40 {
        let reference = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
        let outcome = space.read_only_if_it_pays(&reference, STAKES).unwrap();
        protected += u32::from(outcome.is_some());
        buffer[0] = round;
        drop(reference);
    }
    assert!((1..20).contains(&protected), "{protected} of 40 outputs were protected");
    assert_eq!(space.statistics().replacements, u64::from(protected));
    let other = space.allocate(machine.granule()).unwrap();
    let reference = space.reference(other.addresses().start, other.len(), Direction::Out).unwrap();
    assert_eq!(
        space.read_only_if_it_pays(&reference, STAKES).unwrap(),
        Some(1),
        "another region pays for it"
    );
}

/// Whether the kernel grants a userfaultfd that catches the program's stores; says so if not.
fn is_user_mode_granted(machine: &Machine) -> bool {
    let granted = Userfault::open_way(Way::UserModeOnly);
    if let Err(error) = &granted {
        machine.skip(&error.to_string());
    }
    granted.is_ok()
}

fn user_mode_only_needs_a_promise(machine: Machine) {
    if !is_user_mode_granted(&machine) {
        return;
    }
    let space = machine.space_with(4, |config| config.faults = Faults::Only(Way::UserModeOnly));
    assert!(matches!(space.protection(), Protection::None(_)), "{:?}", space.protection());
    assert_eq!(space.fault_way(), None);
    let buffer = space.allocate(machine.granule()).unwrap();
    let reference = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
    assert!(matches!(space.read_only(&reference), Err(Error::Unprotectable { .. })));
}

fn user_mode_only_catches_stores_and_refuses_the_kernels(machine: Machine) {
    if !is_user_mode_granted(&machine) {
        return;
    }
    let space = machine.space_with(4, |config| {
        config.faults = Faults::Only(Way::UserModeOnly);
        config.kernel_never_stores = true;
    });
    assert_eq!(space.protection(), Protection::StoresOnly);
    assert_eq!(space.fault_way(), Some(Way::UserModeOnly));
    let mut buffer = space.allocate(machine.granule()).unwrap();
    buffer.fill(1);
    let reference = output(&space, &buffer);
    let error = std::fs::File::open("/dev/zero").unwrap().read(&mut buffer[..100]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(genie_sys::Errno::FAULT.raw_os_error()), "{error}");
    buffer.fill(2);
    assert!(seen(&reference).iter().all(|byte| *byte == 1));
    assert!(buffer.iter().all(|byte| *byte == 2));
    assert_eq!(space.statistics().replacements, 1);
    drop(reference);
    checked(&space);
}

fn without_faults_output_cannot_be_protected(machine: Machine) {
    let space = machine.space_with(4, |config| config.faults = Faults::Never);
    assert!(matches!(space.protection(), Protection::None(_)));
    assert!(!space.can_swap_partial_granules());
    let mut buffer = space.allocate(machine.granule()).unwrap();
    let reference = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
    let error = space.read_only(&reference).unwrap_err();
    assert!(matches!(error, Error::Unprotectable { .. }), "{error}");
    buffer.fill(1);
    assert_eq!(seen(&reference)[0], 1, "an output that could not be protected is in place");
    drop(reference);
    checked(&space);
}
