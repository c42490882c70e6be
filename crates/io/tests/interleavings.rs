//! What threads do with one request at the same time, in orders that shuttle chooses.
//!
//!     RUSTFLAGS="--cfg interleaved" CARGO_TARGET_DIR=target/interleaved cargo test -p genie-io --release --test interleavings
//!
//! How: with `--cfg interleaved` the locks, atomics, threads and sleeps of genie-io are shuttle's, which runs one thread at a
//! time and decides at each of them who goes on. The code under test is all of it: interfaces, servers, channels. No wait ends
//! by its timeout there, so that a thread that is not woken waits for ever, and that fails the test; but for a sleep on a ring,
//! after which a client looks whether its server is still there.
//! Limits: `GENIE_INTERLEAVINGS` is how many orders are tried of each kind, at random and by priorities (500). A failure prints
//! the schedule that repeats it. The order of memory accesses is not explored; `followers.rs` does that where it matters.
#![cfg(interleaved)]

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
