//! What a child made by fork has where its parent's arenas have been.
//!
//! Once, a child that was forked while an arena was dropped had zeros in memory of another thread's: that thread had mapped it at the
//! addresses of the arena when these were free, but still listed as the arena's.
#![allow(unsafe_code, reason = "maps memory as any thread of a program may, and forks")]

mod child;

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use genie_sys::Arena;

use child::{ExitOutcome, fork_child};

const MIB: usize = 1 << 20;
const STORED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Memory that begins with [`STORED`], or null.
static FILLED: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Maps memory, fills it, and unmaps it, over and over.
fn fill() {
    while !IS_OVER.load(Ordering::Relaxed) {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the mapping is new, and is unmapped when it is not shown any more. Children have mappings of their own.
        unsafe {
            let mapped = libc::mmap(std::ptr::null_mut(), 4 * MIB, rights, flags, -1, 0);
            assert_ne!(mapped, libc::MAP_FAILED);
            mapped.cast::<u64>().write(STORED);
            FILLED.store(mapped.cast(), Ordering::Release);
            (0..200).for_each(|_| std::hint::spin_loop());
            FILLED.store(std::ptr::null_mut(), Ordering::Release);
            libc::munmap(mapped, 4 * MIB);
        }
    }
}

#[test]
fn a_child_forked_while_arenas_are_dropped_has_the_memory_of_other_threads() {
    let drop_arenas = || {
        while !IS_OVER.load(Ordering::Relaxed) {
            drop(Arena::reserve(2 * MIB).expect("addresses"));
        }
    };
    let dropping = (0..4).map(|_| std::thread::spawn(drop_arenas));
    let threads: Vec<_> = dropping.chain([std::thread::spawn(fill)]).collect();
    let mut seen = [0; 3];
    for _ in 0..2_000 {
        // SAFETY: the child loads a pointer, and what it points to: memory that was mapped when the child was forked.
        let child = unsafe {
            fork_child(|| match FILLED.load(Ordering::Acquire) {
                filled if filled.is_null() => 0,
                filled if filled.read() == STORED => 1,
                _ => 2,
            })
        };
        match child.expect("a child").wait().expect("its end") {
            ExitOutcome::Code(code @ 0..=2) => seen[usize::from(code)] += 1,
            other => panic!("a child ended with {other:?}"),
        }
    }
    IS_OVER.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(seen[1] > 0, "no child had memory to look at");
    assert_eq!(seen[2], 0, "children had zeros in other threads' memory; of {seen:?}");
}
