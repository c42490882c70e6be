//! What /proc and /sys say of this process's memory: its mappings, and the machine's huge pages.
//!
//! Trust: only the kernel writes the files that are read here.

use std::ops::Range;

use rustix::io::Errno;

use crate::{Error, Result};

const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// How many mappings a process may have.
///
/// # Errors
/// What reading the sysctl fails with.
pub fn max_map_count() -> Result<usize> {
    read_number(MAX_MAP_COUNT)
}

/// Whether the kernel promises no more memory than there is (`vm.overcommit_memory=2`). Then a memory object, to which nothing is
/// promised, may lack memory when it is touched. False where the file cannot be read.
pub fn is_overcommit_forbidden() -> bool {
    read_number(OVERCOMMIT).is_ok_and(|mode| mode == 2)
}

/// The machine's reserved huge pages of the default size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// All pages that are reserved.
    pub total: usize,
    /// Pages that nobody uses.
    pub free: usize,
    /// Pages that are free, but promised to mappings that have not touched them yet.
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

/// Finds the addresses of the mapping that the kernel calls `name`, as it calls the first thread's stack `[stack]`.
///
/// # Errors
/// What reading /proc/self/maps fails with.
///
/// # Cost
/// Some microseconds for a hundred mappings.
pub fn mapping_named(name: &str) -> Result<Option<Range<usize>>> {
    let maps = read_text("/proc/self/maps")?;
    Ok(mappings(&maps).find(|(_, found)| *found == name).map(|(range, _)| range))
}

/// The addresses of this process's anonymous mappings, in their order: mappings of no file that are neither the heap nor the
/// first thread's stack. Reserved addresses are among them.
///
/// # Errors
/// What reading /proc/self/maps fails with.
///
/// # Cost
/// Some microseconds for a hundred mappings.
#[doc(alias = "maps")]
pub fn anonymous_mappings() -> Result<Vec<Range<usize>>> {
    let maps = read_text("/proc/self/maps")?;
    Ok(mappings(&maps).filter(|(_, name)| name.is_empty()).map(|(range, _)| range).collect())
}

/// The addresses and the name of each line, `start-end permissions offset device inode   name`.
fn mappings(maps: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let number = |text| usize::from_str_radix(text, 16).ok();
    maps.lines().filter_map(move |line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim();
        Some((number(start)?..number(end)?, name))
    })
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
    fn mappings_are_told_by_address_and_name() {
        let maps = "\
00400000-00500000 r-xp 00001000 fe:00 42                         /usr/bin/a program
7f0000000000-7f0000400000 rw-s 00200000 00:0f 7                  /memfd:object (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0
";
        let expected = [
            (0x40_0000..0x50_0000, "/usr/bin/a program"),
            (0x7f00_0000_0000..0x7f00_0040_0000, "/memfd:object (deleted)"),
            (0x7ffd_0000_0000..0x7ffd_0002_1000, ""),
        ];
        assert_eq!(mappings(maps).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn this_process_has_anonymous_mappings_and_a_limit_of_them() {
        let page = Box::new([1u8; 1 << 20]);
        let addr = page.as_ptr().addr();
        assert!(anonymous_mappings().unwrap().iter().any(|range| range.contains(&addr)));
        assert!(crate::proc::mapping_count() < max_map_count().unwrap());
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
    fn a_missing_file_is_named() {
        let error = read_text("/proc/self/none").unwrap_err();
        assert!(error.to_string().starts_with("read of /proc/self/none failed"), "{error}");
    }
}
