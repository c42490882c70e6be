//! Regions, granules and their tables: allocation, growth, limits, and deallocation while requests are pending.

use std::panic::AssertUnwindSafe;
use std::process::Command;

use crate::machine::{self, Machine, checked, is_accessible, pattern, same, scatter, seen};
use genie_memory::{Config, Direction, Error, Faults, Granularity, GranuleKind, Mark, Space};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

on_each_kind!(
    a_buffer_is_zero_whatever_its_granules_held,
    a_buffer_may_span_several_objects,
    growth_takes_what_the_limit_leaves,
    at_the_limit_allocation_fails_and_loses_nothing,
    at_the_limit_what_is_kept_for_reuse_is_given_back,
    a_dropped_buffer_stays_readable_for_its_server,
    each_of_several_requests_keeps_a_granule,
    a_buffer_starts_where_its_server_asks,
    a_region_is_found_by_its_addresses,
    memory_outside_regions_is_foreign,
    output_is_reported_while_it_is_pending,
    dropped_addresses_are_inaccessible,
    nonsense_lengths_are_refused,
    a_system_buffer_holds_what_it_is_given,
    a_refilled_system_buffer_loses_no_granule,
);

fn a_buffer_is_zero_whatever_its_granules_held(machine: Machine) {
    let space = machine.space(4);
    for round in 1..4 {
        let mut buffer = space.allocate(3 * machine.granule() + 5).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 0), "round {round}");
        buffer.fill(round);
        checked(&space);
    }
    assert_eq!(checked(&space).free, 4);
}

fn a_buffer_may_span_several_objects(machine: Machine) {
    let space = machine.space((48 << 20) / machine.granule());
    let mut buffer = space.allocate(40 << 20).unwrap();
    let usage = checked(&space);
    assert!(usage.objects > 1, "{usage:?}");
    let data = pattern(1, buffer.len());
    buffer.copy_from_slice(&data);
    let reference = space.reference(buffer.addresses().start, buffer.len(), Direction::Out).unwrap();
    same(&seen(&reference), &data, "the server's view");
    drop(buffer);
    same(&seen(&reference), &data, "the server's view after the buffer's end");
    assert_eq!(checked(&space).deferred, reference.granules());
    drop(reference);
    assert_eq!(checked(&space).deferred, 0);
}

/// Neither the smaller nor the greater of two buffers can be had from the free list alone.
fn growth_takes_what_the_limit_leaves(machine: Machine) {
    let granules = (40 << 20) / machine.granule();
    let space = machine.space(granules);
    let first = space.allocate(20 << 20).unwrap();
    let second = space.allocate(20 << 20).unwrap();
    let usage = checked(&space);
    assert_eq!((usage.regions as usize, usage.free), (granules, 0));
    drop((first, second));
    assert_eq!(checked(&space).free as usize, granules);
}

fn at_the_limit_allocation_fails_and_loses_nothing(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(7);
    for _ in 0..3 {
        let error = space.allocate(2 * granule).unwrap_err();
        assert_eq!(error, Error::Limit { asked: 2 * granule, used: 3 * granule, limit: 4 * granule });
        assert!(error.to_string().contains("free buffers"), "{error}");
        let error = space.allocate(5 * granule).unwrap_err().to_string();
        assert!(error.contains("exceed the limit") && !error.contains("free buffers"), "{error}");
        let error = space.aligned_buffer(0, 2 * granule).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
        let error = space.dequeue(2 * granule, true).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
        assert_eq!(checked(&space).regions, 3);
    }
    let last = space.allocate(granule).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 7));
    drop((buffer, last));
    assert_eq!(space.allocate(4 * granule).unwrap().len(), 4 * granule);
}

/// Granules in pooled system buffers, in whole chunks and in cached regions count towards the limit only until they are
/// asked for.
fn at_the_limit_what_is_kept_for_reuse_is_given_back(machine: Machine) {
    let granules = (40 << 20) / machine.granule();
    let (space, granule) = (machine.space(granules), machine.granule());
    drop(space.aligned_buffer(0, 2 * granule).unwrap());
    drop(space.system_buffer(100).unwrap());
    drop(space.allocate_migrant(granule, true).unwrap());
    drop(space.allocate_migrant(granule, false).unwrap());
    let usage = checked(&space);
    assert_eq!((usage.pooled, usage.queued), (3, 2));
    // More than the objects made so far hold, and more than growing alone can give.
    let buffer = space.allocate(granules * granule).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0));
    let usage = checked(&space);
    assert_eq!((usage.pooled, usage.queued, usage.regions as usize), (0, 0, granules));
}

