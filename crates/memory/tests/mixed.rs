//! Granules of two sizes: which buffers get which, and what is one space all the same.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use genie_memory::{
    Buffer, Config, Direction, GranuleKind, Part, Passed, Protection, Registrar, SharedObject, Space,
};
use genie_sys::{Object, inspect};

use crate::machine::{self, checked, output_of, pattern, proc, same, skip};

const SMALL: usize = GranuleKind::Base.size();
const LARGE: usize = GranuleKind::Huge.size();
const MIB: usize = 1 << 20;

/// A registrar that counts objects.
#[derive(Default)]
struct Count(AtomicUsize);

impl Registrar for Count {
    fn added(&self, _: &SharedObject) {
        self.0.fetch_add(1, Relaxed);
    }

    fn removed(&self, _: &SharedObject) {}
}

/// A space with granules of both sizes, where the machine has huge pages.
fn space(test: &str, limit: usize) -> Option<Space> {
    let pages = inspect::huge_pages().expect("/proc/meminfo is readable");
    let available = pages.free.saturating_sub(pages.reserved);
    if pages.size_kib != 2048 || available < 48 {
        skip(test, &format!("{available} huge pages of 2 MiB are available, 48 are needed"));
        return None;
    }
    let space = Space::new(&Config { limit, pool: limit / 4, ..Config::default() }).expect("a space");
    assert_eq!((space.granule(), space.small().expect("a small space").granule()), (LARGE, SMALL));
    Some(space)
}

fn granule(buffer: &Buffer) -> usize {
    buffer.space().granule()
}

/// A buffer of 4 KiB once took a huge page, so that some hundred of them took all memory that there was.
#[test]
fn short_buffers_leave_huge_pages_to_long_ones() {
    let Some(space) = space("short_buffers_leave_huge_pages_to_long_ones", 128 * MIB) else { return };
    let before = space.alone().check().unwrap();
    let short: Vec<_> = (0..1000).map(|_| space.allocate(4096).unwrap()).collect();
    assert!(short.iter().all(|buffer| granule(buffer) == SMALL));
    assert_eq!(space.alone().check().unwrap(), before, "no large granule is taken");
    assert_eq!(space.check().unwrap().regions, 1000);
    let long = space.allocate(MIB).unwrap();
    assert_eq!(granule(&long), LARGE);
    let [below, from] = [LARGE / 4 - 1, LARGE / 4].map(|len| granule(&space.allocate(len).unwrap()));
    assert_eq!((below, from), (SMALL, LARGE));
    for strong in [true, false] {
        let addr = |len: usize| space.allocate_migrant(len, strong).unwrap().as_ptr().addr();
        assert_eq!(space.at(addr(64)).granule(), SMALL);
        assert_eq!(space.at(addr(MIB)).granule(), LARGE);
        let (immigrating, reference) = space.dequeue_referenced(64, strong).unwrap();
        assert_eq!((space.at(immigrating.addr()).granule(), reference.space().granule()), (SMALL, SMALL));
    }
    checked(&space);
}

#[test]
fn a_hundred_thousand_short_buffers_fit_into_a_gibibyte() {
    const NAME: &str = "a_hundred_thousand_short_buffers_fit_into_a_gibibyte";
    let Some(space) = space(NAME, 1 << 30) else { return };
    let mappings = proc::mapping_count();
    let mut buffers: Vec<_> = (0..100_000).map(|_| space.allocate(4096).expect("room")).collect();
    assert!(buffers.iter().all(|buffer| granule(buffer) == SMALL));
    assert!(proc::mapping_count() < mappings + 1000, "neighbours are one mapping");
    for (number, buffer) in buffers.iter_mut().enumerate() {
        buffer.fill(number as u8);
    }
    assert!(
        buffers.iter().enumerate().all(|(number, buffer)| buffer.iter().all(|byte| *byte == number as u8))
    );
}

