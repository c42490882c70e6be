//! Spaces: an I/O interface's memory, its tables and its lock.
//!
//! How: one mutex guards the tables (granules, slots, regions, pools). System calls that change mappings run under it;
//! copying never does, except into granules that nobody else can see. Its holder must not touch a window, since
//! the touch could fault and the fault handler needs the lock: servers and the library work through aliases.
//! Limits: `Config::limit` bytes of granules of its own; four times as many bytes of addresses for clients.

pub(crate) mod config;
pub(crate) mod core;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use genie_sys::userfault::{Userfault, Way};
use genie_sys::{Errno, GranuleKind, Object, inspect};

pub(crate) use self::core::Core;
use self::core::{AliasLens, Common};
use crate::faults::Handler;
pub(crate) use crate::tables::State;
use crate::tables::objects::{OBJECT_LEN, first_len};
use crate::{Error, Result, backing};
use config::{Config, Granularity, Protection, Statistics};

/// An I/O interface's memory. Cloning makes another handle to the same space.
#[derive(Clone)]
pub struct Space {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Dropped first: its thread has a handle to the core, and where that was the last one, the thread would tell registrars of the end.
    handler: Option<Arc<Handler>>,
    pub(crate) core: Arc<Core>,
    /// The space of 4 KiB granules for short buffers.
    pub(crate) small: Option<Space>,
}

impl Space {
    /// Makes a space with nothing in it but its first object.
    ///
    /// # Errors
    /// Granules or a userfaultfd of the kind asked for cannot be had; each error says what to do.
    ///
    /// # Cost
    /// The first object's memory is taken now: of reserved pages 32 MiB; of pages that are collapsed 8 MiB, or 2 MiB if the
    /// space chooses them; of others 1 MiB. Collapsing takes some 1 ms a MiB.
    pub fn new(config: &Config) -> Result<Self> {
        let object = first_object(config.granularity, config.limit)?;
        let kind = object.kind();
        let small = GranuleKind::Base;
        let is_mixed = config.granularity == Granularity::Best && kind.size() > small.size();
        let start = AliasLens::of(config, kind).total();
        let len = start + if is_mixed { AliasLens::of(config, small).total() } else { 0 };
        let common = Common::new(len.next_multiple_of(kind.size()), object.len())?;
        let small = is_mixed.then(|| Self::part(config, small, &common, start, None)).transpose()?;
        let space = Self::part(config, kind, &common, 0, small)?;
        object.allocate()?;
        space.core().lock().adopt(space.core(), object)?;
        Ok(space)
    }

    /// Makes a space with nothing in it; its objects will be of that kind.
    #[cfg(feature = "allocator")]
    pub(crate) fn without_objects(config: &Config, kind: GranuleKind) -> Result<Self> {
        let common = Common::new(AliasLens::of(config, kind).total(), 0)?;
        Self::part(config, kind, &common, 0, None)
    }

    /// Makes a space of one granule size, with no object yet.
    fn part(
        config: &Config,
        kind: GranuleKind,
        common: &Common,
        aliases_start: usize,
        small: Option<Self>,
    ) -> Result<Self> {
        let core = Arc::new(Core::new(config, kind, common.clone(), aliases_start)?);
        backing::enter(core.first_alias(), &core);
        let handler = core.userfault.is_some().then(|| Handler::start(&core)).transpose()?;
        Ok(Self { inner: Arc::new(Inner { handler: handler.map(Arc::new), core, small }) })
    }

    /// Another handle, with another small space.
    pub(crate) fn of(&self, small: Option<Self>) -> Self {
        let (core, handler) = (Arc::clone(&self.inner.core), self.inner.handler.clone());
        Self { inner: Arc::new(Inner { handler, core, small }) }
    }

    /// What the granules of the first object are made of, and how large all granules are; but for those of the small space.
    pub fn granule_kind(&self) -> GranuleKind {
        self.core().kind
    }

    /// The granule size in bytes; the larger one, where there are two.
    pub fn granule(&self) -> usize {
        self.core().granule()
    }

    /// How far output can be protected.
    pub fn protection(&self) -> Protection {
        self.core().protection
    }

    /// In which way stores are caught, if they are.
    pub fn fault_way(&self) -> Option<Way> {
        self.core().userfault.as_ref().map(Userfault::way)
    }

    /// What happened so far. Nothing, in a child made by fork.
    pub fn statistics(&self) -> Statistics {
        let of = |space: &Self| space.core().lock().statistics;
        if self.is_inherited() { Statistics::default() } else { self.each().map(of).sum() }
    }

    /// Sets what replacing one granule costs, so that regions whose faults cost more than copying are copied.
    pub fn set_replacement_cost(&self, nanoseconds: u64) {
        self.core().replacement_cost.store(nanoseconds, Relaxed);
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.core().limit()
    }

    /// Whether both are handles to one space. A space and its small space are one.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core().common.aliases, &other.core().common.aliases)
    }

    /// Whether both have granules of the same tables.
    pub(crate) fn has_tables_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.core, &other.inner.core)
    }

    /// Whether this process is a child, made by fork, of the one that has made the space. A child can use neither the space
    /// nor what comes from it: functions return [`Error::Inherited`] or nothing, and buffers hold zeros, which are the
    /// child's own.
    pub fn is_inherited(&self) -> bool {
        !self.core().is_own()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.inner.core
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("granules", &self.core().kind)
            .field("protection", &self.core().protection)
            .finish_non_exhaustive()
    }
}

/// Chooses the granule kind by making the first object. Of the best granules to be had, collapsed ones are chosen if the
/// kernel has collapsed one of them, at the second try if not at the first.
fn first_object(granularity: Granularity, limit: usize) -> Result<Object> {
    let make = |kind: GranuleKind, len: usize| {
        // Where granules are of two sizes, those of the other size have half of the limit, however low that is.
        let limit = if granularity == Granularity::Best { limit / 2 } else { limit };
        Object::create(kind, len.min(limit & !(kind.size() - 1)).max(kind.size()))
    };
    match granularity {
        Granularity::Only(GranuleKind::Huge) => {
            require_huge_pages(limit)?;
            Ok(make(GranuleKind::Huge, OBJECT_LEN)?)
        }
        Granularity::Only(kind) => Ok(make(kind, first_len(kind))?),
        Granularity::Best => {
            let collapse = || make(GranuleKind::Collapsed, GranuleKind::Collapsed.size());
            let collapsed = || collapse().ok().filter(|object| object.huge_bytes() > 0);
            match make(GranuleKind::Huge, OBJECT_LEN).ok().or_else(collapsed).or_else(collapsed) {
                Some(object) => Ok(object),
                None => Ok(make(GranuleKind::Base, first_len(GranuleKind::Base))?),
            }
        }
    }
}

/// Checks that the machine's reserve of huge pages can hold a first object.
fn require_huge_pages(limit: usize) -> Result<()> {
    let size = GranuleKind::Huge.size();
    let needed = OBJECT_LEN.min(limit).div_ceil(size);
    let pages = inspect::huge_pages()?;
    let available = pages.free.saturating_sub(pages.reserved);
    if available >= needed && pages.size_kib == 2048 {
        return Ok(());
    }
    let subject = format!("{needed} huge pages of 2 MiB ({available} available)");
    Err(Error::Kernel(
        genie_sys::Error::new("mmap", subject, Errno::NOMEM)
            .with_remedy("reserve some: `sysctl vm.nr_hugepages=400` as root, or `genie doctor --fix`"),
    ))
}
