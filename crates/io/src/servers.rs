//! Servers that come with the framework: one, for tests.

pub mod memory;
