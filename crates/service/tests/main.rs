//! Typed services: what goes through a call, what it costs, and what happens when the two sides do not fit.

mod bulk;
mod mismatches;
mod peers;
mod small;
mod stage;
mod waiting;
