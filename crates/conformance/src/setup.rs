//! Configurations: every kind of memory, protection and system buffer. The promises are the same for all.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use genie_io::{Interface, Limits};
use genie_memory::{Config, Faults, Granularity, GranuleKind, Protection, Space, Usage};
use genie_passing::{Costs, Passing, Thresholds};
use genie_sys::userfault::{Userfault, Way};

use super::machine::{missing_huge_pages, skip};

/// How stores into output are caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
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
pub enum Buffering {
    /// Made for the request (table 7.2).
    Customized,
    /// Their own (table 7.3).
    Pooled,
    /// Their own, in frames of an object, at places and of lengths that are no multiples of anything.
    Framed,
}

/// Which granules a test's space has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granules {
    /// 2 MiB, from the machine's reserve.
    Huge,
    /// 2 MiB, which the kernel has collapsed.
    Collapsed,
    /// 4 KiB.
    Base,
    /// Granules of 4 KiB, from which the test's buffers come, and huge ones besides.
    Mixed,
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// The granules from which the test's buffers come.
    pub kind: GranuleKind,
    /// Whether the space has huge granules besides.
    pub mixed: bool,
    /// How stores into output are caught.
    pub guard: Guard,
    /// Which buffers the servers fill.
    pub buffering: Buffering,
}

impl Setup {
    /// What is needed most: huge or small granules, full rights, customized buffers.
    pub const fn plain(kind: GranuleKind) -> Self {
        Self { kind, mixed: false, guard: Guard::Full, buffering: Buffering::Customized }
    }

    /// One configuration.
    pub const fn new(granules: Granules, guard: Guard, buffering: Buffering) -> Self {
        let (kind, mixed) = match granules {
            Granules::Huge => (GranuleKind::Huge, false),
            Granules::Collapsed => (GranuleKind::Collapsed, false),
            Granules::Base => (GranuleKind::Base, false),
            Granules::Mixed => (GranuleKind::Base, true),
        };
        Self { kind, mixed, guard, buffering }
    }

    /// The limit for the spaces of most tests.
    pub const fn memory_limit(self) -> usize {
        if self.mixed { 96 << 20 } else { memory_limit(self.kind) }
    }

    /// The same with the best protection that this process may have.
    pub fn allowed(kind: GranuleKind) -> Self {
        let full = Userfault::open().is_ok_and(|userfault| userfault.way().catches_kernel_stores());
        let guard = if full { Guard::Full } else { Guard::Stores };
        Self { guard, ..Self::plain(kind) }
    }

    /// Bytes in one granule.
    pub const fn granule(self) -> usize {
        self.kind.size()
    }

    /// How many granules the buffers of a test have: with small granules, enough for page tables to be swapped.
    pub const fn granules(self) -> usize {
        match self.kind {
            GranuleKind::Huge | GranuleKind::Collapsed => 3,
            GranuleKind::Base => 20,
        }
    }

    /// A space with a limit of this many bytes. Where the machine cannot make one, says so and returns `None`.
    pub fn space(self, test: &str, limit: usize) -> Option<Space> {
        self.make_space(limit).map_err(|reason| skip(test, &reason)).ok()
    }

    /// A space with a limit of this many bytes, or why the machine cannot make one.
    pub(crate) fn make_space(self, limit: usize) -> Result<Space, String> {
        if let Some(reason) = self.missing(limit) {
            return Err(reason);
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
            return Err(format!("output cannot be protected fully: {:?}", space.protection()));
        }
        Ok(space)
    }

    /// An interface with so much memory, whose emulated copy avoids copying as these thresholds say.
    pub fn interface(
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

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let granules = match (self.kind, self.mixed) {
            (GranuleKind::Huge, _) => "reserved huge pages",
            (GranuleKind::Collapsed, _) => "collapsed huge pages",
            (GranuleKind::Base, false) => "4 KiB pages",
            (GranuleKind::Base, true) => "4 KiB pages beside huge ones",
        };
        let guard = match self.guard {
            Guard::Full => "all stores caught",
            Guard::Stores => "the program's stores caught",
            Guard::Unpromised | Guard::Never => "no stores caught",
        };
        let buffering = match self.buffering {
            Buffering::Customized => "customized",
            Buffering::Pooled => "pooled",
            Buffering::Framed => "framed",
        };
        write!(f, "{granules}, {guard}, {buffering} buffers")
    }
}

/// An interface on a space, whose emulated copy avoids copying as these thresholds say.
pub fn interface(space: Space, limits: Limits, thresholds: Thresholds) -> Interface {
    let passing = Passing::new(space, Costs::default());
    Interface::new(passing.with_thresholds(thresholds), limits)
}

/// The limit for the spaces of most tests.
pub const fn memory_limit(kind: GranuleKind) -> usize {
    match kind {
        GranuleKind::Huge | GranuleKind::Collapsed => 80 << 20,
        GranuleKind::Base => 32 << 20,
    }
}

/// Verifies the books.
#[track_caller]
pub fn checked(space: &Space) -> Usage {
    space.check().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// Verifies that nothing is held any more but `reserved` granules of servers' own buffers.
///
/// The thread that replies wakes the client first, and lets go of the server afterwards, which may be the last to know it.
#[track_caller]
pub fn assert_idle(interface: &Interface, reserved: usize) {
    assert_idle_within(Duration::from_secs(10), interface, reserved);
}

/// The same, when the server had so much time to know it.
#[track_caller]
pub(crate) fn assert_idle_within(patience: Duration, interface: &Interface, reserved: usize) {
    let end = Instant::now() + patience;
    let mut usage = checked(interface.space());
    let is_idle = |usage: &Usage| {
        usage.system as usize == reserved
            && usage.regions == usage.queued
            && (usage.references, usage.deferred, interface.pending_bytes()) == (0, 0, 0)
    };
    while !is_idle(&usage) && Instant::now() < end {
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
pub fn fresh_seed() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
