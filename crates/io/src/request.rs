//! Requests, as clients compose them.
//!
//! How: functions that compose a request are always inlined; otherwise each step would copy the request through memory.
//! Source: thesis §7.1 (`io_request`), §7.3 (buffer headers).

pub(crate) mod batch;
pub(crate) mod element;
pub(crate) mod id;
pub(crate) mod pending;

use std::task::{Context, Poll};
use std::time::Duration;

use genie_memory::Space;
use genie_passing::CARRIED;

use crate::request::element::{Borrowed, Element, Memory, Moved};
use crate::work::{MAX_CARRIED, Work, carried_room};
use crate::{Error, Failed, In, Interface, Out, Pending, Reply, Returned, ServerHandle, ServiceId};

/// A request under composition: a server, a service, a timeout, an argument, and buffers, each with its elements.
///
/// Buffers are begun by [`Request::out`] and [`Request::input`]; [`Request::and_out`] and [`Request::and_input`] add
/// elements to the last one. The server knows the buffers by their numbers, from 0 on, outputs and inputs together.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent or submitted"]
pub struct Request<'r, 'o, 'i> {
    pub(crate) interface: &'r Interface,
    pub(crate) server: &'r ServerHandle,
    pub(crate) service: ServiceId,
    pub(crate) timeout: Option<Duration>,
    pub(crate) argument: &'o [u8],
    pub(crate) room: usize,
    /// Dropping the pending request aborts it.
    pub(crate) aborts: bool,
    /// The server is told of it later, by [`ServerHandle::tell`].
    pub(crate) is_told_later: bool,
    pub(crate) buffers: Buffers<'o, 'i>,
}

/// A request's buffers. The first and the last one are fields of their own, and so is a buffer's only element: an element of a
/// vector, even of a small one, has an address, and each step would copy it from one vector to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers<'o, 'i> {
    /// None unless there are several.
    first: Option<Elements<'o, 'i>>,
    between: Vec<Elements<'o, 'i>>,
    last: Option<Elements<'o, 'i>>,
}

impl<'o, 'i> Buffers<'o, 'i> {
    /// All of them, in order.
    fn iter(&self) -> impl Iterator<Item = &Elements<'o, 'i>> {
        self.first.iter().chain(&self.between).chain(&self.last)
    }

    /// Calls `see` with each buffer, in order.
    #[inline]
    fn each(&self, mut see: impl FnMut(&Elements<'o, 'i>)) {
        self.first.iter().for_each(&mut see);
        self.between.iter().for_each(&mut see);
        self.last.iter().for_each(see);
    }

    /// Has `take` take out what each buffer holds, in order, and lets the buffers go. It returns whether it has left nothing that would
    /// have to be dropped.
    #[inline]
    pub(crate) fn take_each(&mut self, mut take: impl FnMut(&mut Elements<'o, 'i>) -> bool) {
        let mut take_out = |buffer: &mut Option<Elements<'o, 'i>>| match buffer.as_mut().map(&mut take) {
            Some(true) => std::mem::forget(buffer.take()),
            Some(false) => *buffer = None,
            None => {}
        };
        take_out(&mut self.first);
        self.between.drain(..).for_each(|buffer| take_out(&mut Some(buffer)));
        take_out(&mut self.last);
    }

    /// Begins another buffer.
    fn add(&mut self, buffer: Elements<'o, 'i>) {
        let before = self.last.replace(buffer);
        match self.first {
            None => self.first = before,
            Some(_) => self.between.extend(before),
        }
    }

    #[inline]
    fn count(&self) -> usize {
        usize::from(self.first.is_some()) + self.between.len() + usize::from(self.last.is_some())
    }
}

/// The elements of one buffer of a request.
#[derive(Debug)]
pub(crate) enum Elements<'o, 'i> {
    Out(List<Out<'o>>),
    In(List<In<'i>>),
}

/// A buffer's elements of one direction.
#[derive(Debug)]
pub(crate) enum List<E> {
    One(E),
    Several(Vec<E>),
}

impl<E> List<E> {
    #[inline]
    fn iter(&self) -> std::slice::Iter<'_, E> {
        match self {
            Self::One(element) => std::slice::from_ref(element).iter(),
            Self::Several(elements) => elements.iter(),
        }
    }

    /// Takes all elements out, in order.
    pub(crate) fn take_each(&mut self, mut act: impl FnMut(E)) {
        match std::mem::replace(self, Self::Several(Vec::new())) {
            Self::One(element) => act(element),
            Self::Several(elements) => elements.into_iter().for_each(act),
        }
    }

    fn add(&mut self, element: E) {
        *self = match std::mem::replace(self, Self::Several(Vec::new())) {
            Self::One(first) => Self::Several(vec![first, element]),
            Self::Several(mut elements) => {
                elements.push(element);
                Self::Several(elements)
            }
        };
    }
}

impl<B: Borrowed, M: Moved> List<Element<B, M>> {
    /// The first lender that can't serve requests with memory of this space, among those that elements name.
    fn foreign_lender(&self, space: &Space) -> Option<&ServerHandle> {
        self.iter().filter_map(|element| element.lender.as_deref()).find(|lender| !lender.is_of(space))
    }
}

impl<'r, 'o, 'i> Request<'r, 'o, 'i> {
    #[inline(always)]
    pub(crate) fn new(interface: &'r Interface, server: &'r ServerHandle, service: ServiceId) -> Self {
        Self {
            interface,
            server,
            service,
            timeout: None,
            argument: &[],
            room: 0,
            aborts: false,
            is_told_later: false,
            buffers: Buffers::default(),
        }
    }

