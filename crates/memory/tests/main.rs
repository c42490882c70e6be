//! What is promised of memory, on each kind of granule.
//!
//! One binary, which costs one link. `fork` and `mappings` are binaries of their own: they change their whole process.

#[macro_use]
mod machine;

mod data;
mod lenders;
mod lending;
mod migrants;
mod pools;
mod programs;
mod promises;
mod regions;
mod reuse;
mod shortages;
mod swap;
mod tcow;
mod torture;
mod wiring;
