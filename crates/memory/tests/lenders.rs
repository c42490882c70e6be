//! Lenders (thesis §5.2): pools of other parties' memory, adoption by page swapping, and what becomes of it all when a
//! lender goes.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::machine::{self, Machine, checked, is_accessible, output, pattern, same, scatter, seen};
use genie_memory::{Direction, Error, GranuleKind, InputPlan, LenderId, ObjectId, Passed, Space};
use genie_sys::{Arena, Object, inspect};

on_each_kind!(
    what_a_lender_stores_is_in_its_system_buffer,
    memory_that_a_server_was_shown_comes_back,
    a_swap_lets_both_sides_adopt_pages,
    a_swap_of_page_tables_lets_both_sides_adopt_pages,
    a_swap_under_output_keeps_the_pool_s_size,
    an_exhausted_pool_is_an_error_that_changes_nothing,
    a_pool_gives_all_its_granules_in_any_lengths,
    memory_that_does_not_fit_is_refused,
    a_moved_region_takes_its_granules_from_the_pool,
    a_lender_without_granules_in_use_goes_at_once,
    a_lender_s_object_stays_as_long_as_a_client_holds_a_part,
    buffers_in_use_outlive_their_lender,
    chunks_in_use_outlive_their_lender,
    granules_of_a_lender_that_is_gone_do_not_wait_for_reuse,
    quarantined_granules_are_in_nobody_s_hands,
    quarantined_data_is_copied,
    memory_of_a_lender_that_is_gone_is_given_back,
    a_shared_descriptor_grants_what_it_should,
    thousands_of_lenders_leave_nothing_behind,
);

/// A lender as its own process would be: it maps what it lends, at its own addresses.
struct Lender {
    id: LenderId,
    object: ObjectId,
    /// Where the object's aliases start.
    start: usize,
    arena: Arena,
}

impl Lender {
    /// A lender of so many granules.
    fn of(space: &Space, machine: &Machine, granules: usize) -> Self {
        let (id, len) = (space.add_lender(), granules * machine.granule());
        let arena = Arena::reserve(len).unwrap();
        let object = Object::create(machine.kind, len).unwrap();
        arena.map(0, &object, 0, len).unwrap();
        machine::lend(space, id, object).unwrap();
        let shared = (0..space.aliases_len())
            .step_by(machine.granule())
            .filter_map(|offset| space.object_at(offset))
            .find(|shared| shared.lender == Some(id))
            .expect("a lent object among the aliases");
        assert_eq!(shared.len, len);
        Self { id, object: shared.id, start: shared.start, arena }
    }

    /// Where the lender sees what a segment names.
    fn addr(&self, space: &Space, segment: genie_memory::Span) -> usize {
        self.arena.base() + (segment.addr() - space.aliases_base() - self.start)
    }
}

fn pool(space: &Space, lender: LenderId) -> (u32, u32) {
    let size = space.pool_size(lender).expect("a lender");
    (size.granules, size.free)
}

fn swap_all(granules: usize) -> InputPlan {
    InputPlan { swap: 0..granules as u32 }
}

/// Parts of the space's own granules, for data beyond what the server lends.
fn memory_that_a_server_was_shown_comes_back(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let shown = |server| space.system_buffer_shown(LenderId::OWN, server, 100).unwrap();
    let all_is_free = || {
        checked(&space);
        space.allocate(4 * granule).is_ok()
    };
    let server = Lender::of(&space, &machine, 1).id;
    let buffers = [shown(server), shown(server)];
    assert!(buffers.iter().all(|buffer| buffer.lender() == LenderId::OWN));
    assert!(!all_is_free());
    drop(buffers);
    assert!(all_is_free(), "what is kept for the server's next request is given up in need");
    let [one, other] = [shown(server), shown(server)];
    drop(one);
    space.remove_lender(server, false);
    assert!(!all_is_free());
    drop(other);
    assert!(all_is_free(), "what a server was shown that is gone");
}

fn what_a_lender_stores_is_in_its_system_buffer(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 2);
    for (system, whole) in [
        (space.system_buffer_from(lender.id, 100).unwrap(), granule == 4096),
        (space.aligned_buffer_from(lender.id, 17, 100).unwrap(), true),
    ] {
        assert_eq!((system.lender(), system.alignment().is_some()), (lender.id, whole));
        let segment = system.segments()[0];
        let offset = segment.addr() - space.aliases_base();
        let object = space.object_at(offset).unwrap();
        assert_eq!((object.id, object.lender), (lender.object, Some(lender.id)));
        assert!((object.start..object.start + object.len).contains(&offset));
        assert_eq!(machine.frame(segment.addr()), machine.frame(lender.addr(&space, segment)));
    }
    let own = space.system_buffer(100).unwrap();
    let offset = own.segments()[0].addr() - space.aliases_base();
    let object = space.object_at(offset).unwrap();
    assert_eq!((own.lender(), object.lender, object.start), (LenderId::OWN, None, 0));
    assert_eq!(space.object_at(space.aliases_len()), None);
    assert_eq!(checked(&space).lent, 2);
}

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
    assert_eq!(passed, Passed { copied: 0, swapped: granules as u32 });
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

