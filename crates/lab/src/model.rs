//! What the papers' models compute: pure functions of measured costs.
//!
//! Why: a model that predicts a latency from the costs of single operations shows that nothing was forgotten, and says
//! what a faster network, memory or CPU would change.

pub mod breakdown;
pub mod comparison;
pub mod fit;
pub mod measured;
pub mod projection;
pub mod reproduced;
pub mod rows;
pub mod scaling;
pub mod single_copy;
