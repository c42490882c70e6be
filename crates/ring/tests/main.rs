//! What is promised of the rings. Loom's models are in a binary of their own, which includes none of these tests.
#![cfg(not(loom))]

mod hostile;
mod order;
