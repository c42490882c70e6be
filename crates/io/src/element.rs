//! Elements: the pieces of a request's buffers, each with its own data passing scheme.
//!
//! How: the types say who may touch what, and when. An element that passes data by copy or emulated copy borrows the
//! client's memory: for an output during the call, for an input until the reply is taken. Share takes a [`Buffer`] by
//! value, and the reply brings it back; move and weak move take a [`Migrant`] for good. So safe code can neither corrupt
//! output that a server still reads, nor see input half done.
//! Source: thesis §7.3 (`io_scatter_gather`).

use std::ops::Range;

use genie_memory::{Buffer, Direction, Migrant};
use genie_passing::Scheme;

use crate::{Fragment, ServerHandle};

/// One element of an output buffer.
#[derive(Debug)]
pub struct Out<'o> {
    pub(crate) scheme: Scheme,
    /// Boxed, as few elements have one.
    pub(crate) lender: Option<Box<ServerHandle>>,
    pub(crate) from: From<'o>,
}

#[derive(Debug)]
pub(crate) enum From<'o> {
    Borrowed(&'o [u8]),
    Owned(Buffer, Range<usize>),
    Migrant(Migrant),
    /// Boxed, as others are shorter and far more frequent.
    Fragment(Box<Fragment>),
}

/// One element of an input buffer.
#[derive(Debug)]
pub struct In<'i> {
    pub(crate) scheme: Scheme,
    /// Boxed, as few elements have one.
    pub(crate) lender: Option<Box<ServerHandle>>,
    pub(crate) to: To<'i>,
}

#[derive(Debug)]
pub(crate) enum To<'i> {
    Borrowed(&'i mut [u8]),
    Owned(Buffer, Range<usize>),
    Migrant(usize),
    Fragment(Box<Fragment>),
}

impl<'o> Out<'o> {
    /// Passes `bytes` by copy.
    #[inline]
    pub fn copy(bytes: &'o [u8]) -> Self {
        Self::borrowed(Scheme::Copy, bytes)
    }

    /// Passes `bytes` by emulated copy: without copying where that is cheaper, and with copy's meaning always.
    #[inline]
    pub fn emulated_copy(bytes: &'o [u8]) -> Self {
        Self::borrowed(Scheme::EmulatedCopy, bytes)
    }

    /// Lets the server read in `buffer` itself until the reply brings it back; wires it.
    #[inline]
    pub fn share(buffer: Buffer) -> Self {
        Self::owned(Scheme::Share, buffer)
    }

    /// Lets the server read in `buffer` itself until the reply brings it back.
    #[inline]
    pub fn emulated_share(buffer: Buffer) -> Self {
        Self::owned(Scheme::EmulatedShare, buffer)
    }

    /// Moves a migrant buffer to the server; its region is removed.
    pub fn moved(migrant: Migrant) -> Self {
        Self::migrant(Scheme::Move, migrant)
    }

    /// Moves a migrant buffer to the server; its region is hidden and kept for reuse.
    pub fn emulated_move(migrant: Migrant) -> Self {
        Self::migrant(Scheme::EmulatedMove, migrant)
    }

    /// Moves a migrant buffer to the server, weakly; wires it; its region is kept for reuse.
    pub fn weak_move(migrant: Migrant) -> Self {
        Self::migrant(Scheme::WeakMove, migrant)
    }

    /// Moves a migrant buffer to the server, weakly; its region is kept for reuse.
    pub fn emulated_weak_move(migrant: Migrant) -> Self {
        Self::migrant(Scheme::EmulatedWeakMove, migrant)
    }

    /// Passes borrowed memory by any native scheme. Share schemes become copy, since what is borrowed cannot be shared
    /// beyond the call; the receipt says so.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    #[inline]
    pub fn borrowed(scheme: Scheme, bytes: &'o [u8]) -> Self {
        assert_native(scheme);
        Self { scheme, lender: None, from: From::Borrowed(bytes) }
    }

    /// Passes a whole native buffer by any native scheme; the reply brings it back.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    #[inline]
    pub fn owned(scheme: Scheme, buffer: Buffer) -> Self {
        assert_native(scheme);
        let range = 0..buffer.len();
        Self { scheme, lender: None, from: From::Owned(buffer, range) }
    }

    /// Passes a migrant buffer by any migrant scheme.
    ///
    /// # Panics
    /// When `scheme` is a native one; pass `&migrant[..]` by it instead.
    #[inline]
    pub fn migrant(scheme: Scheme, migrant: Migrant) -> Self {
        assert_migrant(scheme);
        Self { scheme, lender: None, from: From::Migrant(migrant) }
    }

    /// Passes on a part of the output of a request that the caller serves: subcontracting.
    ///
    /// # Panics
    /// When the fragment is of an input buffer.
    pub fn fragment(fragment: Fragment) -> Self {
        assert_eq!(fragment.direction(), Direction::Out, "a fragment of input is passed on for input");
        Self { scheme: Scheme::Fragment, lender: None, from: From::Fragment(Box::new(fragment)) }
    }

    /// Has the system buffer, if data passing needs one, lent by `lender`: of the servers that the data will reach, the one
    /// that touches it. By default the request's server lends. A request with a server that another interface was connected to
    /// is refused.
    #[must_use]
    pub fn lent_by(mut self, lender: &ServerHandle) -> Self {
        self.lender = Some(Box::new(lender.clone()));
        self
    }

