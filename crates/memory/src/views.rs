//! Views: references and data of what somebody owns or holds, made of bare addresses (`aliases` makes data for this crate).
//!
//! Why it is sound: a region's window is mapped accessibly from the region's creation to its removal, and the region is
//! removed when its only owner is dropped. While an owner can be borrowed, the library changes which granule a window
//! shows only
//! - by a replacement (TCOW), which shows the same bytes, or
//! - by a delivery, for which the caller has given up the bytes delivered to, or has them borrowed mutably; the other
//!   bytes of buffers in the granules concerned are write-protected and copied along (`delivery`).
//!
//! Servers load and store through aliases, which never move while a granule is in use; Rust references point there only into a
//! system buffer that one party has taken as bytes ([`SystemBytes`]).
//! Data that a server gets from a reference, a system buffer or a mapping borrows its source, so that it cannot be used
//! for longer than the source exists.
#![allow(
    unsafe_code,
    reason = "hands out references to regions and data in granules, whose life the space's tables guard"
)]

use std::ops::{Deref, DerefMut, Range};
use std::os::fd::OwnedFd;

use genie_sys::{Object, Span, View};

use crate::aliases::one;
use crate::space::Space;
use crate::{Data, DataMut, Frames, LenderId, Mapped, ObjectId, Reference, RegionId, Result, SystemBuffer};

/// The memory of one region, owned.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) space: Space,
    pub(crate) region: RegionId,
    pub(crate) addr: usize,
    pub(crate) len: usize,
}

impl Owned {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: see the module's header; `addr..addr + len` lies inside the region's window, and the bytes are
        // initialized, since objects start as zeros.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.addr), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; a region has one owner, borrowed mutably here.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(self.addr), self.len) }
    }
}

impl Space {
    /// Takes in an object that a lender lends: its granules join the lender's pool. The object's bytes stay as they
    /// are.
    ///
    /// Where the space has granules of both sizes, an object whose length is not a multiple of the larger size is for those
    /// of 4 KiB. The memory does not count towards the space's limit. All of it is allocated now; other threads are kept from the
    /// space only while it is mapped.
    ///
    /// # Errors
    /// [`Kind`](crate::Error::Kind) when the object's granules are not as long as the space's, [`Room`](crate::Error::Room) when
    /// no more can be lent, [`NoLender`](crate::Error::NoLender) when the lender was removed, or the kernel's reason.
    ///
    /// # Safety
    /// Nobody else in this process stores into the object: its granules may become those of buffers to which there are
    /// references. The lender, in another process, may store what it likes.
    pub unsafe fn lend(&self, lender: LenderId, object: Object) -> Result<()> {
        self.take_in_lent(lender, object)
    }

    /// Makes frames of `stride` bytes of this object, as many as it has, which may be a caller's own or have come from elsewhere
    /// ([`Object::accept`]). Its bytes stay as they are.
    ///
    /// # Errors
    /// As [`Space::lend`]; [`Empty`](crate::Error::Empty) when the object has not one frame.
    ///
    /// # Safety
    /// While there are these frames, and for as long as clients have memory of theirs, nobody stores into the object but through the
    /// buffers, and the kernel or a device into frames whose buffers their owner has. The object is lent nowhere else, and is not divided
    /// into frames twice.
    pub unsafe fn frames(&self, object: Object, stride: usize) -> Result<Frames> {
        self.take_in_frames(object, stride)
    }

    /// A descriptor of an object, for a peer: one that can be mapped for stores, too.
    ///
    /// # Errors
    /// As [`Space::share`].
    ///
    /// # Safety
    /// Only other processes may use the descriptor, and they may store through it what they like: a process that has the
    /// descriptor may store into every granule of the object, for as long as it likes. In this process there may be
    /// references to those bytes.
    pub unsafe fn share_writable(&self, id: ObjectId) -> Result<OwnedFd> {
        self.describe(id, Object::duplicate)
    }
}

impl Reference {
    /// The data, through the server's own mapping, to be read.
    pub fn data(&self) -> Data<'_> {
        // SAFETY: a referenced granule is not freed, and its alias stays mapped, until the reference is released, by value.
        unsafe { Data::new(self.segments()) }
    }

    /// The data, through the server's own mapping, to be filled.
    ///
    /// # Safety
    /// While what is returned exists, no Rust reference to the client's bytes is used, and no output with strong integrity is
    /// pending from them.
    pub unsafe fn data_mut(&self) -> DataMut<'_> {
        // SAFETY: mapped as in `data`; the rest is the caller's promise.
        unsafe { DataMut::new(self.segments()) }
    }
}

impl SystemBuffer {
    /// The data, through the server's mapping.
    pub fn data(&self) -> DataMut<'_> {
        // SAFETY: a system buffer's granules are its own until it is dropped or borrowed mutably; their aliases stay mapped as
        // long, and no Rust reference points into the alias arena. No output is pending from granules that a delivery has brought
        // in from a client (`renew`).
        unsafe { DataMut::new(self.segments()) }
    }
}

/// A system buffer that nobody but its holder sees, as bytes.
#[derive(Debug)]
pub struct SystemBytes {
    /// The data, in one run of addresses.
    span: Span,
    /// Keeps the memory; its own views of it are used no more.
    buffer: SystemBuffer,
}

impl SystemBuffer {
    /// Makes the data bytes of its holder's own, to which there may be references. They stay where they are; dropping them
    /// deallocates the buffer. From now on the objects that they are in cannot be shown to other processes ([`Space::share`]).
    ///
    /// # Errors
    /// The buffer comes back: it is no whole granules of the space's own, one after the other, or they are in an object that was shown.
    pub fn into_bytes(mut self) -> std::result::Result<SystemBytes, Self> {
        match self.segments()[..] {
            [span] if self.lender() == LenderId::OWN && self.alignment() == Some(0) && self.conceal() => {
                Ok(SystemBytes { span, buffer: self })
            }
            _ => Err(self),
        }
    }
}

impl SystemBytes {
    /// The space that the bytes are of.
    pub fn space(&self) -> &Space {
        self.buffer.space()
    }

    /// Deallocates the bytes, and gives their memory back to the kernel at once.
    pub fn discard(self) {
        self.buffer.discard();
    }
}

impl Deref for SystemBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer's granules are its own until it is dropped, and their aliases stay mapped as long. No other process was
        // or will be shown them (`conceal`), and views of the buffer have borrowed it, so that there are none any more. The bytes are
        // initialized, since objects start as zeros.
        unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.span.addr()), self.span.len())
        }
    }
}

impl DerefMut for SystemBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (addr, len) = (self.span.addr(), self.span.len());
        // SAFETY: as in `deref`; the bytes have one owner, borrowed mutably here.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(addr), len) }
    }
}

impl Mapped {
    /// The data, as this process sees it, to be read.
    pub fn data(&self) -> Data<'_> {
        // SAFETY: what was mapped stays mapped until this is dropped; if its owner punches holes into it, the arena's guard
        // catches touches of them.
        unsafe { Data::new(self.segments().clone()) }
    }
}

impl<'r> Data<'r> {
    /// Bytes of a mapped file. Once they have been loaded, [`View::is_broken`] tells whether they were there.
    ///
    /// # Panics
    /// When `range` goes beyond the view.
    pub fn of_view(view: &'r View, range: Range<usize>) -> Self {
        // SAFETY: a view stays mapped as long as it exists; where its file has become shorter, its guard maps zeros.
        unsafe { Data::new(one(view.span(range.start, range.len()))) }
    }
}
