//! Rings of buffers: a fixed number of buffers that take turns in requests in flight.

use std::collections::VecDeque;
use std::fmt;

use genie_io::{Failed, Interface, Pending, Reply};
use genie_memory::Buffer;

/// Buffers that take turns in requests in flight, the oldest first: as many requests are pending as there are buffers.
///
/// A buffer is in the ring, in a request, or in the hands of the program, which fills or uses it. Requests own their buffers:
/// replies bring them back, so that nothing is borrowed from one turn to the next. Replies and errors come in the order in which
/// requests were pushed.
///
/// ```
/// # mod genie { pub use genie_io::*; pub use genie_passing::Scheme; pub use genie_series::BufferRing; }
/// # use genie::servers::memory;
/// use genie::{BufferRing, In, Interface, Scheme, ServerHandle};
///
/// # fn main() -> Result<(), genie::Error> {
/// let genie = Interface::open()?;
/// let server = ServerHandle::new(memory::Memory::customized());
/// let mut ring = BufferRing::new(&genie, 3, 1 << 20);
/// let mut frames = 0;
/// for _ in 0..20 {
///     let (buffer, reply) = ring.take()?;
///     if let Some(reply) = reply {
///         frames += 1; // the frame is in `buffer`, `reply.actual()` bytes
///     }
///     let request = genie.request(&server, memory::SOURCE).argument(&[7]);
///     ring.push(request.input(In::owned(Scheme::EmulatedCopy, buffer)).submit()?);
/// }
/// while let Some((buffer, reply)) = ring.oldest()? {
///     frames += 1;
/// }
/// assert_eq!(frames, 20);
/// # Ok(())
/// # }
/// ```
pub struct BufferRing {
    genie: Interface,
    count: usize,
    len: usize,
    free: Vec<Buffer>,
    in_flight: VecDeque<(Pending<'static>, Option<Buffer>)>,
}

impl BufferRing {
    /// A ring of `count` buffers, at least one, of `len` bytes each. They are allocated when they are first needed; one that does
    /// not come back from a failed request is replaced.
    pub fn new(genie: &Interface, count: usize, len: usize) -> Self {
        Self { genie: genie.clone(), count: count.max(1), len, free: Vec::new(), in_flight: VecDeque::new() }
    }

    /// The next buffer: a free one, or if all are in requests, the one of the oldest request, whose reply this waits for and
    /// returns, too.
    ///
    /// # Errors
    /// There is no memory; or the oldest request failed. Its buffer is free then, if it came back.
    pub fn take(&mut self) -> Result<(Buffer, Option<Reply>), Failed> {
        if let Some(buffer) = self.free.pop() {
            return Ok((buffer, None));
        }
        if self.is_full()
            && let Some((buffer, reply)) = self.oldest()?
        {
            return Ok((buffer, Some(reply)));
        }
        Ok((self.genie.allocate(self.len)?, None))
    }

    /// Adds a request that owns a buffer of this ring; its reply brings the buffer back. If the request owns several buffers,
    /// the ring takes the first that comes back, and the reply has the others ([`Reply::take_buffer`]): give the ring's buffer
    /// first.
    pub fn push(&mut self, pending: Pending<'static>) {
        self.in_flight.push_back((pending, None));
    }

    /// Adds a request that has read a buffer of this ring, but does not own it: one whose output is a copy of it, say.
    pub fn push_with(&mut self, pending: Pending<'static>, buffer: Buffer) {
        self.in_flight.push_back((pending, Some(buffer)));
    }

    /// Gives back a buffer that no request needs now.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// Waits for the reply of the oldest request, and returns it with its buffer; none if no request is in flight.
    ///
    /// # Errors
    /// The request failed. Its buffer is free then, if it came back. Or the request succeeded without bringing a buffer back, and
    /// there is no memory for another one: its reply is lost.
    pub fn oldest(&mut self) -> Result<Option<(Buffer, Reply)>, Failed> {
        let Some((pending, kept)) = self.in_flight.pop_front() else { return Ok(None) };
        match pending.sync() {
            Ok(mut reply) => match kept.or_else(|| reply.take_buffer()) {
                Some(buffer) => Ok(Some((buffer, reply))),
                None => Ok(Some((self.genie.allocate(self.len)?, reply))),
            },
            Err(mut failed) => {
                self.free.extend(kept.or_else(|| failed.take_buffer()));
                Err(failed)
            }
        }
    }

    /// The request whose reply [`BufferRing::take`] would wait for: for programs that await it first.
    pub fn awaited(&self) -> Option<&Pending<'static>> {
        self.front().filter(|_| self.free.is_empty() && self.is_full())
    }

    /// Takes out the oldest request, and forgets its buffer.
    pub(crate) fn forget_oldest(&mut self) -> Option<Pending<'static>> {
        self.in_flight.pop_front().map(|(pending, _)| pending)
    }

    /// The oldest request.
    pub(crate) fn front(&self) -> Option<&Pending<'static>> {
        self.in_flight.front().map(|(pending, _)| pending)
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn is_full(&self) -> bool {
        self.in_flight.len() >= self.count
    }
}

impl fmt::Debug for BufferRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferRing({} of {} in flight)", self.in_flight.len(), self.count)
    }
}
