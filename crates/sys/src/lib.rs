//! Linux calls as safe types: memory objects, mappings, faults, futexes, sockets, events, processes and /proc.
//!
//! Why: all crates above this one work with granules and references; only this crate knows that a granule is a page of
//! a memfd and that write protection is an ioctl.
//! Trust: the crates above check all that a peer sends before it comes here, except descriptors, which are checked
//! here.
//! Limits: Linux 5.19 or later (write protection by userfaultfd on shared and huge-paged memory).

#[allow(clippy::disallowed_types, reason = "all other code takes its locks from here")]
mod condvar;
mod copying;
mod error;
mod granule;
mod mmap;
mod per_process;

pub mod arena;
pub mod bpf;
pub mod cgroup;
pub mod event;
pub mod fork;
pub mod futex;
pub mod guard;
pub mod inspect;
#[allow(clippy::disallowed_types, reason = "all other code takes its locks from here")]
pub mod lock;
pub mod machine;
pub mod namespace;
pub mod object;
pub mod packet;
pub mod poll;
#[allow(clippy::disallowed_types, reason = "all other code takes its locks from here")]
pub mod primitive;
pub mod probe;
pub mod process;
pub mod record_lock;
pub mod shared;
pub mod socket;
pub mod span;
pub mod thread;
pub mod udp;
pub mod unshared;
pub mod userfault;
pub mod view;
pub mod xdp;

pub use arena::{Access, Arena};
pub use condvar::Condvar;
pub use error::{Error, Result};
pub use granule::GranuleKind;
pub use object::{Inode, Object};
pub use per_process::PerProcess;
pub use rustix::io::Errno;
pub use span::Span;
pub use view::View;

/// What `lock` and `condvar` are made of. Tests of other crates compile these two files again, over what a scheduler has.
#[allow(clippy::disallowed_types, reason = "all other code takes its locks from here")]
mod raw {
    pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, RwLock};
    pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
}

#[cfg(test)]
#[path = "../tests/child/mod.rs"]
mod child;
#[cfg(test)]
#[path = "../tests/proc/mod.rs"]
mod proc;
#[cfg(test)]
#[path = "../tests/seccomp/mod.rs"]
mod seccomp;
#[cfg(test)]
#[path = "../tests/skip/mod.rs"]
mod skip;
