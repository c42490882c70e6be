//! Elements: the pieces of a request's buffers, each with its own data passing scheme.
//!
//! How: the types say which side may touch the memory, and when. An element that passes data by copy or emulated copy borrows the
//! client's memory: for an output during the call, for an input until the reply is taken. Share borrows memory while the
//! client waits, or takes a [`Buffer`] by value, and the reply brings it back; move and weak move take a [`Migrant`] for good. So
//! safe code can neither corrupt output that a server still reads, nor see input half done.
//! Source: thesis §7.3 (`io_scatter_gather`).

use std::fmt::Debug;
use std::ops::{Deref, Range};

use genie_memory::{Buffer, Direction, Migrant};
use genie_passing::Scheme;
use genie_passing::model::Allocation;

use crate::{Fragment, ServerHandle};

/// One element of an output buffer: borrowed memory is read, and a migrant buffer goes to the server.
pub type Out<'o> = Element<&'o [u8], Migrant>;

/// One element of an input buffer: borrowed memory is stored into; a number of bytes asks for a migrant buffer of at most
/// that length.
pub type In<'i> = Element<&'i mut [u8], usize>;

/// One element of a buffer: [`Out`] or [`In`].
#[derive(Debug)]
pub struct Element<B, M> {
    pub(crate) scheme: Scheme,
    /// The interface's default scheme takes the place of `scheme`.
    pub(crate) is_by_default: bool,
    /// Boxed, as few elements have one.
    pub(crate) lender: Option<Box<ServerHandle>>,
    pub(crate) memory: Memory<B, M>,
}

#[derive(Debug)]
pub(crate) enum Memory<B, M> {
    Borrowed(B),
    /// Borrowed for as long as the program runs.
    Lasting(B),
    Owned(Buffer, Range<usize>),
    Migrant(M),
    /// Boxed, as others are shorter and far more frequent.
    Fragment(Box<Fragment>),
}

/// Memory that an element borrows: for output `&[u8]`, for input `&mut [u8]`.
pub trait Borrowed: Deref<Target = [u8]> + Debug {
    /// Which way the data goes.
    const DIRECTION: Direction;
}

impl Borrowed for &[u8] {
    const DIRECTION: Direction = Direction::Out;
}

impl Borrowed for &mut [u8] {
    const DIRECTION: Direction = Direction::In;
}

/// A migrant buffer: for output the buffer itself, for input the most bytes that the buffer is to have.
pub trait Moved: Debug {
    /// The number of bytes.
    fn bytes(&self) -> usize;
}

impl Moved for Migrant {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Moved for usize {
    fn bytes(&self) -> usize {
        *self
    }
}

/// Memory that can be shared with a server: a [`Buffer`] given by value, or borrowed bytes.
pub trait Shared<B> {
    /// An element that shares the memory by this scheme.
    fn shared<M: Moved>(self, scheme: Scheme) -> Element<B, M>;
}

impl<B: Borrowed> Shared<B> for Buffer {
    fn shared<M: Moved>(self, scheme: Scheme) -> Element<B, M> {
        Element::owned(scheme, self)
    }
}

impl<'o, T: AsRef<[u8]> + ?Sized> Shared<&'o [u8]> for &'o T {
    fn shared<M: Moved>(self, scheme: Scheme) -> Element<&'o [u8], M> {
        Element::borrowed(scheme, self.as_ref())
    }
}

impl<'i, T: AsMut<[u8]> + ?Sized> Shared<&'i mut [u8]> for &'i mut T {
    fn shared<M: Moved>(self, scheme: Scheme) -> Element<&'i mut [u8], M> {
        Element::borrowed(scheme, self.as_mut())
    }
}

impl<B: Borrowed, M: Moved> Element<B, M> {
    /// Passes `bytes` by the interface's default scheme: emulated copy, unless
    /// [`Interface::set_scheme`](crate::Interface::set_scheme) has changed it.
    ///
    /// Where the default is a share scheme and the request is submitted, the borrow ends too early for sharing, and `bytes` are
    /// passed by emulated copy; [`Element::given`] shares them.
    #[inline]
    #[must_use]
    pub fn new(bytes: B) -> Self {
        Self { is_by_default: true, ..Self::emulated_copy(bytes) }
    }

    /// Passes a whole native buffer by the interface's default scheme; the reply brings it back.
    #[inline]
    #[must_use]
    pub fn given(buffer: Buffer) -> Self {
        Self { is_by_default: true, ..Self::owned(Scheme::EmulatedCopy, buffer) }
    }

    /// Passes `bytes` by copy.
    #[inline]
    pub fn copy(bytes: B) -> Self {
        Self::borrowed(Scheme::Copy, bytes)
    }

    /// Passes `bytes` by emulated copy: by swapping or protecting pages where that is cheaper, and with copy's meaning always.
    #[inline]
    pub fn emulated_copy(bytes: B) -> Self {
        Self::borrowed(Scheme::EmulatedCopy, bytes)
    }

    /// Lets the server work in `memory` itself, and wires it; see [`Element::emulated_share`].
    #[inline]
    pub fn share(memory: impl Shared<B>) -> Self {
        memory.shared(Scheme::Share)
    }

