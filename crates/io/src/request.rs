//! Requests, as clients compose them.
//!
//! Source: thesis §7.1 (`io_request`), §7.3 (buffer headers).

use std::time::Duration;

use smallvec::SmallVec;

use crate::{Failed, In, Interface, Out, Pending, Reply, ServerHandle, ServiceId};

/// A request under composition: a server, a service, a timeout, and buffers, each with arguments and elements.
///
/// Buffers are begun by [`Request::out`] and [`Request::input`]; [`Request::and_out`] and [`Request::and_input`] add
/// elements to the last one, and [`Request::argument`] and [`Request::room`] set its arguments.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent or submitted"]
pub struct Request<'r, 'o, 'i> {
    pub(crate) interface: &'r Interface,
    pub(crate) server: &'r ServerHandle,
    pub(crate) service: ServiceId,
    pub(crate) timeout: Option<Duration>,
    pub(crate) buffers: SmallVec<[RequestBuffer<'o, 'i>; 1]>,
}

/// One buffer of a request.
#[derive(Debug)]
pub(crate) struct RequestBuffer<'o, 'i> {
    pub(crate) argument: &'o [u8],
    pub(crate) room: usize,
    pub(crate) elements: Elements<'o, 'i>,
}

#[derive(Debug)]
pub(crate) enum Elements<'o, 'i> {
    Out(SmallVec<[Out<'o>; 1]>),
    In(SmallVec<[In<'i>; 1]>),
}

impl<'r, 'o, 'i> Request<'r, 'o, 'i> {
    #[inline]
    pub(crate) fn new(interface: &'r Interface, server: &'r ServerHandle, service: ServiceId) -> Self {
        Self { interface, server, service, timeout: None, buffers: SmallVec::new() }
    }

    /// Limits the time for completing the request; when it is over, the request is aborted.
    #[inline]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Begins an output buffer with one element.
    #[inline]
    pub fn out(self, element: Out<'o>) -> Self {
        self.buffer(Elements::Out(SmallVec::from_iter([element])))
    }

    /// Begins an input buffer with one element.
    #[inline]
    pub fn input(self, element: In<'i>) -> Self {
        self.buffer(Elements::In(SmallVec::from_iter([element])))
    }

    /// Begins an output buffer without elements, for arguments alone.
    pub fn arguments(self) -> Self {
        self.buffer(Elements::Out(SmallVec::new()))
    }

    /// Adds an element to the last buffer, an output one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for input.
    pub fn and_out(mut self, element: Out<'o>) -> Self {
        match self.buffers.last_mut().map(|buffer| &mut buffer.elements) {
            Some(Elements::Out(elements)) => elements.push(element),
            _ => panic!("and_out adds to an output buffer; begin one by out"),
        }
        self
    }

    /// Adds an element to the last buffer, an input one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for output.
    pub fn and_input(mut self, element: In<'i>) -> Self {
        match self.buffers.last_mut().map(|buffer| &mut buffer.elements) {
            Some(Elements::In(elements)) => elements.push(element),
            _ => panic!("and_input adds to an input buffer; begin one by input"),
        }
        self
    }

    /// Sets the argument that is passed to the server with the last buffer.
    ///
    /// # Panics
    /// When there is no buffer yet.
    #[inline]
    pub fn argument(mut self, argument: &'o [u8]) -> Self {
        self.last().argument = argument;
        self
    }

    /// Makes room for an argument of at most `len` bytes that the server passes back with the last buffer.
    ///
    /// # Panics
    /// When there is no buffer yet.
    #[inline]
    pub fn room(mut self, len: usize) -> Self {
        self.last().room = len;
        self
    }

    /// Makes the request and waits for the reply: a synchronous request.
    ///
    /// # Errors
    /// See [`crate::Error`]; buffers that were given by value come back in [`Failed`].
    #[inline]
    pub fn send(self) -> Result<Reply, Failed> {
        let interface = self.interface;
        interface.send(self)
    }

    /// Makes the request without waiting: an asynchronous request. The outputs' memory may be reused at once; the
    /// inputs' is borrowed until the reply is taken.
    ///
    /// # Errors
    /// As [`Request::send`], as far as they are known at once; [`crate::Error::Exhausted`] where `send` would wait.
    #[inline]
    pub fn submit(self) -> Result<Pending<'i>, Failed> {
        let interface = self.interface;
        interface.submit(self)
    }

    #[inline]
    fn buffer(mut self, elements: Elements<'o, 'i>) -> Self {
        self.buffers.push(RequestBuffer { argument: &[], room: 0, elements });
        self
    }

    fn last(&mut self) -> &mut RequestBuffer<'o, 'i> {
        self.buffers.last_mut().expect("begin a buffer before setting its arguments")
    }

    /// Bytes in all buffers together.
    pub(crate) fn bytes(&self) -> usize {
        self.buffers
            .iter()
            .map(|buffer| match &buffer.elements {
                Elements::Out(elements) => elements.iter().map(Out::len).fold(0, usize::saturating_add),
                Elements::In(elements) => elements.iter().map(In::len).fold(0, usize::saturating_add),
            })
            .fold(0, usize::saturating_add)
    }
}