    /// Sets a deadline: if there is no reply when this time is over, the request is aborted and fails with
    /// [`Error::TimedOut`], and a later reply does not count. If the limits left no room for the request until then, it was never
    /// sent, and the error says which limit ([`Error::is_congestion`]).
    ///
    /// The error comes at the deadline. But if buffers were given by value, the server has
    /// [`Limits::abort_timeout`](crate::Limits::abort_timeout) (100 ms) more to let them go, so that they come back with the
    /// error; [`Failed::kept`] says if they do not. A server in this process that works in the thread that sends cannot be
    /// interrupted: the error comes when it returns.
    #[inline(always)]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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
        match &mut self.buffers.last {
            Some(Elements::Out(elements)) => elements.add(element),
            _ => panic!("and_out adds to an output buffer; begin one by out"),
        }
        self
    }

    /// Adds an element to the last buffer, an input one.
    ///
    /// # Panics
    /// When there is no buffer yet, or the last one is for output.
    pub fn and_input(mut self, element: In<'i>) -> Self {
        match &mut self.buffers.last {
            Some(Elements::In(elements)) => elements.add(element),
            _ => panic!("and_input adds to an input buffer; begin one by input"),
        }
        self
    }

    /// Adds an element to the last buffer, if that is for output and `is_first` is false; else begins a buffer with it. For requests
    /// that are composed in a loop: unlike [`Request::out`], it does not move the request.
    #[inline(always)]
    pub fn add_out(&mut self, element: Out<'o>, is_first: bool) {
        match self.buffers.last {
            Some(_) => self.add_further_out(element, is_first),
            None => self.buffers.last = Some(Elements::Out(List::One(element))),
        }
    }

    #[inline(never)]
    fn add_further_out(&mut self, element: Out<'o>, is_first: bool) {
        match &mut self.buffers.last {
            Some(Elements::Out(elements)) if !is_first => elements.add(element),
            _ => self.buffers.add(Elements::Out(List::One(element))),
        }
    }

    /// As [`Request::add_out`], for input.
    #[inline(always)]
    pub fn add_input(&mut self, element: In<'i>, is_first: bool) {
        match self.buffers.last {
            Some(_) => self.add_further_input(element, is_first),
            None => self.buffers.last = Some(Elements::In(List::One(element))),
        }
    }

    #[inline(never)]
    fn add_further_input(&mut self, element: In<'i>, is_first: bool) {
        match &mut self.buffers.last {
            Some(Elements::In(elements)) if !is_first => elements.add(element),
            _ => self.buffers.add(Elements::In(List::One(element))),
        }
    }

    /// Takes the buffers that were given by value back, if the request is not to be made after all.
    pub fn take_given(&mut self) -> Vec<Returned> {
        let mut given = Vec::new();
        self.buffers.take_each(|buffer| {
            match buffer {
                Elements::Out(elements) => elements.take_each(|element| match element.memory {
                    Memory::Migrant(migrant) => given.push(Returned::Migrant(migrant)),
                    Memory::Owned(buffer, _) => given.push(Returned::Buffer(buffer)),
                    _ => {}
                }),
                Elements::In(elements) => elements.take_each(|element| {
                    if let Memory::Owned(buffer, _) = element.memory {
                        given.push(Returned::Buffer(buffer));
                    }
                }),
            }
            false
        });
        given
    }

    /// Sets the argument: some bytes that tell the server what to do. They are copied. Without this the argument is empty.
    ///
    /// A server in another process takes requests of up to 128 KiB, unless it has made larger rings: the argument, and some bytes for
    /// each buffer and element ([`Error::TooManyParts`]). Pass more than that in a buffer.
    #[inline(always)]
    pub fn argument(mut self, argument: &'o [u8]) -> Self {
        self.argument = argument;
        self
    }

    /// Makes room for an argument of at most `len` bytes that comes back with the reply: see
    /// [`Reply::argument`](crate::Reply::argument). Without this there is room for none, and a server that gives one back
    /// fails the request with [`Error::ArgumentTooLong`].
    ///
    /// A reply takes 128 KiB at most, too: see [`Request::argument`]. A longer one fails the request, with the code of `EMSGSIZE`.
    #[inline(always)]
    pub fn room(mut self, len: usize) -> Self {
        self.room = len;
        self
    }

