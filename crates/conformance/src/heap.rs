//! The heap of the tests, which allocate and free megabytes all the time.
//!
//! Why: the C library gives freed memory back to the kernel, so each page of the next buffer faults and is zeroed. That took
//! a quarter of the conformance tests' time.
#![allow(
    unsafe_code,
    reason = "sets two numbers of the C library's allocator, which no memory safety rests on"
)]

use std::sync::Once;

/// Has the allocator use memory again that was freed, where it is the GNU C library's. Sanitizers' allocators ignore it.
pub(crate) fn keep_what_is_freed() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        #[cfg(target_env = "gnu")]
        // SAFETY: both calls store a number.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
        }
    });
}