#[test]
fn one_size_gives_way_to_the_other_within_one_limit() {
    const NAME: &str = "one_size_gives_way_to_the_other_within_one_limit";
    let Some(space) = space(NAME, 64 * MIB) else { return };
    // The first object has 16 granules of 2 MiB; what is left of the limit is for whoever comes first.
    let short: Vec<_> = (0..32 * MIB / SMALL).map(|_| space.allocate(SMALL).unwrap()).collect();
    assert!(short.iter().all(|buffer| granule(buffer) == SMALL));
    let other = space.allocate(SMALL).unwrap();
    assert_eq!(granule(&other), LARGE, "a short buffer gets what there is");
    let long: Vec<_> = (0..15).map(|_| space.allocate(LARGE).unwrap()).collect();
    space.allocate(1).expect_err("64 MiB are taken");
    space.allocate(LARGE).expect_err("64 MiB are taken");
    drop(short);
    let more = space.allocate(LARGE).unwrap();
    assert_eq!(granule(&more), SMALL, "a long buffer gets what there is");
    checked(&space);
    drop((other, long, more));
    assert_eq!(checked(&space).regions, 0);
}

#[test]
fn data_is_passed_between_granules_of_both_sizes() {
    const NAME: &str = "data_is_passed_between_granules_of_both_sizes";
    let Some(space) = space(NAME, 128 * MIB) else { return };
    let small = space.small().expect("a small space").clone();
    for (len, alike, other) in [(3 * SMALL, &small, &space), (MIB, &space, &small)] {
        let mut buffer = space.allocate(len).unwrap();
        let (addr, data) = (buffer.addresses().start, pattern(1, len));
        let swap = 0..len.div_ceil(alike.granule()) as u32;
        let mut system = alike.aligned_buffer(0, len).unwrap();
        system.data().copy_from(&data);
        let passed = space.deliver(&mut system, &mut buffer, &swap).unwrap();
        assert_eq!(passed, Passed { swapped: swap.end, ..Passed::default() });
        same(&buffer, &data, "swapped input");

        let data = pattern(2, len);
        let mut system = other.alone().aligned_buffer(0, len).unwrap();
        assert_eq!(system.space().granule(), other.granule());
        system.data().copy_from(&data);
        let passed = space.deliver(&mut system, &mut buffer, &swap).unwrap();
        assert_eq!(passed, Passed { copied: len, ..Passed::default() }, "no granule is of a size that fits");
        same(&buffer, &data, "copied input");

        assert_eq!(space.at(addr).granule(), alike.granule());
        let reference = space.reference(addr, len, Direction::Out).unwrap();
        assert_eq!(reference.data().to_vec(), data);
        let object = space.object_at(reference.segments()[0].addr() - space.aliases_base()).unwrap();
        assert!(
            object.len.is_multiple_of(alike.granule()) && object.start + object.len <= space.aliases_len()
        );
        drop(reference);
        if space.protection() == Protection::Full {
            let output = output_of(&space, addr, len);
            assert!(space.has_protected_output(addr, len));
            buffer.fill(9);
            assert_eq!(output.data().to_vec(), data, "a store replaces the granule");
        }
        checked(&space);
    }
}

#[test]
fn names_of_objects_are_of_one_space() {
    let Some(space) = space("names_of_objects_are_of_one_space", 128 * MIB) else { return };
    let buffers = [64, MIB, 64].map(|len| space.allocate(len).unwrap());
    let registrar = Arc::new(Count::default());
    let _registration = space.register(registrar.clone());
    let before = registrar.0.load(Relaxed);
    let object = |buffer: &Buffer| {
        let reference = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
        space.object_at(reference.segments()[0].addr() - space.aliases_base()).unwrap()
    };
    let [short, long, again] = buffers.each_ref().map(object);
    assert_eq!(short, again);
    assert_ne!(short.id, long.id);
    for (shared, granule) in [(short, SMALL), (long, LARGE)] {
        let object = Object::accept(space.share(shared.id).unwrap()).unwrap();
        assert_eq!((object.len(), shared.len % granule), (shared.len, 0));
    }
    drop(buffers);
    let _more = space.small().unwrap().allocate(40 * MIB).unwrap();
    assert!(registrar.0.load(Relaxed) > before, "the small space's objects are told of, too");
}

