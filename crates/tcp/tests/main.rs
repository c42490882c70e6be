//! The engine as its users see it: scripts of timed segments, and two ends with a network between them.

mod closing;
mod handshake;
mod pair;
mod recovery;
mod script;
mod sending;
mod simulation;
mod table;
