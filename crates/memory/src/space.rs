//! Spaces: an I/O interface's memory, its tables and its lock.
//!
//! How: one mutex guards the tables (granules, slots, regions, pools). System calls that change mappings run under it;
//! copying never does, except into granules that nobody else can see. Its holder must not touch a window, since
//! the touch could fault and the fault handler needs the lock: servers and the library work through aliases.
//! Limits: `Config::limit` bytes of granules of its own; four times as many bytes of addresses for clients.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use genie_sys::fork::Maker;
use genie_sys::guard::Guard;
use genie_sys::inspect;
use genie_sys::lock::Mutex;
use genie_sys::userfault::{Userfault, Way};
use genie_sys::{Arena, Errno, GranuleKind, Object, machine};

use crate::faults::Handler;
use crate::granule::Granules;
use crate::locked::Locked;
use crate::losses::Losses;
use crate::mixed::Common;
use crate::objects::{OBJECT_LEN, Objects, first_len};
use crate::pool::Pools;
use crate::queues::{MIGRANTS_KEPT, Queues};
use crate::region::Regions;
use crate::runs::Run;
use crate::slots::Slots;
use crate::{Error, Recycling, Result};

/// Lent objects have as many bytes of addresses as the space's own objects, and at least this many.
const LENT_ADDRESSES_MIN: usize = 1 << 30;
const PAGE_TABLE: usize = 2 << 20;
/// A space has at most 2^`LONGEST_TABLE` granules of its own, since four times as many slots are numbered in 32 bits.
const LONGEST_TABLE: u32 = 29;

/// Which granules a space's objects are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granularity {
    /// Reserved huge pages where the machine has free ones, else granules of 2 MiB whose pages the kernel collapses to
    /// huge ones, and 4 KiB pages for short buffers; else 4 KiB pages alone. A space's first object decides on the size of
    /// its larger granules. Each later object is made of reserved pages, if there are enough by then, and of collapsed ones
    /// otherwise ([`Space::made_of`]).
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
    /// ([`Space::with_stand_ins`]). Besides, a space takes no memory that the cgroup has no room for.
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

/// The tables.
pub(crate) struct State {
    pub(crate) granules: Granules,
    pub(crate) slots: Slots,
    pub(crate) regions: Regions,
    pub(crate) pools: Pools,
    pub(crate) recycling: Recycling,
    pub(crate) queues: Queues,
    /// Slots whose faulting threads wait for an output to complete.
    pub(crate) waiting: Vec<u32>,
    /// Granules of replacements that are being made.
    pub(crate) replacing: u32,
    pub(crate) objects: Objects,
    pub(crate) losses: Losses,
    pub(crate) statistics: Statistics,
}

/// What the space's handles, buffers and fault handler share.
pub(crate) struct Core {
    maker: Maker,
    granularity: Granularity,
    pub(crate) kind: GranuleKind,
    /// The granule size as a power of two.
    shift: u32,
    limit: usize,
    pub(crate) pool_limit: u32,
    /// How many granules queues keep in regions that migrant buffers have left.
    pub(crate) migrants_limit: u32,
    pub(crate) windows: Arena,
    pub(crate) common: Common,
    /// Where this core's granules begin among the aliases.
    aliases_start: usize,
    pub(crate) userfault: Option<Userfault>,
    pub(crate) protection: Protection,
    /// What replacing one granule costs, in nanoseconds.
    pub(crate) replacement_cost: AtomicU64,
    /// How many slots are protected.
    pub(crate) protected: Arc<AtomicU32>,
    /// How many objects are not of reserved huge pages.
    pub(crate) unreserved: Arc<AtomicU32>,
    /// The guard of the windows, which is there from the first lent object on.
    pub(crate) guard: OnceLock<Guard>,
    /// The count of missing memory at the last look for losses.
    pub(crate) missing_seen: AtomicU32,
    pub(crate) has_losses: AtomicBool,
    state: Mutex<State>,
}