#[test]
fn lent_objects_join_the_pool_of_their_granule_size() {
    const NAME: &str = "lent_objects_join_the_pool_of_their_granule_size";
    let Some(space) = space(NAME, 128 * MIB) else { return };
    let lender = space.add_lender();
    for (kind, len) in [(GranuleKind::Huge, 2 * LARGE), (GranuleKind::Base, 8 * SMALL)] {
        let object = Object::create(kind, len).unwrap();
        machine::lend(&space, lender, object).unwrap();
    }
    let small = space.small().unwrap();
    assert_eq!([&space, small].map(|space| space.pool_size(lender).unwrap().granules), [2, 8]);
    let buffer = small.aligned_buffer_from(lender, 0, 8 * SMALL).unwrap();
    small.aligned_buffer_from(lender, 0, 1).expect_err("the pool is exhausted");
    drop(buffer);
    checked(&space);
    space.remove_lender(lender);
    assert!(space.pool_size(lender).is_none() && small.pool_size(lender).is_none());
    checked(&space);
}

/// Takes all huge pages of the machine.
#[test]
#[ignore = "takes 2 GiB and all huge pages"]
fn running_out_of_huge_pages_is_no_error() {
    let Some(space) = space("running_out_of_huge_pages_is_no_error", 3 << 30) else { return };
    let buffers: Vec<_> = (0..128).map(|_| space.allocate(16 * MIB).expect("memory is free")).collect();
    let bytes = |size: usize| buffers.iter().filter(|buffer| granule(buffer) == size).count() * 16;
    println!("{} MiB in granules of 2 MiB, {} MiB in granules of 4 KiB", bytes(LARGE), bytes(SMALL));
    assert!(bytes(LARGE) > 0 && bytes(LARGE) + bytes(SMALL) == 2048);
}

/// A region for a short part of long data was of small granules, so that the data was copied.
#[test]
fn a_region_takes_the_granules_of_its_data() {
    let Some(space) = space("a_region_takes_the_granules_of_its_data", 64 * MIB) else { return };
    let data = pattern(6, 5000);
    let mut system = space.aligned_buffer(100, LARGE).unwrap();
    system.data().copy_from(&data);
    let mut immigrating = space.dequeue(data.len(), true).unwrap();
    assert_eq!(space.at(immigrating.addr()).granule(), SMALL);
    immigrating.align(&system, Part::all(data.len()), data.len()).unwrap();
    assert_eq!(space.at(immigrating.addr()).granule(), LARGE);
    immigrating.reinstate().unwrap();
    let passed = immigrating.delivery(data.len()).unwrap().from_one(&mut system, &(0..1)).unwrap();
    assert_eq!(passed, Passed { swapped: 1, ..Passed::default() });
    same(&immigrating.arrive(data.len()), &data, "the region");
    checked(&space);
}

/// Granules of the other size do where the object has none of the size that divides the frames' length.
#[test]
fn frames_are_of_the_granules_that_their_length_and_their_object_allow() {
    let Some(space) = space("frames_are_of_the_granules", 64 * MIB) else { return };
    for (kind, len, stride, granule, is_swapped) in [
        (GranuleKind::Huge, LARGE, LARGE, LARGE, true),
        (GranuleKind::Huge, LARGE, SMALL, LARGE, false),
        (GranuleKind::Base, LARGE, LARGE, LARGE, true),
        (GranuleKind::Base, LARGE, 3 * SMALL, SMALL, true),
        (GranuleKind::Base, 3 * SMALL, SMALL + 1, SMALL, false),
    ] {
        let object = Object::create(kind, len).unwrap();
        let mut frames = machine::frames(&space, object, stride).unwrap();
        assert_eq!(
            (frames.space().granule(), frames.is_swapped()),
            (granule, is_swapped),
            "{kind:?} {stride}"
        );
        let buffers = frames.buffers();
        assert_eq!(buffers.len(), len / stride);
        let start = frames.addresses().start;
        for (index, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.segments()[0].addr(), start + index * stride);
        }
        drop((frames, buffers));
        assert_eq!(checked(&space).lent, 0);
    }
}
