//! The machine under the tests: page frames, raw looks at addresses, and the messages for what is missing.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use genie_memory::{Data, Inode};
use genie_sys::{inspect, process};

#[path = "../../sys/tests/proc/mod.rs"]
mod proc;
#[path = "../../sys/tests/skip/mod.rs"]
mod skipping;

/// Says that a test, or a part of it, was not run, and why: `SKIP test: reason`, also in the file that `GENIE_SKIP_LOG` names.
pub fn skip(test: &str, reason: &str) {
    skipping::skip(test, reason);
}

/// Why the machine has too few huge pages for a test, if so.
pub fn missing_huge_pages(needed: usize) -> Option<String> {
    let pages = inspect::huge_pages().expect("/proc/meminfo is readable");
    let available = pages.free.saturating_sub(pages.reserved);
    (pages.size_kib != 2048 || available < needed)
        .then(|| format!("{available} huge pages of 2 MiB are available, {needed} are needed"))
}

/// The page frames of the granules that hold `len` bytes at `addr`, one for each granule; `None` where frames are
/// hidden from this process.
pub fn frames(addr: usize, len: usize, granule: usize) -> Option<Vec<u64>> {
    let first = addr & !(granule - 1);
    (first..addr + len)
        .step_by(granule)
        .map(|addr| {
            // Protecting collapsed pages empties page tables, which loads fill again.
            let _ = is_accessible(addr);
            let page = proc::page_frames(addr, 1)[0];
            assert!(page.present, "no page at {addr:#x}");
            page.frame
        })
        .collect()
}

/// The bytes at an address right now, whoever owns them: the kernel reads them, without a Rust reference.
pub fn raw(addr: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = process::read_memory(process::own_pid(), addr, &mut bytes).expect("readable memory");
    assert_eq!(read, len, "readable memory at {addr:#x}");
    bytes
}

/// Whether `addr` can be loaded from, found out without a fault.
pub fn is_accessible(addr: usize) -> bool {
    process::read_memory(process::own_pid(), addr, &mut [0]).is_ok_and(|read| read == 1)
}

/// A part of some data: its length, and its memory object with the distance from the object's start (device, inode, offset), if it is
/// in one.
pub type Backed = (usize, Option<(u64, u64, usize)>);

/// The parts of data, as its backings have them; or why these are wrong: the kernel has something else mapped there, or the
/// object has other bytes.
pub fn backed(data: &Data<'_>) -> Result<Vec<Backed>, String> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for backing in data.backings() {
        let (addr, len) = (backing.addr(), backing.len());
        let object = backing.object().map(|(Inode { device, number }, offset)| (device, number, offset));
        let last = object.map(|(device, number, offset)| (device, number, offset + len - 1));
        for (addr, said) in [(addr, object), (addr + len - 1, last)] {
            let mapped = proc::object_at(addr);
            if mapped != said {
                return Err(format!("{mapped:?} is mapped at {addr:#x}, and not {said:?}"));
            }
        }
        let bytes = data.part(at..at + len).to_vec();
        if backing.to_vec() != bytes || raw(addr, len) != bytes {
            return Err(format!("bytes {at} to {} are not at {addr:#x}", at + len));
        }
        if let Some((device, number, offset)) = object {
            let file = File::from(backing.share().map_err(|error| error.to_string())?);
            let (found, mut there) = (file.metadata().expect("memory"), vec![0; len]);
            file.read_exact_at(&mut there, offset as u64).map_err(|error| error.to_string())?;
            if (found.dev(), found.ino()) != (device, number) || there != bytes {
                return Err(format!("bytes {at} to {} are not in the object", at + len));
            }
        }
        parts.push((len, object));
        at += len;
    }
    if at == data.len() { Ok(parts) } else { Err(format!("{at} bytes of {} are somewhere", data.len())) }
}
