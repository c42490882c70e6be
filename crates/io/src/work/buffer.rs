//! A request's buffers under way, each by itself; [`super::Work`] has what concerns all of them, and [`super::element`] their elements.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Data, DataMut, Direction, Extent, SystemBytes};
use genie_passing::{Receipt, Scheme};
use smallvec::SmallVec;

use super::{Carried, Store};
use crate::Error;
use crate::contract::Contract;
use crate::reply::{ReplyBuffer, ReplyElement, Returned};
use crate::server::service::Access;
use crate::work::element::{Kept, Transfer, WorkElement};
use crate::work::forwarded::ForwardedInput;
use crate::work::location::{Location, Locations};

/// One of a request's buffers.
#[derive(Debug)]
pub struct WorkBuffer {
    pub(crate) direction: Direction,
    /// The client, in another process, says that it copies most of the data; or the kernel copies all of it.
    pub(crate) is_copied: bool,
    pub(super) said: Said,
    /// The server has made the output's data its own.
    pub(crate) is_kept: bool,
    pub(crate) elements: SmallVec<[WorkElement; 1]>,
}

/// How many bytes of a buffer were passed, as its server says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    pub(super) actual: usize,
    told: Told,
}

impl Said {
    pub(super) const NOTHING: Self = Self { actual: 0, told: Told::Nothing };

    /// Notes how many bytes were passed, of `len`.
    ///
    /// # Errors
    /// There is not so much room: nothing has changed.
    #[inline]
    pub(super) fn say(&mut self, actual: usize, len: usize) -> Result<(), Error> {
        if self.told == Told::Final {
            return self.progress(actual, len).map(drop);
        }
        Error::check_len(actual, len)?;
        *self = Self { actual, told: Told::Said };
        Ok(())
    }

    /// How many bytes are final, as far as the server has said.
    #[inline]
    pub(super) fn come(self) -> usize {
        if self.told == Told::Final { self.actual } else { 0 }
    }

    /// Notes that the first `come` bytes of `len` are final; returns whether they are more than before.
    ///
    /// # Errors
    /// There are not so many, or they are fewer than before: nothing has changed.
    #[cold]
    pub(super) fn progress(&mut self, come: usize, len: usize) -> Result<bool, Error> {
        Error::check_len(come, len)?;
        let before = self.come();
        if come < before {
            return Err(Error::Backwards { come: before, actual: come });
        }
        if come > before {
            *self = Self { actual: come, told: Told::Final };
        }
        Ok(come > before)
    }

    /// The server has to say how much of an input came, if it has not.
    #[inline]
    pub(super) fn owe(&mut self) {
        if self.told == Told::Nothing {
            self.told = Told::Owed;
        }
    }

    /// Forgets how much the server has said of an input, but for what is final.
    #[inline]
    pub(super) fn unsay(&mut self) {
        if self.told != Told::Final {
            *self = Self { actual: 0, told: Told::Owed };
        }
    }

    /// Whether the server has yet to say how much came.
    #[inline]
    pub(super) fn is_owed(self) -> bool {
        self.told == Told::Owed
    }
}

/// Whether the server has said how many bytes were passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It need not: none were.
    Nothing,
    /// It has to, since it may have had the input filled.
    Owed,
    Said,
    /// It has, and as many bytes are final: it never says less any more.
    Final,
}

impl WorkBuffer {
    /// Which way its data goes.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The elements, in order.
    #[inline]
    pub fn elements(&self) -> &[WorkElement] {
        &self.elements
    }

    /// How many bytes were passed, as the server says.
    #[inline]
    pub fn actual(&self) -> usize {
        self.said.actual
    }

    /// A buffer without elements yet.
    #[inline]
    pub(crate) fn new(direction: Direction) -> Self {
        let elements = SmallVec::new();
        Self { direction, is_copied: false, said: Said::NOTHING, is_kept: false, elements }
    }

    /// What the client gets.
    #[inline]
    pub(super) fn give_back(&mut self) -> ReplyBuffer {
        let elements = match self.elements.as_mut_slice() {
            [element] => SmallVec::from_buf([element.give_back()]),
            elements => elements.iter_mut().map(WorkElement::give_back).collect(),
        };
        ReplyBuffer { actual: self.said.actual, elements }
    }

    /// Whether most of the data is copied, as far as is known: an input is still to be delivered. Before the server has said how much of
    /// an input came, all of it counts.
    #[inline]
    pub fn is_copied(&self) -> bool {
        let copied = || self.elements.iter().map(WorkElement::copied).sum::<usize>();
        let data = match (self.direction, self.said.actual) {
            (Direction::Out, _) | (Direction::In, 0) => self.len(),
            (Direction::In, actual) => actual,
        };
        self.is_copied || 2 * copied() > data
    }

