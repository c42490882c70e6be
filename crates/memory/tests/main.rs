//! What is promised of memory, on each kind of granule.
//!
//! One binary, which costs one link. `fork`, `growth` and `mappings` are binaries of their own: they change their whole
//! process, or the machine.

#[macro_use]
mod machine;

mod arrivals;
mod backings;
mod borrows;
mod chains;
mod collapsed;
mod data;
mod frames;
mod lenders;
mod lending;
mod migrants;
mod mixed;
mod pools;
mod programs;
mod promises;
mod queues;
mod regions;
mod registrars;
mod reuse;
mod shortages;
mod swap;
mod tcow;
mod torture;
mod wiring;
