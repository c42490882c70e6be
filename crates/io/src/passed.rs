//! Inputs passed on: an element of a request's input of which its server, a contractor, has another server fill the whole.
//!
//! Why: until its data is about to come, an input holds no system buffer. A subcontractor that needs one should cause it to be
//! made no sooner than the contractor itself would, and data that is in a subcontractor's own buffer already should go to the
//! client as if the client had asked that server.
//! How: the contractor's request and its fragments share the element until the contractor's reply takes effect. The first who
//! needs memory has it made ready (point 1 of §7.5). A server that has the data elsewhere puts that in the memory's place when
//! its request has succeeded (points 2 and 3); if somebody needs memory after that, the data is copied there after all.
//! Invariants: a buffer that the contractor may have been shown stays until the contractor's reply.
//! Limits: the fragment is one element, neither more nor less, and the client and both servers are in one process. Elsewhere
//! the data is copied, and the receipt says why.
//! Source: thesis §7.5.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Segments, part};
use genie_passing::{Input, Outboard, Overlay, Receipt};

use crate::Error;
use crate::incoming::Access;
use crate::primitive::Mutex;
use crate::work::{Transfer, Work, WorkBuffer};

/// Input data that a server has elsewhere than in the memory that it was shown.
#[derive(Debug)]
pub(crate) enum Supply {
    Overlay(Overlay),
    Outboard(Box<dyn Outboard>),
}

/// The element, in several hands.
#[derive(Debug)]
pub(crate) struct PassedInput {
    len: usize,
    /// Whether the contractor's service may touch the data.
    is_mapped: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once the contractor's request has been replied to.
    input: Option<Box<Input>>,
    /// How many bytes the supply in place of memory has brought.
    brought: usize,
    /// Buffers that were in place of memory and no longer are.
    spent: Vec<Overlay>,
}

impl Supply {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Overlay(overlay) => overlay.len(),
            Self::Outboard(outboard) => outboard.len(),
        }
    }
}

impl PassedInput {
    pub(crate) fn new(input: Box<Input>, access: Access) -> Self {
        let len = input.len();
        let state = State { input: Some(input), brought: 0, spent: Vec::new() };
        Self { len, is_mapped: access.reads || access.writes, state: Mutex::new(state) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.state.lock().input.as_ref().map(|input| *input.receipt())
    }

    /// The memory that a server fills, which any server may be shown.
    pub(crate) fn ready(&self) -> Result<Segments, Error> {
        let mut state = self.state.lock();
        let brought = state.brought;
        let input = state.input.as_mut().ok_or(Error::Aborted)?;
        let spent = input.customize(brought)?;
        let segments = input.segments();
        state.spent.extend(spent);
        Ok(segments)
    }

    /// Sees to it that there is something for the contractor to see: the buffer that a subcontractor put in place of memory, if
    /// that is long enough.
    pub(crate) fn show(&self) -> Result<(), Error> {
        let len: usize = self.seen().iter().map(|segment| segment.len()).sum();
        if len == self.len { Ok(()) } else { self.ready().map(drop) }
    }

    /// What of it is there.
    pub(crate) fn seen(&self) -> Segments {
        let state = self.state.lock();
        state.input.as_ref().map_or_else(Segments::new, |input| part(&input.segments(), 0..self.len))
    }

    /// Puts `supply`, which has brought `brought` bytes, in place of memory; returns it where that can't be: somebody has
    /// memory already, or, for a device's data, the contractor may want to see it.
    pub(crate) fn supply(&self, supply: Supply, brought: usize) -> Result<Option<Supply>, Error> {
        let mut state = self.state.lock();
        let input = state.input.as_mut().ok_or(Error::Aborted)?;
        match supply {
            supply if input.is_ready() => return Ok(Some(supply)),
            Supply::Overlay(overlay) => input.overlay(overlay),
            Supply::Outboard(outboard) if !self.is_mapped => input.outboard(outboard)?,
            supply @ Supply::Outboard(_) => return Ok(Some(supply)),
        }
        state.brought = brought;
        Ok(None)
    }

    /// The same for what the contractor itself has elsewhere.
    ///
    /// # Panics
    /// When somebody has memory already, as for an input that was not passed on.
    pub(crate) fn supply_own(&self, supply: Supply) -> Result<(), Error> {
        let len = self.len.min(supply.len());
        let refused = self.supply(supply, len)?;
        assert!(refused.is_none(), "an input is made ready, overlaid or linked to outboard memory");
        Ok(())
    }

    /// Takes it out of all hands but the caller's.
    pub(crate) fn take(&self) -> Option<Box<Input>> {
        let mut state = self.state.lock();
        state.spent.clear();
        state.input.take()
    }
}

impl WorkBuffer {
    /// Shares the input element that bytes `range` are, neither more nor fewer, with another server.
    pub(crate) fn pass_on(&mut self, range: &Range<usize>, access: Access) -> Option<Arc<PassedInput>> {
        let mut at = 0;
        let element = self.elements.iter_mut().find(|element| {
            let start = at;
            at += element.len();
            start == range.start && at == range.end && start < at
        })?;
        let scheme = element.receipt().asked;
        element.transfer = match std::mem::replace(&mut element.transfer, Transfer::None(scheme)) {
            Transfer::In(input) => Transfer::Passed(Arc::new(PassedInput::new(input, access))),
            other => other,
        };
        match &mut element.transfer {
            Transfer::Passed(input) => Some(Arc::clone(input)),
            Transfer::Located(located) => located.pass_on(),
            Transfer::In(_) | Transfer::Out(_) | Transfer::None(_) => None,
        }
    }
}

impl Work {
    /// Takes the inputs that were passed on out of other hands: no fragment is left.
    pub(crate) fn take_back(&mut self) {
        for element in self.buffers.iter_mut().flat_map(|buffer| &mut buffer.elements) {
            if let Transfer::Passed(passed) = &element.transfer
                && let Some(input) = passed.take()
            {
                element.transfer = Transfer::In(input);
            }
        }
    }
}
