//! What is promised of requests, replies and channels.
//!
//! These tests are one binary, since each binary must be linked. Tests have a binary of their own if they count what their
//! process does or has (`allocations`, `trust`), fork (`fork`, `programs`), take the machine's memory (`soak`), or are built
//! with a cfg (`followers`, `interleavings`).

mod support;

mod clients;
mod conformance;
mod depth;
mod mechanism;
mod panics;
mod processes;
mod requests;
mod waiting;
