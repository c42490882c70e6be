//! Facts that the kernel reports about this machine, as the user who runs the command finds them.
//!
//! Invariants: reading facts changes nothing. For a fact that cannot be had, the reason is kept.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use genie::net::driver::{Front, PacketSocket, Queue, Xdp};
use genie::net::namespaces::{End, Pair};
use genie_lab::interface::Granule;
use genie_passing::calibration::{self, Circumstances};
use genie_sys::bpf::Mode;
use genie_sys::cgroup::{self, MemoryCgroup};
use genie_sys::userfault::{Userfault, Way};
use genie_sys::{Errno, inspect, machine, probe};
use rustix::thread::{CapabilitySet, capabilities};

/// The sysctl by which programs without rights get a full userfaultfd.
const UNPRIVILEGED_USERFAULTFD: &str = "/proc/sys/vm/unprivileged_userfaultfd";
/// The device that gives a full userfaultfd to every user who may open it.
pub(super) const USERFAULTFD_DEVICE: &str = "/dev/userfaultfd";
/// Enough rounds to even out the scheduler's delays, and over in milliseconds.
const PING_PONG_ROUNDS: u32 = 5_000;

/// A fact, or why it could not be had.
pub(super) type Answer<T> = Result<T, String>;

/// Reserved huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HugePages {
    /// Pages reserved.
    pub(super) total: usize,
    /// Of those, pages that are neither used nor claimed.
    pub(super) available: usize,
    /// The length of each.
    pub(super) size_kib: usize,
}

/// Ways to a userfaultfd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Faults {
    /// The best way that this user has.
    pub(super) way: Answer<Way>,
    /// Whether users without any rights get a full one.
    pub(super) open_to_all: bool,
    /// The permission bits of the device, where there is one.
    pub(super) device_mode: Option<u32>,
}

/// How much memory this user may lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryLock {
    /// The limit in force, in bytes; none if unlimited.
    pub(super) soft: Option<u64>,
    /// The limit to which this user may raise it.
    pub(super) hard: Option<u64>,
    /// Whether a capability makes both limits void.
    pub(super) exempt: bool,
}

/// Why the kernel collapsed no pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Uncollapsed {
    /// The kernel's answer.
    pub(super) reason: String,
    /// Whether it could with memory that is less in pieces.
    pub(super) in_pieces: bool,
}

/// The CPUs that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cpus {
    /// How many the machine has.
    pub(super) count: usize,
    /// Their numbers.
    pub(super) allowed: Vec<usize>,
    /// The time for a cache line to go from the first CPU to the second and back.
    pub(super) round_trip: Option<Answer<Duration>>,
}

/// All that the doctor judges.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The kernel's release.
    pub(super) kernel: String,
    /// Threads that run or want to, averaged over the last minute, before anything was measured.
    pub(super) load: f64,
    /// Whether the user is root.
    pub(super) root: bool,
    /// The machine's memory, in bytes.
    pub(super) memory: u64,
    /// The memory cgroup that leaves this process the least, if any limits it.
    pub(super) memory_cgroup: Option<MemoryCgroup>,
    pub(super) huge_pages: Answer<HugePages>,
    /// Whether the kernel collapses pages of shared memory to huge ones.
    pub(super) collapse: Result<(), Uncollapsed>,
    pub(super) faults: Faults,
    pub(super) memory_lock: Answer<MemoryLock>,
    pub(super) cpus: Answer<Cpus>,
    /// How many mappings a process may have.
    pub(super) max_map_count: Answer<usize>,
    /// How the costs were measured that are stored for an interface's granules; none where none are stored.
    pub(super) costs: Answer<Option<Circumstances>>,
    pub(super) networks: Networks,
}

/// What can drive the kernel's interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Networks {
    /// The capabilities that this user lacks, of those that drivers need.
    pub(super) lacking: Vec<&'static str>,
    /// Whether a packet socket could be opened on a virtual link of the doctor's own; none where there was none.
    pub(super) packets: Option<Answer<()>>,
    /// In which mode AF_XDP could be had there.
    pub(super) xdp: Option<Answer<Mode>>,
    /// In which mode the kernel would demultiplex datagrams to processes there.
    pub(super) front: Option<Answer<Mode>>,
}