    /// Has the request aborted when it is dropped before its reply is there: the [`Pending`] of [`Request::submit`], or a future
    /// that awaits the reply. See [`Pending::abort_on_drop`].
    #[inline(always)]
    pub fn abort_on_drop(mut self) -> Self {
        self.aborts = true;
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
        self.send_added()
    }

    /// As [`Request::send`], for requests that are composed in a loop: it takes the buffers out of the request, and does not move
    /// the request.
    ///
    /// # Errors
    /// As [`Request::send`].
    #[inline(always)]
    pub fn send_added(&mut self) -> Result<Reply, Failed> {
        self.interface.send(self)
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
    pub fn submit(self) -> Result<Pending<'i>, Failed> {
        let interface = self.interface;
        interface.submit(self)
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
    pub fn submit_when_room(self) -> Result<Pending<'i>, Failed> {
        let interface = self.interface;
        interface.submit_when_room(self)
    }

    /// Whether the limits of the interface and the server leave room for the request now, or never will. Another thread may take
    /// the room before the request is submitted.
    pub fn has_room(&self) -> bool {
        let bytes = self.sum().bytes;
        self.server.has_room(bytes, self.longest_record()) && self.interface.has_room(bytes)
    }

    /// As [`Request::has_room`]; if there is no room, the task is woken when there may be. As with [`Pending::poll`], some thread must wait for a reply or call
    /// [`Interface::collect`].
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let bytes = self.sum().bytes;
        let there = self.server.poll_room(bytes, self.longest_record(), context.waker());
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
            return Err(Work::refuse(&mut self, Error::OtherInterface { server }));
        }
        self.submit()
    }

    #[inline(always)]
    fn buffer(mut self, buffer: Elements<'o, 'i>) -> Self {
        if self.buffers.last.is_some() {
            return self.further(buffer);
        }
        self.buffers.last = Some(buffer);
        self
    }

    /// Begins a buffer after another one. Like everything here that may panic, it is not inlined and takes its arguments by
    /// value: a value that unwinding would have to drop must have an address.
    #[inline(never)]
    fn further(mut self, buffer: Elements<'o, 'i>) -> Self {
        self.buffers.add(buffer);
        self
    }

    /// The first server that can't serve requests with memory of this space, among those that the request and its elements
    /// name.
    #[inline]
    pub(crate) fn foreign_server(&self, sum: &Sum, space: &Space) -> Option<&ServerHandle> {
        match self.server.is_of(space) {
            false => Some(self.server),
            true if sum.names_lenders => self.foreign_lender(space),
            true => None,
        }
    }

    #[cold]
    fn foreign_lender(&self, space: &Space) -> Option<&ServerHandle> {
        self.buffers.iter().find_map(|buffer| match buffer {
            Elements::Out(elements) => elements.foreign_lender(space),
            Elements::In(elements) => elements.foreign_lender(space),
        })
    }

    /// What its elements come to.
    #[inline]
    pub(crate) fn sum(&self) -> Sum {
        let mut sum = Sum { bytes: 0, gives: false, names_lenders: false };
        self.buffers.each(|buffer| match buffer {
            Elements::Out(elements) => elements.iter().for_each(|out| {
                sum.add(out);
                sum.gives |= matches!(out.memory, Memory::Owned(..) | Memory::Migrant(_));
            }),
            Elements::In(elements) => elements.iter().for_each(|input| {
                sum.add(input);
                sum.gives |= matches!(input.memory, Memory::Owned(..));
            }),
        });
        sum
    }

    /// How long the request's record on a channel can be, unless its data lies in very many pieces.
    fn longest_record(&self) -> usize {
        let (mut count, mut carried) = (0, 0);
        let mut see = |len: usize| {
            count += 1;
            carried += if len <= CARRIED { carried_room(len) } else { 0 };
        };
        for buffer in self.buffers.iter() {
            match buffer {
                Elements::Out(elements) => elements.iter().for_each(|element| see(element.len())),
                Elements::In(elements) => elements.iter().for_each(|element| see(element.len())),
            }
        }
        self.argument.len() + 128 * (1 + count) + carried.min(MAX_CARRIED)
    }

    /// How many buffers there are.
    #[inline]
    pub(crate) fn buffers_count(&self) -> usize {
        self.buffers.count()
    }
}

/// What a request's elements come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) bytes: usize,
    /// There are buffers that were given by value.
    pub(crate) gives: bool,
    /// Elements say who lends for them.
    names_lenders: bool,
}

impl Sum {
    #[inline]
    fn add<B: Borrowed, M: Moved>(&mut self, element: &Element<B, M>) {
        self.bytes = self.bytes.saturating_add(element.len());
        self.names_lenders |= element.lender.is_some();
    }
}
