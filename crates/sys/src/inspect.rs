//! What /proc and /sys say of this process's memory: frames, mappings, faults, huge pages, descriptors.
//!
//! Why: right bytes don't prove that nothing was copied; only the page frame, the mapping and the fault count
//! do.
//! Trust: the kernel alone writes what is read here.
//! Limits: frame numbers are hidden from processes without CAP_SYS_ADMIN. Counts of mappings and descriptors
//! are those of the whole process, other threads' included.

mod mapping;

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::{Error, Result};

pub use mapping::{MappingInfo, anonymous_mappings, mapping_at, mapping_named};

const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";
const HUGE_PAGE_COUNT: &str = "/proc/sys/vm/nr_hugepages";
const SHMEM_HUGE_MODE: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// What the page table says of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFrame {
    /// It is in memory.
    pub present: bool,
    /// It is swapped out.
    pub swapped: bool,
    /// It was stored to since its soft-dirty bits were last cleared; always false on kernels without
    /// soft-dirty bits.
    pub soft_dirty: bool,
    /// A userfaultfd has write-protected it.
    #[doc(alias = "uffd-wp")]
    pub write_protected: bool,
    /// The number of its frame; none if it is not present, or hidden (CAP_SYS_ADMIN is missing).
    pub frame: Option<u64>,
}

impl PageFrame {
    fn of_entry(entry: u64) -> Self {
        let bit = |n: u32| entry >> n & 1 == 1;
        let frame = entry & ((1 << 55) - 1);
        Self {
            present: bit(63),
            swapped: bit(62),
            soft_dirty: bit(55),
            write_protected: bit(57),
            frame: (bit(63) && frame != 0).then_some(frame),
        }
    }
}

/// Reports each page (4 KiB on x86-64, also within huge ones) that `len` bytes from `addr` touch.
///
/// # Errors
/// EIO beyond the process's address space; what opening /proc/self/pagemap fails with.
#[doc(alias = "pagemap")]
pub fn page_frames(addr: usize, len: usize) -> Result<Vec<PageFrame>> {
    let page = rustix::param::page_size();
    let first = addr / page;
    let count = addr.saturating_add(len).div_ceil(page) - first;
    let mut entries = vec![0; if len == 0 { 0 } else { count * 8 }];
    let path = "/proc/self/pagemap";
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut entries, first as u64 * 8))
        .map_err(|error| failed("read", format!("{path} for {count} pages from {addr:#x}"), &error))?;
    let (entries, _) = entries.as_chunks::<8>();
    Ok(entries.iter().map(|entry| PageFrame::of_entry(u64::from_ne_bytes(*entry))).collect())
}

/// How many mappings this process has.
///
/// # Errors
/// What reading /proc/self/maps fails with.
pub fn mapping_count() -> Result<usize> {
    Ok(read_text("/proc/self/maps")?.lines().count())
}

/// How many mappings a process may have.
///
/// # Errors
/// What reading the sysctl fails with.
pub fn max_map_count() -> Result<usize> {
    read_number(MAX_MAP_COUNT)
}

/// Page faults since a thread began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Faults that needed no reading from a device.
    pub minor: u64,
    /// Faults that did.
    pub major: u64,
}

/// Counts the calling thread's page faults.
pub fn fault_counts() -> FaultCounts {
    let usage = crate::machine::thread_usage();
    FaultCounts { minor: usage.ru_minflt as u64, major: usage.ru_majflt as u64 }
}

/// The machine's reserved huge pages of the default size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Reserved at all.
    pub total: usize,
    /// In no one's use.
    pub free: usize,
    /// Free, but promised to mappings that have not touched them yet.
    pub reserved: usize,
    /// The size of one, in KiB; 0 where the kernel has none.
    pub size_kib: usize,
}

/// Reads the machine's reserved huge pages.
///
/// # Errors
/// What reading /proc/meminfo fails with.
pub fn huge_pages() -> Result<HugePages> {
    Ok(parse_huge_pages(&read_text("/proc/meminfo")?))
}

/// A kernel without huge pages has none of these lines, which counts as zero pages.
fn parse_huge_pages(meminfo: &str) -> HugePages {
    let field = |name| number_of_field(meminfo, name).unwrap_or(0);
    HugePages {
        total: field("HugePages_Total"),
        free: field("HugePages_Free"),
        reserved: field("HugePages_Rsvd"),
        size_kib: field("Hugepagesize"),
    }
}

/// Asks the kernel to reserve `count` huge pages in all, and returns how many it then has.
///
/// Memory in pieces gives fewer than asked for; pages in use are not taken back.
///
/// # Errors
/// EACCES, EPERM: not root.
pub fn set_huge_pages(count: usize) -> Result<usize> {
    std::fs::write(HUGE_PAGE_COUNT, count.to_string()).map_err(|error| {
        failed("write", format!("{count} to {HUGE_PAGE_COUNT}"), &error).with_remedy("run as root")
    })?;
    read_number(HUGE_PAGE_COUNT)
}

/// How the kernel uses transparent huge pages for shared memory: `never`, `advise`, `within_size`, `always`,
/// ...
///
/// # Errors
/// ENOENT on a kernel without transparent huge pages.
pub fn shmem_huge_mode() -> Result<String> {
    let text = read_text(SHMEM_HUGE_MODE)?;
    bracketed(&text)
        .map(str::to_owned)
        .ok_or_else(|| Error::new("read", format!("{SHMEM_HUGE_MODE} ({:?})", text.trim()), Errno::INVAL))
}

