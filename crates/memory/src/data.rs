//! Data: memory that holds the bytes of a buffer, borrowed from what keeps that memory.
//!
//! Why: segments are addresses. A program may keep an address after the memory there is gone, or is no longer the program's.
//! The data that a server is shown therefore borrows its request or its buffer, and a server that keeps the data too long
//! does not compile. Data to be read is a [`Data`], and data to be filled is a [`DataMut`], so a server that stores into a
//! client's output does not compile either.
//! Trust: another party may change the bytes between any two loads, so the bytes are copied, never borrowed. Where
//! several threads fill the same bytes at once, each byte is as one of these threads stored it.
//! Source: thesis §7.2 (the buffers of incoming requests).
#![allow(
    unsafe_code,
    reason = "loads and stores bytes that the maker of the data has promised to be there for its lifetime"
)]

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::os::fd::AsFd;

use genie_sys::Span;
use genie_sys::process::Pid;

use crate::segments::{Segments, part};

/// The longest data that [`Data::for_each_chunk`] copies to the stack: beyond that a call of the allocator is cheap beside the copying.
const SHORT: usize = 512;
/// Data that is no longer is copied to memory that takes few instructions to clear.
const SHORTEST: usize = 64;

/// Bytes to be read, in one or more pieces of memory that stay mapped for `'r`.
///
/// ```compile_fail,E0133
/// # use genie_memory::{Data, Segments};
/// let data = Data::new(Segments::new()); // its maker vouches for the memory, which is unsafe
/// ```
///
/// ```compile_fail,E0599
/// # use genie_memory::Data;
/// fn serve(output: Data<'_>) {
///     output.fill(0x99); // what is there to be read cannot be filled
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Data<'r> {
    segments: Segments,
    lender: PhantomData<&'r ()>,
}

/// Bytes to be filled, in one or more pieces of memory that stay mapped for `'r`. They can also be read, as [`Data`].
#[derive(Debug, Default)]
pub struct DataMut<'r>(Data<'r>);

impl<'r> Data<'r> {
    /// Data in these segments.
    ///
    /// # Safety
    /// For `'r`, the bytes stay mapped and readable.
    pub unsafe fn new(segments: Segments) -> Self {
        Self { segments, lender: PhantomData }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(|segment| segment.is_empty())
    }

