//! The core of a space: its arenas of addresses, what is counted besides the tables, and the lock of the tables.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use genie_sys::fork::Maker;
use genie_sys::guard::Guard;
use genie_sys::lock::Mutex;
use genie_sys::userfault::Userfault;
use genie_sys::{Arena, GranuleKind};

use super::config::{Config, Faults, Granularity, Protection};
use crate::locked::Locked;
use crate::registrars::Registrars;
use crate::tables::State;
use crate::tables::granule::Granules;
use crate::tables::objects::Objects;
use crate::tables::queues::MIGRANTS_KEPT;
use crate::tables::runs::Run;
use crate::tables::slots::Slots;
use crate::{Error, Result, backing};

/// Lent objects have as many bytes of addresses as the space's own objects, and at least this many.
const LENT_ADDRESSES_MIN: usize = 1 << 30;
const PAGE_TABLE: usize = 2 << 20;
/// A space has at most 2^`LONGEST_TABLE` granules of its own, since four times as many slots are numbered in 32 bits.
const LONGEST_TABLE: u32 = 29;

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
    pub(crate) registrars: Arc<Registrars>,
    state: Mutex<State>,
}

/// What the spaces of both granule sizes have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) aliases: Arc<Arena>,
    /// The guard of the aliases, which is there from the first lent object on.
    pub(crate) guard: Arc<OnceLock<Guard>>,
    /// Bytes of the spaces' own objects, which the limit bounds.
    pub(crate) taken: Arc<AtomicUsize>,
    /// Bytes of the objects that stand in for lenders' memory, which the limit bounds separately.
    pub(crate) standing_in: Arc<AtomicUsize>,
    /// Counts all objects so far, and so names them.
    objects: Arc<AtomicU64>,
}

impl Common {
    /// Aliases of `len` bytes of addresses, of which objects of `taken` bytes take some.
    pub(super) fn new(len: usize, taken: usize) -> Result<Self> {
        Ok(Self {
            aliases: Arc::new(Arena::reserve(len).map_err(Error::AddressLimit)?),
            guard: Arc::default(),
            taken: Arc::new(AtomicUsize::new(taken)),
            standing_in: Arc::default(),
            objects: Arc::default(),
        })
    }
}

/// How many bytes of addresses the aliases of one granule size have: for objects of the space's own, and for lent ones.
pub(super) struct AliasLens {
    own: usize,
    lent: usize,
}

impl AliasLens {
    pub(super) fn of(config: &Config, kind: GranuleKind) -> Self {
        let limit = limit(config, kind);
        let whole = |len: usize| len.next_multiple_of(kind.size());
        Self { own: whole(limit), lent: whole(limit.max(LENT_ADDRESSES_MIN)) }
    }

    pub(super) fn total(&self) -> usize {
        self.own + self.lent
    }
}

fn limit(config: &Config, kind: GranuleKind) -> usize {
    config.limit.clamp(kind.size(), kind.size() << LONGEST_TABLE)
}

impl Core {
    pub(super) fn new(
        config: &Config,
        kind: GranuleKind,
        common: Common,
        aliases_start: usize,
    ) -> Result<Self> {
        let granule = kind.size();
        let limit = limit(config, kind);
        let (userfault, protection) = userfault(config)?;
        let windows =
            Arena::reserve(limit.saturating_mul(4).max(8 * PAGE_TABLE)).map_err(Error::AddressLimit)?;
        let AliasLens { own, lent } = AliasLens::of(config, kind);
        let protected = Arc::new(AtomicU32::new(0));
        let [slots, own, lent] = [windows.len(), own, lent].map(|len| (len / granule) as u32);
        let slots = Slots::new(slots, Arc::clone(&protected));
        let registrars = Arc::new(Registrars::default());
        let objects = Objects::new(Arc::clone(&common.objects), Arc::clone(&registrars));
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
            registrars,
            state: Mutex::new(State::new(Granules::new(own, lent), slots, objects)),
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

    /// The slots of `len` bytes at `addr`, at least one, when they lie in the windows.
    pub(crate) fn slots_of(&self, addr: usize, len: usize) -> Option<Run> {
        let start = self.slot_at(addr)?;
        let last = self.slot_at(addr.checked_add(len.max(1) - 1)?)?;
        Some(Run { start, len: last - start + 1 })
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

    /// The first address at which this core's granules may be seen by servers.
    pub(crate) fn first_alias(&self) -> usize {
        self.aliases().base() + self.aliases_start
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
        Locked::by(&self.registrars, || self.state.lock())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        backing::leave(self.first_alias());
        if self.is_own() {
            self.state.get_mut().objects.end();
            self.registrars.tell();
        }
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
