//! Data: memory that holds some data, for as long as somebody lends it.
//!
//! Why: segments are addresses, which a program may keep for longer than the memory is there or its own. What servers are
//! shown therefore borrows the request or the buffer that it is of, and a server that keeps it too long does not compile.
//! Trust: another party may change the bytes between any two looks; so they are copied, never borrowed.
//! Source: thesis §7.2 (the buffers of incoming requests).

use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::AsFd;

use genie_sys::Span;

use crate::segments::{Segments, gather, part, scatter, transfer};

/// Bytes in one or more pieces of memory, which stay there for `'r`.
#[derive(Debug, Clone)]
pub struct Data<'r> {
    segments: Segments,
    lender: PhantomData<&'r ()>,
}

impl<'r> Data<'r> {
    /// Data in these segments. Whoever makes one sees to it that they stay for `'r`, and gives nobody a longer one.
    #[doc(hidden)]
    pub fn of(segments: Segments) -> Self {
        Self { segments, lender: PhantomData }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(|segment| segment.is_empty())
    }

    /// The bytes in `range`.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let len = self.len();
        assert!(range.start <= range.end && range.end <= len, "bytes {range:?} of {len}");
        Self::of(part(&self.segments, range))
    }

    /// Copies the first bytes to `bytes`, as many as both have; returns how many.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        gather(&self.segments, bytes)
    }

    /// Copies the first of `bytes` here, as many as both have; returns how many.
    pub fn copy_from(&self, bytes: &[u8]) -> usize {
        scatter(bytes, &self.segments)
    }

    /// Copies the first bytes of `from` here, as many as both have; returns how many.
    pub fn copy_data(&self, from: &Data<'_>) -> usize {
        transfer(&from.segments, &self.segments)
    }

    /// All bytes, in a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }

    /// The first place at which they differ from `bytes`; where one ends before the other, its end.
    pub fn mismatch(&self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        for segment in &self.segments {
            let (here, later) = rest.split_at(segment.len().min(rest.len()));
            if let Some(at) = segment.part(0, here.len()).mismatch(here) {
                return Some(bytes.len() - rest.len() + at);
            }
            if here.len() < segment.len() {
                return Some(bytes.len());
            }
            rest = later;
        }
        (!rest.is_empty()).then_some(bytes.len() - rest.len())
    }

    /// Stores `byte` into all bytes.
    pub fn fill(&self, byte: u8) {
        self.segments.iter().for_each(|segment| segment.fill(byte));
    }

    /// Reads from `offset` of a file on, until all bytes are filled or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// The file's; some bytes may have been read.
    #[doc(alias = "pread")]
    pub fn read_file(&self, file: impl AsFd, offset: u64) -> genie_sys::Result<usize> {
        let mut done = 0;
        for segment in &self.segments {
            let here = segment.read_file(&file, offset + done as u64)?;
            done += here;
            if here < segment.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all bytes to a file, from `offset` on; returns how many bytes were written.
    ///
    /// # Errors
    /// The file's; some bytes may have been written.
    #[doc(alias = "pwrite")]
    pub fn write_file(&self, file: impl AsFd, offset: u64) -> genie_sys::Result<usize> {
        let mut done = 0;
        for segment in &self.segments {
            let here = segment.write_file(&file, offset + done as u64)?;
            done += here;
            if here < segment.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Its pieces, in order: each in one run of addresses.
    pub fn pieces(&self) -> impl Iterator<Item = Self> + '_ {
        self.segments.iter().map(|segment| Self::of(std::iter::once(*segment).collect()))
    }

    /// Shows all bytes to `see`, in order, 64 at a time as little-endian words; the last ones of each piece are filled up with
    /// zeros. For sums of all kinds: nothing is stored, and each byte is loaded once, as fast as the memory is.
    #[inline]
    pub fn lines(&self, mut see: impl FnMut([u64; 8])) {
        self.segments.iter().for_each(|segment| segment.lines(&mut see));
    }

    /// Where its pieces are: (address, length). For whoever wants to see how data was passed.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.segments.iter().map(|segment| (segment.addr(), segment.len()))
    }

    /// The pieces. Their addresses know no `'r`.
    #[doc(hidden)]
    pub fn spans(&self) -> &[Span] {
        &self.segments
    }
}
