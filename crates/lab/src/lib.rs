//! The papers' experiments and models, run on the user's machine; and the tools that every measurement here needs.
//!
//! Why: the cost of passing a byte depends on the machine, so the papers' experiments must be run again; quoting their
//! figures is not enough.

pub mod amounts;
pub mod call;
pub mod cards;
pub mod circumstances;
pub mod client_buffer;
pub mod clock;
pub mod comparison;
pub mod conclude;
pub mod counter;
pub mod data;
pub mod datagrams;
pub mod error;
pub mod experiment;
pub mod experiments;
pub mod figure;
pub mod findings;
pub mod interface;
pub mod length;
pub mod machine;
pub mod measurement;
pub mod medium;
pub mod memory_server;
pub mod model;
pub mod operations;
pub mod papers;
pub mod parties;
pub mod peer;
pub mod placement;
pub mod probe;
pub mod report;
pub mod runner;
pub mod samples;
pub mod store;
pub mod touch;
pub mod transport;
pub mod yardsticks;
