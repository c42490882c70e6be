//! The limit of mappings: a store that cannot get a granule of its own at this limit waits, and goes on when there is room
//! again; an input that cannot be swapped is copied.
//!
//! A test binary of its own, since the limit is the process's.

mod machine;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use genie_memory::{InputPlan, Passed};
use genie_sys::{Access, Arena, inspect};
use machine::{Machine, checked, client, output, pattern, same, scatter, seen};

on_each_kind!(
    a_store_waits_for_a_mapping_and_goes_on_when_there_is_one,
    an_input_that_cannot_be_mapped_is_copied_and_leaves_no_protection,
);

const PAGE: usize = 4096;

/// Only one test at a time may use up the process's mappings.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As many mappings as the process may have: every other page of an arena is one.
fn exhaust() -> Arena {
    let pages = 2 * inspect::max_map_count().unwrap();
    let arena = Arena::reserve(pages * PAGE).unwrap();
    let mut odd = (0..pages).skip(1).step_by(2);
    assert!(odd.any(|at| arena.protect(at * PAGE, PAGE, Access::Read).is_err()), "there is a limit");
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
    let passed = space.deliver(&mut system, bytes, &InputPlan { swap: 0..1 });
    drop(exhausted);
    assert_eq!(passed.unwrap(), Passed { copied: granule, swapped: 0 });
    same(&buffer, &expected, "the input and the bytes beside it");
    buffer[granule] ^= 1;
    assert_eq!(space.statistics().faults, 0, "the granule that was to be swapped is still protected");
    checked(&space);
}