    /// The bytes in `range`.
    ///
    /// # Panics
    /// When `range` goes beyond the bytes.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let len = self.len();
        assert!(
            range.start <= range.end && range.end <= len,
            "bytes {range:?} are asked for of data of {len} bytes"
        );
        Self { segments: part(&self.segments, range), lender: PhantomData }
    }

    /// Adds `later` behind these bytes.
    pub fn append(&mut self, later: Self) {
        self.segments.extend_from_slice(&later.segments);
    }

    /// Copies bytes to `bytes`, from the beginning on and as many as both have; returns how many.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for segment in &self.segments {
            let here = segment.len().min(bytes.len() - done);
            // SAFETY: mapped for `'r`, as the maker of this has promised.
            unsafe { segment.part(0, here).copy_to(&mut bytes[done..done + here]) };
            done += here;
        }
        done
    }

    /// Shows all bytes to `see`, in order, up to 16 KiB of them at a time.
    ///
    /// # Cost
    /// Each byte is copied once, into memory that stays in the CPU's cache: less than to load it from where it is.
    #[inline]
    pub fn for_each_chunk(&self, see: impl FnMut(&[u8])) {
        match self.len() {
            len if len <= SHORTEST => self.see_at_once::<SHORTEST>(see),
            len if len <= SHORT => self.see_at_once::<SHORT>(see),
            _ => self.for_each_long_chunk(see),
        }
    }

    /// Shows all bytes, of which there are at most `MOST`.
    #[inline]
    fn see_at_once<const MOST: usize>(&self, mut see: impl FnMut(&[u8])) {
        let mut chunk = [0; MOST];
        let len = self.copy_to(&mut chunk);
        if len > 0 {
            see(&chunk[..len]);
        }
    }

    fn for_each_long_chunk(&self, mut see: impl FnMut(&[u8])) {
        const CHUNK: usize = 16 << 10;
        let mut chunk = vec![0; CHUNK.min(self.len())];
        for start in (0..self.len()).step_by(CHUNK) {
            let len = self.part(start..self.len().min(start + CHUNK)).copy_to(&mut chunk);
            see(&chunk[..len]);
        }
    }

    /// All bytes, in a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.append_to(&mut bytes);
        bytes
    }

    /// Appends all bytes to a vector.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        for segment in &self.segments {
            // SAFETY: mapped for `'r`, as the maker of this has promised.
            unsafe { segment.append_to(bytes) }
        }
    }

    /// The first place at which the data differs from `bytes`. Where the shorter of the two is the beginning of the
    /// longer, that place is the end of the shorter.
    pub fn mismatch(&self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        for segment in &self.segments {
            let (here, later) = rest.split_at(segment.len().min(rest.len()));
            // SAFETY: mapped for `'r`, as the maker of this has promised.
            if let Some(at) = unsafe { segment.part(0, here.len()).mismatch(here) } {
                return Some(bytes.len() - rest.len() + at);
            }
            if here.len() < segment.len() {
                return Some(bytes.len());
            }
            rest = later;
        }
        (!rest.is_empty()).then_some(bytes.len() - rest.len())
    }

    /// Writes all bytes to a file, from `offset` on; returns how many bytes were written.
    ///
    /// # Errors
    /// The file's; some bytes may have been written.
    #[doc(alias = "pwrite")]
    pub fn write_file(&self, file: impl AsFd, offset: u64) -> genie_sys::Result<usize> {
        // SAFETY: mapped for `'r`, as the maker of this has promised.
        self.move_each(|segment, at| unsafe { segment.write_file(&file, offset + at as u64) })
    }

    /// Copies all bytes into memory of process `pid`, from `addr` on; returns how many bytes were copied.
    ///
    /// # Errors
    /// EFAULT: the memory there is not mapped, or not writable; some bytes may have been copied. EPERM: no right to trace
    /// that process. ESRCH: it has gone. EINVAL: it is this process.
    #[doc(alias = "process_vm_writev")]
    pub fn write_process(&self, pid: Pid, addr: usize) -> genie_sys::Result<usize> {
        // SAFETY: mapped for `'r`, as the maker of this has promised.
        self.move_each(|segment, at| unsafe { segment.write_process(pid, addr + at) })
    }

    /// Its pieces, in order: each in one run of addresses.
    pub fn pieces(&self) -> impl Iterator<Item = Self> + '_ {
        let piece = |segment: &Span| Segments::from_slice(&[*segment]);
        self.segments.iter().map(move |segment| Self { segments: piece(segment), lender: PhantomData })
    }

    /// Shows all bytes to `see`, in order, 64 at a time as little-endian words; the last ones of each piece are filled up with
    /// zeros. For sums of all kinds: nothing is stored, and each byte is loaded once, as fast as the memory is.
    #[inline]
    pub fn lines(&self, mut see: impl FnMut([u64; 8])) {
        // SAFETY: mapped for `'r`, as the maker of this has promised.
        self.segments.iter().for_each(|segment| unsafe { segment.lines(&mut see) });
    }

    /// The wrapping sum of all bytes as little-endian 64-bit words, the last one of each piece filled up with zeros. Each byte
    /// is loaded once, as fast as the memory is. It is not the sum of the bytes: for that, add up those of [`Data::lines`]'s
    /// words.
    pub fn sum(&self) -> u64 {
        // SAFETY: mapped for `'r`, as the maker of this has promised.
        self.segments.iter().map(|segment| unsafe { segment.sum() }).fold(0, u64::wrapping_add)
    }

    /// Where its pieces are. The segments may be kept after the data is gone; then they are addresses and nothing more.
    /// They can be put into an `iovec` for the kernel, which may use the memory as long as the request or the pin that the data comes
    /// from is kept; there may be more of them than one call takes (`IOV_MAX`). [`Data::backings`] says in which memory objects
    /// the bytes are, and cannot be kept for longer than the data.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Calls `transfer` for each piece, with the number of bytes before it, until a piece is not transferred wholly; returns
    /// how many bytes were transferred.
    fn move_each(
        &self,
        transfer: impl Fn(&Span, usize) -> genie_sys::Result<usize>,
    ) -> genie_sys::Result<usize> {
        let mut done = 0;
        for segment in &self.segments {
            let here = transfer(segment, done)?;
            done += here;
            if here < segment.len() {
                break;
            }
        }
        Ok(done)
    }
}

