//! What is promised of data passing.
//!
//! One binary, which costs one link. `calibration` is a binary of its own: it measures, and other tests must not
//! disturb it.

mod parties;
mod recorder;
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;
mod tables;
