//! Works whose buffers are all short: a few, each of one carried element of borrowed memory.
//!
//! Why: most short requests have one or two such buffers. What a longer buffer may need (several elements, transfers, what comes back to
//! the client) takes many times as long to set up, to look through and to let go as it takes to copy the bytes.
//! How: a work has either short buffers or whole ones. Whatever is seldom asked for (a fragment, a supply, delivery elsewhere) makes
//! them whole first, by [`Work::unfold`]; the bytes stay where they are.
//! Limits: [`MAX_SHORTS`](super::MAX_SHORTS) buffers of one element each.

use genie_memory::Direction;

use super::buffer::{Said, Seen, Short};
use super::{Carried, Work, WorkBuffer, WorkElement};
use crate::Error;

impl Work {
    /// The buffers, in order, if all of them are short. At the client's end, [`Outgoing::make_ready`](crate::carrier::Outgoing::make_ready)
    /// makes them whole, so that a carrier need not know of these; but it has nothing else to do for them.
    #[inline]
    pub fn shorts(&self) -> &[Short] {
        &self.shorts
    }

    /// Adds a short buffer to a request that came in a record and has no others than short ones, as yet: an output of `data`, or an
    /// input of `len` bytes.
    ///
    /// # Panics
    /// There are [`MAX_SHORTS`](super::MAX_SHORTS) already, or another buffer; or as [`Work::receive`].
    #[inline]
    pub fn receive_short(&mut self, direction: Direction, data: &[u8], len: usize) {
        assert!(self.takes_short(), "a request has few short buffers, or none");
        let carried = self.store.receive(direction, data, len);
        self.shorts.push(carried);
    }

    /// Whether the next buffer may be a short one.
    #[inline]
    pub(super) fn takes_short(&self) -> bool {
        self.buffers.is_empty() && !self.shorts.is_full()
    }

    /// Makes short buffers whole ones.
    #[inline]
    pub(crate) fn unfold(&mut self) {
        if !self.shorts.is_empty() {
            self.unfold_all();
        }
    }

    #[cold]
    fn unfold_all(&mut self) {
        self.buffers.extend(self.shorts.iter().map(|short| short.unfolded()));
        self.shorts.clear();
    }

    /// The buffers, all of them whole.
    pub(crate) fn whole_mut(&mut self) -> &mut [WorkBuffer] {
        self.unfold();
        &mut self.buffers
    }

