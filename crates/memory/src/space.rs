//! Spaces: an I/O interface's memory, its books and its lock.
//!
//! How: one mutex guards the books (granules, slots, regions, pools). System calls that change mappings run under it;
//! copying never does, except into granules that nobody else can see. Whoever holds it must not touch a window, since
//! the touch could fault and the fault handler needs the lock: servers and the library work through aliases.
//! Limits: `Config::limit` bytes of granules; four times as many bytes of addresses.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use genie_sys::inspect;
use genie_sys::userfault::{Rights, Userfault, Way};
use genie_sys::{Arena, GranuleKind, Object, machine};

use crate::faults::Handler;
use crate::granule::{GranuleRuns, Granules};
use crate::migrant::Queues;
use crate::region::Regions;
use crate::runs::Run;
use crate::slots::Slots;
use crate::system::Pool;
use crate::{Error, Result};

/// Objects are at least this long, so that buffers seldom span two.
const OBJECT_LEN: usize = 32 << 20;
const PAGE_TABLE: usize = 2 << 20;
/// A space has at most two to this power of granules: four times as many slots are numbered in 32 bits.
const LONGEST_TABLE: u32 = 29;

/// Which granules a space's objects are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Granularity {
    /// Huge pages where the machine has free ones, else transparent huge pages where allowed, else 4 KiB pages.
    #[default]
    Best,
    /// This kind or an error.
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

/// What a space is to be like.
#[derive(Debug, Clone)]
pub struct Config {
    /// What its granules are made of.
    pub granularity: Granularity,
    /// How many bytes of memory it may take; half of the machine's by default.
    pub limit: usize,
    /// How stores into protected granules are caught.
    pub faults: Faults,
    /// The program's promise that no system call ever stores into memory of this space while an output from it is
    /// pending (no `read` into the buffer and the like). Only with it may a userfaultfd that cannot catch the kernel's
    /// own stores be used; the kernel's store would fail with `EFAULT` instead.
    pub kernel_never_stores: bool,
    /// How many bytes of system buffers are kept for reuse.
    pub pool: usize,
}

impl Default for Config {
    fn default() -> Self {
        let limit = machine::total_memory() as usize / 2;
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
    /// Not at all, for this reason: emulated copy copies on output.
    None(&'static str),
}

/// Counts since the space was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Write faults handled.
    pub faults: u64,
    /// Faults that replaced a granule, because an output was pending from it.
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

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) faults: AtomicU64,
    pub(crate) replacements: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) protected: AtomicU64,
    pub(crate) reinstated: AtomicU64,
    pub(crate) swapped: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

/// The books.
pub(crate) struct State {
    pub(crate) granules: Granules,
    pub(crate) slots: Slots,
    pub(crate) regions: Regions,
    pub(crate) pool: Pool,
    pub(crate) queues: Queues,
    /// Slots whose faulting threads wait for an output to complete.
    pub(crate) waiting: Vec<u32>,
    /// Granules in system buffers that are in use, and those of replacements that are being made.
    pub(crate) in_use: u32,
    objects: Vec<(u32, Object)>,
}

/// What the space's handles, buffers and fault handler share.
pub(crate) struct Core {
    pub(crate) kind: GranuleKind,
    /// The granule size as a power of two.
    shift: u32,
    limit: usize,
    pub(crate) pool_limit: u32,
    pub(crate) windows: Arena,
    aliases: Arena,
    pub(crate) userfault: Option<Userfault>,
    pub(crate) protection: Protection,
    pub(crate) counters: Counters,
    /// What replacing one granule costs, in nanoseconds.
    pub(crate) replacement_cost: AtomicU64,
    /// How many slots are protected.
    pub(crate) protected: Arc<AtomicU32>,
    state: Mutex<State>,
}

/// An I/O interface's memory. Cloning makes another handle to the same space.
#[derive(Clone)]
pub struct Space {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    _handler: Option<Handler>,
}

