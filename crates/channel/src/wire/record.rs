//! Records: what the entries of a ring say. Requests and aborts go to the server, progress and replies come back.
//!
//! How: the ring carries a record's kind beside its body. A request has an argument, and lists its buffers, each with its
//! elements, each with the segments of the client's arenas that hold its data; a short element without segments is carried: the
//! bytes of such outputs follow the last buffer, and those of inputs come with the reply. A reply says what came of the request and of
//! each buffer. A writer
//! builds a body in place, without intermediate structures; a decoder checks the whole body and then gives views of it.
//! Decoding functions are always inlined: to return a view through memory would take longer than the checks.
//! Invariants: a request of one buffer with one segment and an argument of ten bytes fits into one line of a ring, and so
//! does the reply to up to six buffers.
//! Limits: [`MAX_BUFFERS`], [`MAX_SEGMENTS`], [`MAX_CARRIED`], [`super::MAX_OFFSET`] bytes in a request, [`MAX_SENTENCE`].
//! Source: thesis §7.1 to §7.3 (requests, buffer headers); §5.1 (data named by its place, not copied).

mod body;
mod layout;
mod parts;
mod reply;
mod request;

pub use body::Body;
pub use layout::Segment;
pub use parts::Parts;
pub use reply::{Limit, Outcome, Refusal, Reply, ReplyBuffer, ReplyWriter};
pub use request::{Buffer, Element, Request, RequestWriter};

use super::cursor::Cursor;
use super::{MAX_OFFSET, Malformed, TooLarge, U48};
use layout::{ProgressPart, SaidPart, SlotPart};

pub use genie_io::carrier::Slot;
pub use genie_io::carrier::{MAX_CARRIED, MAX_SHORTS, carried_room};

/// The most buffers of a request.
pub const MAX_BUFFERS: usize = 1024;

/// The most segments of a request, in all elements together.
pub const MAX_SEGMENTS: usize = u16::MAX as usize;

/// The longest sentence about a failure, in bytes; longer ones are cut.
pub const MAX_SENTENCE: usize = 4096;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the server: a request.
    Request = 1,
    /// To the client: a reply.
    Reply = 2,
    /// To the server: let a request go.
    Abort = 3,
    /// To the client: the outputs of a request with an anticipated reply are let go.
    Done = 4,
    /// To the server: the records that follow rest on the control messages up to this number.
    Said = 6,
    /// To the client: so much of a request's buffer is final.
    Progress = 7,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Request, Self::Reply, Self::Abort, Self::Done, Self::Said, Self::Progress]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// A record that was received, checked whole.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// A request.
    Request(Request<'a>),
    /// A reply.
    Reply(Reply<'a>),
    /// The client wants this request to be let go.
    Abort(Slot),
    /// The server has let go of this request, which was replied to in anticipation.
    Done(Slot),
    /// So much of a request's buffer is final.
    Progress(Progress),
    /// The client has sent this many control messages since its hello; the records that follow rest on them.
    Said(u64),
}

/// How far a server has come with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The request's name.
    pub slot: Slot,
    /// The buffer's index; whether the request has it is still to be checked.
    pub buffer: u16,
    /// How many of its bytes are final; whether it has so many is still to be checked.
    pub len: u64,
}

impl<'a> Record<'a> {
    /// Checks and decodes the body of a record of the kind that the ring says it has.
    ///
    /// Cost: the heads and segments are read once; nothing is copied or allocated.
    ///
    /// # Errors
    /// The peer is broken or hostile: trust nothing more that it sends.
    #[inline(always)]
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        match Kind::of(kind) {
            Some(Kind::Request) => Request::decode(body).map(Self::Request),
            Some(Kind::Reply) => Reply::decode(body).map(Self::Reply),
            Some(Kind::Abort) => decode_slot(body).map(Self::Abort),
            Some(Kind::Done) => decode_slot(body).map(Self::Done),
            Some(Kind::Said) => decode_said(body).map(Self::Said),
            Some(Kind::Progress) => Progress::decode(body).map(Self::Progress),
            None => Err(Malformed::new(0, format!("no record is of kind {kind}"))),
        }
    }
}

/// Encodes the body of a record that names a request only: [`Kind::Abort`] or [`Kind::Done`].
#[inline]
pub fn encode_slot(body: &mut Body, slot: Slot) {
    body.clear();
    body.part(&SlotPart::from(slot));
}

/// The body of [`Kind::Said`].
#[inline]
pub fn encode_said(messages: u64) -> [u8; 8] {
    zerocopy::transmute!(SaidPart { messages: messages.into() })
}

impl Progress {
    /// Makes the body of [`Kind::Progress`].
    ///
    /// # Errors
    /// `len` exceeds [`MAX_OFFSET`].
    pub fn encode(&self, body: &mut Body) -> Result<(), TooLarge> {
        let too_large = TooLarge { what: "bytes of a buffer", count: self.len, max: MAX_OFFSET };
        let len = U48::new(self.len).ok_or(too_large)?;
        body.clear();
        body.part(&ProgressPart { slot: self.slot.into(), buffer: self.buffer.into(), len });
        Ok(())
    }

    #[cold]
    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        let part = cursor.fixed::<ProgressPart>("progress")?;
        let progress = Self { slot: part.slot.get(), buffer: part.buffer.get(), len: part.len.get() };
        cursor.end().map(|()| progress)
    }
}

fn decode_said(body: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(body);
    let messages = cursor.fixed::<SaidPart>("a count of control messages")?.messages.get();
    cursor.end().map(|()| messages)
}

fn decode_slot(body: &[u8]) -> Result<Slot, Malformed> {
    let mut cursor = Cursor::new(body);
    let slot = cursor.fixed::<SlotPart>("the name of a request")?.get();
    cursor.end().map(|()| slot)
}

#[cfg(test)]
mod tests;
