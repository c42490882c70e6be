//! `libgenie`: Genie for programs in C and C++, with the calls of the thesis.
//!
//! How: what C knows by numbers (interfaces, servers, pending requests) and by addresses (buffers) is in the tables of
//! `process.rs`. A call looks up what it names, composes a request of `genie_io` from the caller's headers, and writes what came
//! of it back to them. Everything that C may get wrong is checked first, so that a call that fails has changed nothing.
//! Invariants: numbers are never given twice, not even in a child made by fork.
//! Limits: a buffer that a request uses must stay where it is until the request is over. Genie can tell for buffers of
//! [`io_allocate`](memory::io_allocate), and for no others.
//! Source: thesis §7.1 to §7.3, §13.1.
//!
//! `include/genie.h` is made from this crate's public items and their comments.
#![allow(unsafe_code, reason = "C passes pointers, and calls functions by their unmangled names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules of each call are its comment, which C programmers read, too"
)]

pub mod batch;
mod compose;
pub mod connect;
pub mod failure;
mod given;
mod handles;
mod headers;
mod held;
pub mod interface;
pub mod memory;
pub mod messages;
pub mod network;
mod opened;
pub mod outboard;
mod outcome;
pub mod overlay;
pub mod packet;
pub mod pending;
pub mod pin;
pub mod pinned;
mod process;
mod receipt;
mod regions;
mod registered;
pub mod request;
mod requested;
pub mod server;
mod shown;
pub mod taken;
pub mod types;
