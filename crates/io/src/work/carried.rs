//! Carried elements: data so short that it travels in a request's record and in the reply's, as arguments do.
//!
//! Why: what a longer element is wrapped in (a transfer, memory of a pool, places in it, tables on both sides) takes ten times
//! as long as copying 64 bytes.
//! How: the bytes are in the work itself, on both sides. The client copies outputs there when the request begins; from there
//! they go to the record, and from the record to the server's work, where the server's code finds them. Inputs are the mirror
//! image.
//! Invariants: once all elements are there, the bytes stay where they are until the work is over, since views of them are kept
//! beside the work. What a server has not filled of an input is zeros. They are loaded and stored by [`Span`]s alone.
//! Limits: [`genie_passing::CARRIED`] bytes in an element; [`MAX_CARRIED`] in a request. What does not fit is passed as longer
//! data is.

use std::fmt;
use std::sync::atomic::AtomicU64;

use genie_memory::{Direction, Segments, Span};
use genie_passing::{CARRIED, Output, Parties, Passing, Receipt, Scheme, Source};
use genie_sys::guard;
use smallvec::SmallVec;

use super::element::Kept;
use super::{Transfer, Work, WorkBuffer, WorkElement, each_input};
use crate::Error;
use crate::work::located::Located;

/// The most bytes that a request and its reply carry of elements, each counted as [`carried_room`] says.
pub const MAX_CARRIED: usize = 2048;

/// How many bytes a carried element of `len` bytes takes of [`MAX_CARRIED`]: in memory, each begins at a multiple of 16.
#[inline]
pub const fn carried_room(len: usize) -> usize {
    len.next_multiple_of(16)
}

/// One carried element: where its bytes are in the work.
#[derive(Debug, Clone, Copy)]
pub struct Carried {
    direction: Direction,
    /// For an input at its server: whether the server's code has asked for the memory.
    is_ready: bool,
    at: u16,
    len: u16,
    passed: genie_passing::Carried,
}

const _: () = assert!(MAX_CARRIED <= u16::MAX as usize, "places in the store are kept in 16 bits");
const _: () = assert!(MAX_CARRIED.is_power_of_two(), "a store has room for a power of two");

/// The bytes of a work's carried elements. Any thread may load and store them: those of inputs are the server's to fill.
/// No reference to the words is used.
#[derive(Default)]
pub(crate) struct Store {
    words: Vec<AtomicU64>,
    used: usize,
    /// How much of that is not of outputs which the record carries.
    inputs: usize,
}

const WORD: usize = size_of::<u64>();
/// The least memory that is taken.
const LEAST: usize = 512;

impl Store {
    #[cold]
    fn grow(&mut self, bytes: usize) {
        let bytes = bytes.next_power_of_two().max(LEAST);
        self.words.resize_with(bytes / WORD, AtomicU64::default);
    }

    /// Takes room for an element of `len` bytes, unless there would be more than [`MAX_CARRIED`].
    #[inline(always)]
    fn take(&mut self, len: usize) -> Option<u16> {
        let at = self.used;
        let end = at + carried_room(len);
        if end > self.words.len() * WORD {
            if end > MAX_CARRIED {
                return None;
            }
            self.grow(end);
        }
        self.used = end;
        Some(at as u16)
    }

    /// The first `len` bytes of an element.
    ///
    /// # Panics
    /// The element has fewer: what lies behind it is another one.
    #[inline(always)]
    pub(crate) fn span(&self, carried: &Carried, len: usize) -> Span {
        assert!(len <= carried.len(), "an element has no more than its bytes");
        let start = self.words.as_ptr().cast_mut().cast();
        Span::new(start, self.words.len() * WORD).part(usize::from(carried.at), len)
    }

    /// Where an element's bytes are.
    pub(crate) fn segments(&self, carried: &Carried) -> Segments {
        let span = self.span(carried, carried.len());
        // Pushing would look for room first.
        Segments::from_buf_and_len([span; 2], 1)
    }

    /// An element of a request that came in a record.
    #[inline(always)]
    pub(super) fn receive(&mut self, direction: Direction, data: &[u8], len: usize) -> Carried {
        let passed = genie_passing::Carried::new(Scheme::Fragment, None);
        let carried = match direction {
            Direction::Out => Carried::output(self, passed, data),
            Direction::In => Carried::input(self, passed, len, MAX_CARRIED).map(|input| {
                self.zero(&input);
                Carried { is_ready: false, ..input }
            }),
        };
        carried.expect("a request that came carries no more than there is room for")
    }

