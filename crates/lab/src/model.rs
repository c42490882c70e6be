//! The papers' models: pure functions of measured costs.
//!
//! Why: a model that predicts a latency from the costs of single operations shows that no cost was forgotten, and tells what
//! a faster network, memory or CPU would change.

pub mod breakdown;
pub mod comparison;
pub mod fit;
pub mod measured;
pub mod projection;
pub mod reproduced;
pub mod rows;
pub mod scaling;
pub mod single_copy;