    /// The contracts of the requests of which its elements are parts.
    #[inline]
    pub(super) fn contracts(&self) -> impl Iterator<Item = &Contract> {
        self.elements.iter().filter_map(|element| match &element.transfer {
            Transfer::Located(located) => located.contract(),
            _ => None,
        })
    }

    /// Its elements, and how many bytes of each were passed.
    #[inline]
    pub(super) fn passed(&self) -> impl Iterator<Item = (&WorkElement, usize)> {
        let mut left = if self.direction == Direction::Out { usize::MAX } else { self.said.actual };
        self.elements.iter().map(move |element| {
            let here = element.len().min(left);
            left -= here;
            (element, here)
        })
    }

    /// Bytes in all elements together.
    #[allow(clippy::len_without_is_empty, reason = "a buffer without bytes is like any other")]
    pub fn len(&self) -> usize {
        self.elements.iter().map(WorkElement::len).sum()
    }

    /// How much memory the private buffer takes that the data fills by itself; none where there is no such buffer.
    pub(crate) fn private_footprint(&self) -> Option<usize> {
        match self.elements.as_slice() {
            [WorkElement { transfer: Transfer::Located(located), .. }] => located.private_footprint(),
            _ => None,
        }
    }

    /// Takes the memory of that buffer out of the request.
    pub(crate) fn take_private(&mut self) -> Option<SystemBytes> {
        match self.elements.as_mut_slice() {
            [WorkElement { transfer: Transfer::Located(located), .. }] => located.take_private(),
            _ => None,
        }
    }

    /// Ends the mappings that last only as long as the request.
    pub(crate) fn let_go(&mut self) {
        for element in &mut self.elements {
            if let Transfer::Located(located) = &mut element.transfer {
                located.let_go();
            }
        }
    }

    /// Shares the input element that is exactly bytes `range` with another server.
    ///
    /// # Errors
    /// What a server has in place of the element's memory cannot be brought.
    pub(crate) fn forward(
        &mut self,
        range: &Range<usize>,
        access: Access,
    ) -> Result<Option<Arc<ForwardedInput>>, Error> {
        let mut at = 0;
        let element = self.elements.iter_mut().find(|element| {
            let start = at;
            at += element.len();
            start == range.start && at == range.end && start < at
        });
        let Some(element) = element else { return Ok(None) };
        let scheme = element.receipt().asked;
        element.transfer = match std::mem::replace(&mut element.transfer, Transfer::None(scheme)) {
            Transfer::In(input) => Transfer::Forwarded(Arc::new(ForwardedInput::new(input, access))),
            other => other,
        };
        match &mut element.transfer {
            Transfer::Forwarded(input) => Ok(Some(Arc::clone(input))),
            Transfer::Located(located) => located.forward(),
            Transfer::In(_) | Transfer::Out(_) | Transfer::Carried(_) | Transfer::None(_) => Ok(None),
        }
    }

    /// The locations of the data, to be shown to another server; `find` finds data that a client in another process has named.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn locations(
        &self,
        find: impl Fn(&[(u16, Extent)]) -> Locations,
        store: &Store,
    ) -> Result<Locations, Error> {
        let mut all = Locations::new();
        for element in &self.elements {
            match &element.transfer {
                Transfer::Out(output) => all.push(Location::Here(output.segments())),
                Transfer::In(input) => all.push(Location::Here(input.segments())),
                // Other servers work in memory made for the request, not in what the contractor may look at.
                Transfer::Forwarded(input) => all.push(Location::Here(input.ready()?)),
                Transfer::Located(located) => all.extend(located.locations(&find)),
                Transfer::Carried(carried) => {
                    all.push(Location::Carried(store.data(carried).segments().clone()));
                }
                Transfer::None(_) => {}
            }
        }
        Ok(all)
    }

    /// The data of an output buffer, element after element.
    pub(crate) fn output<'w>(&'w self, store: &'w Store) -> Data<'w> {
        let mut all = self.elements.first().map(|element| element.output(store)).unwrap_or_default();
        self.elements.iter().skip(1).for_each(|element| all.append(element.output(store)));
        all
    }

    /// The data of an input buffer, element after element.
    pub(crate) fn input<'w>(&'w self, store: &'w Store) -> DataMut<'w> {
        let mut all = self.elements.first().map(|element| element.input(store)).unwrap_or_default();
        self.elements.iter().skip(1).for_each(|element| all.append(element.input(store)));
        all
    }
}

/// The most short buffers of a request; if there are more, none is short.
pub const MAX_SHORTS: usize = 4;

/// A buffer with one carried element, of which the client gets nothing back but its receipt.
#[derive(Debug, Clone, Copy)]
pub struct Short {
    pub(super) carried: Carried,
    pub(super) said: Said,
    /// The server has made the output's data its own.
    pub(super) is_kept: bool,
}

/// A work's short buffers, in order.
pub(super) struct Shorts {
    /// What is behind the first `count` is left of earlier requests, and nobody's.
    list: [Short; MAX_SHORTS],
    count: usize,
}

