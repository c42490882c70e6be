//! What /proc says of this process's memory, for tests.
//!
//! Why: right bytes don't prove that nothing was copied; only page frames, mappings and fault counts prove it.
//! Limits: frame numbers are hidden from processes without CAP_SYS_ADMIN. Counts of mappings and descriptors are of the
//! whole process, and include those of other threads.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What the page table says of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageFrame {
    /// It is in memory.
    pub(crate) present: bool,
    /// A userfaultfd has write-protected it.
    pub(crate) write_protected: bool,
    /// The number of its frame; none if it is not present, or hidden (CAP_SYS_ADMIN is missing).
    pub(crate) frame: Option<u64>,
}

impl PageFrame {
    pub(crate) fn of_entry(entry: u64) -> Self {
        let bit = |n: u32| entry >> n & 1 == 1;
        let frame = entry & ((1 << 55) - 1);
        let frame = (bit(63) && frame != 0).then_some(frame);
        Self { present: bit(63), write_protected: bit(57), frame }
    }
}

/// Reports each page of 4 KiB, also within huge ones, that `len` bytes from `addr` touch.
pub(crate) fn page_frames(addr: usize, len: usize) -> Vec<PageFrame> {
    let first = addr / 4096;
    let mut entries = vec![0; ((addr + len).div_ceil(4096) - first) * 8];
    let pagemap = File::open("/proc/self/pagemap").expect("/proc is mounted");
    pagemap.read_exact_at(&mut entries, first as u64 * 8).expect("a page of this process's");
    let (entries, _) = entries.as_chunks::<8>();
    entries.iter().map(|entry| PageFrame::of_entry(u64::from_ne_bytes(*entry))).collect()
}

/// Runs a test that compares page frames. The kernel moves pages when others want huge ones (compaction): a test that failed
/// while it did is run again, twice at most.
pub(crate) fn while_pages_stay(test: impl Fn()) {
    for _ in 0..2 {
        let before = pages_moved();
        let Err(panic) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        if pages_moved() == before {
            resume_unwind(panic);
        }
        eprintln!("the kernel has moved pages meanwhile: once more");
    }
    test();
}

/// How many pages the kernel has moved since the machine started.
pub(crate) fn pages_moved() -> u64 {
    let counts = read_to_string("/proc/vmstat").expect("/proc is mounted");
    let moved = counts.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    moved.map_or(0, |moved| moved.parse().expect("a count"))
}

/// A mapping as /proc/self/smaps shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// As the kernel writes them: `rw-s`.
    pub(crate) permissions: String,
    /// The object's name; empty for anonymous memory.
    pub(crate) name: String,
    fields: String,
}

impl Mapping {
    /// Whether the kernel shows the two-letter flag: `uw` registered for write protection, `lo` locked, `dc` not inherited by
    /// fork, ...
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.field("VmFlags:").split_whitespace().any(|shown| shown == flag)
    }

    /// A number of KiB.
    pub(crate) fn kib(&self, name: &str) -> usize {
        let field = self.field(name).split_whitespace().next();
        field.and_then(|kib| kib.parse().ok()).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    fn field(&self, name: &str) -> &str {
        self.fields.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("")
    }
}

/// Finds the mapping that holds `addr`, if there is one.
pub(crate) fn mapping_at(addr: usize) -> Option<Mapping> {
    find(&read_to_string("/proc/self/smaps").expect("/proc is mounted"), addr)
}

pub(crate) fn find(smaps: &str, addr: usize) -> Option<Mapping> {
    let mut found: Option<Mapping> = None;
    for line in smaps.lines() {
        match (mapping(line), &mut found) {
            (Some(_), Some(_)) => break,
            (Some(mapping), None) => {
                found = Some(mapping).filter(|found| (found.start..found.end).contains(&addr))
            }
            (None, Some(found)) => found.fields.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    found
}

/// The memory object that is mapped at `addr`, and how far from its start: (device, inode, offset). None for other memory.
pub(crate) fn object_at(addr: usize) -> Option<(u64, u64, usize)> {
    let maps = read_to_string("/proc/self/maps").expect("/proc is mounted");
    let at = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |digits| usize::from_str_radix(digits, 16).expect("a number");
        let start = hex(start);
        (start..hex(end)).contains(&addr).then_some(())?;
        let (offset, device) = (hex(words.nth(1)?), words.next()?.split_once(':')?);
        let (major, minor) = (hex(device.0) as libc::c_uint, hex(device.1) as libc::c_uint);
        let inode = words.next()?.parse().expect("a number");
        words
            .next()?
            .starts_with("/memfd:")
            .then(|| (libc::makedev(major, minor), inode, offset + addr - start))
    };
    maps.lines().find_map(at)
}

/// Reads a mapping's first line, `start-end permissions offset device inode   name`.
fn mapping(line: &str) -> Option<Mapping> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let mut words = line.splitn(6, ' ').skip(1).map(|word| word.trim().to_owned());
    let (permissions, name) = (words.next()?, words.nth(3).unwrap_or_default());
    Some(Mapping { start: number(start)?, end: number(end)?, permissions, name, fields: String::new() })
}

/// How many faults this thread has taken for which the kernel did not wait for a disk.
pub(crate) fn minor_faults() -> u64 {
    let stat = read_to_string("/proc/thread-self/stat").expect("/proc is mounted");
    // The second field, the thread's name, may hold spaces.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    fields.split_whitespace().nth(7).and_then(|count| count.parse().ok()).expect("the tenth field")
}

/// How many mappings this process has.
pub(crate) fn mapping_count() -> usize {
    read_to_string("/proc/self/maps").expect("/proc is mounted").lines().count()
}

/// How many descriptors this process has open.
pub(crate) fn open_descriptors() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    // The directory itself is one of them.
    entries.count() - 1
}