fn an_exhausted_pool_is_an_error_that_changes_nothing(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let held = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    let before = checked(&space);
    for _ in 0..3 {
        let error = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap_err();
        assert_eq!(error, Error::Lender { asked: 2 * granule, free: granule });
        assert_eq!(checked(&space), before);
    }
    let nonsense = space.aligned_buffer_from(lender.id, 1, usize::MAX).unwrap_err();
    assert!(matches!(nonsense, Error::Lender { asked: usize::MAX, .. }), "{nonsense}");
    let last = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    assert!(matches!(space.system_buffer_from(lender.id, 1), Err(Error::Lender { free: 0, .. })));
    assert_eq!(space.aligned_buffer(0, 4 * granule).unwrap().lender(), LenderId::OWN);
    drop((held, last));
    // The space cannot use what is lent for itself.
    assert!(matches!(space.allocate(5 * granule), Err(Error::Limit { .. })));
    checked(&space);
}

fn a_pool_gives_all_its_granules_in_any_lengths(machine: Machine) {
    let (space, granule) = (machine.space(2), machine.granule());
    let lender = Lender::of(&space, &machine, 4);
    for lengths in [&[1, 1, 1, 1][..], &[4], &[2, 2], &[3, 1], &[1, 3]] {
        let allocate = |len: &usize| space.aligned_buffer_from(lender.id, 0, len * granule).unwrap();
        let buffers: Vec<_> = lengths.iter().map(allocate).collect();
        assert_eq!(checked(&space).system, 4);
        drop(buffers);
    }
    drop(space.system_buffer_from(lender.id, 1).unwrap());
    drop(space.aligned_buffer_from(lender.id, 0, 4 * granule).unwrap());
    assert_eq!(pool(&space, lender.id), (4, 0), "buffers are kept for reuse");
}

fn memory_that_does_not_fit_is_refused(machine: Machine) {
    let (space, granule) = (machine.space(2), machine.granule());
    let lender = space.add_lender();
    let other = if granule == 4096 { GranuleKind::Huge } else { GranuleKind::Base };
    let object = |kind: GranuleKind, granules: usize| Object::create(kind, granules * kind.size());
    match object(other, 1) {
        Ok(object) => {
            let refused = machine::lend(&space, lender, object).unwrap_err();
            assert_eq!(refused, Error::Kind { lent: other, own: machine.kind });
        }
        Err(error) => machine.skip(&format!("no object of {}: {error}", other.name())),
    }
    let refused = machine::lend(&space, LenderId::OWN, object(machine.kind, 1).unwrap()).unwrap_err();
    assert_eq!(refused, Error::NoLender { lender: LenderId::OWN });
    if machine.kind != GranuleKind::Huge {
        // Sparse: nothing of it is touched.
        let len = 2 << 30;
        let refused =
            machine::lend(&space, lender, object(machine.kind, len / granule).unwrap()).unwrap_err();
        assert_eq!(refused, Error::Room { asked: len, free: 1 << 30 });
    }
    space.remove_lender(lender, false);
    let refused = machine::lend(&space, lender, object(machine.kind, 1).unwrap()).unwrap_err();
    assert_eq!(refused, Error::NoLender { lender });
    assert!(matches!(space.system_buffer_from(lender, 1), Err(Error::Lender { .. })));
    let usage = checked(&space);
    assert_eq!((usage.lent, usage.objects), (0, 1));
    space.remove_lender(lender, true);
    space.release_quarantine(lender);
    checked(&space);
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
    space.remove_lender(lender.id, false);
    let usage = checked(&space);
    assert_eq!((usage.free, usage.objects), (4, 1));
}

fn a_lender_without_granules_in_use_goes_at_once(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 3);
    let system = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    let chunk = space.system_buffer_from(lender.id, 10).unwrap();
    let alias = system.segments()[0].addr();
    assert!(is_accessible(alias));
    drop((system, chunk));
    space.remove_lender(lender.id, false);
    assert!(!is_accessible(alias), "the aliases are unmapped");
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.pooled, usage.free), (1, 0, 0, 4));
    assert_eq!((space.object_at(lender.start), space.pool_size(lender.id)), (None, None));
    assert_eq!(space.share(lender.object).unwrap_err(), Error::NoObject);
    // Places are used again, names never.
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
    space.remove_lender(lender.id, false);
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
    space.remove_lender(lender.id, false);
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
    let chunk = space.system_buffer_from(lender.id, 100).unwrap();
    scatter(&chunk.data(), &[5; 100]);
    space.remove_lender(lender.id, false);
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
    space.remove_lender(lender.id, false);
    let usage = checked(&space);
    assert_eq!((usage.queued, usage.pooled, usage.retired), (0, 0, 2));
    // Nor does what is passed on only now.
    drop(held);
    let usage = checked(&space);
    assert_eq!((usage.queued, usage.pooled, usage.objects, usage.free), (0, 0, 1, 5));
}

