//! What is promised of data passing.
//!
//! One binary, which costs one link. `calibration` is a binary of its own: it measures, and is not to be disturbed.

mod parties;
mod recorder;
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;
mod tables;