/// An I/O interface's memory. Cloning makes another handle to the same space.
#[derive(Clone)]
pub struct Space {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    /// The space of 4 KiB granules for short buffers.
    pub(crate) small: Option<Space>,
    handler: Option<Arc<Handler>>,
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
        let handler = core.userfault.is_some().then(|| Handler::start(&core)).transpose()?;
        Ok(Self { inner: Arc::new(Inner { core, small, handler: handler.map(Arc::new) }) })
    }

    /// Another handle, with another small space.
    pub(crate) fn of(&self, small: Option<Self>) -> Self {
        let (core, handler) = (Arc::clone(&self.inner.core), self.inner.handler.clone());
        Self { inner: Arc::new(Inner { core, small, handler }) }
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
        self.core().limit
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

/// How many bytes of addresses the aliases of one granule size have: for objects of the space's own, and for lent ones.
struct AliasLens {
    own: usize,
    lent: usize,
}

impl AliasLens {
    fn of(config: &Config, kind: GranuleKind) -> Self {
        let limit = limit(config, kind);
        let whole = |len: usize| len.next_multiple_of(kind.size());
        Self { own: whole(limit), lent: whole(limit.max(LENT_ADDRESSES_MIN)) }
    }

    fn total(&self) -> usize {
        self.own + self.lent
    }
}

fn limit(config: &Config, kind: GranuleKind) -> usize {
    config.limit.clamp(kind.size(), kind.size() << LONGEST_TABLE)
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

impl Core {
    fn new(config: &Config, kind: GranuleKind, common: Common, aliases_start: usize) -> Result<Self> {
        let granule = kind.size();
        let limit = limit(config, kind);
        let (userfault, protection) = userfault(config)?;
        let windows = Arena::reserve(limit.saturating_mul(4).max(8 * PAGE_TABLE))?;
        let AliasLens { own, lent } = AliasLens::of(config, kind);
        let protected = Arc::new(AtomicU32::new(0));
        let slots = Slots::new((windows.len() / granule) as u32, Arc::clone(&protected));
        let objects = Objects::new(Arc::clone(&common.objects_version));
        Ok(Self {
            maker: Maker::this_process(),
            unreserved: objects.unreserved(),
            granularity: config.granularity,
            kind,
            shift: granule.trailing_zeros(),
            limit,
            pool_limit: (config.pool / granule).try_into().unwrap_or(u32::MAX),
            migrants_limit: (config.pool.min(MIGRANTS_KEPT) / granule) as u32,
            windows,
            common,
            aliases_start,
            userfault,
            protection,
            replacement_cost: AtomicU64::new(0),
            protected,
            guard: OnceLock::new(),
            missing_seen: AtomicU32::new(0),
            has_losses: AtomicBool::new(false),
            state: Mutex::new(State {
                granules: Granules::new((own / granule) as u32, (lent / granule) as u32),
                slots,
                regions: Regions::default(),
                pools: Pools::default(),
                recycling: Recycling::default(),
                queues: Queues::default(),
                waiting: Vec::new(),
                replacing: 0,
                objects,
                losses: Losses::default(),
                statistics: Statistics::default(),
            }),
        })
    }

    /// What new objects may be made of, the best first.
    pub(crate) fn kinds(&self) -> &[GranuleKind] {
        match &self.granularity {
            Granularity::Best => self.kind.of_its_size(),
            Granularity::Only(kind) => std::slice::from_ref(kind),
        }
    }

    pub(crate) fn granule(&self) -> usize {
        1 << self.shift
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that `granules` granules hold.
    pub(crate) fn bytes(&self, granules: u32) -> usize {
        (granules as usize) << self.shift
    }

    /// Granules that `len` bytes need when they start `offset` bytes into the first. Where the count does not fit 32 bits,
    /// returns the greatest number, which is more than any region or buffer has.
    pub(crate) fn granules(&self, offset: usize, len: usize) -> u32 {
        offset.saturating_add(len).div_ceil(self.granule()).try_into().unwrap_or(u32::MAX)
    }

    /// How far into its granule an address lies.
    pub(crate) fn misalignment(&self, addr: usize) -> usize {
        addr & (self.granule() - 1)
    }

    /// The slot at an address of a client.
    pub(crate) fn slot_at(&self, addr: usize) -> Option<u32> {
        self.windows.offset_of(addr).map(|offset| (offset >> self.shift) as u32)
    }

    /// The address at which clients see a slot.
    pub(crate) fn slot_addr(&self, slot: u32) -> usize {
        self.windows.base() + self.bytes(slot)
    }

    /// Where a run of granules lies in the alias arena.
    pub(crate) fn alias_offset(&self, granule: u32) -> usize {
        self.aliases_start + self.bytes(granule)
    }

    /// The granule at an offset in the alias arena, if that is not before this core's.
    pub(crate) fn granule_at(&self, offset: usize) -> Option<u32> {
        u32::try_from(offset.checked_sub(self.aliases_start)? >> self.shift).ok()
    }

    pub(crate) fn aliases(&self) -> &Arena {
        &self.common.aliases
    }

    /// The alignment, in slots, that lets page tables of so many slots be moved whole.
    pub(crate) fn slot_alignment(&self, slots: u32) -> u32 {
        if self.bytes(slots) >= PAGE_TABLE { (PAGE_TABLE >> self.shift) as u32 } else { 1 }
    }

    /// Whether this process has made the space. In a child made by fork, the lock may be held by a thread that only the
    /// parent has.
    pub(crate) fn is_own(&self) -> bool {
        self.maker.is_this_process()
    }

    /// # Errors
    /// [`Error::Inherited`].
    pub(crate) fn ensure_own(&self) -> Result<()> {
        if self.is_own() { Ok(()) } else { Err(Error::Inherited) }
    }

    /// Takes the lock. A panic of another holder is no reason to stop: the tables are consistent between calls.
    ///
    /// # Panics
    /// In a child made by fork. Functions that may be called for an inherited space look at [`Core::is_own`] first.
    pub(crate) fn lock(&self) -> Locked<'_> {
        assert!(self.is_own(), "{}", Error::Inherited);
        Locked::by(|| self.state.lock())
    }
}

impl State {
    /// Registers slots with the userfaultfd, if there is one.
    pub(crate) fn register(&self, core: &Core, slot: u32, slots: u32) {
        if let Some(userfault) = &core.userfault {
            // Slots that could not be registered (too many mappings) cannot be protected; protecting them then fails,
            // and output from them is copied.
            let _ = userfault.register(core.slot_addr(slot), core.bytes(slots));
        }
    }

    /// Takes addresses for `slots` slots.
    pub(crate) fn take_slots(&mut self, core: &Core, slots: u32) -> Result<Run> {
        self.slots
            .take(slots, core.slot_alignment(slots))?
            .ok_or(Error::Addresses { asked: core.bytes(slots) })
    }

    /// Unmaps a window and gives its addresses back. When the kernel refuses, the addresses stay taken: they still show
    /// the granules, which nobody may touch there.
    pub(crate) fn give_window(&mut self, core: &Core, window: Run) -> Result<()> {
        core.windows.unmap(core.bytes(window.start), core.bytes(window.len))?;
        self.slots.give(window);
        Ok(())
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

fn userfault(config: &Config) -> Result<(Option<Userfault>, Protection)> {
    let userfault = match config.faults {
        Faults::Never => return Ok((None, Protection::None("this space was made without fault handling"))),
        Faults::Only(way) => Userfault::open_way(way)?,
        Faults::Best => match Userfault::open() {
            Ok(userfault) => userfault,
            Err(_) => return Ok((None, Protection::None("the kernel grants no userfaultfd"))),
        },
    };
    match userfault.way().catches_kernel_stores() {
        true => Ok((Some(userfault), Protection::Full)),
        false if config.kernel_never_stores => Ok((Some(userfault), Protection::StoresOnly)),
        false => Ok((None, Protection::None("the userfaultfd granted cannot catch stores by the kernel"))),
    }
}
