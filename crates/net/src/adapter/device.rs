//! The receiving side of any adapter, as its driver sees it.

use genie_passing::Preferred;

use super::program::Program;
use super::received::Received;
use super::segment::{Port, Posting, PostingId, Segment};
use crate::Frame;
use crate::frame::Tally;

/// How far an adapter supports copy avoidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Support {
    /// One scatter list for all ports (§6.1).
    Pooled,
    /// One list for headers, and one for all else (§6.2).
    Splitting,
    /// A list for each port (§6.4).
    EarlyDemultiplexing,
    /// A list for each port whose segments are whole requests' buffering, and lists for headers and trailers (§6.5), by the device or by
    /// software.
    SnapOff,
    /// Memory of its own (§6.6).
    Outboard,
}

/// Why an adapter has dropped a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Dropped {
    /// No buffer was left for it.
    #[error("no buffer was left for the frame")]
    NoBuffers,
}

/// What an adapter has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were stored.
    pub packets: u64,
    /// How many bytes of them: the wire's copies, which stand for DMA.
    pub stored: u64,
    /// Frames that were dropped for want of buffers.
    pub no_buffers: u64,
}

/// What of an adapter is free: without a limit, by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Segments of its pool.
    pub segments: usize,
    /// Bytes of these, or of the adapter's own memory.
    pub bytes: usize,
}

impl Default for Free {
    fn default() -> Self {
        Self { segments: usize::MAX, bytes: usize::MAX }
    }
}

/// Why buffering could not be posted; it comes back.
#[derive(Debug)]
pub struct NotPosted(pub Posting);

/// How the packets of a port follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Each has a request's buffering for itself, as datagrams do.
    SinglePacket,
    /// They follow each other without a gap, as the parts of a stream do.
    MultiplePacket,
}

/// What was at the adapter when buffering was amended.
#[derive(Debug)]
pub struct Amended {
    /// How many bytes were stored in the buffering before: the new one has room for them at its beginning, and is filled behind that.
    pub received: usize,
    /// The buffering that waited.
    pub before: Vec<Posting>,
}

/// The receiving side of an adapter.
pub trait Adapter: Send {
    /// Its level of support.
    fn support(&self) -> Support;

    /// Stores a frame that arrives.
    ///
    /// # Errors
    /// Why it was dropped.
    fn arrive(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped>;

    /// The same, and sums the frame's bytes as it stores them, each by [`Frame::store`] or [`Frame::store_bytes`] and once
    /// ([`Received::sum`]). It need not know what they mean. Of an adapter that cannot sum, the driver gets no sum.
    ///
    /// # Errors
    /// As [`Adapter::arrive`].
    ///
    /// # Source
    /// Thesis §6.7.
    fn arrive_summed(&mut self, frame: &Frame<'_>) -> Result<Received, Dropped> {
        let tally = Tally::default();
        let received = self.arrive(&frame.tallied(&tally))?;
        Ok(Received { sum: Some(tally.sum()), ..received })
    }

    /// Adds a request's buffering to its port's list, at the tail, or at the head if it is to be filled next.
    ///
    /// # Errors
    /// The adapter keeps no lists for ports, or has no room for more.
    fn post(&mut self, port: Port, posting: Posting, at_head: bool) -> Result<(), NotPosted> {
        let _ = (port, at_head);
        Err(NotPosted(posting))
    }

    /// Takes a request's buffering back, filled or not; nothing is stored there from now on.
    fn reclaim(&mut self, port: Port, id: PostingId) -> Option<Posting> {
        let _ = (port, id);
        None
    }

    /// A segment of a request's buffering that is with the adapter.
    fn segment(&self, port: Port, id: PostingId, segment: usize) -> Option<&Segment> {
        let _ = (port, id, segment);
        None
    }

    /// Puts other buffering in place of what waits at a port (§6.5, amendment).
    ///
    /// # Errors
    /// The adapter has no snap-off, the buffering is too short for what was received, or, in software, the driver has packets of the port
    /// that it has not [processed](Adapter::processed).
    fn amend(&mut self, port: Port, posting: Posting) -> Result<Amended, NotPosted> {
        let _ = port;
        Err(NotPosted(posting))
    }

    /// Says how a port's packets follow each other; false if the adapter knows no such difference.
    fn set_mode(&mut self, port: Port, mode: Mode) -> bool {
        let _ = (port, mode);
        false
    }

    /// Has what a program finds behind the headers of a port's packets, and in front of their trailers, taken off, too; or nothing any more.
    /// It sees no other port's. An adapter that looks at no ports ignores it.
    fn set_program(&mut self, port: Port, program: Option<Program>) {
        let _ = (port, program);
    }

    /// Hears, once for each packet, that the driver has processed it: it may now correct what the device has left of the packet's buffering.
    fn processed(&mut self, received: &Received) {
        let _ = received;
    }

    /// Whether it stores headers apart from data.
    fn takes_headers(&self) -> bool {
        false
    }

    /// How clients should lay out input buffers for packets with `len` bytes of data behind `header` bytes, so that data can change places
    /// with them.
    fn preferred(&self, header: usize, len: usize) -> Preferred {
        let offset = if self.support() == Support::Pooled { header } else { 0 };
        Preferred { offset, len, ..Preferred::default() }
    }

    /// What is free for packets that nobody has asked for. A server has fewer than these wait for their requests.
    fn free(&self) -> Free {
        Free::default()
    }

    /// What it has done so far.
    fn counters(&self) -> Counters;
}

impl Counters {
    /// Counts a frame of `len` bytes that was stored, or dropped.
    pub(crate) fn stored<T>(&mut self, len: usize, result: Result<T, Dropped>) -> Result<T, Dropped> {
        match &result {
            Ok(_) => {
                self.packets += 1;
                self.stored += len as u64;
            }
            Err(Dropped::NoBuffers) => self.no_buffers += 1,
        }
        result
    }
}
