//! Networks: the wire.
//!
//! How: a [`Wire`] brings frames to a station. A [`Frame`] is what arrives there.
//! Source: thesis §6.4, §8.1.

pub mod checksum;
mod frame;
mod rate;
pub mod traffic;
pub mod wire;

pub use frame::{Flip, Frame};
pub use rate::{Line, Rate};
pub use wire::Wire;
