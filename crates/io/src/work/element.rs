//! The elements of a request's buffers under way, each by itself.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Buffer, Data, DataMut, Migrant};
use genie_passing::model::Allocation;
use genie_passing::{Input, Output, Receipt, Scheme};

use super::{Carried, Store, Work};
use crate::Error;
use crate::reply::{ReplyElement, Returned};
use crate::work::forwarded::ForwardedInput;
use crate::work::located::{Located, PrivateBuffer};
use crate::work::location::Shown;
/// One of a buffer's elements.
#[derive(Debug)]
pub struct WorkElement {
    pub(crate) transfer: Transfer,
    pub(super) kept: Kept,
}

/// What an element holds for the client.
#[derive(Debug)]
pub(super) enum Kept {
    Nothing,
    /// The native buffer that was given by value, and the part that is passed.
    Buffer(Buffer, Range<usize>),
    /// The migrant buffer that arrived, or that a failed output gives back.
    Migrant(Migrant),
}

/// How an element's data is passed.
#[derive(Debug)]
pub(crate) enum Transfer {
    Out(Box<Output>),
    In(Box<Input>),
    /// An input that the server has forwarded, until its reply takes effect.
    Forwarded(Arc<ForwardedInput>),
    /// Data that was passed before, and is shown to this request's server.
    Located(Box<Located>),
    /// Data that travels in the records.
    Carried(Carried),
    /// An element of a request that was refused, or is over.
    None(Scheme),
}

impl WorkElement {
    /// The element as what travels in the records, if it does.
    #[inline]
    pub fn carried(&self) -> Option<&Carried> {
        match &self.transfer {
            Transfer::Carried(carried) => Some(carried),
            _ => None,
        }
    }

