//! Views: the one file of this crate with unsafe code, which makes views of memory.
//!
//! Why it is sound: until a request is over, the addresses of its data are kept beside what holds the data there, and the
//! data that a server is shown borrows the request. Meanwhile no other reference to the bytes exists in this process: a
//! client of this process has them in aliases, or in buffers that it gave by value; a client of another process, in its
//! mirror.
#![allow(unsafe_code, reason = "shows servers the memory that requests hold")]

use genie_memory::{Data, DataMut};
use genie_passing::{Input, Parties, Passing, Scheme, Target};

use crate::work::forwarded::ForwardedInput;
use crate::work::located::Located;
use crate::work::{Carried, Store};
use crate::{InputPin, OutputPin};

/// Begins an input into memory that the caller borrows mutably. For memory that is passed by share, the caller keeps the
/// memory's buffer beside the input (`Kept::Buffer`), and gives the buffer back when the input is over; or the caller keeps the
/// borrow until the input is over, or until `Space::end_input_borrow` has succeeded.
pub(crate) fn begin_input(
    passing: &Passing,
    scheme: Scheme,
    target: Target,
    parties: Parties,
) -> Result<Box<Input>, genie_passing::Error> {
    // SAFETY: nothing refers to a buffer that is kept beside the input, but for its delivery, and nobody uses bytes that are
    // borrowed until the input is over or stores elsewhere.
    unsafe { passing.input_from(scheme, target, parties) }
}

impl Located {
    /// The data, as far as it is mapped, to be read.
    pub(crate) fn data(&self) -> Data<'_> {
        // SAFETY: this holds the mapping, the private buffer or the contract that the data is in; or else the data is in a
        // mirror, which keeps it mapped while the client's requests are pending.
        unsafe { Data::new(self.segments()) }
    }

    /// The data of an input, as far as it is mapped, to be filled.
    pub(crate) fn data_mut(&self) -> DataMut<'_> {
        // SAFETY: mapped as in `data`, and for stores, since it is an input's. This process has no references to memory of
        // another process, to a contractor's input, or to a private buffer.
        unsafe { DataMut::new(self.segments()) }
    }

    /// The data at one location of a fragment that is in this process, to be read.
    pub(crate) fn data_at(&self, index: usize) -> Data<'_> {
        // SAFETY: this holds the contract, or the forwarded input, that the data is in.
        unsafe { Data::new(self.segments_at(index)) }
    }

    /// The data at one location of an input's fragment that is in this process, to be filled.
    pub(crate) fn data_mut_at(&self, index: usize) -> DataMut<'_> {
        // SAFETY: as above; this process has no references to a contractor's input.
        unsafe { DataMut::new(self.segments_at(index)) }
    }
}

impl Store {
    /// A carried element's data, to be read.
    pub(crate) fn data(&self, carried: &Carried) -> Data<'_> {
        // SAFETY: the bytes stay where they are as long as the work that this store belongs to is not over, which outlives what
        // borrows it, and the pins and fragments that keep the addresses: they hold the request's contract.
        unsafe { Data::new(self.segments(carried)) }
    }

    /// The data of a carried input, to be filled.
    pub(crate) fn data_mut(&self, carried: &Carried) -> DataMut<'_> {
        // SAFETY: as above; there is no reference to these bytes that is used.
        unsafe { DataMut::new(self.segments(carried)) }
    }

    /// Copies `bytes` to the beginning of an element.
    #[inline]
    pub(crate) fn put(&self, carried: &Carried, bytes: &[u8]) {
        // SAFETY: a span of the store's memory; there is no reference to it that is used.
        unsafe { self.span(carried, bytes.len()).copy_from(bytes) }
    }

    /// Copies the beginning of an element to `bytes`.
    #[inline]
    pub(crate) fn get(&self, carried: &Carried, bytes: &mut [u8]) {
        // SAFETY: a span of the store's memory.
        unsafe { self.span(carried, bytes.len()).copy_to(bytes) }
    }

    /// Makes all bytes of an element zeros.
    #[inline]
    pub(crate) fn zero(&self, carried: &Carried) {
        // SAFETY: as in `put`.
        unsafe { self.span(carried, carried.len()).fill(0) }
    }
}

impl ForwardedInput {
    /// The part of the memory that is there, to be shown to the contractor.
    pub(crate) fn data(&self) -> DataMut<'_> {
        // SAFETY: the input, and each buffer that was ever in place of its memory, stay until the contractor's reply takes
        // effect, and what the contractor is shown borrows its request.
        unsafe { DataMut::new(self.seen_here()) }
    }
}

impl OutputPin {
    /// The data.
    pub fn data(&self) -> Data<'_> {
        // SAFETY: the request that the bytes belong to keeps its memory until it is replied to and its contract, of which
        // this holds a share, is over.
        unsafe { Data::new(self.0.segments.clone()) }
    }
}

impl InputPin {
    /// The data.
    pub fn data(&self) -> DataMut<'_> {
        // SAFETY: as above; while the request is pending, no Rust reference to its input is used. Other pins of the same
        // bytes may be filled at the same time, which spans allow.
        unsafe { DataMut::new(self.0.segments.clone()) }
    }
}
