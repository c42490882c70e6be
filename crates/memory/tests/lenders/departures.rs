//! Departures: what becomes of a lender's memory when the lender goes.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::{Lender, swap_all};
use crate::machine::{self, Machine, checked, is_accessible, pattern, proc, same, scatter, seen};
use genie_memory::{Direction, Error};
use genie_sys::Object;

on_each_kind!(
    a_lender_without_granules_in_use_goes_at_once,
    a_lender_s_object_stays_as_long_as_a_client_holds_a_part,
    buffers_in_use_outlive_their_lender,
    chunks_in_use_outlive_their_lender,
    granules_of_a_lender_that_is_gone_do_not_wait_for_reuse,
    memory_of_a_lender_that_is_gone_is_given_back,
    thousands_of_lenders_leave_nothing_behind,
);

fn a_lender_without_granules_in_use_goes_at_once(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let system = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    let chunk = space.system_buffer_shown(lender.id, lender.id, 10).unwrap();
    let alias = system.segments()[0].addr();
    assert!(is_accessible(alias));
    drop((system, chunk));
    space.remove_lender(lender.id);
    assert!(!is_accessible(alias), "the aliases are unmapped");
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.pooled, usage.free), (1, 0, 0, 4));
    assert_eq!((space.object_at(lender.start), space.pool_size(lender.id)), (None, None));
    assert_eq!(space.share(lender.object).unwrap_err(), Error::NoObject);
    // Places are used again, but names never are.
    let next = Lender::of(&space, &machine, 3);
    assert_eq!(next.start, lender.start);
    assert!(next.object != lender.object && next.id != lender.id);
    checked(&space);
}

fn a_lender_s_object_stays_as_long_as_a_client_holds_a_part(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let mut buffer = space.allocate(granule).unwrap();
    buffer.fill(7);
    let mut system = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    let data = pattern(1, granule);
    scatter(&system.data(), &data);
    space.deliver(&mut system, &mut buffer[..granule], &swap_all(1)).unwrap();
    drop(system);
    space.remove_lender(lender.id);
    same(&buffer, &data, "the client's buffer");
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.retired, usage.regions, usage.free), (2, 2, 1, 4));
    // With an output pending, the granule is not yet back when the buffer goes.
    let reference = space.reference(buffer.addresses().start, granule, Direction::Out).unwrap();
    drop(buffer);
    same(&seen(&reference), &data, "the output");
    assert_eq!(checked(&space).objects, 2);
    drop(reference);
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.free), (1, 0, 4));
    assert_eq!(space.object_at(lender.start), None);
}

fn buffers_in_use_outlive_their_lender(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let mut buffer = space.allocate(2 * granule).unwrap();
    let mut system = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    let other = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    let data = pattern(1, 2 * granule);
    scatter(&system.data(), &data);
    space.remove_lender(lender.id);
    assert_eq!(checked(&space).system, 3);
    let passed = space.deliver(&mut system, &mut buffer[..data.len()], &swap_all(2)).unwrap();
    assert_eq!(passed.swapped, 2);
    same(&buffer, &data, "the input");
    checked(&space);
    drop(system);
    let usage = checked(&space);
    assert_eq!((usage.system, usage.regions, usage.free, usage.objects), (1, 2, 4, 2));
    drop(other);
    assert_eq!(checked(&space).retired, 1);
    buffer.fill(1);
    drop(buffer);
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.free), (1, 0, 4));
}

fn chunks_in_use_outlive_their_lender(machine: Machine) {
    let space = machine.space(2);
    let lender = Lender::of(&space, &machine, 1);
    let chunk = space.system_buffer_shown(lender.id, lender.id, 100).unwrap();
    scatter(&chunk.data(), &[5; 100]);
    space.remove_lender(lender.id);
    checked(&space);
    assert!(chunk.data().to_vec().iter().all(|byte| *byte == 5));
    drop(chunk);
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.pooled), (1, 0, 0));
}