    /// How many buffers there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.shorts.len() + self.buffers.len()
    }

    /// A buffer, if it is there.
    #[inline]
    pub(crate) fn buffer(&self, index: usize) -> Option<Seen<'_>> {
        // One of the lists is empty.
        match self.shorts.get(index) {
            Some(short) => Some(Seen::Short(short)),
            None => self.buffers.get(index).map(Seen::Whole),
        }
    }

    /// Which way a buffer's data goes; none if there is no such buffer.
    #[inline]
    pub fn direction(&self, index: usize) -> Option<Direction> {
        self.buffer(index).map(Seen::direction)
    }

    /// Calls `see` with each buffer's direction, whether most of it is copied ([`WorkBuffer::is_copied`]), how many bytes it has and how
    /// many of them were passed.
    #[inline]
    pub fn each_buffer(&self, mut see: impl FnMut(Direction, bool, usize, usize)) {
        for short in self.shorts.iter() {
            see(short.direction(), true, short.len(), short.said.actual);
        }
        for buffer in &self.buffers {
            see(buffer.direction, buffer.is_copied(), buffer.len(), buffer.actual());
        }
    }

    /// What the server says of a buffer, and how long the buffer is.
    #[inline]
    fn said(&mut self, index: usize) -> Option<(&mut Said, Direction, usize)> {
        match self.shorts.get_mut(index) {
            Some(short) => Some((&mut short.said, short.carried.direction(), short.carried.len())),
            None => {
                let buffer = self.buffers.get_mut(index)?;
                let (direction, len) = (buffer.direction, buffer.len());
                Some((&mut buffer.said, direction, len))
            }
        }
    }

    /// Notes how many bytes of a buffer were really passed.
    ///
    /// # Errors
    /// There is no such buffer, or not so much room in it: nothing has changed.
    #[inline]
    pub fn set_actual(&mut self, index: usize, actual: usize) -> Result<(), Error> {
        match self.said(index) {
            Some((said, _, len)) => said.say(actual, len),
            None => Err(Error::NoSuchBuffer { index, direction: Direction::In, is_other: false }),
        }
    }

    /// Notes that the first `come` bytes of a buffer are final; returns whether they are more than before.
    ///
    /// # Errors
    /// As [`Work::set_actual`]; [`Error::Backwards`].
    pub(crate) fn progress(&mut self, index: usize, come: usize) -> Result<bool, Error> {
        let missing = Error::NoSuchBuffer { index, direction: Direction::In, is_other: false };
        let (said, _, len) = self.said(index).ok_or(missing)?;
        said.progress(come, len)
    }

    /// Whether bytes of any buffer are final.
    pub(crate) fn has_come(&self) -> bool {
        let said = self.shorts.iter().map(|short| short.said);
        said.chain(self.buffers.iter().map(|buffer| buffer.said)).any(|said| said.come() > 0)
    }

    /// Notes that the server is about to have an input filled, so that it has to say how much came, if it has not.
    #[inline]
    pub(crate) fn owe(&mut self, index: usize) {
        if let Some((said, Direction::In, _)) = self.said(index) {
            said.owe();
        }
    }

    /// Forgets how much of a buffer the server has said to have passed.
    #[inline]
    pub(crate) fn unfill(&mut self, index: usize) {
        if let Some((said, ..)) = self.said(index) {
            said.unsay();
        }
    }

    /// The first input of which the server has yet to say how much came.
    #[inline]
    pub(crate) fn untold(&self) -> Option<usize> {
        let short = self.shorts.iter().position(|short| short.said.is_owed());
        short.or_else(|| self.buffers.iter().position(|buffer| buffer.said.is_owed()))
    }

    /// Makes an input ready, and its server owe how much came of it, if it is a short one; returns whether it is.
    #[inline]
    pub(crate) fn make_short_ready(&mut self, index: usize) -> bool {
        match self.shorts.get_mut(index) {
            Some(short) if short.is_input() => {
                short.carried.make_ready();
                short.said.owe();
                true
            }
            _ => false,
        }
    }

    /// Makes an input ready that is not a short one.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn make_ready(&mut self, index: usize) -> Result<(), Error> {
        self.buffers[index].elements.iter_mut().try_for_each(WorkElement::make_ready)
    }

    /// Notes that the server has made an output's data its own.
    pub(crate) fn set_kept(&mut self, index: usize) {
        match self.shorts.get_mut(index) {
            Some(short) => short.is_kept = true,
            None => self.buffers[index].is_kept = true,
        }
    }

    /// Delivers what short inputs have got to `destinations`.
    ///
    /// # Errors
    /// A server has taken the client's memory away.
    #[inline]
    pub(super) fn deliver_shorts(
        &mut self,
        destinations: &mut [&mut [u8]],
        has_losses: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let Self { shorts, store, .. } = self;
        let inputs = shorts.iter_mut().filter(|short| short.is_input());
        for (short, bytes) in inputs.zip(destinations) {
            short.carried.deliver(store, short.said.actual, Some(&mut **bytes), &has_losses)?;
        }
        Ok(())
    }

    /// Whether there was room for what short inputs have got, as their server says.
    ///
    /// # Errors
    /// There was not.
    #[inline]
    pub(super) fn check_shorts(&self) -> Result<(), Error> {
        let mut inputs = self.shorts.iter().filter(|short| short.is_input());
        inputs.try_for_each(|short| short.carried.check(short.said.actual))
    }

    /// Calls `see` with the short inputs, and how many bytes of each were passed.
    #[inline]
    pub fn each_short_input(&self, mut see: impl FnMut(&Carried, usize)) {
        for short in self.shorts.iter().filter(|short| short.is_input()) {
            see(&short.carried, short.said.actual);
        }
    }
}