    /// Lets the server work in `memory` itself: in a [`Buffer`], until the reply brings it back, or in borrowed bytes, until
    /// `send` returns. Borrowed bytes are copied where the request is submitted, since the borrow then ends too early. If the
    /// request fails, the bytes of an input are unspecified: the server may have stored some.
    ///
    /// Borrowed bytes that are so few that to name them to a server in another process would take longer are copied, and travel with the
    /// request ([`genie_passing::CARRIED`]); the receipt says so.
    ///
    /// An input is stored into in place only if no other bytes of the program lie on the same granules, as in a whole buffer of
    /// [`allocate`](crate::Interface::allocate); else it is done by emulated copy.
    #[inline]
    pub fn emulated_share(memory: impl Shared<B>) -> Self {
        memory.shared(Scheme::EmulatedShare)
    }

    /// Moves a migrant buffer. An output's region is removed; an input arrives in a new region.
    pub fn moved(migrant: M) -> Self {
        Self::migrant(Scheme::Move, migrant)
    }

    /// Moves a migrant buffer. An output's region is hidden and kept for reuse; an input arrives in a region that was hidden.
    pub fn emulated_move(migrant: M) -> Self {
        Self::migrant(Scheme::EmulatedMove, migrant)
    }

    /// Moves a migrant buffer, weakly; wires it. An output's region is kept for reuse; an input arrives in such a region.
    pub fn weak_move(migrant: M) -> Self {
        Self::migrant(Scheme::WeakMove, migrant)
    }

    /// Moves a migrant buffer, weakly. An output's region is kept for reuse; an input arrives in such a region.
    pub fn emulated_weak_move(migrant: M) -> Self {
        Self::migrant(Scheme::EmulatedWeakMove, migrant)
    }

    /// Passes borrowed memory by any native scheme. Borrowed memory cannot be shared beyond the call: share schemes become copy
    /// where the request is submitted; the receipt says so.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    #[inline]
    pub fn borrowed(scheme: Scheme, bytes: B) -> Self {
        assert_allocation(scheme, Allocation::Native);
        Self { scheme, is_by_default: false, lender: None, memory: Memory::Borrowed(bytes) }
    }

    /// Passes memory that is borrowed for as long as the program runs, by any native scheme. So it can be shared with a server beyond
    /// the call, as a [`Buffer`] given by value can.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    pub fn lasting(scheme: Scheme, bytes: B) -> Self
    where
        B: 'static,
    {
        assert_allocation(scheme, Allocation::Native);
        Self { scheme, is_by_default: false, lender: None, memory: Memory::Lasting(bytes) }
    }

    /// Passes a whole native buffer by any native scheme; the reply brings it back. So no borrow lasts as long as the request:
    /// a `series::BufferRing` has such buffers take turns.
    ///
    /// # Panics
    /// When `scheme` is a migrant one.
    #[inline]
    pub fn owned(scheme: Scheme, buffer: Buffer) -> Self {
        assert_allocation(scheme, Allocation::Native);
        let range = 0..buffer.len();
        Self { scheme, is_by_default: false, lender: None, memory: Memory::Owned(buffer, range) }
    }

    /// Passes a migrant buffer by any migrant scheme: for output `migrant` itself, for input a buffer of at most `migrant`
    /// bytes.
    ///
    /// # Panics
    /// When `scheme` is a native one. To output a migrant buffer by a native scheme, borrow it as `&migrant[..]`.
    #[inline]
    pub fn migrant(scheme: Scheme, migrant: M) -> Self {
        assert_allocation(scheme, Allocation::Migrant);
        Self { scheme, is_by_default: false, lender: None, memory: Memory::Migrant(migrant) }
    }

    /// Forwards a part of a buffer of a request that the caller serves: subcontracting.
    ///
    /// # Panics
    /// When the fragment is of a buffer of the other direction.
    pub fn fragment(fragment: Fragment) -> Self {
        let direction = fragment.direction();
        assert_eq!(direction, B::DIRECTION, "a fragment is forwarded in its own direction");
        let memory = Memory::Fragment(Box::new(fragment));
        Self { scheme: Scheme::Fragment, is_by_default: false, lender: None, memory }
    }

    /// Has `lender` lend the system buffer, if data passing needs one. Of all servers that the data will reach, name the one
    /// that touches it: then a contractor in this process forwards the data without a copy. By default the request's server
    /// lends; a server in another process always does, since it would be shown all that lies in the other lender's pool. A request is
    /// refused if another interface was connected to its lender.
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
        match &mut self.memory {
            Memory::Owned(buffer, range) => {
                let len = buffer.len();
                assert!(part.start <= part.end && part.end <= len, "bytes {part:?} of a buffer of {len}");
                *range = part;
            }
            other => panic!("{other:?} is not a native buffer given by value; slice it instead"),
        }
        self
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match &self.memory {
            Memory::Borrowed(bytes) | Memory::Lasting(bytes) => bytes.len(),
            Memory::Owned(_, range) => range.len(),
            Memory::Migrant(migrant) => migrant.bytes(),
            Memory::Fragment(fragment) => fragment.len(),
        }
    }
}

fn assert_allocation(scheme: Scheme, allocation: Allocation) {
    assert!(scheme != Scheme::Fragment, "fragments are made by Incoming::fragment");
    let other = match allocation {
        Allocation::Native => "migrant",
        Allocation::Migrant => "native",
    };
    assert!(scheme.allocation() == allocation, "{scheme} passes {other} buffers only");
}