fn a_dropped_buffer_stays_readable_for_its_server(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let mut buffer = space.allocate(2 * granule).unwrap();
    let data = pattern(2, 2 * granule);
    buffer.copy_from_slice(&data);
    let len = granule + granule / 2;
    let reference = space.reference(buffer.addresses().start + 100, len, Direction::Out).unwrap();
    drop(buffer);
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.free, usage.regions), (2, 2, 0));
    // Whatever is allocated now must not be those granules.
    let mut others: Vec<_> = (0..2).map(|_| space.allocate(granule).unwrap()).collect();
    others.iter_mut().for_each(|other| other.fill(0xee));
    assert!(space.allocate(granule).is_err(), "a granule under output was reused");
    same(&seen(&reference), &data[100..100 + len], "the output");
    reference.release();
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.free, usage.references), (0, 2, 0));
    assert!(space.allocate(2 * granule).unwrap().iter().all(|byte| *byte == 0));
}

fn each_of_several_requests_keeps_a_granule(machine: Machine) {
    let (space, granule) = (machine.space(2), machine.granule());
    let buffer = space.allocate(granule).unwrap();
    let addr = buffer.addresses().start;
    let mut requests: Vec<_> = [Direction::Out, Direction::In, Direction::Out]
        .into_iter()
        .map(|direction| space.reference(addr, granule, direction).unwrap())
        .collect();
    drop(buffer);
    while let Some(request) = requests.pop() {
        assert_eq!(checked(&space).deferred, 1);
        drop(request);
    }
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.free), (0, 2));
}

fn a_buffer_starts_where_its_server_asks(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    for offset in [0, 1, 14, granule / 2, granule - 1] {
        for len in [1, granule - 1, granule, granule + 1] {
            let mut buffer = space.allocate_at(offset, len).unwrap();
            assert_eq!(buffer.addresses().start % granule, offset);
            assert_eq!(buffer.len(), len);
            buffer.fill(1);
            let usage = checked(&space);
            assert_eq!(usage.regions as usize, (offset + len).div_ceil(granule), "{len} bytes at {offset}");
        }
    }
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| space.allocate_at(granule, 1)));
    assert!(outcome.is_err(), "an offset beyond a granule was taken");
    checked(&space);
}

fn a_region_is_found_by_its_addresses(machine: Machine) {
    let (space, granule) = (machine.space(6), machine.granule());
    let buffer = space.allocate(2 * granule).unwrap();
    let neighbour = space.allocate(granule).unwrap();
    let found = |addr, len| space.region_at(addr, len);
    let start = buffer.addresses().start;
    let whole = Some((buffer.region(), Mark::Native));
    assert_eq!(found(start, 2 * granule), whole);
    assert_eq!(found(start + 2 * granule - 1, 1), whole);
    assert_eq!(found(start, 2 * granule + 1), None, "bytes beyond the region");
    assert_eq!(found(start - 1, 2), None, "bytes before the region");
    assert_eq!(found(neighbour.addresses().start, 1), Some((neighbour.region(), Mark::Native)));
    assert_eq!(found(usize::MAX - 1, 10), None);
    assert!(space.may_hold(start) && !space.may_hold(&raw const whole as usize));
    let region = buffer.region();
    drop(buffer);
    assert_eq!(found(start, 1), None);
    let again = space.allocate(2 * granule).unwrap();
    assert_ne!(again.region(), region, "a name was reused");
}

fn memory_outside_regions_is_foreign(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let buffer = space.allocate(granule).unwrap();
    let start = buffer.addresses().start;
    let local = [0u8; 16];
    for (addr, len) in [
        (local.as_ptr().addr(), local.len()),
        (start, granule + 1),
        (start + granule, 1),
        (start, usize::MAX - start),
        (usize::MAX, 2),
    ] {
        for direction in [Direction::In, Direction::Out] {
            let error = space.reference(addr, len, direction).unwrap_err();
            assert_eq!(error, Error::Foreign { addr, len }, "{direction}");
        }
        assert!(!space.has_protected_output(addr, len.min(granule)));
    }
    assert_eq!(checked(&space).references, 0);
}

fn output_is_reported_while_it_is_pending(machine: Machine) {
    let Some(space) = machine.protecting_space(4) else { return };
    let granule = machine.granule();
    let buffer = space.allocate(3 * granule).unwrap();
    let start = buffer.addresses().start;
    assert!(!space.has_protected_output(start, 3 * granule));
    let output = machine::output_of(&space, start + granule, 1);
    let input = space.reference(start, 1, Direction::In).unwrap();
    let pending: Vec<_> =
        (0..3).map(|at| space.has_protected_output(start + at * granule, granule)).collect();
    assert_eq!(pending, [false, true, false]);
    assert!(space.has_protected_output(start, granule + 1) && !space.has_protected_output(start, granule));
    drop((output, input));
    assert!(!space.has_protected_output(start, 3 * granule));
}

