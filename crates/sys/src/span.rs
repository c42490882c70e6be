//! Spans: raw memory that another party may change at any time.
//!
//! Why: memory that another thread's mapping or another process can write is never a `&[u8]`: the compiler may assume
//! that a shared slice does not change. A span is copied from and to, summed and compared, never borrowed.
//! How: a span itself is inert, an address and a length. Code that loads or stores through it calls an `unsafe fn`, and
//! promises one of two things:
//!
//! - to *load*: the bytes are mapped and readable during the call;
//! - to *store*: the bytes are mapped and writable during the call, and no Rust reference to any of them is used after
//!   the call.
//!
//! Trust: contents may change between any two loads. What a method says of a byte, or copies, is from one load of it, and the
//! compiler can neither repeat a load nor load again where a copy's bytes should be used. (A copy may load a byte twice, where its
//! moves overlap; then it also stores the byte twice, and the last one stays.) Several threads may load and store the same bytes at once,
//! by spans: `copying` makes no data race of that, and each byte is then as one of them stored it.
#![allow(
    unsafe_code,
    reason = "loads from and stores to addresses whose validity each method's caller vouches for"
)]

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

use crate::copying::{self, Line};
use crate::error::last_errno;
use crate::{Errno, Error, Result};

/// How many lines each round of a loop over many of them loads. The compiler unrolls no loop around assembly, and loading
/// one line at a time takes a quarter longer for 64 KiB of which another CPU has just written some lines.
const LINES_PER_ROUND: usize = 4;

/// A run of bytes at an address, without any claim that they are there, or do not change.
///
/// ```compile_fail,E0133
/// let mut byte = 1;
/// let span = genie_sys::Span::new(&raw mut byte, 1);
/// span.fill(2); // to store is unsafe
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: *mut u8,
    len: usize,
}

// SAFETY: a span is an address and a length; what uses it as more is unsafe, on whatever thread.
unsafe impl Send for Span {}
// SAFETY: as for Send.
unsafe impl Sync for Span {}

impl Span {
    /// Names `len` bytes at `start`.
    pub const fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// The first address.
    #[inline]
    pub fn addr(self) -> usize {
        self.start.expose_provenance()
    }

