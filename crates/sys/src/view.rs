//! Views: files mapped to be read, which others may shorten at any moment.
//!
//! Why: a read from a mapping takes no system call and no second copy in this process, but it is SIGBUS where the file
//! ends; looking at the file's size before would be too late.
//! How: each view is an arena of its own, under a guard.
//! Trust: whoever may write to the file decides what is read, and whether the view breaks.
//! Limits: as many views as arenas can be guarded. A view keeps its file's blocks on the disk, even when the file has no
//! name any more.
#![allow(
    unsafe_code,
    reason = "maps files into arenas of its own, and looks at them through spans that it checks"
)]

use std::os::fd::{AsFd, AsRawFd};

use crate::guard::{Guard, Replaces};
use crate::{Arena, Errno, Error, Result, Span};

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
        // SAFETY: the addresses are those of the arena, which is this view's alone and has no reference into it.
        let mapped = unsafe {
            libc::mmap(start, len, libc::PROT_READ, flags, file.as_fd().as_raw_fd(), offset as i64)
        };
        if mapped == libc::MAP_FAILED {
            let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
            return Err(Error::new("mmap", format!("{len} bytes of a file at {offset}"), errno));
        }
        Ok(Self { arena, guard, len })
    }

    /// Copies bytes from `offset` on, as many as `target` takes. Returns whether the view is intact; if not, some of them
    /// may be zeros, and the view is of no more use.
    ///
    /// # Panics
    /// When the bytes leave the view.
    #[must_use]
    pub fn copy_to(&self, offset: usize, target: Span) -> bool {
        assert!(
            offset.checked_add(target.len()).is_some_and(|end| end <= self.len),
            "{} bytes at {offset} leave a view of {}",
            target.len(),
            self.len
        );
        // SAFETY: the bytes are mapped for loads as long as the view exists, or the guard maps zeros; nothing is stored.
        target.copy_span(unsafe { self.arena.span(offset, target.len()) });
        !self.guard.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GranuleKind, Object};
    use std::os::unix::fs::FileExt;

    fn target(arena: &Arena, object: &Object, len: usize) -> Span {
        arena.map(0, object, 0, object.len()).unwrap();
        // SAFETY: the arena outlives the span in each test, and there are no references into it.
        unsafe { arena.span(0, len) }
    }

    #[test]
    fn a_view_shows_what_is_in_the_file_now_and_breaks_when_it_is_shortened() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let view = View::open(&file, 0, 1 << 20).unwrap();
        let (arena, object) =
            (Arena::reserve(1 << 20).unwrap(), Object::create(GranuleKind::Base, 1 << 16).unwrap());
        let bytes = target(&arena, &object, 10_000);
        assert!(view.copy_to(0, bytes));
        assert_eq!(bytes.mismatch(&[7; 10_000]), None);
        file.write_all_at(b"x", 9_999).unwrap();
        assert!(view.copy_to(9_999, bytes.part(0, 1)));
        assert_eq!(bytes.part(0, 1).mismatch(b"x"), None);
        file.set_len(4096).unwrap();
        assert!(view.copy_to(0, bytes.part(0, 4096)), "what is left");
        assert!(!view.copy_to(5_000, bytes.part(0, 1)), "what is gone");
    }

    #[test]
    #[should_panic(expected = "leave a view")]
    fn bytes_beyond_a_view_are_refused() {
        let file = tempfile::tempfile().unwrap();
        let view = View::open(&file, 0, 4096).unwrap();
        let (arena, object) =
            (Arena::reserve(1 << 20).unwrap(), Object::create(GranuleKind::Base, 1 << 16).unwrap());
        let _ = view.copy_to(4_000, target(&arena, &object, 97));
    }
}
