//! Memory cgroups: how much memory the process's control group, and each one above it, allows.
//!
//! Why: a process that takes more memory than its cgroup allows is not refused but killed, even by `fallocate`. So whoever is
//! about to take much memory at once looks first.
//! How: `/proc/self/cgroup` names the cgroup, `/proc/self/mountinfo` says where it is; both versions of cgroups are read. What
//! the cgroup uses counts without its file cache, which the kernel gives up before it kills.
//! Trust: only the kernel writes the files that are read here.
//! Limits: another process of the cgroup can take memory between a look and its use; the reserve that is left is for that, and
//! for the kernel's own memory (page tables). Memory that could be swapped out counts as used. Mount points with spaces in
//! their names are not found, and then nothing is limited here. Reserved huge pages are not counted by memory cgroups.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::PerProcess;
use crate::inspect::read_text;
use crate::{Errno, Error, Result};

/// The part of a limit that is left to others, and its bounds.
const RESERVE_PART: u64 = 16;
const RESERVE_MIN: u64 = 512 << 10;
const RESERVE_MAX: u64 = 16 << 20;
/// For how many bytes more [`ensure_room_ahead`] looks: a look takes as long as copying a megabyte.
const AHEAD: usize = 8 << 20;
/// A limit from which on there is none: version 1 says so by a number of about 2^63.
const UNLIMITED: u64 = 1 << 60;

/// A memory cgroup that has a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryCgroup {
    /// The file that has its limit, in its directory.
    pub limit_file: PathBuf,
    /// Bytes of memory that all of its processes may have.
    pub limit: u64,
    /// Bytes that they have, without the file cache.
    pub used: u64,
}

impl MemoryCgroup {
    /// Its directory.
    pub fn path(&self) -> &Path {
        self.limit_file.parent().unwrap_or(&self.limit_file)
    }

    /// How many bytes more may be taken at once, so that a reserve stays.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used).saturating_sub(reserve(self.limit))
    }
}

/// Of the process's cgroup and those above it, the one that leaves it the least memory; none where there is no limit.
///
/// # Cost
/// Some small files of the kernel's are read: about 0.1 ms.
pub fn tightest() -> Option<MemoryCgroup> {
    levels().map(|level| level.looked_at()).min_by_key(MemoryCgroup::left)
}

/// The least limit of the process's cgroup and those above it, in bytes.
pub fn memory_limit() -> Option<u64> {
    levels().map(|level| level.limit).min()
}

/// Makes sure that the process's cgroup, and those above it, leave room for `len` bytes more.
///
/// # Errors
/// ENOMEM, with the cgroup's numbers.
///
/// # Cost
/// As [`tightest`], or less where there is much room.
pub fn ensure_room(len: usize) -> Result<()> {
    let tight = levels().filter(|level| level.surely_left() < len as u64).map(|level| level.looked_at());
    tight.filter(|cgroup| cgroup.left() < len as u64).try_for_each(|cgroup| Err(no_room(len, &cgroup)))
}

/// As [`ensure_room`], for memory that is taken piece by piece: a look that finds room for 8 MiB more is good for these.
///
/// # Errors
/// As [`ensure_room`].
pub fn ensure_room_ahead(len: usize) -> Result<()> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let less = |found: usize| found.checked_sub(len);
    if FOUND.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
        return Ok(());
    }
    let has_more = ensure_room(len.saturating_add(AHEAD)).is_ok();
    FOUND.store(if has_more { AHEAD } else { 0 }, Ordering::Relaxed);
    if has_more { Ok(()) } else { ensure_room(len) }
}

fn no_room(len: usize, cgroup: &MemoryCgroup) -> Error {
    let MemoryCgroup { limit, used, .. } = cgroup;
    let subject = format!(
        "{len} bytes, where the memory cgroup {} allows {limit} and {used} are in use,",
        cgroup.path().display()
    );
    Error::new("allocation", subject, Errno::NOMEM)
        .with_remedy("raise the cgroup's limit (memory.max; `--memory` of a container), or free memory")
}

fn reserve(limit: u64) -> u64 {
    (limit / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX)
}

/// How a cgroup's files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit(self) -> &'static str {
        if self == Self::One { "memory.limit_in_bytes" } else { "memory.max" }
    }

    fn usage(self) -> &'static str {
        if self == Self::One { "memory.usage_in_bytes" } else { "memory.current" }
    }

    /// The lines of memory.stat that count the file cache, that of the cgroups below included.
    fn cache(self) -> [&'static str; 2] {
        match self {
            Self::One => ["total_inactive_file ", "total_active_file "],
            Self::Two => ["inactive_file ", "active_file "],
        }
    }
}

/// A cgroup with a limit, before a look at what its use consists of.
#[derive(Debug)]
struct Level {
    path: PathBuf,
    version: Version,
    limit: u64,
    /// Bytes in use, the file cache included.
    usage: u64,
}

impl Level {
    fn at(path: PathBuf, version: Version) -> Option<Self> {
        let number = |name| read(&path, name)?.trim().parse().ok();
        // The word "max" stands for no limit.
        let limit = number(version.limit()).filter(|limit| *limit < UNLIMITED)?;
        Some(Self { usage: number(version.usage())?, path, version, limit })
    }

    /// What is left even if none of the use is file cache.
    fn surely_left(&self) -> u64 {
        self.limit.saturating_sub(self.usage).saturating_sub(reserve(self.limit))
    }

    fn looked_at(self) -> MemoryCgroup {
        let stat = read(&self.path, "memory.stat").unwrap_or_default();
        let used = self.usage.saturating_sub(cache(&stat, self.version));
        MemoryCgroup { limit_file: self.path.join(self.version.limit()), limit: self.limit, used }
    }
}

