//! The limit of mappings: a store that cannot get a granule of its own at this limit waits, and goes on when there is room
//! again; an input that cannot be swapped is copied.
//!
//! A test binary of its own, since the limit is the process's.

mod machine;

use std::time::{Duration, Instant};

use genie_memory::Passed;
use genie_sys::lock::{Mutex, MutexGuard};
use genie_sys::{Access, Arena, Object, inspect};
use machine::{Machine, checked, client, lend, output, pattern, same, scatter, seen};

on_each_kind!(
    a_store_waits_for_a_mapping_and_goes_on_when_there_is_one,
    an_input_that_cannot_be_mapped_is_copied_and_leaves_no_protection,
    an_object_that_cannot_be_unmapped_is_unmapped_later,
);

const PAGE: usize = 4096;

/// Only one test at a time may use up the process's mappings.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

/// As many mappings as the process may have: every other page of an arena is one.
fn exhaust() -> Arena {
    let pages = 2 * inspect::max_map_count().unwrap();
    let arena = Arena::reserve(pages * PAGE).unwrap();
    let mut even = (0..pages).step_by(2);
    assert!(even.any(|at| arena.protect(at * PAGE, PAGE, Access::Read).is_err()), "there is a limit");
    // Two mappings more were refused; one more may still be had.
    let _ = arena.protect((pages - 1) * PAGE, PAGE, Access::Read);
    arena
}

fn a_store_waits_for_a_mapping_and_goes_on_when_there_is_one(machine: Machine) {
    let _alone = alone();
    let (Some(space), granule) = (machine.protecting_space(8), machine.granule()) else { return };
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let reference = output(&space, &buffer);
    let (begin, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // No thread can be started any more when there are no mappings.
        let bytes = &mut buffer;
        let client = scope.spawn(move || {
            begun.recv().unwrap();
            bytes[granule] = 2;
        });
        let exhausted = exhaust();
        begin.send(()).unwrap();
        while space.statistics().waits == 0 && !client.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        let finished = client.is_finished();
        drop(exhausted);
        assert!(!finished, "the store did not wait");
        let end = Instant::now() + Duration::from_secs(20);
        while !client.is_finished() {
            if Instant::now() > end {
                eprintln!("the store still waits, twenty seconds after there are mappings again");
                std::process::abort();
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(buffer[granule..granule + 2], [2, 1]);
    assert!(seen(&reference).iter().all(|byte| *byte == 1), "the output changed");
    let statistics = space.statistics();
    assert_eq!((statistics.waits, statistics.replacements), (1, 1), "{statistics:?}");
    checked(&space);
    drop(reference);
    checked(&space);
}

fn an_input_that_cannot_be_mapped_is_copied_and_leaves_no_protection(machine: Machine) {
    let _alone = alone();
    let (Some(space), granule) = (machine.protecting_space(12), machine.granule()) else { return };
    let mut buffer = space.allocate(3 * granule).unwrap();
    let mut expected = pattern(1, 3 * granule);
    buffer.copy_from_slice(&expected);
    let (beside, len) = (9, granule - 20);
    let (start, data) = (granule + beside, pattern(2, len));
    expected[start..start + len].copy_from_slice(&data);
    let mut system = space.aligned_buffer(beside, len).unwrap();
    scatter(&system.data(), &data);
    let bytes = client(buffer.addresses().start + start, len);
    let exhausted = exhaust();
    // Another granule in the middle of the buffer would make three mappings of one.
    let passed = space.deliver(&mut system, bytes, &(0..1));
    drop(exhausted);
    assert_eq!(passed.unwrap(), Passed { copied: len, kept: granule - len, ..Passed::default() });
    same(&buffer, &expected, "the input and the bytes beside it");
    buffer[granule] ^= 1;
    assert_eq!(space.statistics().faults, 0, "the granule that was to be swapped is still protected");
    checked(&space);
}

fn an_object_that_cannot_be_unmapped_is_unmapped_later(machine: Machine) {
    let _alone = alone();
    let space = machine.space(4);
    let lender = space.add_lender();
    if let Ok(object) = Object::create(space.granule_kind(), 2 * machine.granule()) {
        lend(&space, lender, object).unwrap();
    }
    let exhausted = exhaust();
    // One mapping more than that is allowed: the kernel then maps nothing at all, not even in the place of something else.
    let mut more = Vec::<u8>::new();
    let _ = more.try_reserve(1 << 30);
    space.remove_lender(lender);
    let left = checked(&space);
    drop((more, exhausted));
    assert_eq!((left.retired, left.lent), (2, 2), "the object was unmapped in spite of the limit");
    drop(space.allocate(1).unwrap());
    let usage = checked(&space);
    assert_eq!((usage.retired, usage.lent), (0, 0), "{usage:?}");
}
