//! The machine under the tests: page frames, raw looks at addresses, and the messages for what is missing.

use genie_sys::{inspect, process};

#[path = "../../sys/tests/proc/mod.rs"]
mod proc;
#[path = "../../sys/tests/skip/mod.rs"]
mod skipping;

/// Says that a test, or a part of it, was not run, and why: `SKIP test: reason`, also in the file that `GENIE_SKIP_LOG` names.
pub fn skip(test: &str, reason: &str) {
    skipping::skip(test, reason);
}

/// Why the machine has too few huge pages for a test, if so.
pub fn missing_huge_pages(needed: usize) -> Option<String> {
    let pages = inspect::huge_pages().expect("/proc/meminfo is readable");
    let available = pages.free.saturating_sub(pages.reserved);
    (pages.size_kib != 2048 || available < needed)
        .then(|| format!("{available} huge pages of 2 MiB are available, {needed} are needed"))
}

/// The page frames of the granules that hold `len` bytes at `addr`, one for each granule; `None` where frames are
/// hidden from this process.
pub fn frames(addr: usize, len: usize, granule: usize) -> Option<Vec<u64>> {
    let first = addr & !(granule - 1);
    (first..addr + len)
        .step_by(granule)
        .map(|addr| {
            // Protecting collapsed pages empties page tables, which loads fill again.
            let _ = is_accessible(addr);
            let page = proc::page_frames(addr, 1)[0];
            assert!(page.present, "no page at {addr:#x}");
            page.frame
        })
        .collect()
}

/// The bytes at an address right now, whoever owns them: the kernel reads them, without a Rust reference.
pub fn raw(addr: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = process::read_memory(process::own_pid(), addr, &mut bytes).expect("readable memory");
    assert_eq!(read, len, "readable memory at {addr:#x}");
    bytes
}

/// Whether `addr` can be loaded from, found out without a fault.
pub fn is_accessible(addr: usize) -> bool {
    process::read_memory(process::own_pid(), addr, &mut [0]).is_ok_and(|read| read == 1)
}