    /// The number of bytes.
    #[inline]
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
    /// When they go beyond the span.
    #[inline]
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Self {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "part {offset}+{len} leaves a span of {} bytes",
            self.len
        );
        Self { start: self.start.wrapping_add(offset), len }
    }

    /// Copies all bytes out.
    ///
    /// # Panics
    /// When the lengths differ.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    #[inline]
    pub unsafe fn copy_to(self, bytes: &mut [u8]) {
        assert_eq!(self.len, bytes.len(), "copying between unlike lengths");
        // SAFETY: valid for loads by this function's contract; `copying::copy` allows overlap.
        unsafe { copying::copy(self.start, bytes.as_mut_ptr(), self.len) }
    }

    /// Appends all bytes to `bytes`.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    pub unsafe fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.len);
        // SAFETY: valid for loads by this function's contract; there is room for as many bytes behind those that there are, and
        // the copy initializes them.
        unsafe {
            copying::copy(self.start, bytes.as_mut_ptr().add(bytes.len()), self.len);
            bytes.set_len(bytes.len() + self.len);
        }
    }

    /// Copies `bytes` in.
    ///
    /// # Panics
    /// When the lengths differ.
    ///
    /// # Safety
    /// To *store*, as the [module](self) says.
    #[inline]
    pub unsafe fn copy_from(self, bytes: &[u8]) {
        assert_eq!(self.len, bytes.len(), "copying between unlike lengths");
        // SAFETY: valid for stores by this function's contract.
        unsafe { copying::copy_in(bytes, self.start) }
    }

    /// Copies the bytes of `from` in; the two may overlap.
    ///
    /// # Panics
    /// When the lengths differ.
    ///
    /// # Safety
    /// To *store* here, and to *load* from `from`, as the [module](self) says.
    pub unsafe fn copy_span(self, from: Self) {
        assert_eq!(self.len, from.len, "copying between unlike lengths");
        // SAFETY: both are valid by this function's contract.
        unsafe { copying::copy(from.start, self.start, self.len) }
    }

    /// Stores `byte` everywhere.
    ///
    /// # Safety
    /// To *store*, as the [module](self) says.
    pub unsafe fn fill(self, byte: u8) {
        // SAFETY: valid for stores by this function's contract.
        unsafe { copying::fill(self.start, byte, self.len) }
    }

    /// The first offset at which the bytes of the span and of `bytes` differ.
    ///
    /// # Panics
    /// When the lengths differ.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    pub unsafe fn mismatch(self, bytes: &[u8]) -> Option<usize> {
        assert_eq!(self.len, bytes.len(), "comparing unlike lengths");
        let mut chunk = [0; 4096];
        for (index, expected) in bytes.chunks(chunk.len()).enumerate() {
            let offset = index * chunk.len();
            let found = &mut chunk[..expected.len()];
            // SAFETY: a part of the bytes that this function's contract is about.
            unsafe { self.part(offset, expected.len()).copy_to(found) };
            if found != expected {
                return found.iter().zip(expected).position(|(f, e)| f != e).map(|at| offset + at);
            }
        }
        None
    }

    /// The wrapping sum of the bytes as little-endian 64-bit words, the last one filled up with zeros: loads every byte once
    /// and stores nothing. It is as fast as the memory: each word of a cache line is added to a sum of its own.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    pub unsafe fn sum(self) -> u64 {
        let mut sums: Line = [0; 8];
        let add =
            |line: Line| sums.iter_mut().zip(&line).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        // SAFETY: by this function's contract.
        unsafe { self.lines(add) };
        sums.into_iter().fold(0, u64::wrapping_add)
    }

    /// Shows all bytes to `see`, in order, 64 at a time as little-endian words, the last ones filled up with zeros: loads
    /// every byte once and stores nothing.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    #[inline]
    pub unsafe fn lines(self, mut see: impl FnMut(Line)) {
        let lines = self.len / size_of::<Line>();
        let mut see_line = |line: usize| {
            // SAFETY: inside the span; the value may be stale or torn, never invalid.
            let words = unsafe { copying::load_line(self.start.add(line * size_of::<Line>())) };
            // A debug build calls a function for each word, even for those that stay as they are.
            see(if cfg!(target_endian = "little") { words } else { words.map(u64::from_le) });
        };
        let in_rounds = lines - lines % LINES_PER_ROUND;
        for first in (0..in_rounds).step_by(LINES_PER_ROUND) {
            (first..first + LINES_PER_ROUND).for_each(&mut see_line);
        }
        (in_rounds..lines).for_each(&mut see_line);
        let seen = lines * size_of::<Line>();
        if seen < self.len {
            let mut rest = [0; size_of::<Line>()];
            // SAFETY: a part of the bytes that this function's contract is about.
            unsafe { self.part(seen, self.len - seen).copy_to(&mut rest[..self.len - seen]) };
            let (words, _) = rest.as_chunks();
            see(std::array::from_fn(|at| u64::from_le_bytes(words[at])));
        }
    }

    /// Reads from `file` at `file_offset` into the span; returns the number of bytes read, 0 at the file's end.
    ///
    /// # Errors
    /// The kernel's; bytes read before the error are in the span.
    ///
    /// # Safety
    /// To *store*, as the [module](self) says.
    pub unsafe fn read_file(self, file: impl AsFd, file_offset: u64) -> Result<usize> {
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

    /// Writes the span to `file` at `file_offset`; returns the number of bytes written, which is less than all only
    /// when the file takes no more.
    ///
    /// # Errors
    /// The kernel's; bytes written before the error are in the file.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    pub unsafe fn write_file(self, file: impl AsFd, file_offset: u64) -> Result<usize> {
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

    /// Copies memory of process `pid` from `addr` on into the span; returns how many bytes were copied, which is fewer than
    /// all where a later page is not mapped there.
    ///
    /// # Errors
    /// EFAULT: not even the first page is mapped. EPERM: no right to trace that process. ESRCH: it has gone.
    ///
    /// # Safety
    /// To *store*, as the [module](self) says.
    #[doc(alias = "process_vm_readv")]
    pub unsafe fn read_process(self, pid: Pid, addr: usize) -> Result<usize> {
        let (local, remote) = (self.vector(), vector(addr, self.len));
        // SAFETY: the kernel stores into bytes inside the span; it checks the other process's addresses.
        let moved = unsafe { libc::process_vm_readv(pid.as_raw_nonzero().get(), &local, 1, &remote, 1, 0) };
        moved_bytes("process_vm_readv", moved, pid, addr, self.len)
    }

    /// Copies the span into memory of process `pid` from `addr` on; returns how many bytes were copied.
    ///
    /// # Errors
    /// As [`Span::read_process`]; EFAULT also where the memory is not writable. EINVAL for this process, whose memory
    /// belongs to its Rust values.
    ///
    /// # Safety
    /// To *load*, as the [module](self) says.
    #[doc(alias = "process_vm_writev")]
    pub unsafe fn write_process(self, pid: Pid, addr: usize) -> Result<usize> {
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
                _ => match last_errno() {
                    Errno::INTR => {}
                    errno => return Err(errno),
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
        let error = Error::last(call, format!("{len} bytes at {addr:#x} of process {pid}"));
        match error.errno {
            Errno::PERM => error.with_remedy(
                "run both processes as the same user with kernel.yama.ptrace_scope=0, or this one with CAP_SYS_PTRACE",
            ),
            Errno::SRCH => error.with_remedy("the process has exited; drop its requests"),
            _ => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(bytes: &mut [u8]) -> Span {
        Span::new(bytes.as_mut_ptr(), bytes.len())
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
            // SAFETY: the vector outlives its span.
            assert_eq!(unsafe { over(&mut bytes).sum() }, expected, "at length {len}");
        }
    }

    #[test]
    fn mismatch_names_the_first_differing_offset() {
        let mut bytes = vec![5u8; 10_000];
        let mut expected = bytes.clone();
        let mut mismatch = |expected: &[u8]| {
            // SAFETY: the vector outlives its span.
            unsafe { over(&mut bytes).mismatch(expected) }
        };
        assert_eq!(mismatch(&expected), None);
        expected[9_999] = 6;
        assert_eq!(mismatch(&expected), Some(9_999));
        expected[4_096] = 6;
        assert_eq!(mismatch(&expected), Some(4_096));
    }

    #[test]
    fn bytes_of_one_span_are_copied_to_another_and_filled() {
        let (mut from, mut to) = (vec![1u8; 100], vec![2u8; 60]);
        let (source, target) = (over(&mut from), over(&mut to));
        // SAFETY: the vectors outlive their spans, and nobody borrows them meanwhile.
        unsafe {
            source.part(40, 60).fill(3);
            target.part(0, 20).copy_span(source.part(30, 20));
            target.part(20, 4).copy_from(&[4; 4]);
        }
        assert_eq!(to, [&[1; 10][..], &[3; 10], &[4; 4], &[2; 36]].concat());
    }

    /// Under Miri, this was a data race.
    #[test]
    fn two_threads_may_fill_a_span_at_once() {
        for len in [1, 9, 100, 300] {
            let mut bytes = vec![0; len];
            let span = over(&mut bytes);
            std::thread::scope(|scope| {
                for byte in [1, 2] {
                    // SAFETY: the vector outlives its span, and is not looked at before the threads have ended.
                    scope.spawn(move || unsafe {
                        span.copy_from(&vec![byte; len]);
                        span.fill(byte);
                    });
                }
            });
            assert!(bytes.iter().all(|byte| [1, 2].contains(byte)), "{len} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "leaves a span")]
    fn a_part_beyond_the_end_is_refused() {
        let mut bytes = vec![0u8; 8];
        let _ = over(&mut bytes).part(4, 5);
    }
}