/// Bytes that the program has borrowed, such as those of a kept buffer.
impl<'r> From<&'r [u8]> for Data<'r> {
    fn from(bytes: &'r [u8]) -> Self {
        let mut segments = Segments::new();
        segments.push(Span::new(bytes.as_ptr().cast_mut(), bytes.len()));
        // SAFETY: the bytes are borrowed for `'r`, and a `Data` stores into none.
        unsafe { Self::new(segments) }
    }
}

impl<'r> DataMut<'r> {
    /// Data in these segments.
    ///
    /// # Safety
    /// For `'r`, the bytes stay mapped, readable and writable, and no Rust reference to any of them is used.
    pub unsafe fn new(segments: Segments) -> Self {
        // SAFETY: readable, by this function's contract.
        Self(unsafe { Data::new(segments) })
    }

    /// The bytes in `range`.
    ///
    /// # Panics
    /// When `range` goes beyond the bytes.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        Self(self.0.part(range))
    }

    /// Adds `later` behind these bytes.
    pub fn append(&mut self, later: Self) {
        self.0.append(later.0);
    }

    /// The same bytes, to be read.
    pub fn into_data(self) -> Data<'r> {
        self.0
    }

    /// Copies `bytes` here, from the beginning on and as many as both have; returns how many.
    pub fn copy_from(&self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for segment in &self.segments {
            let here = segment.len().min(bytes.len() - done);
            // SAFETY: writable for `'r`, and referenced by nobody, as the maker of this has promised.
            unsafe { segment.part(0, here).copy_from(&bytes[done..done + here]) };
            done += here;
        }
        done
    }

    /// Copies bytes of `from` here, from the beginning on and as many as both have; returns how many. The two may overlap if each is
    /// in one piece. In several pieces the first is copied first, over what the next ones may still have to give.
    pub fn copy_data(&self, from: &Data<'_>) -> usize {
        let mut done = 0;
        let mut sources = from.segments.iter().copied();
        let mut source = sources.next();
        for target in &self.segments {
            let mut target = *target;
            while let (false, Some(here)) = (target.is_empty(), source) {
                let len = here.len().min(target.len());
                // SAFETY: the target is writable and referenced by nobody, and the source is mapped, as the makers of both
                // have promised.
                unsafe { target.part(0, len).copy_span(here.part(0, len)) };
                done += len;
                target = target.part(len, target.len() - len);
                let rest = here.part(len, here.len() - len);
                source = if rest.is_empty() { sources.next() } else { Some(rest) };
            }
        }
        done
    }

    /// Stores `byte` into all bytes; returns how many there are.
    pub fn fill(&self, byte: u8) -> usize {
        // SAFETY: writable for `'r`, and referenced by nobody, as the maker of this has promised.
        self.segments.iter().for_each(|segment| unsafe { segment.fill(byte) });
        self.len()
    }

    /// Reads from `offset` of a file on, until all bytes are filled or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// The file's; some bytes may have been read.
    #[doc(alias = "pread")]
    pub fn read_file(&self, file: impl AsFd, offset: u64) -> genie_sys::Result<usize> {
        // SAFETY: writable for `'r`, and referenced by nobody, as the maker of this has promised.
        self.move_each(|segment, at| unsafe { segment.read_file(&file, offset + at as u64) })
    }

    /// Fills all bytes from memory of process `pid`, from `addr` on; returns how many bytes were copied, which is fewer than
    /// all where a later page is not mapped there.
    ///
    /// # Errors
    /// EFAULT: nothing is mapped at a piece's beginning. EPERM: no right to trace that process. ESRCH: it has gone.
    #[doc(alias = "process_vm_readv")]
    pub fn read_process(&self, pid: Pid, addr: usize) -> genie_sys::Result<usize> {
        // SAFETY: writable for `'r`, and referenced by nobody, as the maker of this has promised.
        self.move_each(|segment, at| unsafe { segment.read_process(pid, addr + at) })
    }
}

impl<'r> Deref for DataMut<'r> {
    type Target = Data<'r>;

    fn deref(&self) -> &Data<'r> {
        &self.0
    }
}

#[cfg(test)]
mod tests;
