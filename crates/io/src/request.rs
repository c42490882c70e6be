//! Requests, as clients compose them.
//!
//! How: functions that compose a request are always inlined; otherwise each step would copy the request through memory.
//! Source: thesis §7.1 (`io_request`), §7.3 (buffer headers).

pub(crate) mod batch;
pub(crate) mod element;
pub(crate) mod id;
pub(crate) mod pending;
pub(crate) mod plan;

use std::task::{Context, Poll};
use std::time::Duration;

use crate::request::plan::{Elements, List};
use crate::work::Work;
use crate::{Error, Failed, In, Interface, Out, Pending, Plan, Reply, ServerHandle, ServiceId};

/// A request under composition: a server, a service, a timeout, an argument, and buffers, each with its elements.
///
/// Buffers are begun by [`Request::out`] and [`Request::input`]; [`Request::and_out`] and [`Request::and_input`] add
/// elements to the last one. The server knows the buffers by their numbers, from 0 on, outputs and inputs together.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent or submitted"]
pub struct Request<'r, 'o, 'i> {
    interface: &'r Interface,
    server: &'r ServerHandle,
    plan: Plan<'o, 'i>,
}

impl<'r, 'o, 'i> Request<'r, 'o, 'i> {
    #[inline(always)]
    pub(crate) fn new(interface: &'r Interface, server: &'r ServerHandle, service: ServiceId) -> Self {
        Self { interface, server, plan: Plan::new(service) }
    }