fn quarantined_granules_are_in_nobody_s_hands(machine: Machine) {
    let (space, granule) = (machine.space(3), machine.granule());
    let lender = Lender::of(&space, &machine, 4);
    let mut buffer = space.allocate(granule).unwrap();
    let mut system = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    space.deliver(&mut system, &mut buffer[..granule], &swap_all(1)).unwrap();
    // One lent granule is the space's own, and free.
    drop(buffer);
    drop(space.system_buffer_from(lender.id, 1).unwrap());
    let held = space.aligned_buffer_from(lender.id, 0, granule).unwrap();
    space.remove_lender(lender.id, true);
    let usage = checked(&space);
    assert_eq!((usage.quarantined, usage.system, usage.free, usage.objects), (3, 2, 2, 2));
    drop((system, held));
    let usage = checked(&space);
    assert_eq!((usage.quarantined, usage.pooled, usage.free), (5, 0, 2));
    assert!(matches!(space.system_buffer_from(lender.id, 1), Err(Error::Lender { free: 0, .. })));
    assert!(matches!(space.allocate(3 * granule), Err(Error::Limit { .. })), "quarantined memory was reused");
    assert!(is_accessible(space.aliases_base() + lender.start));
    space.release_quarantine(lender.id);
    let usage = checked(&space);
    assert_eq!((usage.quarantined, usage.free, usage.objects, usage.lent), (0, 3, 1, 0));
    space.allocate(3 * granule).unwrap();
    space.release_quarantine(lender.id);
    checked(&space);
}

fn quarantined_data_is_copied(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 4);
    let mut buffer = space.allocate(2 * granule).unwrap();
    let mut system = space.aligned_buffer_from(lender.id, 0, 2 * granule).unwrap();
    let data = pattern(1, 2 * granule);
    scatter(&system.data(), &data);
    space.remove_lender(lender.id, true);
    let passed = space.deliver(&mut system, &mut buffer[..data.len()], &swap_all(2)).unwrap();
    assert_eq!(passed, Passed { copied: data.len(), swapped: 0 });
    same(&buffer, &data, "the input");
    let refused = space.region_from(&mut system, granule).unwrap_err();
    assert_eq!(refused, Error::NoLender { lender: lender.id });
    drop(system);
    assert_eq!(checked(&space).quarantined, 4);
    space.release_quarantine(lender.id);
    assert_eq!(checked(&space).objects, 1);
}

/// Neither windows nor the addresses through which page tables are exchanged keep a lent object.
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
    space.remove_lender(lender, false);
    assert_eq!(checked(&space).lent, 0);
    assert!(!is_mapped(inode), "{}", std::fs::read_to_string("/proc/self/maps").unwrap());
}

/// Whether a part of this file is mapped anywhere in this process.
fn is_mapped(inode: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
}

fn a_shared_descriptor_grants_what_it_should(machine: Machine) {
    let (space, granule) = (machine.space(2), machine.granule());
    let mut buffer = space.allocate(granule).unwrap();
    buffer.fill(3);
    let reference = space.reference(buffer.addresses().start, granule, Direction::Out).unwrap();
    let offset = reference.segments()[0].addr() - space.aliases_base();
    let object = space.object_at(offset).unwrap();
    let writable = |descriptor: &OwnedFd| {
        let flags = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).unwrap();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        u32::from_str_radix(flags, 8).unwrap() & 3 == 2
    };
    assert!(!writable(&space.share(object.id).unwrap()));
    assert!(writable(&machine::share_writable(&space, object.id).unwrap()));
}

/// A client's buffers live through thousands of connections, each of which swaps pages into them.
fn thousands_of_lenders_leave_nothing_behind(machine: Machine) {
    let (space, granule, granules) =
        (machine.space(3 * machine.windowed()), machine.granule(), machine.windowed());
    let mut buffers: Vec<_> = [granules, 1].map(|count| space.allocate(count * granule).unwrap()).into();
    let rounds = if machine.kind == GranuleKind::Huge { 200 } else { 3000 };
    let (mappings, descriptors) = (inspect::mapping_count().unwrap(), inspect::open_descriptors().unwrap());
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
        drop(space.system_buffer_from(lender, 64).unwrap());
        if round % 5 == 0 {
            space.remove_lender(lender, true);
            drop(system);
            space.release_quarantine(lender);
        } else {
            drop(system);
            space.remove_lender(lender, false);
        }
        if round % 50 == 0 {
            let usage = checked(&space);
            // At most what the two buffers show, each of another lender.
            assert!(usage.objects <= 4, "{usage:?}");
        }
    }
    // Other tests map and open things meanwhile, but not as many.
    let now = (inspect::mapping_count().unwrap(), inspect::open_descriptors().unwrap());
    assert!(
        now.0 < mappings + 150 && now.1 < descriptors + 100,
        "{now:?}, {mappings} and {descriptors} before"
    );
    assert!(!space.is_broken());
    drop(buffers);
    let usage = checked(&space);
    assert_eq!((usage.objects, usage.lent, usage.retired, usage.quarantined), (1, 0, 0, 0));
    assert_eq!(usage.free as usize, 3 * machine.windowed());
}