    /// Passes only these bytes of a buffer that was given by value.
    ///
    /// # Panics
    /// When the range leaves the buffer, or the element is not a buffer given by value.
    #[must_use]
    pub fn part(mut self, part: Range<usize>) -> Self {
        match &mut self.from {
            From::Owned(buffer, range) => *range = checked(buffer, part),
            other => panic!("{other:?} is not a native buffer given by value; slice it instead"),
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        match &self.from {
            From::Borrowed(bytes) => bytes.len(),
            From::Owned(_, range) => range.len(),
            From::Migrant(migrant) => migrant.len(),
            From::Fragment(fragment) => fragment.len(),
        }
    }
}

impl<'i> In<'i> {
    /// Receives into `bytes` by copy.
    #[inline]
    pub fn copy(bytes: &'i mut [u8]) -> Self {
        Self::borrowed(Scheme::Copy, bytes)
    }

    /// Receives into `bytes` by emulated copy: pages are swapped where that is cheaper, with copy's meaning always.
    #[inline]
    pub fn emulated_copy(bytes: &'i mut [u8]) -> Self {
        Self::borrowed(Scheme::EmulatedCopy, bytes)
    }

    /// Lets the server write in `buffer` itself until the reply brings it back; wires it.
    #[inline]
    pub fn share(buffer: Buffer) -> Self {
        Self::owned(Scheme::Share, buffer)
    }

    /// Lets the server write in `buffer` itself until the reply brings it back.
    #[inline]
    pub fn emulated_share(buffer: Buffer) -> Self {
        Self::owned(Scheme::EmulatedShare, buffer)
    }

    /// Receives at most `len` bytes in a new region.
    pub fn moved(len: usize) -> Self {
        Self::migrant(Scheme::Move, len)
    }

    /// Receives at most `len` bytes in a region that was hidden.
    pub fn emulated_move(len: usize) -> Self {
        Self::migrant(Scheme::EmulatedMove, len)
    }

    /// Receives at most `len` bytes in a cached region; wires it.
    pub fn weak_move(len: usize) -> Self {
        Self::migrant(Scheme::WeakMove, len)
    }

    /// Receives at most `len` bytes in a cached region.
    pub fn emulated_weak_move(len: usize) -> Self {
        Self::migrant(Scheme::EmulatedWeakMove, len)
    }

    /// Receives into borrowed memory by any native scheme. Share schemes become copy; the receipt says so.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    #[inline]
    pub fn borrowed(scheme: Scheme, bytes: &'i mut [u8]) -> Self {
        assert_native(scheme);
        Self { scheme, lender: None, to: To::Borrowed(bytes) }
    }

    /// Receives into a whole native buffer by any native scheme; the reply brings it back.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    #[inline]
    pub fn owned(scheme: Scheme, buffer: Buffer) -> Self {
        assert_native(scheme);
        let range = 0..buffer.len();
        Self { scheme, lender: None, to: To::Owned(buffer, range) }
    }

    /// Receives at most `len` bytes by any migrant scheme.
    ///
    /// # Panics
    /// When `scheme` is a native one.
    #[inline]
    pub fn migrant(scheme: Scheme, len: usize) -> Self {
        assert_migrant(scheme);
        Self { scheme, lender: None, to: To::Migrant(len) }
    }

    /// Has a part of the input of a request that the caller serves filled by another server: subcontracting.
    ///
    /// # Panics
    /// When the fragment is of an output buffer.
    pub fn fragment(fragment: Fragment) -> Self {
        assert_eq!(fragment.direction(), Direction::In, "a fragment of output is passed on for output");
        Self { scheme: Scheme::Fragment, lender: None, to: To::Fragment(Box::new(fragment)) }
    }

    /// Has the system buffer, if data passing needs one, lent by `lender`; see [`Out::lent_by`].
    #[must_use]
    pub fn lent_by(mut self, lender: &ServerHandle) -> Self {
        self.lender = Some(Box::new(lender.clone()));
        self
    }

    /// Receives only into these bytes of a buffer that was given by value.
    ///
    /// # Panics
    /// When the range leaves the buffer, or the element is not a buffer given by value.
    #[must_use]
    pub fn part(mut self, part: Range<usize>) -> Self {
        match &mut self.to {
            To::Owned(buffer, range) => *range = checked(buffer, part),
            other => panic!("{other:?} is not a native buffer given by value; slice it instead"),
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        match &self.to {
            To::Borrowed(bytes) => bytes.len(),
            To::Owned(_, range) => range.len(),
            To::Migrant(len) => *len,
            To::Fragment(fragment) => fragment.len(),
        }
    }
}

fn checked(buffer: &Buffer, part: Range<usize>) -> Range<usize> {
    assert!(
        part.start <= part.end && part.end <= buffer.len(),
        "bytes {part:?} of a buffer of {}",
        buffer.len()
    );
    part
}

fn assert_native(scheme: Scheme) {
    assert!(scheme != Scheme::Fragment, "fragments are made by Incoming::fragment");
    assert!(
        scheme.allocation() == genie_passing::model::Allocation::Native,
        "{scheme} passes migrant buffers only"
    );
}

fn assert_migrant(scheme: Scheme) {
    assert!(
        scheme.allocation() == genie_passing::model::Allocation::Migrant,
        "{scheme} passes native buffers only"
    );
}
