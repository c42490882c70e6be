//! Spans: raw memory that another party may change while we look at it.
//!
//! Why: memory that another thread's mapping or another process can write is never a `&[u8]`: the compiler may assume
//! that a shared slice does not change. A span is copied from and to, summed and compared, never borrowed.
//! Trust: contents may change between any two loads; each method loads each byte once.
#![allow(unsafe_code, reason = "dereferences addresses whose validity `Span::new`'s caller vouched for")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

use crate::{Errno, Error, Result, copying};

/// What is looked at once. Sums that take turns word by word stay in memory, each waiting for its last store.
type Line = [u64; 8];

/// A run of bytes at an address, without any claim that they stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: *mut u8,
    len: usize,
}

// SAFETY: a span is an address and a length; `Span::new` obliges its caller to keep the memory mapped for every use, on
// whatever thread.
unsafe impl Send for Span {}
// SAFETY: as for Send; methods take no exclusive access for granted.
unsafe impl Sync for Span {}

impl Span {
    /// Takes `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes must be mapped, readable and, for the methods that store, writable for as long as the span or a copy
    /// of it is used, and no Rust reference may exist to bytes that are stored to through it.
    pub const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// The first address.
    pub fn addr(self) -> usize {
        self.start.expose_provenance()
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from `offset` on.
    ///
    /// # Panics
    /// When they leave the span.
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Self {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "part {offset}+{len} leaves a span of {} bytes",
            self.len
        );
        // SAFETY: inside the span.
        Self { start: unsafe { self.start.add(offset) }, len }
    }

    /// Copies all bytes out.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy_to(self, bytes: &mut [u8]) {
        assert_eq!(self.len, bytes.len(), "copying between unlike lengths");
        // SAFETY: valid for loads by `new`'s contract; a `&mut` slice overlaps no memory that a span may be made of.
        unsafe { copying::copy(self.start, bytes.as_mut_ptr(), self.len) }
    }

    /// Copies `bytes` in.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy_from(self, bytes: &[u8]) {
        assert_eq!(self.len, bytes.len(), "copying between unlike lengths");
        // SAFETY: valid for stores by `new`'s contract.
        unsafe { copying::copy(bytes.as_ptr(), self.start, self.len) }
    }

    /// Copies the bytes of `from` in; the two may overlap.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy_span(self, from: Self) {
        assert_eq!(self.len, from.len, "copying between unlike lengths");
        // SAFETY: both are valid by `new`'s contract.
        unsafe { copying::copy(from.start, self.start, self.len) }
    }

    /// Stores `byte` everywhere.
    pub fn fill(self, byte: u8) {
        // SAFETY: valid for stores by `new`'s contract.
        unsafe { std::ptr::write_bytes(self.start, byte, self.len) }
    }

    /// The first offset at which the span's byte and that of `bytes` differ.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn mismatch(self, bytes: &[u8]) -> Option<usize> {
        assert_eq!(self.len, bytes.len(), "comparing unlike lengths");
        let mut chunk = [0; 4096];
        for (index, expected) in bytes.chunks(chunk.len()).enumerate() {
            let offset = index * chunk.len();
            let found = &mut chunk[..expected.len()];
            self.part(offset, expected.len()).copy_to(found);
            if found != expected {
                return found.iter().zip(expected).position(|(f, e)| f != e).map(|at| offset + at);
            }
        }
        None
    }

    /// The wrapping sum of the bytes as little-endian 64-bit words, the last one filled up with zeros: loads every
    /// byte once and stores nothing. As fast as the memory is: whole cache lines are added to as many sums as they have words.
    pub fn sum(self) -> u64 {
        let mut sums: Line = [0; 8];
        self.lines(|line| {
            sums.iter_mut().zip(line).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        });
        sums.into_iter().fold(0, u64::wrapping_add)
    }

    /// Shows all bytes to `see`, in order, 64 at a time as little-endian words, the last ones filled up with zeros: loads
    /// every byte once and stores nothing.
    #[inline]
    pub fn lines(self, mut see: impl FnMut(Line)) {
        let lines = self.len / size_of::<Line>();
        for line in 0..lines {
            // SAFETY: inside the span; unaligned loads are allowed for; the value may be stale or torn, never invalid.
            let words = unsafe { self.start.cast::<Line>().add(line).read_unaligned() };
            see(words.map(u64::from_le));
        }
        let seen = lines * size_of::<Line>();
        if seen < self.len {
            let mut rest = [0; size_of::<Line>()];
            self.part(seen, self.len - seen).copy_to(&mut rest[..self.len - seen]);
            let (words, _) = rest.as_chunks();
            see(std::array::from_fn(|at| u64::from_le_bytes(words[at])));
        }
    }

    /// Reads from `file` at `file_offset` into the span; returns the number of bytes read, 0 at the file's end.
    ///
    /// # Errors
    /// The kernel's; bytes read before the error are in the span.
    pub fn read_file(self, file: impl AsFd, file_offset: u64) -> Result<usize> {
        self.whole(|done| {
            // SAFETY: the kernel stores into bytes inside the span.
            unsafe {
                libc::pread(
                    file.as_fd().as_raw_fd(),
                    self.start.add(done).cast(),
                    self.len - done,
                    (file_offset + done as u64) as i64,
                )
            }
        })
        .map_err(|errno| Error::new("pread", format!("{} bytes at {file_offset}", self.len), errno))
    }

    /// Writes the span to `file` at `file_offset`; returns the number of bytes written, less than all only when the
    /// file takes no more.
    ///
    /// # Errors
    /// The kernel's; bytes written before the error are in the file.
    pub fn write_file(self, file: impl AsFd, file_offset: u64) -> Result<usize> {
        self.whole(|done| {
            // SAFETY: the kernel loads from bytes inside the span.
            unsafe {
                libc::pwrite(
                    file.as_fd().as_raw_fd(),
                    self.start.add(done).cast(),
                    self.len - done,
                    (file_offset + done as u64) as i64,
                )
            }
        })
        .map_err(|errno| Error::new("pwrite", format!("{} bytes at {file_offset}", self.len), errno))
    }

    /// Copies memory of process `pid` from `addr` on into the span; returns how many bytes came, fewer than all where a later
    /// page is not mapped there.
    ///
    /// # Errors
    /// EFAULT: not even the first page is mapped. EPERM: no right to trace that process. ESRCH: it has gone.
    #[doc(alias = "process_vm_readv")]
    pub fn read_process(self, pid: Pid, addr: usize) -> Result<usize> {
        let (local, remote) = (self.vector(), vector(addr, self.len));
        // SAFETY: the kernel stores into bytes inside the span; it checks the other process's addresses.
        let moved = unsafe { libc::process_vm_readv(pid.as_raw_nonzero().get(), &local, 1, &remote, 1, 0) };
        moved_bytes("process_vm_readv", moved, pid, addr, self.len)
    }

    /// Copies the span into memory of process `pid` from `addr` on; returns how many bytes went.
    ///
    /// # Errors
    /// As [`Span::read_process`]; EFAULT also where the memory is not writable. EINVAL for this process, whose memory
    /// belongs to its Rust values.
    #[doc(alias = "process_vm_writev")]
    pub fn write_process(self, pid: Pid, addr: usize) -> Result<usize> {
        crate::process::refuse_own(pid, addr, self.len)?;
        let (local, remote) = (self.vector(), vector(addr, self.len));
        // SAFETY: the kernel loads from bytes inside the span, and stores into another process, as checked above.
        let moved = unsafe { libc::process_vm_writev(pid.as_raw_nonzero().get(), &local, 1, &remote, 1, 0) };
        moved_bytes("process_vm_writev", moved, pid, addr, self.len)
    }

    fn vector(self) -> libc::iovec {
        libc::iovec { iov_base: self.start.cast(), iov_len: self.len }
    }

    /// Calls `transfer` until it has moved the whole span, moves nothing more, or fails.
    fn whole(self, mut transfer: impl FnMut(usize) -> isize) -> std::result::Result<usize, Errno> {
        let mut done = 0;
        while done < self.len {
            match transfer(done) {
                0 => break,
                moved if moved > 0 => done += moved.unsigned_abs(),
                _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                    Some(Errno::INTR) => {}
                    errno => return Err(errno.unwrap_or(Errno::IO)),
                },
            }
        }
        Ok(done)
    }
}