    /// Lets all bytes go, and keeps the memory.
    #[inline]
    pub(super) fn end(&mut self) {
        (self.used, self.inputs) = (0, 0);
    }
}

/// Says how many bytes there are. The bytes themselves may be a peer's secrets, and a server's threads may be storing them.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Carried {
    /// What there is in the place of an element.
    pub(super) const fn nothing(passed: genie_passing::Carried) -> Self {
        Self { direction: Direction::Out, is_ready: false, at: 0, len: 0, passed }
    }

    /// Which way its data goes.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// An output of these bytes, which are copied here; none if there is no room.
    #[inline(always)]
    pub(crate) fn output(store: &mut Store, passed: genie_passing::Carried, bytes: &[u8]) -> Option<Self> {
        let at = store.take(bytes.len())?;
        let mut carried =
            Self { direction: Direction::Out, is_ready: true, at, len: bytes.len() as u16, passed };
        store.put(&carried, bytes);
        carried.passed.copied(bytes.len());
        Some(carried)
    }

    /// An input of `len` bytes, which are still what they were; none if there is no room, or if inputs took more than `most`.
    #[inline(always)]
    pub(crate) fn input(
        store: &mut Store,
        passed: genie_passing::Carried,
        len: usize,
        most: usize,
    ) -> Option<Self> {
        let inputs = store.inputs + carried_room(len);
        if inputs > most {
            return None;
        }
        let at = store.take(len)?;
        store.inputs = inputs;
        Some(Self { direction: Direction::In, is_ready: true, at, len: len as u16, passed })
    }

    /// The number of bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "an element without bytes is like any other")]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether it is an input, whose bytes come with the reply.
    #[inline]
    pub fn is_input(&self) -> bool {
        self.direction == Direction::In
    }

    pub(super) fn receipt(&self) -> Receipt {
        self.passed.receipt()
    }

    pub(super) fn note(&mut self, asked: Scheme, reason: genie_passing::Reason) {
        self.passed.note(asked, reason);
    }

    pub(super) fn make_ready(&mut self) {
        self.is_ready = true;
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether `actual` bytes of an input can have been passed: no more than the server ever had memory for.
    pub(super) fn check(&self, actual: usize) -> Result<(), Error> {
        Error::check_len(actual, if self.is_ready { self.len() } else { 0 })
    }

    /// Whether `actual` bytes can be delivered to `room` bytes.
    pub(super) fn check_room(&self, actual: usize, room: usize) -> Result<(), Error> {
        Error::check_len(actual, self.len().min(room))
    }

    /// The same input, with data that its server has elsewhere.
    pub(crate) fn supplied(&self, store: &Store) -> Box<Located> {
        Located::carried(store.data(self).segments().clone(), self.len())
    }

    /// Copies the first bytes of an element of `work` to `bytes`.
    ///
    /// # Panics
    /// The element has fewer.
    #[inline]
    pub fn copy_to(&self, work: &Work, bytes: &mut [u8]) {
        work.store.get(self, bytes);
    }

    /// Copies the first bytes to `bytes`, as many as both have; returns how many.
    pub(super) fn peek(&self, store: &Store, actual: usize, bytes: &mut [u8]) -> usize {
        let len = actual.min(bytes.len());
        store.get(self, &mut bytes[..len]);
        len
    }

    /// Delivers an input's first `actual` bytes; `has_losses` says whether a server has taken memory of the client's away.
    ///
    /// # Errors
    /// There is less room; the client's memory was taken away by a server.
    pub(super) fn deliver(
        &mut self,
        store: &Store,
        actual: usize,
        bytes: Option<&mut [u8]>,
        has_losses: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let Some(bytes) = bytes else { return Ok(()) };
        self.check_room(actual, bytes.len())?;
        let missing = guard::breaks();
        store.get(self, &mut bytes[..actual]);
        self.passed.copied(actual);
        // It is not known which memory was lost: maybe the one that was just stored into.
        if guard::breaks() != missing && has_losses() {
            return Err(genie_passing::Error::from(genie_memory::Error::Lost).into());
        }
        Ok(())
    }

    /// The same output through memory, as longer data goes.
    fn wrapped(&self, store: &Store, passing: &Passing, parties: Parties) -> Result<Box<Output>, Error> {
        let mut bytes = SmallVec::<[u8; CARRIED]>::from_elem(0, self.len());
        self.peek(store, self.len(), &mut bytes);
        let output = passing.output_from(Scheme::Copy, Source::Owned(&bytes), parties);
        let mut output = output.map_err(|refused| refused.error)?;
        if let (asked, Some(reason)) = self.passed.asked() {
            output.note(asked, reason);
        }
        Ok(output)
    }
}

