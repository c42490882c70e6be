//! Servers that come with the framework.

pub mod memory;