fn bracketed(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// How many descriptors this process has open.
///
/// # Errors
/// EMFILE where not one more can be opened, which counting needs.
pub fn open_descriptors() -> Result<usize> {
    let path = "/proc/self/fd";
    let entries = std::fs::read_dir(path).map_err(|error| failed("read", path, &error))?;
    // The directory itself is one of them.
    Ok(entries.count().saturating_sub(1))
}

/// Reads a small text file of the kernel's.
pub(crate) fn read_text(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| failed("read", path, &error))
}

fn read_number(path: &str) -> Result<usize> {
    let text = read_text(path)?;
    text.trim()
        .parse()
        .map_err(|_| Error::new("read", format!("{path} ({:?}), a number,", text.trim()), Errno::INVAL))
}

/// The number in a line `name:  number [kB]`.
fn number_of_field(text: &str, name: &str) -> Option<usize> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Failures that carry no errno (a short read, text that isn't UTF-8) become EIO.
fn failed(call: &'static str, subject: impl Into<String>, error: &std::io::Error) -> Error {
    Error::new(call, subject, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_bits_mean_what_the_kernel_documents() {
        let entry = PageFrame::of_entry(1 << 63 | 1 << 57 | 1 << 55 | 0x1234);
        let expected = PageFrame {
            present: true,
            swapped: false,
            soft_dirty: true,
            write_protected: true,
            frame: Some(0x1234),
        };
        assert_eq!(entry, expected);
        assert_eq!(PageFrame::of_entry(1 << 63).frame, None, "a hidden frame");
        let swapped = PageFrame::of_entry(1 << 62 | 0x1234);
        assert_eq!((swapped.swapped, swapped.frame), (true, None), "the low bits are the place in swap");
    }

    #[test]
    fn frames_cover_every_page_touched() {
        let page = rustix::param::page_size();
        let buffer = vec![1u8; 4 * page];
        let start = buffer.as_ptr() as usize / page * page + page;
        assert_eq!(page_frames(start, 0).unwrap().len(), 0);
        assert_eq!(page_frames(start, page).unwrap().len(), 1);
        assert_eq!(page_frames(start + page - 1, 2).unwrap().len(), 2);
        assert!(page_frames(start, page).unwrap()[0].present);
    }

    #[test]
    fn frames_beyond_the_address_space_are_an_error() {
        assert!(page_frames(usize::MAX - 8192, 4096).is_err());
    }

    #[test]
    fn this_process_has_mappings_and_a_limit_of_them() {
        let count = mapping_count().unwrap();
        assert!(count > 5 && count < max_map_count().unwrap(), "{count}");
    }

    #[test]
    fn first_touches_are_counted_as_minor_faults() {
        let before = fault_counts();
        let pages = 256;
        let mut buffer = Vec::<u8>::with_capacity(pages * 4096);
        buffer.resize(pages * 4096, 1);
        std::hint::black_box(&buffer);
        let minor = fault_counts().minor - before.minor;
        assert!(minor >= 1, "{minor} faults");
    }

    #[test]
    fn huge_pages_are_read_from_meminfo() {
        let text = "HugePages_Total:     400\nHugePages_Free:      390\nHugePages_Rsvd:        2\n\
                    HugePages_Surp:        0\nHugepagesize:       2048 kB\n";
        let expected = HugePages { total: 400, free: 390, reserved: 2, size_kib: 2048 };
        assert_eq!(parse_huge_pages(text), expected);
        assert_eq!(parse_huge_pages("MemTotal: 5 kB\n").total, 0);
        let now = huge_pages().unwrap();
        assert!(now.free <= now.total && now.reserved <= now.free, "{now:?}");
    }

    #[test]
    fn huge_pages_are_set_by_root_and_by_nobody_else() {
        let Ok(count) = read_number(HUGE_PAGE_COUNT) else {
            crate::skip::skip(
                "huge_pages_are_set_by_root_and_by_nobody_else",
                "no huge pages in this kernel",
            );
            return;
        };
        // Setting the count that there is disturbs nobody.
        match set_huge_pages(count) {
            Ok(given) => assert_eq!(given, count),
            Err(error) => {
                assert!(matches!(error.errno, Errno::ACCESS | Errno::PERM | Errno::ROFS), "{error}");
                assert!(error.to_string().ends_with("run as root"), "{error}");
            }
        }
    }

    #[test]
    fn the_mode_is_the_bracketed_word() {
        assert_eq!(bracketed("always [within_size] never\n"), Some("within_size"));
        assert_eq!(bracketed("always never"), None);
        match shmem_huge_mode() {
            Ok(mode) => assert!(!mode.is_empty() && !mode.contains(['[', ' ']), "{mode}"),
            Err(error) if error.errno == Errno::NOENT => {
                crate::skip::skip(
                    "the_mode_is_the_bracketed_word",
                    "no transparent huge pages in this kernel",
                );
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn an_open_file_counts_as_a_descriptor() {
        // Other tests open and close files meanwhile, so many files are needed to be seen.
        let before = open_descriptors().unwrap();
        let files: Vec<File> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(open_descriptors().unwrap() >= before + 100);
        drop(files);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_text("/proc/self/none").unwrap_err();
        assert!(error.to_string().starts_with("read of /proc/self/none failed"), "{error}");
    }
}