    /// Calls `see` with each part of the data of an element that is not carried, in order, when
    /// [`Outgoing::make_ready`](crate::carrier::Outgoing::make_ready) has been called.
    ///
    /// # Errors
    /// The first error of `see`.
    #[inline]
    pub fn each_shown(&self, mut see: impl FnMut(Shown<'_>) -> Result<(), Error>) -> Result<(), Error> {
        match &self.transfer {
            Transfer::Out(output) => see(Shown::Own(&output.segments())),
            Transfer::In(input) => see(Shown::Own(&input.segments())),
            Transfer::Located(located) => located.each_shown(see),
            Transfer::Forwarded(_) | Transfer::Carried(_) | Transfer::None(_) => Ok(()),
        }
    }

    /// The private buffer that a carrier has brought the data in, if it has.
    #[inline]
    pub fn private(&self) -> Option<&PrivateBuffer> {
        match &self.transfer {
            Transfer::Located(located) => located.private(),
            _ => None,
        }
    }

    /// An element of data that was passed before.
    pub(crate) fn located(located: Box<Located>) -> Self {
        Self { transfer: Transfer::Located(located), kept: Kept::Nothing }
    }

    pub(crate) fn receipt(&self) -> Receipt {
        match &self.transfer {
            Transfer::Out(output) => *output.receipt(),
            Transfer::In(input) => *input.receipt(),
            Transfer::Forwarded(input) => input.receipt().unwrap_or(Receipt::new(Scheme::Fragment)),
            Transfer::Located(located) => *located.receipt(),
            Transfer::Carried(carried) => carried.receipt(),
            Transfer::None(scheme) => Receipt::new(*scheme),
        }
    }

    /// The number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "an element without bytes is like any other")]
    pub fn len(&self) -> usize {
        match &self.transfer {
            Transfer::Out(output) => output.len(),
            Transfer::In(input) => input.len(),
            Transfer::Forwarded(input) => input.len(),
            Transfer::Located(located) => located.len(),
            Transfer::Carried(carried) => carried.len(),
            Transfer::None(_) => 0,
        }
    }

    /// Whether it is an input whose data the reply carries.
    pub(super) fn is_carried(&self) -> bool {
        match &self.transfer {
            Transfer::Carried(carried) => carried.is_input(),
            Transfer::Located(located) => located.is_carried(),
            _ => false,
        }
    }

    /// Copies the first bytes of a carried input of `work` ([`Work::each_carried_input`]).
    #[inline]
    pub fn copy_carried(&self, work: &Work, bytes: &mut [u8]) {
        match &self.transfer {
            Transfer::Carried(carried) => carried.peek(&work.store, bytes.len(), bytes),
            Transfer::Located(located) => located.data().copy_to(bytes),
            _ => 0,
        };
    }

    /// How many bytes are copied, as far as is known.
    pub(super) fn copied(&self) -> usize {
        match &self.transfer {
            Transfer::Out(output) => output.receipt().copied,
            Transfer::In(input) if input.receipt().effective == Scheme::Copy => input.len(),
            Transfer::Located(located) => located.receipt().copied,
            Transfer::Carried(carried) => carried.len(),
            Transfer::In(_) | Transfer::Forwarded(_) | Transfer::None(_) => 0,
        }
    }

    #[inline(always)]
    pub(super) fn output<'w>(&'w self, store: &'w Store) -> Data<'w> {
        match &self.transfer {
            Transfer::Carried(carried) => store.data(carried),
            Transfer::Out(output) => output.data(),
            Transfer::Located(located) => located.data(),
            Transfer::In(_) | Transfer::Forwarded(_) | Transfer::None(_) => Data::default(),
        }
    }

    pub(super) fn input<'w>(&'w self, store: &'w Store) -> DataMut<'w> {
        match &self.transfer {
            Transfer::Carried(carried) if carried.is_ready() => store.data_mut(carried),
            Transfer::In(input) => input.data(),
            Transfer::Forwarded(input) => input.data(),
            Transfer::Located(located) => located.data_mut(),
            Transfer::Out(_) | Transfer::Carried(_) | Transfer::None(_) => DataMut::default(),
        }
    }

    /// Whether it has a buffer that was given by value.
    pub(super) fn holds_buffer(&self) -> bool {
        matches!(self.kept, Kept::Buffer(..))
    }

    /// Whether native memory of the client's is delivered to when the client takes the reply.
    pub(crate) fn is_native_input(&self) -> bool {
        match &self.transfer {
            Transfer::In(input) => !is_migrant(input),
            Transfer::Carried(carried) => carried.is_input(),
            _ => false,
        }
    }

    /// Whether that memory is borrowed.
    pub(crate) fn is_borrowed_input(&self) -> bool {
        !self.holds_buffer() && self.is_native_input()
    }

    /// Whether a server has had memory for an input, has said where its data is, or has another server bring the data.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.transfer {
            Transfer::In(input) => input.is_ready(),
            Transfer::Forwarded(_) => true,
            Transfer::Located(located) => located.is_ready(),
            Transfer::Carried(carried) => carried.is_ready(),
            Transfer::Out(_) | Transfer::None(_) => false,
        }
    }

    /// Makes an input ready.
    pub(crate) fn make_ready(&mut self) -> Result<(), Error> {
        match &mut self.transfer {
            Transfer::In(input) => drop(input.ready()?),
            Transfer::Forwarded(input) => input.show()?,
            Transfer::Located(located) => located.ready()?,
            Transfer::Carried(carried) => carried.make_ready(),
            Transfer::Out(_) | Transfer::None(_) => {}
        }
        Ok(())
    }

    /// Runs the reply-time operations of an output.
    pub(super) fn finish_output(&mut self, succeeded: bool) -> Result<(), Error> {
        match &mut self.transfer {
            Transfer::Out(output) if succeeded => output.complete()?,
            Transfer::Out(output) => {
                if let Some(migrant) = output.fail() {
                    self.kept = Kept::Migrant(migrant);
                }
            }
            Transfer::In(_)
            | Transfer::Forwarded(_)
            | Transfer::Located(_)
            | Transfer::Carried(_)
            | Transfer::None(_) => {}
        }
        Ok(())
    }

    /// Whether `actual` bytes of an input can have been passed.
    pub(super) fn check_input(&self, actual: usize) -> Result<(), Error> {
        match &self.transfer {
            Transfer::In(input) => Ok(input.check(actual, None)?),
            Transfer::Located(located) => located.check(actual),
            Transfer::Carried(carried) => carried.check(actual),
            Transfer::Out(_) | Transfer::Forwarded(_) | Transfer::None(_) => Ok(()),
        }
    }

    /// Does the part of an input's delivery that can fail: of `actual` bytes, to `bytes`, or to a buffer given by value. Only after that may the client's native buffers be stored into. A migrant buffer arrives now.
    pub(super) fn prepare_input(&mut self, actual: usize, bytes: Option<&[u8]>) -> Result<(), Error> {
        match &mut self.transfer {
            Transfer::In(input) if is_migrant(input) => {
                self.kept = input.deliver(actual, None)?.map_or(Kept::Nothing, Kept::Migrant);
            }
            Transfer::In(input) => {
                let bytes = bytes.or(match &self.kept {
                    Kept::Buffer(buffer, range) => Some(&buffer[range.clone()]),
                    Kept::Nothing | Kept::Migrant(_) => None,
                });
                input.prepare(actual, bytes)?;
            }
            Transfer::Located(located) => {
                located.check(actual)?;
                located.bring(actual)?;
            }
            Transfer::Carried(carried) => {
                let room = bytes.map(<[u8]>::len).or(match &self.kept {
                    Kept::Buffer(_, range) => Some(range.len()),
                    Kept::Nothing | Kept::Migrant(_) => None,
                });
                carried.check_room(actual, room.unwrap_or(usize::MAX))?;
            }
            Transfer::Out(_) | Transfer::Forwarded(_) | Transfer::None(_) => {}
        }
        Ok(())
    }

    /// Delivers an input of `actual` bytes, prepared or not: to `bytes`, or to a buffer given by value, or as a migrant buffer. If this
    /// fails for an input that was not prepared, nothing has been delivered.
    pub(super) fn finish_input(
        &mut self,
        actual: usize,
        bytes: Option<&mut [u8]>,
        (store, has_losses): (&Store, impl Fn() -> bool),
    ) -> Result<(), Error> {
        if !matches!(self.transfer, Transfer::In(_) | Transfer::Carried(_)) {
            return self.prepare_input(actual, None);
        }
        let bytes = match &mut self.kept {
            Kept::Migrant(_) => return Ok(()),
            Kept::Buffer(buffer, range) => bytes.or_else(|| Some(&mut buffer[range.clone()])),
            Kept::Nothing => bytes,
        };
        match &mut self.transfer {
            Transfer::Carried(carried) => carried.deliver(store, actual, bytes, has_losses)?,
            Transfer::In(input) => {
                if let Some(migrant) = input.deliver(actual, bytes)? {
                    self.kept = Kept::Migrant(migrant);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets go of a migrant buffer that arrived for a request that fails after all.
    pub(super) fn forget_input(&mut self) {
        if matches!(self.kept, Kept::Migrant(_)) {
            self.kept = Kept::Nothing;
        }
    }

    /// Lets go of what is left. The memory of what passed the data is kept.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Transfer::Carried(_) = &self.transfer {
            return;
        }
        let over = Transfer::None(Scheme::Fragment);
        match std::mem::replace(&mut self.transfer, over) {
            Transfer::Out(output) => output.end(),
            Transfer::In(input) => input.end(),
            Transfer::Located(located) => located.end(),
            Transfer::Forwarded(_) | Transfer::Carried(_) | Transfer::None(_) => {}
        }
    }

    /// The element that the client gets. A transfer still under way is undone before its buffer comes back.
    #[inline]
    pub(super) fn give_back(&mut self) -> ReplyElement {
        let receipt = self.receipt();
        if let Transfer::In(input) = &mut self.transfer {
            input.cancel();
        }
        let returned = match std::mem::replace(&mut self.kept, Kept::Nothing) {
            Kept::Buffer(buffer, _) => Returned::Buffer(buffer),
            Kept::Migrant(migrant) => Returned::Migrant(migrant),
            Kept::Nothing => Returned::Nothing,
        };
        ReplyElement { receipt, returned }
    }
}

fn is_migrant(input: &Input) -> bool {
    input.receipt().asked.allocation() == Allocation::Migrant
}
