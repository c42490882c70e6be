//! The data passing model and the eight schemes.
//!
//! Why: whether data is copied, shared or moved is a contract between two parties; how that is done is not. This crate
//! keeps the two apart: `model` says what a scheme promises, `tables` says which operations keep the promise, and the
//! engine runs them.
//! How: [`Passing::output`] and [`Passing::input`] run the request-time operations and return a transfer, which later
//! runs the ready-time and reply-time operations and says in a [`Receipt`] what was done.
//! Source: thesis chapter 2, §7.4.

pub mod calibration;
mod carried;
mod cost;
mod engine;
mod error;
mod in_place;
mod input;
pub mod model;
pub mod operation;
mod outboard;
mod output;
mod overlay;
mod parties;
mod receipt;
mod recorder;
pub mod scheme;
mod spare;
pub mod tables;
mod threshold;

pub use carried::Carried;
pub use cost::{Cost, Costs, Line};
pub use engine::{Hold, Passing};
pub use error::{Error, Refused, Result};
pub use input::{Input, Target};
pub use outboard::Outboard;
pub use output::{Output, Source};
pub use overlay::{Chain, Layout, Overlay, Overlays, Preferred};
pub use parties::Parties;
pub use receipt::{Reason, Receipt, TotalReceipt};
pub use recorder::{Column, Moment, Record, Recorder};
pub use scheme::Scheme;
#[doc(hidden)]
pub use spare::Spare;
pub use threshold::{CARRIED, Thresholds};

#[cfg(test)]
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;
