//! `libfbufs`: the calls of SMLI TR-95-39 for programs in C, by addresses and descriptors.
//!
//! How: a table of this process's buffers by their addresses (`buffers`) and one of its channels and servers by their descriptors
//! (`process`). A call looks up what it is given, and then does what the Rust call does.
//! Invariants: a buffer is in the table exactly while it is the program's. A child made by fork has tables of its own, which
//! are empty.
//! Trust: any address and any number may be passed; only where a result is to be stored, and whose a descriptor of the kernel's is, is
//! the program's word taken. So these calls are `unsafe` in Rust, where another part of the program may own the descriptor:
//!
//! ```compile_fail,E0133
//! genie_fbufs::c::calls::uf_write(1, std::ptr::null(), 0);
//! ```
//! ```compile_fail,E0133
//! genie_fbufs::c::channels::uf_close(1);
//! ```
//!
//! Limits: a call looks in tables under locks, for which it takes longer than the call in Rust.
//!
//! `include/fbufs.h` is made from the public items of these files and their comments.
#![allow(unsafe_code, reason = "C passes pointers, and calls functions by their unmangled names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules of each call are its comment, which C programmers read, too"
)]

mod buffers;
pub mod calls;
pub mod channels;
pub mod failure;
pub mod messages;
pub mod pipes;
pub mod pools;
mod process;
pub mod registrations;
pub mod streams;
pub mod sysv;
