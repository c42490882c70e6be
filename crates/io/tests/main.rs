//! What is promised of requests, replies and channels.
//!
//! One binary, which costs one link. Alone are those that count what their process does or has (`allocations`, `trust`), that
//! fork (`fork`, `programs`), that take the machine's memory (`soak`), or that are built with a cfg (`interleavings`, `turns`).

mod support;

mod clients;
mod conformance;
mod depth;
mod mechanism;
mod panics;
mod processes;
mod requests;
mod waiting;
