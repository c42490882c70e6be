//! Traces: the descriptors, threads and mappings of a process; they show what a peer has left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use genie_sys::Errno;
use genie_sys::process::Pid;
use genie_sys::unshared::Unshared;
use rustix::process::test_kill_process;

use crate::support::machine::mappings_of;

/// How many more bytes of addresses a process may take: a mirror that is left covers more than 1 GiB.
const ADDRESSES: usize = 512 << 20;

/// How much the heap may grow: patterns take 18 MiB of it. If some 100 KiB were lost with each peer that a process sees go,
/// that would add up to more.
const HEAP: usize = 96 << 20;

/// Descriptors, threads and mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traces {
    /// Descriptors by kind.
    descriptors: BTreeMap<String, usize>,
    /// Threads by name.
    threads: BTreeMap<String, usize>,
    /// Memory objects that are mapped.
    objects: usize,
    /// Bytes of addresses.
    addresses: usize,
    /// Bytes of memory that no other process has.
    heap: usize,
}

impl Traces {
    /// The traces of this process.
    pub(crate) fn now() -> Self {
        // A socket that children of fork get in other descriptors' place stays from the first connection on.
        drop(Unshared::new(std::io::stdin()).expect("a descriptor"));
        let mapped = mappings_of(std::process::id());
        let objects: BTreeSet<_> = mapped.iter().filter_map(|mapping| mapping.object.as_ref()).collect();
        Self {
            descriptors: counted(descriptors()),
            threads: counted(threads()),
            objects: objects.len(),
            addresses: mapped.iter().map(|mapping| mapping.end - mapping.start).sum(),
            heap: heap(),
        }
    }

    /// The traces with this many threads of a server, and descriptors that they wait by. They are computed, not taken from a running
    /// server: such a server has clients, whose traces must not count.
    pub(crate) fn serving(mut self, threads: usize, descriptors: usize) -> Self {
        *self.threads.entry("genie-worker".to_owned()).or_default() += threads;
        *self.descriptors.entry("anon_inode".to_owned()).or_default() += descriptors;
        self
    }

    /// Threads except the timer, which stays from the first request with a timeout on.
    fn count(&self) -> usize {
        self.threads.iter().filter(|(name, _)| *name != "genie-timer").map(|(_, count)| count).sum()
    }

    /// What there is beyond `before`, of which `own` more memory objects, each with a descriptor, are the process's own.
    fn excess(&self, before: &Self, own: usize) -> Vec<String> {
        let mut excess = Vec::new();
        let mut compare = |what: &str, now: usize, then: usize| {
            if now > then {
                excess.push(format!("{what}: {now} and not {then}"));
            }
        };
        for (kind, now) in &self.descriptors {
            let own = if kind.starts_with("/memfd:") { own } else { 0 };
            let then = before.descriptors.get(kind).copied().unwrap_or_default();
            compare(&format!("descriptors of {kind}"), *now, then + own);
        }
        // A thread that has just begun has no name of its own yet; so threads are compared by number, and names are only
        // reported.
        compare(&format!("threads {:?}", self.threads), self.count(), before.count());
        compare("memory objects mapped", self.objects, before.objects + own);
        compare("bytes of addresses", self.addresses, before.addresses + ADDRESSES);
        compare("bytes on the heap", self.heap, before.heap + HEAP);
        excess
    }

    /// Waits until nothing is there beyond `before` and what `own` counts; otherwise says what is.
    pub(crate) fn settle(before: &Self, patience: Duration, own: impl Fn() -> usize) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        loop {
            let excess = Self::now().excess(before, own());
            if excess.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(excess.join(", "));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn counted(names: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    names.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

/// What each descriptor is of, without the number that tells it from others of its kind.
fn descriptors() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    // A descriptor that is closed meanwhile, as that of this directory is, has no link.
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let kind = |link: String| link.split(":[").next().unwrap_or_default().to_owned();
    let links = links.map(|link| kind(link.to_string_lossy().into_owned()));
    links.filter(|link| !link.starts_with("/proc/")).collect()
}

/// Anonymous memory, in bytes.
fn heap() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line of it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib << 10
}

fn threads() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let names = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    // Workers that relieved others stay.
    names.map(|name| name.trim().to_owned()).filter(|name| name != "genie-worker").collect()
}

/// Whether a process has ended, and its parent has taken notice. This check takes no descriptor.
pub(crate) fn is_dead(pid: u32) -> bool {
    let pid = Pid::from_raw(pid as i32).expect("a process's number");
    test_kill_process(pid) == Err(Errno::SRCH)
}
