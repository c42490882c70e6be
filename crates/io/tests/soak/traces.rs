//! Traces: the descriptors, threads and mappings of a process; they show what a peer has left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use genie_sys::Errno;
use genie_sys::process::Pid;
use rustix::process::test_kill_process;

use crate::support::machine::mappings_of;

/// What a process may take more of addresses without a mirror being the reason: one covers more than 1 GiB.
const ADDRESSES: usize = 512 << 20;

/// What the heap may grow by: patterns take 18 MiB of it. Some 100 KiB lost with each of the peers that a process sees go
/// come to more.
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
    /// Those of this process.
    pub(crate) fn now() -> Self {
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

    /// The same with so many threads of a server, and what they wait by. A server that runs has clients, whose traces nobody
    /// wants to count in.
    pub(crate) fn serving(mut self, threads: usize) -> Self {
        *self.threads.entry("genie-worker".to_owned()).or_default() += threads;
        *self.descriptors.entry("anon_inode".to_owned()).or_default() += 1;
        self
    }

    /// Threads, but for the timer, which stays from the first request with a timeout on.
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
        // A thread that has just begun has no name of its own yet; so they are counted, and named to be told.
        compare(&format!("threads {:?}", self.threads), self.count(), before.count());
        compare("memory objects mapped", self.objects, before.objects + own);
        compare("bytes of addresses", self.addresses, before.addresses + ADDRESSES);
        compare("bytes on the heap", self.heap, before.heap + HEAP);
        excess
    }

    /// Waits until nothing is there beyond `before`, and what `own` counts; else says what is.
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
    // One that is closed meanwhile, as this directory is, has no link.
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
    names.map(|name| name.trim().to_owned()).collect()
}

/// Whether a process has ended, and its parent has taken notice. To be told that takes no descriptor.
pub(crate) fn is_dead(pid: u32) -> bool {
    let pid = Pid::from_raw(pid as i32).expect("a process's number");
    test_kill_process(pid) == Err(Errno::SRCH)
}
