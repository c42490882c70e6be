//! Views: files mapped to be read, which others may shorten at any moment.
//!
//! Why: a read from a mapping takes no system call and no second copy in this process, but it raises SIGBUS where the
//! file ends. To check the file's size beforehand does not help, since the file may be shortened afterwards.
//! How: each view is an arena of its own, with a guard.
//! Trust: a process that may write to the file decides what is read, and whether the view breaks.
//! Limits: as many views as arenas can be guarded. A view keeps its file's blocks on the disk, even after the file's
//! last name was removed.
#![allow(unsafe_code, reason = "maps files into arenas of its own, which nobody else has addresses in")]

use std::os::fd::AsFd;

use crate::guard::{Guard, Replaces};
use crate::{Arena, Error, Result, Span, mmap};

/// A part of a file, mapped.
#[derive(Debug)]
pub struct View {
    arena: Arena,
    guard: Guard,
    len: usize,
}

impl View {
    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size; the file may end before.
    ///
    /// # Errors
    /// The file cannot be read or mapped, or there are too many mappings, views or addresses.
    ///
    /// # Cost
    /// Two system calls; the first touch of each page is a minor fault, or waits for the disk.
    #[doc(alias = "mmap")]
    pub fn open(file: impl AsFd, offset: u64, len: usize) -> Result<Self> {
        let arena = Arena::reserve(len)?;
        let guard = arena.guard(Replaces::MissingAndDamaged)?;
        let start = std::ptr::with_exposed_provenance_mut(arena.base());
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the addresses are those of the arena, which belongs to this view alone, and into which there is no
        // reference.
        unsafe { mmap::map(start, len, libc::PROT_READ, flags, Some((file.as_fd(), offset as usize))) }
            .map_err(|errno| Error::new("mmap", format!("{len} bytes of a file at {offset}"), errno))?;
        Ok(Self { arena, guard, len })
    }

    /// The `len` bytes from `offset` on, to be loaded while the view exists. After loading them, ask [`View::is_broken`]
    /// whether they can be relied on.
    ///
    /// # Panics
    /// When the bytes go beyond the view.
    pub fn span(&self, offset: usize, len: usize) -> Span {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} leave a view of {}",
            self.len
        );
        self.arena.span(offset, len)
    }

    /// Whether somebody has loaded bytes that were missing: these bytes and later ones may be zeros, and the view is of no
    /// more use.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.guard.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// The bytes there; none if the view is broken.
    fn read(view: &View, offset: usize, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        // SAFETY: mapped, or caught by the guard, as long as the view exists.
        unsafe { view.span(offset, len).copy_to(&mut bytes) };
        (!view.is_broken()).then_some(bytes)
    }

    #[test]
    fn a_view_shows_what_is_in_the_file_now_and_breaks_when_it_is_shortened() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let view = View::open(&file, 0, 1 << 20).unwrap();
        assert_eq!(read(&view, 0, 10_000), Some(vec![7; 10_000]));
        file.write_all_at(b"x", 9_999).unwrap();
        assert_eq!(read(&view, 9_999, 1), Some(b"x".to_vec()));
        file.set_len(4096).unwrap();
        assert!(read(&view, 0, 4096).is_some(), "what is left");
        assert_eq!(read(&view, 5_000, 1), None, "what is gone");
    }

    #[test]
    #[should_panic(expected = "leave a view")]
    fn bytes_beyond_a_view_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 4096], 0).unwrap();
        let _ = View::open(&file, 0, 4096).unwrap().span(4_000, 97);
    }
}