fn dropped_addresses_are_inaccessible(machine: Machine) {
    let space = machine.space(4);
    let buffer = space.allocate(2 * machine.granule()).unwrap();
    let addresses = buffer.addresses();
    assert!(is_accessible(addresses.start) && is_accessible(addresses.end - 1));
    drop(buffer);
    assert!(!is_accessible(addresses.start) && !is_accessible(addresses.end - 1));
}

fn nonsense_lengths_are_refused(machine: Machine) {
    let space = machine.space(2);
    assert_eq!(space.allocate(0).unwrap_err(), Error::Empty);
    // The last one is a multiple of 2^32 granules: counted in 32 bits, none.
    for len in [usize::MAX, usize::MAX / 2, machine.granule() << 32] {
        let attempts: [fn(&Space, usize) -> Option<Error>; 4] = [
            |space, len| space.allocate(len).err(),
            |space, len| space.aligned_buffer(1, len).err(),
            |space, len| space.system_buffer(len).err(),
            |space, len| space.allocate_migrant(len, false).err(),
        ];
        for attempt in attempts {
            let error = attempt(&space, len).expect("nonsense is refused");
            assert!(matches!(error, Error::Limit { .. }), "{error}");
        }
    }
    assert_eq!(checked(&space).free, 2);
}

fn a_system_buffer_holds_what_it_is_given(machine: Machine) {
    let (space, granule) = (machine.space(64), machine.granule());
    let lengths = [1, 4095, 4096, 4097, 70_000, granule, 2 * granule + 1];
    let mut buffers: Vec<_> = lengths.iter().map(|len| space.system_buffer(*len).unwrap()).collect();
    buffers.extend(lengths.iter().map(|len| space.aligned_buffer(33, *len).unwrap()));
    for (seed, buffer) in (0..).zip(&buffers) {
        scatter(&buffer.data(), &pattern(seed, buffer.len()));
    }
    for (seed, buffer) in (0..).zip(&buffers) {
        same(&buffer.data().to_vec(), &pattern(seed, buffer.len()), "a system buffer");
    }
    checked(&space);
    drop(buffers);
    assert_eq!(checked(&space).system, 0);
}

fn a_refilled_system_buffer_loses_no_granule(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let mut buffer = space.aligned_buffer(0, granule).unwrap();
    for len in [granule, 2 * granule, 3] {
        buffer.refill(len).unwrap();
        assert_eq!(buffer.len(), len);
        assert_eq!(checked(&space).system as usize, len.div_ceil(granule));
    }
    assert!(buffer.refill(9 * granule).is_err());
    drop(buffer);
    assert_eq!(checked(&space).system, 0);
}

/// Takes all that malloc still has in blocks of this length.
fn hoard(hoard: &mut Vec<Vec<u8>>, block: usize) {
    while hoard.len() < hoard.capacity() {
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(block).is_err() {
            return;
        }
        hoard.push(bytes);
    }
    panic!("there are more blocks of {block} bytes than can be hoarded");
}

/// Once, the tables grew by an allocation that ends the process where it fails.
#[test]
#[cfg_attr(
    sanitized,
    ignore = "sanitizers have allocations of their own, which end the process where they fail"
)]
fn a_program_without_addresses_for_tables_gets_an_error_and_loses_nothing() {
    const TEST: &str = "a_program_without_addresses_for_tables_gets_an_error_and_loses_nothing";
    if std::env::var_os(TEST).is_none() {
        // The limit is for a whole process.
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", &format!("regions::{TEST}")]).env(TEST, "").output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.contains("1 passed"), "{:?}: {said}", output.status);
        return;
    }
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { limit: 64 << 20, granularity, faults: Faults::Never, ..Config::default() };
    let space = Space::new(&config).unwrap();
    let before = checked(&space);
    let (unlimited, mut blocks) = (getrlimit(Resource::As), Vec::with_capacity(1 << 16));
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    setrlimit(Resource::As, Rlimit { current: Some(pages * 4096), ..unlimited }).unwrap();
    hoard(&mut blocks, 1 << 20);
    hoard(&mut blocks, 64 << 10);
    // For the error's text.
    blocks.pop();
    let refused = space.allocate(32 << 20);
    setrlimit(Resource::As, unlimited).unwrap();
    drop(blocks);
    let refused = refused.unwrap_err();
    assert!(matches!(&refused, Error::Kernel(error) if error.errno == Errno::NOMEM), "{refused}");
    assert!(refused.to_string().starts_with("malloc of a table of "), "{refused}");
    assert!(refused.to_string().ends_with("raise the limit on addresses: `ulimit -v`"), "{refused}");
    assert_eq!(checked(&space), before);
    let mut buffer = space.allocate(32 << 20).unwrap();
    buffer.fill(1);
    checked(&space);
}