fn read(path: &Path, name: &str) -> Option<String> {
    read_text(path.join(name).to_str()?).ok()
}

/// The bytes of file cache that memory.stat tells of.
fn cache(stat: &str, version: Version) -> u64 {
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    version.cache().into_iter().filter_map(of).sum()
}

/// The process's cgroup and those above it, as far as they have limits.
fn levels() -> impl Iterator<Item = Level> {
    static HIERARCHY: PerProcess<Option<Hierarchy>> = PerProcess::new();
    let find =
        || Hierarchy::of(&read_text("/proc/self/cgroup").ok()?, &read_text("/proc/self/mountinfo").ok()?);
    let Ok(found) = HIERARCHY.get(|_| Ok::<_, Infallible>(find()));
    let found = found.as_ref();
    // A process may be moved to another cgroup.
    let paths = found.and_then(|hierarchy| Some(hierarchy.paths(&read_text("/proc/self/cgroup").ok()?)));
    let version = found.map_or(Version::Two, |hierarchy| hierarchy.version);
    paths.unwrap_or_default().into_iter().filter_map(move |path| Level::at(path, version))
}

/// The hierarchy of cgroups that counts memory.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The cgroup that is mounted, and where.
    root: PathBuf,
    mount: PathBuf,
}

impl Hierarchy {
    fn of(cgroup: &str, mountinfo: &str) -> Option<Self> {
        let version = if own(cgroup, Version::One).is_some() { Version::One } else { Version::Two };
        mountinfo.lines().find_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let mut kind = file_system.split(' ');
            let is_it = match version {
                Version::One => {
                    kind.next() == Some("cgroup") && kind.nth(1)?.split(',').any(|option| option == "memory")
                }
                Version::Two => kind.next() == Some("cgroup2"),
            };
            let mut places = mount.split(' ').skip(3).map(PathBuf::from);
            is_it.then_some(Self { version, root: places.next()?, mount: places.next()? })
        })
    }

    /// The directories of the process's cgroup and of those above it.
    fn paths(&self, cgroup: &str) -> Vec<PathBuf> {
        let own = own(cgroup, self.version).map(Path::new);
        // A cgroup outside what is mounted here is seen as what is mounted.
        let below = own.and_then(|own| own.strip_prefix(&self.root).ok());
        let below = below.filter(|below| !below.components().any(|part| part.as_os_str() == ".."));
        // Joining nothing would add a slash.
        let below = below.filter(|below| !below.as_os_str().is_empty());
        let path = below.map_or_else(|| self.mount.clone(), |below| self.mount.join(below));
        path.ancestors().take_while(|path| path.starts_with(&self.mount)).map(Path::to_owned).collect()
    }
}

/// The process's cgroup, as /proc/self/cgroup names it: `4:memory:/path`, or `0::/path` in version 2.
fn own(cgroup: &str, version: Version) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_it = match version {
            Version::One => controllers.split(',').any(|controller| controller == "memory"),
            Version::Two => controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n";
    const TWO: &str = "0::/user.slice/a b/job\n";

    fn paths(cgroup: &str, mountinfo: &str) -> Vec<String> {
        let hierarchy = Hierarchy::of(cgroup, mountinfo).unwrap();
        hierarchy.paths(cgroup).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_cgroup_is_found_with_all_above_it() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
                      31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let memory = "/sys/fs/cgroup/memory";
        assert_eq!(
            paths(ONE, mounts),
            [format!("{memory}/docker/abc"), format!("{memory}/docker"), memory.to_owned()]
        );
        let unified = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = paths(TWO, unified);
        assert_eq!(found[0], "/sys/fs/cgroup/user.slice/a b/job");
        assert_eq!((found.len(), found[3].as_str()), (4, "/sys/fs/cgroup"));
    }

    /// A container sees its own cgroup mounted, by the whole name or without any.
    #[test]
    fn a_container_finds_its_cgroup_where_that_is_mounted() {
        let mounts = "31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(paths(ONE, mounts), ["/sys/fs/cgroup/memory"]);
        assert_eq!(paths("4:memory:/elsewhere\n", mounts), ["/sys/fs/cgroup/memory"]);
        let unified = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(paths("0::/../../job\n", unified), ["/sys/fs/cgroup"]);
        assert_eq!(Hierarchy::of(ONE, unified), None, "version 1 is not mounted");
    }

    #[test]
    fn file_cache_is_no_use_and_a_reserve_stays() {
        let one = "cache 9\ninactive_file 1\ntotal_inactive_file 4096\ntotal_active_file 8192\n";
        assert_eq!(cache(one, Version::One), 12288);
        assert_eq!(cache("file 5\ninactive_file 4096\nactive_file 1\n", Version::Two), 4097);
        let cgroup = MemoryCgroup { limit_file: "/x/memory.max".into(), limit: 32 << 20, used: 20 << 20 };
        assert_eq!(cgroup.left(), 10 << 20);
        assert_eq!(MemoryCgroup { used: 31 << 20, ..cgroup.clone() }.left(), 0);
        assert_eq!(
            no_room(16 << 20, &cgroup).to_string(),
            "allocation of 16777216 bytes, where the memory cgroup /x allows 33554432 and 20971520 are in use, failed: \
             Cannot allocate memory (os error 12); raise the cgroup's limit (memory.max; `--memory` of a container), or \
             free memory"
        );
    }

    #[test]
    fn what_no_machine_has_is_refused_where_there_is_a_limit() {
        let limit = memory_limit();
        assert_eq!(limit.is_some(), tightest().is_some());
        assert_eq!(ensure_room(1 << 59).is_err(), limit.is_some());
        assert!(limit.is_none_or(|limit| limit < UNLIMITED));
    }
}