impl Facts {
    /// Asks the kernel for all facts.
    pub(super) fn read() -> Self {
        Self {
            kernel: machine::kernel_release(),
            load: genie_lab::machine::load(),
            root: machine::is_root(),
            memory: machine::total_memory(),
            memory_cgroup: cgroup::tightest(),
            huge_pages: huge_pages(),
            collapse: collapse(),
            faults: faults(),
            memory_lock: memory_lock(),
            cpus: cpus(),
            max_map_count: inspect::max_map_count().map_err(reason),
            costs: costs(),
            networks: networks(),
        }
    }
}

fn reason(error: genie_sys::Error) -> String {
    error.to_string()
}

fn huge_pages() -> Answer<HugePages> {
    let pages = inspect::huge_pages().map_err(reason)?;
    if pages.size_kib == 0 {
        return Err("none in this kernel: it was built without CONFIG_HUGETLBFS".to_owned());
    }
    Ok(HugePages {
        total: pages.total,
        available: pages.free.saturating_sub(pages.reserved),
        size_kib: pages.size_kib,
    })
}

fn collapse() -> Result<(), Uncollapsed> {
    probe::collapse_available()
        .map_err(|error| Uncollapsed { in_pieces: error.errno != Errno::INVAL, reason: reason(error) })
}

fn faults() -> Faults {
    let device_mode = fs::metadata(USERFAULTFD_DEVICE).ok().map(|device| device.mode() & 0o777);
    Faults {
        way: Userfault::open().map(|userfault| userfault.way()).map_err(reason),
        open_to_all: number_in(UNPRIVILEGED_USERFAULTFD) == Some(1)
            || device_mode.is_some_and(|mode| mode & 0o006 == 0o006),
        device_mode,
    }
}

fn memory_lock() -> Answer<MemoryLock> {
    let limit = machine::memory_lock_limit();
    let exempt = machine::can_lock_without_limit().map_err(reason)?;
    Ok(MemoryLock { soft: limit.soft, hard: limit.hard, exempt })
}

fn cpus() -> Answer<Cpus> {
    let allowed = machine::allowed_cpus().map_err(reason)?;
    let round_trip = match allowed[..] {
        [first, second, ..] => Some(machine::ping_pong(first, second, PING_PONG_ROUNDS).map_err(reason)),
        _ => None,
    };
    Ok(Cpus { count: machine::cpu_count().map_err(reason)?, allowed, round_trip })
}

fn costs() -> Answer<Option<Circumstances>> {
    let space = Granule::Best.space().map_err(|error| error.to_string())?;
    let large = calibration::load(&space.alone());
    let small = space.small().and_then(calibration::load);
    let stored = large.into_iter().chain(small).map(|measured| measured.circumstances);
    Ok(stored.reduce(Circumstances::worse))
}

fn networks() -> Networks {
    let needed = [
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_BPF", CapabilitySet::BPF),
    ];
    let had = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let lacking = needed.into_iter().filter(|(_, one)| !had.contains(*one)).map(|(name, _)| name).collect();
    // Nobody else uses such a link, and nothing of it is left.
    let pair = Pair::new(1500).ok();
    let end = pair.as_ref().map(|pair| &pair.ends[0]);
    let packets = end.map(|End { namespace, interface, .. }| {
        let opened = namespace.enter(|| PacketSocket::open(&interface.name, &interface.hosts));
        opened.map(drop).map_err(|error| error.to_string())
    });
    let xdp = end.map(|End { namespace, interface, .. }| {
        let space = Granule::Base.space().map_err(|error| error.to_string())?;
        let queue = Queue { receiving: 64, sending: 32, reserve: 8, away: 8, ..Queue::default() };
        let opened = namespace.enter(|| Xdp::open(&space, &interface.name, &interface.hosts, &queue));
        opened.map(|xdp| xdp.mode()).map_err(|error| error.to_string())
    });
    let front = end.map(|End { namespace, interface, .. }| {
        let front = namespace.enter(|| Front::open(&interface.name)).map_err(|error| error.to_string())?;
        front.admit(&[9]).map(|_| front.mode()).map_err(|error| error.to_string())
    });
    Networks { lacking, packets, xdp, front }
}

fn number_in(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
