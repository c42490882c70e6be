//! What threads do with one request at the same time, in orders that shuttle chooses.
//!
//!     RUSTFLAGS="--cfg interleaved" CARGO_TARGET_DIR=target/interleaved cargo test -p genie-io --release --test interleavings
//!
//! How: with `--cfg interleaved` the locks, atomics, threads and sleeps of genie-io are shuttle's. Shuttle runs one thread
//! at a time, and at each of these operations decides which thread goes on. All of the crate's code is under test:
//! interfaces, servers, channels. No wait ends by its timeout there, so a thread that is not woken waits for ever, which
//! fails the test. The exception is a sleep on a ring, after which a client looks whether its server is still there.
//! Limits: `GENIE_INTERLEAVINGS` says how many orders of each kind, at random and by priorities, are tried (500). A failure
//! prints the schedule that repeats it. The order of memory accesses is not explored; `followers.rs` does that where it
//! matters.
#![cfg(interleaved)]

#[path = "interleavings/completers.rs"]
mod completers;
#[path = "interleavings/departures.rs"]
mod departures;
#[path = "interleavings/evictions.rs"]
mod evictions;
#[path = "interleavings/leaders.rs"]
mod leaders;
#[path = "interleavings/loops.rs"]
mod loops;
#[path = "interleavings/replies.rs"]
mod replies;
#[path = "interleavings/scene.rs"]
mod scene;
