//! One mapping of this process as /proc/self/smaps shows it.

use std::ops::Range;

use super::{number_of_field, read_text};
use crate::Result;

/// A mapping, its share of memory and its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingInfo {
    /// The first address.
    pub start: usize,
    /// The address after the last.
    pub end: usize,
    /// As the kernel writes them: `rw-s`.
    pub permissions: String,
    /// Where in the object it begins, in bytes.
    pub offset: u64,
    /// The object's name; empty for anonymous memory.
    pub name: String,
    /// Memory in use, without huge pages of hugetlb.
    pub rss_kib: usize,
    /// Hugetlb memory that others map too.
    pub shared_hugetlb_kib: usize,
    /// Hugetlb memory that only this mapping maps.
    pub private_hugetlb_kib: usize,
    /// Memory locked by mlock.
    pub locked_kib: usize,
    /// Shared memory mapped by transparent huge pages.
    pub shmem_huge_kib: usize,
    /// The size of the pages that the mapping was made of.
    pub page_size_kib: usize,
    /// The kernel's two-letter flags: `uw` registered for write protection, `lo` locked, `dc` not inherited
    /// by fork, ...
    pub vm_flags: Vec<String>,
}

impl MappingInfo {
    /// Whether the kernel shows the two-letter flag.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.vm_flags.iter().any(|f| f == flag)
    }
}

/// Finds the mapping that holds `addr`, if there is one.
///
/// # Errors
/// What reading /proc/self/smaps fails with.
///
/// # Cost
/// The kernel walks every page table of the process.
#[doc(alias = "smaps")]
pub fn mapping_at(addr: usize) -> Result<Option<MappingInfo>> {
    Ok(find(&read_text("/proc/self/smaps")?, addr))
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
    let found = maps.lines().filter_map(header).find(|header| header.name == name);
    Ok(found.map(|header| header.start..header.end))
}

/// The addresses of this process's anonymous mappings, in their order: what is no file's, nor the heap or the first thread's
/// stack. Reserved addresses are among them.
///
/// # Errors
/// What reading /proc/self/maps fails with.
///
/// # Cost
/// Some microseconds for a hundred mappings.
#[doc(alias = "maps")]
pub fn anonymous_mappings() -> Result<Vec<Range<usize>>> {
    let maps = read_text("/proc/self/maps")?;
    let anonymous = maps.lines().filter_map(header).filter(|header| header.name.is_empty());
    Ok(anonymous.map(|header| header.start..header.end).collect())
}

struct Header<'a> {
    start: usize,
    end: usize,
    permissions: &'a str,
    offset: u64,
    name: &'a str,
}

/// Reads `start-end permissions offset device inode   name`; none if the line is of another kind.
fn header(line: &str) -> Option<Header<'_>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let mut words = line.splitn(6, ' ').skip(1);
    let (permissions, offset) = (words.next()?, words.next()?);
    Some(Header {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        permissions,
        offset: u64::from_str_radix(offset, 16).ok()?,
        name: words.nth(2).unwrap_or("").trim(),
    })
}

fn find(smaps: &str, addr: usize) -> Option<MappingInfo> {
    let mut at = 0;
    for line in smaps.split_inclusive('\n') {
        at += line.len();
        match header(line) {
            Some(found) if found.start <= addr && addr < found.end => {
                return Some(info(&found, &smaps[at..]));
            }
            _ => {}
        }
    }
    None
}

/// Fills in the fields that follow a header, up to the flags, which end every mapping's.
fn info(header: &Header<'_>, following: &str) -> MappingInfo {
    let flags_at = following.find("VmFlags:").unwrap_or(following.len());
    let (fields, flags) = following.split_at(flags_at);
    let kib = |name| number_of_field(fields, name).unwrap_or(0);
    MappingInfo {
        start: header.start,
        end: header.end,
        permissions: header.permissions.to_owned(),
        offset: header.offset,
        name: header.name.to_owned(),
        rss_kib: kib("Rss"),
        shared_hugetlb_kib: kib("Shared_Hugetlb"),
        private_hugetlb_kib: kib("Private_Hugetlb"),
        locked_kib: kib("Locked"),
        shmem_huge_kib: kib("ShmemPmdMapped"),
        page_size_kib: kib("KernelPageSize"),
        vm_flags: flags.lines().next().unwrap_or("").split_whitespace().skip(1).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00500000 r-xp 00001000 fe:00 42                         /usr/bin/a program
Size:               1024 kB
KernelPageSize:        4 kB
Rss:                 300 kB
Locked:                0 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000400000 rw-s 00200000 00:0f 7                  /memfd:object (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
Rss:                   0 kB
ShmemPmdMapped:        0 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:    1024 kB
Locked:               16 kB
VmFlags: rd wr sh dc uw
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0
VmFlags: rd wr
";

    #[test]
    fn the_mapping_that_holds_an_address_is_read_whole() {
        let found = find(SMAPS, 0x7f00_003f_ffff).unwrap();
        assert_eq!((found.start, found.end), (0x7f00_0000_0000, 0x7f00_0040_0000));
        assert_eq!((found.permissions.as_str(), found.offset), ("rw-s", 0x20_0000));
        assert_eq!(found.name, "/memfd:object (deleted)");
        let sizes =
            (found.shared_hugetlb_kib, found.private_hugetlb_kib, found.locked_kib, found.page_size_kib);
        assert_eq!(sizes, (2048, 1024, 16, 2048));
        assert_eq!(found.vm_flags, ["rd", "wr", "sh", "dc", "uw"]);
        assert!(found.has_flag("uw") && !found.has_flag("lo"));
    }

    #[test]
    fn fields_are_never_taken_from_the_next_mapping() {
        let last = find(SMAPS, 0x7ffd_0000_0000).unwrap();
        assert_eq!((last.name.as_str(), last.rss_kib), ("", 0));
        let first = find(SMAPS, 0x40_0000).unwrap();
        assert_eq!((first.name.as_str(), first.shared_hugetlb_kib), ("/usr/bin/a program", 0));
    }

    #[test]
    fn an_address_between_mappings_has_none() {
        assert_eq!(find(SMAPS, 0x50_0000), None);
        assert_eq!(mapping_at(0).unwrap(), None);
    }

    #[test]
    fn a_live_stack_address_is_readable_and_writable() {
        let local = 0u8;
        let addr = std::ptr::from_ref(&local) as usize;
        let found = mapping_at(addr).unwrap().expect("the stack is mapped");
        assert!(found.start <= addr && addr < found.end);
        assert!(
            found.permissions.starts_with("rw") && found.rss_kib > 0 && found.has_flag("wr"),
            "{found:?}"
        );
    }
}
