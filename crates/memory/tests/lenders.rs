//! Lenders (thesis §5.2): pools of other parties' memory.

mod adoption;
mod departures;
mod stand_ins;

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::machine::{self, Machine, checked};
use genie_memory::{Direction, Error, GranuleKind, LenderId, ObjectId, Space};
use genie_sys::{Arena, Object};

on_each_kind!(
    memory_that_a_server_was_shown_comes_back,
    what_a_lender_stores_is_in_its_system_buffer,
    an_exhausted_pool_is_an_error_that_changes_nothing,
    a_pool_gives_all_its_granules_in_any_lengths,
    memory_that_does_not_fit_is_refused,
    a_shared_descriptor_grants_what_it_should,
    memory_of_a_holders_own_is_shown_to_nobody,
);

/// A lender that acts like one in a process of its own: it maps the memory that it lends at its own addresses.
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

    /// Where the lender sees the memory that a segment names.
    fn addr(&self, space: &Space, segment: genie_memory::Span) -> usize {
        self.arena.base() + (segment.addr() - space.aliases_base() - self.start)
    }
}

fn pool(space: &Space, lender: LenderId) -> (u32, u32) {
    let size = space.pool_size(lender).expect("a lender");
    (size.granules, size.free)
}

fn swap_all(granules: usize) -> Range<u32> {
    0..granules as u32
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
    space.remove_lender(server);
    assert!(!all_is_free());
    drop(other);
    assert!(all_is_free(), "what a server was shown that is gone");
}

fn what_a_lender_stores_is_in_its_system_buffer(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = Lender::of(&space, &machine, 2);
    for (system, whole) in [
        (space.system_buffer_shown(lender.id, lender.id, 100).unwrap(), granule == 4096),
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
    assert!(matches!(space.system_buffer_shown(lender.id, lender.id, 1), Err(Error::Lender { free: 0, .. })));
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
    drop(space.system_buffer_shown(lender.id, lender.id, 1).unwrap());
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
        let sparse = object(GranuleKind::Base, len / GranuleKind::Base.size()).unwrap();
        let refused = machine::lend(&space, lender, sparse).unwrap_err();
        assert_eq!(refused, Error::Room { asked: len, free: 1 << 30 });
    }
    space.remove_lender(lender);
    let refused = machine::lend(&space, lender, object(machine.kind, 1).unwrap()).unwrap_err();
    assert_eq!(refused, Error::NoLender { lender });
    assert!(matches!(space.system_buffer_shown(lender, lender, 1), Err(Error::Lender { .. })));
    let usage = checked(&space);
    assert_eq!((usage.lent, usage.objects), (0, 1));
    space.remove_lender(lender);
    checked(&space);
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

fn memory_of_a_holders_own_is_shown_to_nobody(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let object = |space: &Space, buffer: &genie_memory::SystemBuffer| {
        space.object_at(buffer.segments()[0].addr() - space.aliases_base()).unwrap().id
    };
    let buffer = space.aligned_buffer(0, granule).unwrap();
    buffer.data().fill(3);
    let (concealed, place) = (object(&space, &buffer), buffer.segments()[0].addr());
    let mut bytes = buffer.into_bytes().unwrap();
    assert_eq!((bytes.as_ptr().addr(), bytes.len()), (place, granule), "it stays where it is");
    assert!(bytes.iter().all(|byte| *byte == 3));
    bytes.fill(4);
    assert_eq!(space.share(concealed).unwrap_err(), Error::NoObject);
    assert_eq!(machine::share_writable(&space, concealed).unwrap_err(), Error::NoObject);
    drop(bytes);
    checked(&space);
    // Others could store there.
    let other = machine.space(4);
    let lender = Lender::of(&other, &machine, 1);
    other.aligned_buffer_from(lender.id, 0, granule).unwrap().into_bytes().unwrap_err();
    let buffer = other.aligned_buffer(0, granule).unwrap();
    other.share(object(&other, &buffer)).unwrap();
    buffer.into_bytes().unwrap_err();
    checked(&other);
}