impl Work {
    /// Whether the record carries bytes of outputs.
    #[inline]
    pub fn carries_outputs(&self) -> bool {
        self.store.used != self.store.inputs
    }

    /// Calls `see` with the outputs of whole buffers whose bytes the request's record carries, in order.
    #[inline]
    pub fn each_carried_output(&self, mut see: impl FnMut(&Carried)) {
        if !self.carries_outputs() {
            return;
        }
        for element in self.buffers.iter().flat_map(|buffer| &buffer.elements) {
            if let Transfer::Carried(carried) = &element.transfer
                && !carried.is_input()
            {
                see(carried);
            }
        }
    }

    /// Whether the reply carries bytes of inputs.
    #[inline]
    pub fn carries_inputs(&self) -> bool {
        self.store.inputs != 0
    }

    /// Calls `see` with the inputs of whole buffers whose bytes the reply carries, in order, and how many of each were passed.
    #[inline]
    pub fn each_carried_input(&self, mut see: impl FnMut(&WorkElement, usize)) {
        for (element, here) in self.buffers.iter().flat_map(WorkBuffer::passed) {
            if element.is_carried() {
                see(element, here);
            }
        }
    }

    /// Has what the record would carry of outputs passed through memory instead.
    ///
    /// # Errors
    /// No memory.
    #[cold]
    pub(crate) fn wrap_outputs(&mut self, passing: &Passing, parties: Parties) -> Result<(), Error> {
        self.unfold();
        let Self { buffers, store, has_wrapped, .. } = self;
        for buffer in buffers {
            for element in &mut buffer.elements {
                if let Transfer::Carried(carried) = &element.transfer
                    && !carried.is_input()
                {
                    element.transfer = Transfer::Out(carried.wrapped(store, passing, parties)?);
                    *has_wrapped = true;
                }
            }
        }
        store.inputs = store.used;
        Ok(())
    }

    /// Adds an element of a request that came in a record to the last buffer: an output of `data`, or an input of `len` bytes.
    ///
    /// # Panics
    /// No buffer has been begun, or the carried elements take more than [`MAX_CARRIED`].
    #[inline]
    pub fn receive(&mut self, direction: Direction, data: &[u8], len: usize) {
        let transfer = Transfer::Carried(self.store.receive(direction, data, len));
        self.add_element(WorkElement { transfer, kept: Kept::Nothing });
    }

    /// The transfer of an input whose data its server has elsewhere.
    pub(crate) fn supplied(&mut self, index: usize, element: usize) -> &mut Transfer {
        let transfer = &mut self.buffers[index].elements[element].transfer;
        if let Transfer::Carried(carried) = transfer {
            *transfer = Transfer::Located(carried.supplied(&self.store));
            self.has_wrapped = true;
        }
        transfer
    }

    /// Enters what the reply carries of inputs, after it was entered how much was passed ([`Work::set_actual`]).
    ///
    /// # Errors
    /// That is more, or less, than it says was passed.
    #[inline]
    pub fn note_carried(&mut self, data: &[u8]) -> Result<(), Error> {
        if self.store.inputs == 0 && data.is_empty() {
            return Ok(());
        }
        let (mut rest, mut passed) = (data, 0);
        let Self { shorts, buffers, store, .. } = self;
        let mut enter = |carried: &Carried, here: usize| {
            passed += here;
            let (bytes, later) = rest.split_at(here.min(rest.len()));
            store.put(carried, bytes);
            rest = later;
        };
        let inputs = shorts.iter().filter(|short| short.direction() == Direction::In);
        inputs.for_each(|short| enter(short.carried(), short.actual()));
        each_input(buffers, |element, here| {
            if let Transfer::Carried(carried) = &element.transfer {
                enter(carried, here);
            }
            Ok(())
        })?;
        Error::check_len(passed.max(data.len()), passed.min(data.len()))
    }
}
