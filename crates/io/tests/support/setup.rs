//! Configurations: every kind of memory, protection and system buffer. The promises are the same for all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use genie_io::{Interface, Limits};
use genie_memory::{Config, Faults, Granularity, GranuleKind, Protection, Space, Usage};
use genie_passing::{Costs, Passing, Thresholds};
use genie_sys::userfault::{Userfault, Way};

use super::machine::{missing_huge_pages, skip};

/// How stores into output are caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// By a userfaultfd with full rights.
    Full,
    /// By one that catches the program's stores only; the program promises that the kernel makes none.
    Stores,
    /// By one that catches the program's stores only, without that promise: not at all.
    Unpromised,
    /// Not at all.
    Never,
}

/// Whether servers fill buffers made for the request or their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffering {
    Customized,
    Pooled,
}

/// Which granules a test's space has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granules {
    Huge,
    Collapsed,
    Base,
    /// Granules of 4 KiB, from which the test's buffers come, and huge ones besides.
    Mixed,
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The granules from which the test's buffers come.
    pub(crate) kind: GranuleKind,
    /// Whether the space has huge granules besides.
    pub(crate) mixed: bool,
    pub(crate) guard: Guard,
    pub(crate) buffering: Buffering,
}

impl Setup {
    /// What is needed most: huge or small granules, full rights, customized buffers.
    pub(crate) const fn plain(kind: GranuleKind) -> Self {
        Self { kind, mixed: false, guard: Guard::Full, buffering: Buffering::Customized }
    }

    pub(crate) const fn new(granules: Granules, guard: Guard, buffering: Buffering) -> Self {
        let (kind, mixed) = match granules {
            Granules::Huge => (GranuleKind::Huge, false),
            Granules::Collapsed => (GranuleKind::Collapsed, false),
            Granules::Base => (GranuleKind::Base, false),
            Granules::Mixed => (GranuleKind::Base, true),
        };
        Self { kind, mixed, guard, buffering }
    }

    /// The limit for the spaces of most tests.
    pub(crate) const fn memory_limit(self) -> usize {
        if self.mixed { 96 << 20 } else { memory_limit(self.kind) }
    }

    /// The same with the best protection that this process may have.
    pub(crate) fn allowed(kind: GranuleKind) -> Self {
        let full = Userfault::open().is_ok_and(|userfault| userfault.way().catches_kernel_stores());
        let guard = if full { Guard::Full } else { Guard::Stores };
        Self { guard, ..Self::plain(kind) }
    }

    /// Bytes in one granule.
    pub(crate) const fn granule(self) -> usize {
        self.kind.size()
    }

    /// How many granules the buffers of a test have: with small granules, enough for page tables to be swapped.
    pub(crate) const fn granules(self) -> usize {
        match self.kind {
            GranuleKind::Huge | GranuleKind::Collapsed => 3,
            GranuleKind::Base => 20,
        }
    }

    /// A space with a limit of this many bytes. Where the machine cannot make one, says so and returns `None`.
    pub(crate) fn space(self, test: &str, limit: usize) -> Option<Space> {
        if let Some(reason) = self.missing(limit) {
            skip(test, &reason);
            return None;
        }
        let faults = match self.guard {
            Guard::Full => Faults::Best,
            Guard::Stores | Guard::Unpromised => Faults::Only(Way::UserModeOnly),
            Guard::Never => Faults::Never,
        };
        let config = Config {
            granularity: if self.mixed { Granularity::Best } else { Granularity::Only(self.kind) },
            limit,
            faults,
            kernel_never_stores: self.guard == Guard::Stores,
            pool: limit / 2,
        };
        let space = Space::new(&config).expect("a space");
        assert_eq!(space.small().is_some(), self.mixed);
        if self.guard == Guard::Full && space.protection() != Protection::Full {
            skip(test, &format!("output cannot be protected fully: {:?}", space.protection()));
            return None;
        }
        Some(space)
    }

    /// An interface with so much memory, whose emulated copy avoids copying as these thresholds say.
    pub(crate) fn interface(
        self,
        test: &str,
        limit: usize,
        limits: Limits,
        thresholds: Thresholds,
    ) -> Option<Interface> {
        Some(interface(self.space(test, limit)?, limits, thresholds))
    }

    fn missing(self, limit: usize) -> Option<String> {
        if (self.kind == GranuleKind::Huge || self.mixed)
            && let Some(reason) = missing_huge_pages(limit / GranuleKind::Huge.size())
        {
            return Some(reason);
        }
        let user_mode = matches!(self.guard, Guard::Stores | Guard::Unpromised);
        let refused = user_mode.then(|| Userfault::open_way(Way::UserModeOnly).err()).flatten();
        refused.map(|error| format!("no userfaultfd for user mode: {error}"))
    }
}

/// An interface on a space, whose emulated copy avoids copying as these thresholds say.
pub(crate) fn interface(space: Space, limits: Limits, thresholds: Thresholds) -> Interface {
    let passing = Passing::new(space, Costs::default());
    Interface::new(passing.with_thresholds(thresholds), limits)
}

/// The limit for the spaces of most tests.
pub(crate) const fn memory_limit(kind: GranuleKind) -> usize {
    match kind {
        GranuleKind::Huge | GranuleKind::Collapsed => 80 << 20,
        GranuleKind::Base => 32 << 20,
    }
}

/// Verifies the books.
#[track_caller]
pub(crate) fn checked(space: &Space) -> Usage {
    space.check().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// Verifies that nothing is held any more but `reserved` granules of servers' own buffers.
///
/// The thread that replies wakes the client first, and lets go of the server afterwards, which may be the last to know it.
#[track_caller]
pub(crate) fn assert_idle(interface: &Interface, reserved: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut usage = checked(interface.space());
    while usage.system as usize != reserved && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
        usage = checked(interface.space());
    }
    assert_eq!(interface.pending_bytes(), 0, "no bytes are pending");
    assert_eq!(usage.references, 0, "nothing is referenced: {usage:?}");
    assert_eq!(usage.deferred, 0, "nothing waits for a reference: {usage:?}");
    assert_eq!(usage.regions, usage.queued, "every region left waits for reuse: {usage:?}");
    assert_eq!(usage.system as usize, reserved, "all system buffers are back: {usage:?}");
}

/// A number that no other call in this process returns: a seed for patterns.
pub(crate) fn fresh_seed() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