impl Shorts {
    pub(super) const NONE: Self = {
        let passed = genie_passing::Carried::new(Scheme::Fragment, None);
        Self { list: [Short::new(Carried::nothing(passed)); MAX_SHORTS], count: 0 }
    };

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count == MAX_SHORTS
    }

    /// Adds a buffer.
    ///
    /// # Panics
    /// There are [`MAX_SHORTS`] already.
    #[inline]
    pub(super) fn push(&mut self, carried: Carried) {
        self.list[self.count] = Short::new(carried);
        self.count += 1;
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}

impl std::fmt::Debug for Shorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl std::ops::Deref for Shorts {
    type Target = [Short];

    #[inline]
    fn deref(&self) -> &[Short] {
        &self.list[..self.count.min(MAX_SHORTS)]
    }
}

impl std::ops::DerefMut for Shorts {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Short] {
        &mut self.list[..self.count.min(MAX_SHORTS)]
    }
}

impl Short {
    const fn new(carried: Carried) -> Self {
        Self { carried, said: Said::NOTHING, is_kept: false }
    }

    /// Which way its data goes.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.carried.direction()
    }

    /// The number of bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a short buffer has bytes")]
    pub fn len(&self) -> usize {
        self.carried.len()
    }

    /// Which way its data goes, and how many bytes it has.
    #[inline]
    pub fn extent(&self) -> (Direction, usize) {
        (self.direction(), self.len())
    }

    /// What is carried.
    #[inline]
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// How many bytes were passed, as the server says.
    #[inline]
    pub fn actual(&self) -> usize {
        self.said.actual
    }

    #[inline]
    pub(super) fn is_input(&self) -> bool {
        self.carried.is_input()
    }

    /// Its direction, what was done, and how many bytes were passed.
    pub(super) fn passed(&self) -> (Direction, Receipt, usize) {
        let here = if self.is_input() { self.said.actual } else { self.len() };
        (self.direction(), self.carried.receipt(), here)
    }

    /// What the client gets.
    #[inline]
    pub(super) fn reply(&self) -> ReplyBuffer {
        let element = ReplyElement { receipt: self.carried.receipt(), returned: Returned::Nothing };
        ReplyBuffer { actual: self.said.actual, elements: SmallVec::from_buf([element]) }
    }

    pub(super) fn unfolded(self) -> WorkBuffer {
        let Self { carried, said, is_kept } = self;
        let element = WorkElement { transfer: Transfer::Carried(carried), kept: Kept::Nothing };
        let elements = SmallVec::from_buf([element]);
        WorkBuffer { direction: carried.direction(), is_copied: true, said, is_kept, elements }
    }
}

/// One of a request's buffers, whatever it is.
#[derive(Clone, Copy)]
pub(crate) enum Seen<'w> {
    Short(&'w Short),
    Whole(&'w WorkBuffer),
}

impl<'w> Seen<'w> {
    #[inline]
    pub(crate) fn direction(self) -> Direction {
        match self {
            Self::Short(short) => short.direction(),
            Self::Whole(buffer) => buffer.direction,
        }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Short(short) => short.len(),
            Self::Whole(buffer) => buffer.len(),
        }
    }

    /// How many bytes were passed, as its server says.
    pub(crate) fn actual(self) -> usize {
        match self {
            Self::Short(short) => short.said.actual,
            Self::Whole(buffer) => buffer.actual(),
        }
    }

    /// How many elements it has.
    pub(crate) fn elements(self) -> usize {
        match self {
            Self::Short(_) => 1,
            Self::Whole(buffer) => buffer.elements.len(),
        }
    }

    /// How long an element is; none if it has no such element.
    pub(crate) fn element_len(self, element: usize) -> Option<usize> {
        match self {
            Self::Short(short) => (element == 0).then(|| short.len()),
            Self::Whole(buffer) => buffer.elements.get(element).map(WorkElement::len),
        }
    }

    #[inline]
    pub(crate) fn is_kept(self) -> bool {
        match self {
            Self::Short(short) => short.is_kept,
            Self::Whole(buffer) => buffer.is_kept,
        }
    }

    /// How much memory the private buffer takes that the data fills by itself; none where there is no such buffer.
    pub(crate) fn private_footprint(self) -> Option<usize> {
        match self {
            Self::Short(_) => None,
            Self::Whole(buffer) => buffer.private_footprint(),
        }
    }

    #[inline]
    pub(crate) fn output(self, store: &'w Store) -> Data<'w> {
        match self {
            Self::Short(short) => store.data(&short.carried),
            Self::Whole(buffer) => buffer.output(store),
        }
    }

    #[inline]
    pub(crate) fn input(self, store: &'w Store) -> DataMut<'w> {
        match self {
            Self::Short(short) if short.carried.is_ready() => store.data_mut(&short.carried),
            Self::Short(_) => DataMut::default(),
            Self::Whole(buffer) => buffer.input(store),
        }
    }
}