    /// Sets a deadline: if there is no reply when this time is over, the request is aborted and fails with
    /// [`Error::TimedOut`], and a later reply does not count. If the limits left no room for the request until then, it was never
    /// sent, and the error says which limit ([`Error::is_congestion`]).
    ///
    /// The error comes at the deadline. But if buffers were given by value, the server has
    /// [`Limits::abort_timeout`](crate::Limits::abort_timeout) (100 ms) more to let them go, so that they come back with the
    /// error; [`Failed::kept`] says if they do not. A server in this process that works in the thread that sends cannot be
    /// interrupted: the error comes when it returns.
    ///
    /// A reply that came in time counts, however late a thread takes it: Genie looks for it before it gives the request up. Replies of
    /// servers in other processes bear no time. So one that came too late may count where this process was stopped (SIGSTOP), or did
    /// not get to run, from before the deadline until after that reply.
    #[inline(always)]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.plan.timeout = Some(timeout);
        self
    }

    /// Begins an output buffer with one element.
    #[inline(always)]
    pub fn out(self, element: Out<'o>) -> Self {
        self.buffer(Elements::Out(List::One(element)))
    }

    /// Begins an input buffer with one element.
    #[inline(always)]
    pub fn input(self, element: In<'i>) -> Self {
        self.buffer(Elements::In(List::One(element)))
    }

    /// Adds an element to the last buffer, an output one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for input.
    pub fn and_out(mut self, element: Out<'o>) -> Self {
        self.plan.and_out(element);
        self
    }

    /// Adds an element to the last buffer, an input one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for output.
    pub fn and_input(mut self, element: In<'i>) -> Self {
        self.plan.and_input(element);
        self
    }

    /// Sets the argument: some bytes that tell the server what to do. They are copied. Without this the argument is empty.
    ///
    /// A server in another process takes requests of up to 128 KiB, unless it has made larger rings: the argument, and some bytes for
    /// each buffer and element ([`Error::TooManyParts`]). Pass more than that in a buffer.
    #[inline(always)]
    pub fn argument(mut self, argument: &'o [u8]) -> Self {
        self.plan.argument = argument;
        self
    }

    /// Makes room for an argument of at most `len` bytes that comes back with the reply: see
    /// [`Reply::argument`](crate::Reply::argument). Without this there is room for none, and a server that gives one back
    /// fails the request with [`Error::ArgumentTooLong`].
    ///
    /// A reply takes 128 KiB at most, too: see [`Request::argument`]. A longer one fails the request, with the code of `EMSGSIZE`.
    #[inline(always)]
    pub fn room(mut self, len: usize) -> Self {
        self.plan.room = len;
        self
    }

    /// Has the request aborted when it is dropped before its reply is there: the [`Pending`] of [`Request::submit`], or a future
    /// that awaits the reply. See [`Pending::abort_on_drop`].
    #[inline(always)]
    pub fn abort_on_drop(mut self) -> Self {
        self.plan.aborts = true;
        self
    }

    /// Makes the request and waits for the reply: a synchronous request.
    ///
    /// When the request's time is over, or its reply is anticipated, the server may still be at work in memory that the request
    /// borrows. Output is then protected, or the granules are replaced, before this returns. Where there is no memory for
    /// that, this returns only when there is some, or when the server has let the data go; so a thread that holds the
    /// [`Incoming`](crate::Incoming) itself had better `submit`.
    ///
    /// # Errors
    /// See [`crate::Error`]; buffers that were given by value come back in [`Failed`].
    #[inline(always)]
    pub fn send(mut self) -> Result<Reply, Failed> {
        self.interface.send(self.server, &mut self.plan)
    }

    /// Makes the request without waiting: an asynchronous request. The outputs' memory may be reused at once; the inputs' is
    /// borrowed until the reply is taken. A `series::BufferRing` keeps several requests in flight.
    ///
    /// # Errors
    /// As [`Request::send`], as far as they are known at once; [`crate::Error::Exhausted`] where `send` would wait.
    ///
    /// # Limits
    /// Where the process is at the kernel's limit of mappings (`vm.max_map_count`), a store into memory whose output is pending
    /// waits until the output ends. If only the storing thread would take the reply, it waits for ever; `genie doctor` tells
    /// the limit.
    #[inline(always)]
    pub fn submit(mut self) -> Result<Pending<'i>, Failed> {
        self.interface.submit(self.server, &mut self.plan)
    }

    /// As [`Request::submit`], but waits for room where the limits of the interface or the server leave none now, at most until
    /// the request's time is over. Meanwhile this takes replies for others.
    ///
    /// The interface counts a request until its reply has been taken ([`Pending::sync`]), a server until it has replied. So
    /// a thread that alone could take a reply may wait for ever for the room of the interface.
    ///
    /// # Errors
    /// As [`Request::submit`], and never for want of room, unless the time is over.
    #[inline(always)]
    pub fn submit_when_room(mut self) -> Result<Pending<'i>, Failed> {
        self.interface.submit_when_room(self.server, &mut self.plan)
    }

    /// Whether the limits of the interface and the server leave room for the request now, or never will. Another thread may take
    /// the room before the request is submitted.
    pub fn has_room(&self) -> bool {
        let bytes = self.plan.sum().bytes;
        self.server.has_room(bytes, self.plan.longest_record()) && self.interface.has_room(bytes)
    }

    /// As [`Request::has_room`]; if there is no room, the task is woken when there may be. As with [`Pending::poll`], some thread must wait for a reply or call
    /// [`Interface::collect`].
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let bytes = self.plan.sum().bytes;
        let there = self.server.poll_room(bytes, self.plan.longest_record(), context.waker());
        let here = self.interface.poll_room(bytes, context);
        if there && here { Poll::Ready(()) } else { Poll::Pending }
    }

    /// As [`Request::submit`], for a program that takes the replies of `interface` alone: a request of another one is refused.
    ///
    /// # Errors
    /// As [`Request::submit`]; [`crate::Error::OtherInterface`].
    pub fn submit_by(mut self, interface: &Interface) -> Result<Pending<'i>, Failed> {
        if !self.interface.is(interface) {
            let server = self.server.name().to_owned();
            return Err(Work::refuse(
                self.interface,
                self.server,
                &mut self.plan,
                Error::OtherInterface { server },
            ));
        }
        self.submit()
    }

    #[inline(always)]
    fn buffer(mut self, buffer: Elements<'o, 'i>) -> Self {
        if self.plan.buffers.is_next_in_place() {
            self.plan.buffers.begin(buffer);
            return self;
        }
        self.further(buffer)
    }

    /// Begins a buffer after two others. Like everything here that may panic, it is not inlined and takes its arguments by
    /// value: a value that unwinding would have to drop must have an address.
    #[inline(never)]
    fn further(mut self, buffer: Elements<'o, 'i>) -> Self {
        self.plan.buffers.begin(buffer);
        self
    }
}

impl<'i> Plan<'_, 'i> {
    /// Makes the request and waits for the reply; see [`Request::send`]. Then there are no buffers in the plan.
    ///
    /// # Errors
    /// As [`Request::send`].
    #[inline(always)]
    pub fn send(&mut self, interface: &Interface, server: &ServerHandle) -> Result<Reply, Failed> {
        interface.send(server, self)
    }

    /// Makes the request without waiting; see [`Request::submit`]. Then there are no buffers in the plan.
    ///
    /// # Errors
    /// As [`Request::submit`].
    #[inline(always)]
    pub fn submit(&mut self, interface: &Interface, server: &ServerHandle) -> Result<Pending<'i>, Failed> {
        interface.submit(server, self)
    }

    /// Makes the request when there is room; see [`Request::submit_when_room`].
    ///
    /// # Errors
    /// As [`Request::submit_when_room`].
    #[inline(always)]
    pub fn submit_when_room(
        &mut self,
        interface: &Interface,
        server: &ServerHandle,
    ) -> Result<Pending<'i>, Failed> {
        interface.submit_when_room(server, self)
    }
}
