//! What a space is to be like, and what it says of itself.

use genie_sys::userfault::Way;
use genie_sys::{GranuleKind, machine};

/// Which granules a space's objects are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granularity {
    /// Reserved huge pages where the machine has free ones, else granules of 2 MiB whose pages the kernel collapses to
    /// huge ones, and 4 KiB pages for short buffers; else 4 KiB pages alone. A space's first object decides on the size of
    /// its larger granules. Each later object is made of reserved pages, if there are enough by then, and of collapsed ones
    /// otherwise ([`Space::made_of`](crate::Space::made_of)).
    #[default]
    Best,
    /// This kind or an error. It is no error if the kernel cannot collapse pages ([`GranuleKind::Collapsed`]).
    Only(GranuleKind),
}

/// How a space catches stores into protected granules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// By the best userfaultfd to be had.
    #[default]
    Best,
    /// By a userfaultfd obtained in this way, or an error.
    Only(Way),
    /// Not at all: output is never protected.
    Never,
}

/// What a space is to be like. Defaults are in parentheses.
#[derive(Debug, Clone)]
pub struct Config {
    /// What its granules are made of ([`Granularity::Best`]).
    pub granularity: Granularity,
    /// How many bytes of memory it may take (half of the machine's, or three quarters of what the process's memory cgroup
    /// allows, if that is less); and how many more it may add to lenders' pools, while requests need that
    /// ([`Space::with_stand_ins`](crate::Space::with_stand_ins)). Besides, a space takes no memory that the cgroup has no room for.
    pub limit: usize,
    /// How stores into protected granules are caught ([`Faults::Best`]).
    pub faults: Faults,
    /// The program's promise (false) that no system call ever stores into memory of this space while an output from it is
    /// pending (no `read` into the buffer and the like). Only with it may a userfaultfd that cannot catch the kernel's
    /// own stores be used; the kernel's store would fail with `EFAULT` instead.
    pub kernel_never_stores: bool,
    /// How many bytes of system buffers are kept for reuse, in granules of each size (a quarter of the limit). Of regions that
    /// migrant buffers have left, weak and strong ones together, as many bytes are kept, but at most 64 MiB, in granules of each size.
    /// Beyond that the region that has waited longest gives its memory back; the one freed last is kept, however long it is.
    pub pool: usize,
}

impl Default for Config {
    fn default() -> Self {
        let limit = (machine::total_memory() / 2).min(machine::usable_memory()) as usize;
        Self {
            granularity: Granularity::Best,
            limit,
            faults: Faults::Best,
            kernel_never_stores: false,
            pool: limit / 4,
        }
    }
}

/// How far a space can protect output against stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Against stores by the program and by the kernel on its behalf.
    Full,
    /// Against stores by the program; the program promised that the kernel makes none.
    StoresOnly,
    /// Not at all, for this reason: emulated copy copies output that is not borrowed until the reply.
    None(&'static str),
}

/// Counts since the space was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Write faults handled.
    pub faults: u64,
    /// Granules that faults replaced, because an output was pending from them.
    pub replacements: u64,
    /// Faults that had to wait for an output, because no memory or mapping was left for a replacement.
    pub waits: u64,
    /// Granules whose write permission was removed.
    pub protected: u64,
    /// Granules whose write permission was given back without a fault.
    pub reinstated: u64,
    /// Granules that changed places by page swapping.
    pub swapped: u64,
}

impl std::iter::Sum for Statistics {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            faults: sum.faults + one.faults,
            replacements: sum.replacements + one.replacements,
            waits: sum.waits + one.waits,
            protected: sum.protected + one.protected,
            reinstated: sum.reinstated + one.reinstated,
            swapped: sum.swapped + one.swapped,
        })
    }
}