fn vector(addr: usize, len: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::without_provenance_mut(addr), iov_len: len }
}

fn moved_bytes(call: &'static str, moved: isize, pid: Pid, addr: usize, len: usize) -> Result<usize> {
    usize::try_from(moved).map_err(|_| {
        let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        Error::new(call, format!("{len} bytes at {addr:#x} of process {pid}"), errno)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(bytes: &mut [u8]) -> Span {
        // SAFETY: the tests use the vector only through the span while the span is in use.
        unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    #[test]
    fn sum_covers_every_byte_at_any_length() {
        for len in [0, 1, 7, 8, 9, 63, 64, 65, 127, 4097] {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i * 31 + 7) as u8).collect();
            let expected = bytes.chunks(8).fold(0u64, |sum, word| {
                let mut full = [0; 8];
                full[..word.len()].copy_from_slice(word);
                sum.wrapping_add(u64::from_le_bytes(full))
            });
            assert_eq!(over(&mut bytes).sum(), expected, "at length {len}");
        }
    }

    #[test]
    fn mismatch_names_the_first_differing_offset() {
        let mut bytes = vec![5u8; 10_000];
        let mut expected = bytes.clone();
        assert_eq!(over(&mut bytes).mismatch(&expected), None);
        expected[9_999] = 6;
        assert_eq!(over(&mut bytes).mismatch(&expected), Some(9_999));
        expected[4_096] = 6;
        assert_eq!(over(&mut bytes).mismatch(&expected), Some(4_096));
    }

    #[test]
    #[should_panic(expected = "leaves a span")]
    fn a_part_beyond_the_end_is_refused() {
        let mut bytes = vec![0u8; 8];
        let _ = over(&mut bytes).part(4, 5);
    }
}
