//! Replies on a ring.

use genie_sys::Errno;
use zerocopy::little_endian::U16;

use super::layout::{RefusalPart, ReplyBufferPart, ReplyHead};
use super::parts::{Part, Parts};
use super::{Body, MAX_BUFFERS, MAX_CARRIED, MAX_SENTENCE, Slot};
use crate::wire::cursor::Cursor;
use crate::wire::{MAX_OFFSET, Malformed, TooLarge, U48, count, cut};

const OK: u8 = 0;
const FAILED: u8 = 1;
const DROPPED: u8 = 2;
const REFUSED: u8 = 3;
const PANICKED: u8 = 4;
const ARGUMENT_TOO_LONG: u8 = 5;
const UNTOLD: u8 = 6;

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It succeeded.
    Ok {
        /// The server goes on with the outputs; a done record follows.
        anticipated: bool,
        /// The argument that goes back; whether there is room for it is still to be checked.
        argument: &'a [u8],
    },
    /// The server could not do what the request asked.
    Failed {
        /// An errno, where one fits; else 0.
        code: i32,
        /// A sentence for an operator; what exceeds [`MAX_SENTENCE`] bytes is cut off.
        message: &'a str,
    },
    /// The server dropped the request without a reply.
    Dropped,
    /// The request exceeded a limit and never reached the server's code.
    Refused(Refusal),
    /// The server's code panicked.
    Panicked {
        /// What the panic said; cut like the sentence of a failure.
        message: &'a str,
    },
    /// The argument that the server wanted to give back is longer than the room that the request has made.
    ArgumentTooLong {
        /// The argument's length, not 0; one of more than 4 GiB is told as 4 GiB less 1.
        len: usize,
    },
    /// The server replied with success, and did not say how much of an input came that it had made ready.
    Untold {
        /// The input's index; whether the request has it is still to be checked.
        buffer: usize,
    },
}

/// Which limit a request exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes in pending requests.
    Bytes = 1,
    /// The number of pending requests.
    Requests = 2,
    /// Bytes of the client's data that the server has mapped, or copied.
    Data = 3,
    /// The number of pieces of the client's data that the server has mapped for single requests.
    Pieces = 4,
}

/// How a request exceeded a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Which one.
    pub limit: Limit,
    /// What the request asked for, in the limit's unit.
    pub asked: u64,
    /// How much was in use already.
    pub pending: u64,
    /// How much may be in use.
    pub allowed: u64,
}

/// Builds the body of a reply in place; after each call that succeeds the body is a complete reply.
#[derive(Debug)]
pub struct ReplyWriter<'b> {
    body: &'b mut Body,
    buffers: u16,
}

impl<'b> ReplyWriter<'b> {
    /// Begins a reply without buffers, in place of what `body` holds.
    ///
    /// # Panics
    /// When the argument exceeds 4 GiB: no request makes room for that.
    #[inline]
    pub fn begin(body: &'b mut Body, slot: Slot, outcome: Outcome<'_>) -> Self {
        let head = |status, anticipated, code: i32, detail: usize| ReplyHead {
            slot: slot.into(),
            status,
            anticipated: u8::from(anticipated),
            buffers: 0.into(),
            code: code.into(),
            detail: u32::try_from(detail).expect("an argument, or a sentence that was cut").into(),
        };
        body.clear();
        match outcome {
            Outcome::Ok { anticipated, argument } => {
                body.part(&head(OK, anticipated, 0, argument.len()));
                body.append(argument);
            }
            Outcome::Failed { code, message } => {
                let message = cut(message, MAX_SENTENCE);
                body.part(&head(FAILED, false, code, message.len()));
                body.append(message.as_bytes());
            }
            Outcome::Panicked { message } => {
                let message = cut(message, MAX_SENTENCE);
                body.part(&head(PANICKED, false, 0, message.len()));
                body.append(message.as_bytes());
            }
            Outcome::ArgumentTooLong { len } => {
                body.part(&head(ARGUMENT_TOO_LONG, false, 0, len.min(u32::MAX as usize)));
            }
            Outcome::Untold { buffer } => body.part(&head(UNTOLD, false, 0, buffer)),
            Outcome::Dropped => body.part(&head(DROPPED, false, 0, 0)),
            Outcome::Refused(refusal) => {
                let code = refusal.limit as i32;
                body.part(&head(REFUSED, false, code, size_of::<RefusalPart>()));
                body.part(&RefusalPart::from(refusal));
            }
        }
        Self { body, buffers: 0 }
    }

    /// Puts a failure in place of a reply that is longer than the longest record, of `max` bytes; returns whether it was.
    #[inline]
    pub fn fit(body: &'b mut Body, slot: Slot, max: usize) -> bool {
        let is_too_long = body.len() > max;
        if is_too_long {
            Self::fail(body, slot, max);
        }
        is_too_long
    }

    #[cold]
    fn fail(body: &'b mut Body, slot: Slot, max: usize) {
        let len = body.len();
        let (code, message) = match Reply::decode(body).map(|reply| reply.outcome) {
            Ok(Outcome::Failed { code, message }) => (code, message.to_owned()),
            Ok(Outcome::Panicked { message }) => (0, format!("the server panicked: {message}")),
            _ => {
                let why = "let the server pass long data in buffers";
                let told = format!("the reply takes {len} bytes on a channel that carries {max}; {why}");
                (Errno::MSGSIZE.raw_os_error(), told)
            }
        };
        let message = cut(&message, max - size_of::<ReplyHead>());
        Self::begin(body, slot, Outcome::Failed { code, message });
    }

