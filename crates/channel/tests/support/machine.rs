//! The machine under the tests: page frames, raw looks at addresses, and the messages for what is missing.

#[path = "../../../sys/tests/proc/mod.rs"]
pub(crate) mod proc;

pub(crate) use genie_conformance::machine::{frames, missing_huge_pages, raw, skip};

/// Whether mlock does anything: the sanitizers, known by the terabytes of addresses that they take, make it do nothing.
pub(crate) fn locks_memory() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a VmSize line");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib < 1 << 30
}

/// A mapping of a memory object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// As the kernel writes them: `r--s`.
    pub(crate) permissions: String,
    /// Device and inode: which object it is, in all processes; none for other memory.
    pub(crate) object: Option<String>,
}

/// The size of the smallest pages.
pub(crate) const PAGE: usize = 4096;

/// The mappings of a process.
pub(crate) fn mappings_of(pid: u32) -> Vec<Mapping> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process that is there");
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (permissions, _, device, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let hex = |digits| usize::from_str_radix(digits, 16).expect("an address");
        let (start, end, permissions) = (hex(start), hex(end), permissions.to_owned());
        let is_object = words.next().is_some_and(|name| name.starts_with("/memfd:"));
        let object = is_object.then(|| format!("{device} {inode}"));
        Some(Mapping { start, end, permissions, object })
    };
    maps.lines().filter_map(read).collect()
}

/// The memory object that this process has mapped at an address.
pub(crate) fn object_at(addr: usize) -> Option<String> {
    let all = mappings_of(std::process::id());
    all.into_iter().find(|mapping| (mapping.start..mapping.end).contains(&addr))?.object
}
