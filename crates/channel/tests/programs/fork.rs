//! Fork, in the middle of a program: a child stores into the copy that it inherits, and no other process notices.
#![allow(unsafe_code, reason = "forks; the child stores into private memory and exits")]

use genie_memory::{Buffer, Inheritance};

use crate::child::{ExitOutcome, fork_child};

/// Forks a child that verifies its copy's first and last byte, overwrites all of it and exits.
pub(crate) fn store_in_child(buffer: &mut Buffer) {
    let addresses = buffer.addresses();
    let (first, last) = (buffer[0], buffer[buffer.len() - 1]);
    let inheritance = Inheritance::prepare(&[buffer]).expect("memory for the copy");
    let (start, len) = (std::ptr::with_exposed_provenance_mut::<u8>(addresses.start), addresses.len());
    let child = || {
        // SAFETY: this is the child, and it has touched none of its buffers.
        if unsafe { inheritance.take_over() }.is_err() {
            return 2;
        }
        // SAFETY: `take_over` put private memory of `len` bytes there, which this thread, the only one, alone uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
        if bytes[0] != first || bytes[len - 1] != last {
            return 3;
        }
        bytes.fill(!first);
        u8::from(bytes[len / 2] != !first)
    };
    // SAFETY: the child makes system calls, loads and stores, and frees one vector, which the C library's allocator
    // allows after a fork.
    let child = unsafe { fork_child(child) }.expect("a child");
    assert_eq!(child.wait().expect("the child's end"), ExitOutcome::Code(0), "what the child found");
}
