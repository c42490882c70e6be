//! Servers that come with the framework.

pub mod file;
pub mod memory;