/// An own system buffer, and a cached region, may hold granules that were swapped in from a lender.
fn granules_of_a_lender_that_is_gone_do_not_wait_for_reuse(machine: Machine) {
    let (space, granule) = (machine.space(6), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let mut system = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    let (migrant, _) = space.region_from(&mut system, granule).unwrap();
    drop(migrant);
    let mut buffer = space.allocate(granule).unwrap();
    let mut lent = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    space.deliver(&mut lent, &mut buffer[..granule], &swap_all(1)).unwrap();
    let mut own = space.aligned_buffer(0, granule).unwrap();
    space.deliver(&mut own, &mut buffer[..granule], &swap_all(1)).unwrap();
    buffer.fill(1);
    let mut system = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    let (held, _) = space.region_from(&mut system, granule).unwrap();
    drop((lent, own));
    let usage = checked(&space);
    assert_eq!((usage.queued, usage.pooled), (1, 2));
    space.remove_lender(lender.id);
    let usage = checked(&space);
    assert_eq!((usage.queued, usage.pooled, usage.retired), (0, 0, 2));
    // Nor does what is passed on only now.
    drop(held);
    let usage = checked(&space);
    let free = machine.first_object(6) as u32 - 1;
    assert_eq!((usage.queued, usage.pooled, usage.objects, usage.free), (0, 0, 1, free));
}

/// Neither windows nor the addresses through which page tables are swapped keep a lent object.
fn memory_of_a_lender_that_is_gone_is_given_back(machine: Machine) {
    let (granules, granule) = (machine.windowed(), machine.granule());
    let (space, len) = (machine.space(2 * granules), granules * granule);
    let lender = space.add_lender();
    let object = Object::create(machine.kind, 2 * len).unwrap();
    let inode = File::from(object.as_fd().try_clone_to_owned().unwrap()).metadata().unwrap().ino();
    machine::lend(&space, lender, object).unwrap();
    let mut buffer = space.allocate(len).unwrap();
    for _ in 0..4 {
        let mut system = space.aligned_buffer_from(lender, 0, len).unwrap();
        let passed = space.deliver(&mut system, &mut buffer[..len], &swap_all(granules)).unwrap();
        assert_eq!(passed.swapped as usize, granules);
    }
    assert!(is_mapped(inode));
    drop(buffer);
    space.remove_lender(lender);
    assert_eq!(checked(&space).lent, 0);
    assert!(!is_mapped(inode), "{}", std::fs::read_to_string("/proc/self/maps").unwrap());
}

/// Whether a part of this file is mapped anywhere in this process.
fn is_mapped(inode: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
}

/// A client's buffers live through thousands of connections, each of which swaps pages into them.
fn thousands_of_lenders_leave_nothing_behind(machine: Machine) {
    let (space, granule, granules) =
        (machine.space(3 * machine.windowed()), machine.granule(), machine.windowed());
    let mut buffers: Vec<_> = [granules, 1].map(|count| space.allocate(count * granule).unwrap()).into();
    let rounds = if machine.is_large() { 200 } else { 3000 };
    let before = checked(&space);
    let (mappings, descriptors) = (proc::mapping_count(), proc::open_descriptors());
    for round in 0..rounds {
        let lender = space.add_lender();
        machine::lend(&space, lender, Object::create(machine.kind, (granules + 1) * granule).unwrap())
            .unwrap();
        let buffer = &mut buffers[usize::from(round % 3 == 0)];
        let len = buffer.len();
        let mut system = space.aligned_buffer_from(lender, 0, len).unwrap();
        system.data().part(0..1).fill(round as u8);
        let passed = space.deliver(&mut system, &mut *buffer, &swap_all(len / granule)).unwrap();
        assert_eq!((passed.swapped as usize, buffer[0]), (len / granule, round as u8));
        drop(space.system_buffer_shown(lender, lender, 64).unwrap());
        if round % 5 == 0 {
            space.remove_lender(lender);
            drop(system);
        } else {
            drop(system);
            space.remove_lender(lender);
        }
        if round % 50 == 0 {
            let usage = checked(&space);
            // At most what the two buffers show, each of another lender.
            assert!(usage.objects <= 4, "{usage:?}");
        }
    }
    // What tests beside this one have mapped and opened goes away with them; what was left behind would stay.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let now = (proc::mapping_count(), proc::open_descriptors());
        if now.0 < mappings + 150 && now.1 < descriptors + 100 {
            break;
        }
        assert!(Instant::now() < end, "{now:?}, {mappings} and {descriptors} before");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!space.is_broken());
    drop(buffers);
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.retired), (before.objects, 0, 0));
    assert_eq!(usage.free, before.free + before.regions);
}