    /// Adds what came of the next buffer: how many bytes were really passed.
    ///
    /// # Errors
    /// There are [`MAX_BUFFERS`] already, or `actual` exceeds [`MAX_OFFSET`]; the body is as it was.
    #[inline]
    pub fn buffer(&mut self, actual: u64) -> Result<(), TooLarge> {
        let what = "bytes of a buffer";
        let actual = U48::new(actual).ok_or(TooLarge { what, count: actual, max: MAX_OFFSET })?;
        self.buffers = count("buffers", usize::from(self.buffers) + 1, MAX_BUFFERS)?;
        self.body.part(&ReplyBufferPart { actual });
        self.body.put(std::mem::offset_of!(ReplyHead, buffers), &U16::from(self.buffers));
        Ok(())
    }

    /// Room for what the reply, a success that is not anticipated, carries of the next input; all buffers have been added.
    #[inline]
    pub fn carried(&mut self, len: usize) -> &mut [u8] {
        self.body.room(len)
    }
}

/// A reply that was received.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// The request's name; whether there is such a request is still to be looked up.
    pub slot: Slot,
    /// What came of the request.
    pub outcome: Outcome<'a>,
    /// What is carried of inputs, one after the other. Whether that is what the request asked for is still to be checked.
    pub carried: &'a [u8],
    buffers: Parts<'a, ReplyBuffer>,
}

/// What came of one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyBuffer {
    /// Bytes really passed; whether the buffer is that long is still to be checked.
    pub actual: u64,
}

impl<'a> Reply<'a> {
    #[inline(always)]
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        let head = cursor.fixed::<ReplyHead>("the head of a reply")?;
        let outcome = Outcome::read(head, &mut cursor)?;
        let left = head.buffers.get();
        if usize::from(left) > MAX_BUFFERS {
            let what = format!("a reply has {left} buffers, more than the {MAX_BUFFERS} allowed");
            return Err(Malformed::new(0, what));
        }
        let buffers = Parts::new(cursor, left);
        for _ in 0..left {
            ReplyBuffer::read(&mut cursor)?;
        }
        let carried = match outcome {
            Outcome::Ok { anticipated: false, .. } => cursor.rest(MAX_CARRIED)?,
            _ => {
                cursor.end()?;
                &[]
            }
        };
        Ok(Self { slot: head.slot.get(), outcome, carried, buffers })
    }

    /// Whether it is a success with which the request is over.
    #[inline]
    pub fn is_final_success(&self) -> bool {
        matches!(self.outcome, Outcome::Ok { anticipated: false, .. })
    }

    /// What came of the buffers, in order. A reply may speak of fewer buffers than the request has.
    #[inline]
    pub fn buffers(&self) -> Parts<'a, ReplyBuffer> {
        self.buffers
    }
}

impl<'a> Outcome<'a> {
    #[inline(always)]
    fn read(head: &ReplyHead, cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let (code, detail) = (head.code.get(), head.detail.get() as usize);
        match (head.status, head.anticipated, code, detail) {
            (OK, anticipated @ 0..=1, 0, _) => {
                let argument = cursor.bytes("an argument", detail)?;
                Ok(Self::Ok { anticipated: anticipated == 1, argument })
            }
            (FAILED, 0, _, _) => {
                let message = cursor.text("a sentence about a failure", detail, MAX_SENTENCE)?;
                Ok(Self::Failed { code, message })
            }
            (PANICKED, 0, 0, _) => {
                let message = cursor.text("what a server said that panicked", detail, MAX_SENTENCE)?;
                Ok(Self::Panicked { message })
            }
            (ARGUMENT_TOO_LONG, 0, 0, 1..) => Ok(Self::ArgumentTooLong { len: detail }),
            (UNTOLD, 0, 0, ..MAX_BUFFERS) => Ok(Self::Untold { buffer: detail }),
            (DROPPED, 0, 0, 0) => Ok(Self::Dropped),
            (REFUSED, 0, 1..=4, 24) => Refusal::read(code, cursor).map(Self::Refused),
            (status, anticipated, ..) => Err(Malformed::new(
                0,
                format!(
                    "no reply has status {status}, anticipated {anticipated}, code {code}, detail {detail}"
                ),
            )),
        }
    }
}

impl Refusal {
    /// The caller has checked `code`.
    fn read(code: i32, cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let limit = match code {
            1 => Limit::Bytes,
            2 => Limit::Requests,
            3 => Limit::Data,
            _ => Limit::Pieces,
        };
        let part = cursor.fixed::<RefusalPart>("the detail of a refusal")?;
        Ok(Self { limit, asked: part.asked.get(), pending: part.pending.get(), allowed: part.allowed.get() })
    }
}

impl From<Refusal> for RefusalPart {
    fn from(refusal: Refusal) -> Self {
        Self { asked: refusal.asked.into(), pending: refusal.pending.into(), allowed: refusal.allowed.into() }
    }
}

impl<'a> Part<'a> for ReplyBuffer {
    #[inline(always)]
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let part = cursor.fixed::<ReplyBufferPart>("a reply's buffer")?;
        Ok(Self { actual: part.actual.get() })
    }
}
