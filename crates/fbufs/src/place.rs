//! Places: where a buffer is that travels through a channel.

use genie_ring::Record;
use genie_sys::shared::PAGE;

use crate::Fbuf;
use crate::bits::{Run, runs};

/// The place of a buffer in its pool, and of the data in the buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place([u64; 4]);

impl Place {
    pub(crate) const KIND: u8 = 1;

    pub(crate) fn of(fbuf: &Fbuf) -> Self {
        let (first, count) = fbuf.run();
        Self([first, count, fbuf.headroom(), fbuf.len()].map(|number| number as u64))
    }

    pub(crate) fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes
            .chunks_mut(8)
            .zip(self.0)
            .for_each(|(part, number)| part.copy_from_slice(&number.to_le_bytes()));
        bytes
    }

    /// What another member has sent, if it is a place in a pool of so many pages.
    pub(crate) fn from_record(record: &Record, pages: usize) -> Option<Self> {
        let (parts, rest) = record.payload().as_chunks::<8>();
        let numbers: [u64; 4] =
            parts.iter().map(|part| u64::from_le_bytes(*part)).collect::<Vec<_>>().try_into().ok()?;
        let place = Self(numbers);
        let [first, count, start, len] = numbers;
        let ends_inside = first.checked_add(count)? <= pages as u64;
        let has_data = start.checked_add(len)? <= count.checked_mul(PAGE as u64)?;
        let is_known = record.kind() == Self::KIND && rest.is_empty();
        (is_known && count > 0 && len > 0 && ends_inside && has_data).then_some(place)
    }

    pub(crate) fn first(self) -> usize {
        self.0[0] as usize
    }

    pub(crate) fn count(self) -> usize {
        self.0[1] as usize
    }

    pub(crate) fn start(self) -> usize {
        self.0[2] as usize
    }

    pub(crate) fn len(self) -> usize {
        self.0[3] as usize
    }

    /// What is left of it behind its first `len` bytes, which are fewer than it has.
    pub(crate) fn after(self, len: usize) -> Self {
        let Self([first, count, start, all]) = self;
        Self([first, count, start + len as u64, all - len as u64])
    }

    pub(crate) fn runs(self) -> impl Iterator<Item = Run> {
        runs(self.first(), self.count())
    }
}
