//! What is promised of the rings. Loom's models are a binary of their own, since all of this is left out of theirs.
#![cfg(not(loom))]

mod hostile;
mod order;
