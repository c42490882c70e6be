//! Requests, as servers see them.

use std::sync::Arc;

use genie_memory::{Direction, Segments};
use genie_passing::{Outboard, Overlay};

use crate::exchange::Exchange;
use crate::work::{Transfer, Work, WorkBuffer};
use crate::{Error, RequestId, ServerError, Service, ServiceId};

/// A request in a server's hands, which owns its buffers until it replies.
///
/// Output is read from [`Incoming::output`], input is written into what [`Incoming::ready`] returns. Dropping a request
/// is replying with an error.
#[derive(Debug)]
pub struct Incoming {
    work: Option<Box<Work>>,
    exchange: Arc<Exchange>,
    service: ServiceId,
    mapping: Service,
}

/// A request whose client has its reply already, while the server goes on with the outputs; dropping it completes them.
#[derive(Debug)]
pub struct Anticipated(Incoming);

impl Incoming {
    pub(crate) fn new(
        work: Box<Work>,
        exchange: Arc<Exchange>,
        service: ServiceId,
        mapping: Service,
    ) -> Self {
        Self { work: Some(work), exchange, service, mapping }
    }

    /// The request's name, by which the client may abort it.
    pub fn id(&self) -> RequestId {
        self.exchange.id
    }

    /// The service requested.
    pub fn service(&self) -> ServiceId {
        self.service
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> usize {
        self.work().buffers.len()
    }

    /// Which way buffer `index` goes.
    ///
    /// # Errors
    /// There is no such buffer.
    pub fn direction(&self, index: usize) -> Result<Direction, Error> {
        let missing = Error::NoSuchBuffer { index, direction: Direction::Out };
        self.work().buffers.get(index).map(|buffer| buffer.direction).ok_or(missing)
    }

    /// The client's argument of buffer `index`; empty where there is none.
    pub fn argument(&self, index: usize) -> &[u8] {
        self.work().buffers.get(index).map_or(&[], |buffer| &buffer.argument)
    }

    /// Sets the argument that goes back to the client with buffer `index`.
    ///
    /// # Errors
    /// The client gave too little room, or has no such buffer.
    pub fn set_argument(&mut self, index: usize, argument: &[u8]) -> Result<(), Error> {
        let Some(buffer) = self.work_mut().buffers.get_mut(index) else {
            return Err(Error::NoSuchBuffer { index, direction: Direction::In });
        };
        if argument.len() > buffer.room {
            return Err(Error::Argument { len: argument.len(), room: buffer.room });
        }
        buffer.reply_argument = argument.to_vec();
        Ok(())
    }

    /// The number of data bytes that buffer `index` holds or has room for.
    pub fn len(&self, index: usize) -> usize {
        self.work().buffers.get(index).map_or(0, WorkBuffer::len)
    }

    /// How many elements buffer `index` has.
    pub fn elements(&self, index: usize) -> usize {
        self.work().buffers.get(index).map_or(0, |buffer| buffer.elements.len())
    }

    /// How long an argument the client takes back with buffer `index`.
    pub fn room(&self, index: usize) -> usize {
        self.work().buffers.get(index).map_or(0, |buffer| buffer.room)
    }

    /// Whether the request has no buffers.
    pub fn is_empty(&self) -> bool {
        self.work().buffers.is_empty()
    }

    /// The data of output buffer `index`, to be read. Under share and the weak moves the client could still change it.
    ///
    /// # Errors
    /// There is no such output buffer, or the service's mapping flags do not allow reading.
    pub fn output(&self, index: usize) -> Result<Segments, Error> {
        if !self.mapping.reads {
            return Err(Error::Unmapped { service: self.mapping.name, access: "read" });
        }
        Ok(self.buffer(index, Direction::Out)?.segments())
    }

    /// Makes input buffer `index` ready and returns its memory, to be written. To be called when the data is about to
    /// come: until then a request for input holds no system buffer.
    ///
    /// # Errors
    /// There is no such input buffer, the service's mapping flags do not allow writing, or there is no memory.
    pub fn ready(&mut self, index: usize) -> Result<Segments, Error> {
        if !self.mapping.writes {
            return Err(Error::Unmapped { service: self.mapping.name, access: "write" });
        }
        self.buffer(index, Direction::In)?;
        let buffer = &mut self.work_mut().buffers[index];
        for element in &mut buffer.elements {
            if let Transfer::In(input) = &mut element.transfer {
                input.ready()?;
            }
        }
        Ok(buffer.segments())
    }

    /// Overlays a buffer of the server's own, filled already, on element `element` of input buffer `index`, in place of
    /// making that ready.
    ///
    /// # Errors
    /// There is no such input buffer or element.
    ///
    /// # Panics
    /// When the element is ready already.
    pub fn overlay(&mut self, index: usize, element: usize, overlay: Overlay) -> Result<(), Error> {
        self.input_element(index, element)?.overlay(overlay);
        Ok(())
    }

    /// Links data in a device's own memory to element `element` of input buffer `index`, in place of making that ready.
    ///
    /// # Errors
    /// There is no such input buffer or element, or no memory for a host buffer.
    ///
    /// # Panics
    /// When the element is ready already.
    pub fn outboard(
        &mut self,
        index: usize,
        element: usize,
        outboard: Box<dyn Outboard>,
    ) -> Result<(), Error> {
        Ok(self.input_element(index, element)?.outboard(outboard)?)
    }

    /// Says how many bytes of buffer `index` were really passed.
    ///
    /// # Errors
    /// There is no such buffer, or it is shorter.
    pub fn set_actual(&mut self, index: usize, actual: usize) -> Result<(), Error> {
        let len = self.len(index);
        if actual > len {
            return Err(genie_passing::Error::TooLong { actual, len }.into());
        }
        let missing = Error::NoSuchBuffer { index, direction: Direction::In };
        self.work_mut().buffers.get_mut(index).ok_or(missing)?.actual = actual;
        Ok(())
    }

    /// Replies. After a success the outputs' buffers are the client's again, or passed on, and the inputs' data is
    /// delivered when the client takes the reply; after a failure nothing has been passed.
    pub fn reply(mut self, result: Result<(), ServerError>) {
        self.finish(result.err().map(Error::Server));
    }

    /// Replies with success now, and keeps the outputs until the result is dropped. The client must not await data, nor
    /// buffers that it shared; such a request comes back.
    ///
    /// # Errors
    /// The request, when it cannot be anticipated.
    pub fn anticipate(self) -> Result<Anticipated, Self> {
        if !self.work().may_be_anticipated() {
            return Err(self);
        }
        self.exchange.anticipate(self.work().interim());
        Ok(Anticipated(self))
    }

    fn input_element(&mut self, index: usize, element: usize) -> Result<&mut genie_passing::Input, Error> {
        self.buffer(index, Direction::In)?;
        match self.work_mut().buffers[index].elements.get_mut(element).map(|element| &mut element.transfer) {
            Some(Transfer::In(input)) => Ok(input),
            _ => Err(Error::NoSuchBuffer { index, direction: Direction::In }),
        }
    }

    fn buffer(&self, index: usize, direction: Direction) -> Result<&WorkBuffer, Error> {
        self.work()
            .buffers
            .get(index)
            .filter(|buffer| buffer.direction == direction)
            .ok_or(Error::NoSuchBuffer { index, direction })
    }

    fn work(&self) -> &Work {
        self.work.as_deref().expect("a request has its work until it replies")
    }

    fn work_mut(&mut self) -> &mut Work {
        self.work.as_deref_mut().expect("a request has its work until it replies")
    }

    fn finish(&mut self, error: Option<Error>) {
        if let Some(work) = self.work.take() {
            self.exchange.reply(work, error);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.finish(Some(Error::Dropped));
    }
}

impl Anticipated {
    /// The request's name.
    pub fn id(&self) -> RequestId {
        self.0.id()
    }

    /// The data of output buffer `index`.
    ///
    /// # Errors
    /// As [`Incoming::output`].
    pub fn output(&self, index: usize) -> Result<Segments, Error> {
        self.0.output(index)
    }
}

impl Drop for Anticipated {
    fn drop(&mut self) {
        self.0.finish(None);
    }
}
