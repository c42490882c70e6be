//! A request's buffers and their elements under way, each by itself: what all of them go through together is [`super::Work`]'s.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Buffer, Direction, Segments};
use genie_passing::{Input, Output, Receipt, Scheme};
use smallvec::SmallVec;

use crate::Error;
use crate::incoming::Origin;
use crate::lent::{Lent, LentTransfer, Places};
use crate::passed::PassedInput;
use crate::reply::{ReplyElement, Returned};

/// One of a request's buffers.
#[derive(Debug)]
pub(crate) struct WorkBuffer {
    pub(crate) direction: Direction,
    pub(crate) argument: SmallVec<[u8; 32]>,
    pub(crate) reply_argument: SmallVec<[u8; 16]>,
    pub(crate) room: usize,
    pub(crate) actual: usize,
    pub(crate) elements: SmallVec<[WorkElement; 1]>,
}

/// One of a buffer's elements.
#[derive(Debug)]
pub(crate) struct WorkElement {
    pub(crate) transfer: Transfer,
    /// The native buffer that was given by value, and the part that is passed.
    pub(super) held: Option<(Buffer, Range<usize>)>,
    pub(super) returned: Returned,
}

/// How an element's data is passed.
#[derive(Debug)]
pub(crate) enum Transfer {
    Out(Box<Output>),
    In(Box<Input>),
    /// An input that the server has passed on, until its reply takes effect.
    Passed(Arc<PassedInput>),
    /// Data that was passed before, and is lent to this request's server.
    Lent(Box<LentTransfer>),
    /// An element of a request that was refused.
    None(Receipt),
}

impl WorkElement {
    /// An element of data that was passed before.
    pub(crate) fn lent(lent: Box<LentTransfer>) -> Self {
        Self { transfer: Transfer::Lent(lent), held: None, returned: Returned::Nothing }
    }

    pub(crate) fn receipt(&self) -> Receipt {
        match &self.transfer {
            Transfer::Out(output) => *output.receipt(),
            Transfer::In(input) => *input.receipt(),
            Transfer::Passed(input) => input.receipt().unwrap_or(Receipt::new(Scheme::Fragment)),
            Transfer::Lent(lent) => *lent.receipt(),
            Transfer::None(receipt) => *receipt,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.transfer {
            Transfer::Out(output) => output.len(),
            Transfer::In(input) => input.len(),
            Transfer::Passed(input) => input.len(),
            Transfer::Lent(lent) => lent.len(),
            Transfer::None(_) => 0,
        }
    }

    /// Whether the client's memory is delivered to when the client takes the reply.
    pub(crate) fn is_borrowed_input(&self) -> bool {
        self.held.is_none()
            && match &self.transfer {
                Transfer::In(input) => {
                    input.receipt().asked.allocation() == genie_passing::model::Allocation::Native
                }
                _ => false,
            }
    }

    /// Runs the reply-time operations of an output.
    pub(super) fn finish_output(&mut self, succeeded: bool) -> Result<(), Error> {
        match &mut self.transfer {
            Transfer::Out(output) if succeeded => output.complete()?,
            Transfer::Out(output) => {
                self.returned = output.fail().map_or(Returned::Nothing, Returned::Migrant);
            }
            Transfer::In(_) | Transfer::Passed(_) | Transfer::Lent(_) | Transfer::None(_) => {}
        }
        Ok(())
    }

    /// Runs the reply-time operations of an input of `actual` bytes, into the client's `bytes` if it lent any.
    pub(super) fn finish_input(&mut self, actual: usize, bytes: Option<&mut [u8]>) -> Result<(), Error> {
        let input = match &mut self.transfer {
            Transfer::In(input) => input,
            Transfer::Lent(lent) => return lent.bring(actual),
            Transfer::Out(_) | Transfer::Passed(_) | Transfer::None(_) => return Ok(()),
        };
        let bytes = match &mut self.held {
            Some((buffer, range)) => Some(&mut buffer[range.clone()]),
            None => bytes,
        };
        self.returned = input.deliver(actual, bytes)?.map_or(Returned::Nothing, Returned::Migrant);
        Ok(())
    }

    /// Lets go of what is left. The memory of what passed the data is kept.
    #[inline]
    pub(super) fn end(&mut self) {
        let over = Transfer::None(Receipt::new(Scheme::Fragment));
        match std::mem::replace(&mut self.transfer, over) {
            Transfer::Out(output) => output.end(),
            Transfer::In(input) => input.end(),
            Transfer::Lent(lent) => lent.end(),
            Transfer::Passed(_) | Transfer::None(_) => {}
        }
    }

    /// What the client gets. What is still under way is undone before its buffer comes back.
    pub(super) fn give_back(&mut self) -> ReplyElement {
        let receipt = self.receipt();
        if let Transfer::In(input) = &mut self.transfer {
            input.cancel();
        }
        let returned = match self.held.take() {
            Some((buffer, _)) => Returned::Buffer(buffer),
            None => std::mem::take(&mut self.returned),
        };
        ReplyElement { receipt, returned }
    }
}

impl WorkBuffer {
    /// A buffer without elements yet.
    #[inline]
    pub(crate) fn new(direction: Direction, argument: &[u8], room: usize) -> Self {
        Self {
            direction,
            argument: SmallVec::from_slice(argument),
            reply_argument: SmallVec::new(),
            room,
            actual: 0,
            elements: SmallVec::new(),
        }
    }

    /// Bytes in all elements together.
    pub(crate) fn len(&self) -> usize {
        self.elements.iter().map(WorkElement::len).sum()
    }

    /// Ends what is mapped for the time of the request only.
    pub(crate) fn let_go(&mut self) {
        for element in &mut self.elements {
            if let Transfer::Lent(lent) = &mut element.transfer {
                lent.let_go();
            }
        }
    }

    /// Where the data is, for another server to be lent it.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn places(&self, origin: &Origin) -> Result<Places, Error> {
        let mut all = Places::new();
        for element in &self.elements {
            match &element.transfer {
                Transfer::Out(output) => all.push(Lent::Here(output.segments())),
                Transfer::In(input) => all.push(Lent::Here(input.segments())),
                // What the contractor may look at need not be for others to see.
                Transfer::Passed(input) => all.push(Lent::Here(input.ready()?)),
                Transfer::Lent(lent) => all.extend(lent.places(origin)),
                Transfer::None(_) => {}
            }
        }
        Ok(all)
    }

    /// The data, element after element.
    pub(crate) fn segments(&self) -> Segments {
        let segments = |element: &WorkElement| match &element.transfer {
            Transfer::Out(output) => output.segments(),
            Transfer::In(input) => input.segments(),
            Transfer::Passed(input) => input.seen(),
            Transfer::Lent(lent) => lent.segments(),
            Transfer::None(_) => Segments::new(),
        };
        let mut all = self.elements.first().map(segments).unwrap_or_default();
        self.elements.iter().skip(1).for_each(|element| all.extend_from_slice(&segments(element)));
        all
    }
}