impl Space {
    /// Makes a space with nothing in it but its first object.
    ///
    /// # Errors
    /// Granules or a userfaultfd of the kind asked for cannot be had; each error says what to do.
    pub fn new(config: &Config) -> Result<Self> {
        let (kind, object) = first_object(config.granularity, config.limit)?;
        let (userfault, protection) = userfault(config)?;
        let core = Core::new(config, kind, userfault, protection)?;
        core.lock().adopt(&core, object)?;
        let core = Arc::new(core);
        let handler = core.userfault.is_some().then(|| Handler::start(&core)).transpose()?;
        Ok(Self { inner: Arc::new(Inner { core, _handler: handler }) })
    }

    /// What the granules are made of.
    pub fn granule_kind(&self) -> GranuleKind {
        self.core().kind
    }

    /// The granule size in bytes.
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

    /// What happened so far.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.core().counters;
        Statistics {
            faults: counters.faults.load(Relaxed),
            replacements: counters.replacements.load(Relaxed),
            waits: counters.waits.load(Relaxed),
            protected: counters.protected.load(Relaxed),
            reinstated: counters.reinstated.load(Relaxed),
            swapped: counters.swapped.load(Relaxed),
        }
    }

    /// Tells what replacing one granule costs, so that regions whose faults cost more than copying are copied.
    pub fn set_replacement_cost(&self, nanoseconds: u64) {
        self.core().replacement_cost.store(nanoseconds, Relaxed);
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.core().limit
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

impl Core {
    fn new(
        config: &Config,
        kind: GranuleKind,
        userfault: Option<Userfault>,
        protection: Protection,
    ) -> Result<Self> {
        let granule = kind.size();
        let limit = config.limit.clamp(granule, granule << LONGEST_TABLE);
        let windows = Arena::reserve(limit.saturating_mul(4).max(8 * PAGE_TABLE))?;
        let aliases = Arena::reserve(limit.next_multiple_of(granule))?;
        let protected = Arc::new(AtomicU32::new(0));
        let slots = Slots::new((windows.len() / granule) as u32, Arc::clone(&protected));
        Ok(Self {
            kind,
            shift: granule.trailing_zeros(),
            limit,
            pool_limit: (config.pool / granule) as u32,
            windows,
            aliases,
            userfault,
            protection,
            counters: Counters::default(),
            replacement_cost: AtomicU64::new(0),
            protected,
            state: Mutex::new(State {
                granules: Granules::default(),
                slots,
                regions: Regions::default(),
                pool: Pool::default(),
                queues: Queues::default(),
                waiting: Vec::new(),
                in_use: 0,
                objects: Vec::new(),
            }),
        })
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

    /// Granules that `len` bytes need when they start `offset` bytes into the first.
    pub(crate) fn granules(&self, offset: usize, len: usize) -> u32 {
        (offset + len).div_ceil(self.granule()) as u32
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
        self.bytes(granule)
    }

    pub(crate) fn aliases(&self) -> &Arena {
        &self.aliases
    }

    /// The alignment, in slots, that lets page tables of so many slots be moved whole.
    pub(crate) fn slot_alignment(&self, slots: u32) -> u32 {
        if self.bytes(slots) >= PAGE_TABLE { (PAGE_TABLE >> self.shift) as u32 } else { 1 }
    }

    /// Takes the lock. A panic of another holder is no reason to stop: the books are consistent between calls.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes granules for a buffer, growing the space if need be.
    pub(crate) fn take_granules(&mut self, core: &Core, count: u32) -> Result<GranuleRuns> {
        let mut flushed = false;
        loop {
            if let Some(runs) = self.granules.take(count) {
                return Ok(runs);
            }
            match self.grow(core, count) {
                Ok(()) => {}
                Err(error) if flushed => return Err(error),
                Err(_) => {
                    self.flush(core);
                    flushed = true;
                }
            }
        }
    }

    /// Gives back to the free list what is kept only for reuse.
    fn flush(&mut self, core: &Core) {
        self.flush_pool(core);
        self.flush_queues(core);
    }

    /// Adds an object that brings the free list to at least `count` granules.
    fn grow(&mut self, core: &Core, count: u32) -> Result<()> {
        let missing = core.bytes(count - self.granules.free());
        let room = core.limit.saturating_sub(core.bytes(self.granules.len())) & !(core.granule() - 1);
        if missing > room {
            let used = core.bytes(self.granules.len() - self.granules.free());
            return Err(Error::Limit { asked: core.bytes(count), used, limit: core.limit });
        }
        let generous = OBJECT_LEN.max(missing).min(room);
        match Object::create(core.kind, generous).map_err(Error::from).and_then(|o| self.adopt(core, o)) {
            Err(_) if generous > missing => self.adopt(core, Object::create(core.kind, missing)?),
            result => result,
        }
    }

    /// Maps a new object's aliases and adds its granules to the free list.
    pub(crate) fn adopt(&mut self, core: &Core, object: Object) -> Result<()> {
        let count = (object.len() >> core.shift) as u32;
        let base = self.granules.len();
        core.aliases.map(core.alias_offset(base), &object, 0, object.len())?;
        self.granules.add_object(count);
        self.objects.push((base, object));
        Ok(())
    }

    /// Maps runs of granules at consecutive slots from `slot` on, in place of what is there, populated and registered
    /// for faults. The books are the caller's.
    pub(crate) fn map(&self, core: &Core, slot: u32, runs: &[Run]) -> Result<()> {
        let mut at = slot;
        let mut result = Ok(());
        for run in runs {
            self.granules.by_object(*run, |object, part| {
                let (base, object) = &self.objects[object as usize];
                if result.is_ok() {
                    let len = core.bytes(part.len);
                    result = core.windows.map(core.bytes(at), object, core.bytes(part.start - base), len);
                }
                at += part.len;
            });
        }
        result?;
        self.register(core, slot, at - slot);
        Ok(())
    }

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
            .take(slots, core.slot_alignment(slots))
            .ok_or(Error::Addresses { asked: core.bytes(slots) })
    }

    /// Unmaps a window and gives its addresses back. When the kernel refuses, the addresses stay taken: they still show
    /// the granules, which nobody may touch there.
    pub(crate) fn give_window(&mut self, core: &Core, window: Run) -> Result<()> {
        core.windows.unmap(core.bytes(window.start), core.bytes(window.len))?;
        self.slots.give(window);
        Ok(())
    }

    /// How many objects there are.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }
}

/// Chooses the granule kind by making the first object.
fn first_object(granularity: Granularity, limit: usize) -> Result<(GranuleKind, Object)> {
    let make = |kind: GranuleKind| {
        let len = OBJECT_LEN.min(limit & !(kind.size() - 1)).max(kind.size());
        Object::create(kind, len).map(|object| (kind, object))
    };
    match granularity {
        Granularity::Only(GranuleKind::Huge) => {
            require_huge_pages(limit)?;
            Ok(make(GranuleKind::Huge)?)
        }
        Granularity::Only(kind) => Ok(make(kind)?),
        Granularity::Best if require_huge_pages(limit).is_ok() => Ok(make(GranuleKind::Huge)?),
        Granularity::Best if transparent_huge_pages() => Ok(make(GranuleKind::Transparent)?),
        Granularity::Best => Ok(make(GranuleKind::Base)?),
    }
}

/// Checks that the reserve can hold a first object.
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
        genie_sys::Error::new("mmap", subject, genie_sys::Errno::NOMEM)
            .with_remedy("reserve some: `sysctl vm.nr_hugepages=256` as root, or `genie doctor --fix`"),
    ))
}

fn transparent_huge_pages() -> bool {
    inspect::shmem_huge_mode().is_ok_and(|mode| matches!(mode.as_str(), "always" | "within_size" | "advise"))
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
    match userfault.rights() {
        Rights::Full => Ok((Some(userfault), Protection::Full)),
        Rights::UserOnly if config.kernel_never_stores => Ok((Some(userfault), Protection::StoresOnly)),
        Rights::UserOnly => {
            Ok((None, Protection::None("the userfaultfd granted cannot catch stores by the kernel")))
        }
    }
}
