//! Control messages: what client and server tell each other over the channel's socket, some with descriptors attached.
//!
//! Why: whatever needs a descriptor, or is too rare for its cost to matter, goes over the socket; the rings carry the rest.
//! How: each message is one datagram of a SOCK_SEQPACKET socket: a head (magic, version, kind, length), then a fixed part of
//! its kind, then the parts of variable length. The client begins with a hello or a query; the server answers with a
//! welcome or a refusal, or with its status and its traffic.
//! Invariants: a message is accepted only from the side that may send it, and only with the descriptors that belong to it.
//! The messages of the handshake ([`Kind::is_handshake`]) keep their layout in all versions; the others are of the version
//! that the welcome names.
//! Trust: decoding checks the layout alone. Addresses and objects are still to be looked up and checked.
//! Limits: [`MAX_MESSAGE`], [`MAX_DESCRIPTORS`], [`MAX_SENTENCE`], [`MAX_SERVICES`], [`MAX_ABORT_TIMEOUT`],
//! [`MAX_CLIENTS`], and [`MAX_NAME`](genie_io::carrier::MAX_NAME).

mod bounds;
mod connection;
mod layout;
mod memory;
mod part;
mod preference;
mod status;
mod traffic;

use std::ops::RangeInclusive;

pub use bounds::{
    HANDSHAKE_VERSION, MAX_ABORT_TIMEOUT, MAX_CLIENTS, MAX_DESCRIPTORS, MAX_LAYOUT_ARGUMENT, MAX_MESSAGE,
    MAX_SENTENCE, MAX_SERVICES, VERSION,
};
pub use connection::{Ending, Hello, Limits, Reason, Trust, Welcome, check_service};
pub use memory::{ArenaPlace, ObjectPlace};
pub use preference::LayoutWanted;
pub use status::{ClientStatus, Status};
pub use traffic::{ClientCounts, Traffic};

use genie_passing::Preferred;
use zerocopy::IntoBytes;

use super::cursor::Cursor;
use super::{Malformed, TooLarge};
use bounds::WELCOME_DESCRIPTORS;
use layout::Head;
use part::Part;

const MAGIC: [u8; 8] = *b"GENIEctl";

/// One side of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The side that asks.
    Client,
    /// The side that serves.
    Server,
}

/// Declares the messages: each one's number, the party that may send it (`None` where both may), and how many descriptors
/// come with it.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($body:ty) = $number:literal, $sender:expr, $descriptors:expr;)*) => {
        /// A control message.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $name($body)),*
        }

        /// What a message is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "each kind is that of the message of the same name")]
        pub enum Kind {
            $($name = $number),*
        }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// The party that may send the message; `None` where both may.
            pub const fn sender(self) -> Option<Party> {
                match self { $(Self::$name => $sender),* }
            }

            /// How many descriptors may come with it.
            pub const fn descriptors(self) -> RangeInclusive<usize> {
                match self { $(Self::$name => $descriptors),* }
            }
        }

        impl Message {
            /// What the message is.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name),* }
            }

            fn write_body(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
                match self { $(Self::$name(body) => body.write(bytes)),* }
            }

            fn read_body(kind: Kind, cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
                Ok(match kind { $(Kind::$name => Self::$name(Part::read(cursor)?)),* })
            }
        }
    };
}

messages! {
    /// The client wants a channel. Descriptor: its lifeline, which the server holds open as long as any process may touch the
    /// client's memory on the server's account.
    Hello(Hello) = 1, Some(Party::Client), 1..=1;
    /// The server agrees. Descriptors: the rings' object, the client's end of the pair of bells, the pool's objects.
    Welcome(Welcome) = 2, Some(Party::Server), WELCOME_DESCRIPTORS..=MAX_DESCRIPTORS;
    /// The server refuses, and hangs up.
    Refused(Ending) = 3, Some(Party::Server), 0..=0;
    /// Records after this message may name data in this object. Descriptor: the object.
    Object(ObjectPlace) = 4, Some(Party::Client), 1..=1;
    /// The client will forward data of this arena, too, which is a client's of its own. Descriptor: that other client's
    /// lifeline.
    Arena(ArenaPlace) = 5, Some(Party::Client), 1..=1;
    /// No record after this message names data in the object with this number.
    Withdraw(u64) = 6, Some(Party::Client), 0..=0;
    /// No record after this message names data in the arena with this number.
    WithdrawArena(u16) = 7, Some(Party::Client), 0..=0;
    /// The server's pool has more objects, of these lengths in bytes, or none where it lends no more. Descriptors: the objects.
    Pool(Vec<u64>) = 8, Some(Party::Server), 0..=MAX_DESCRIPTORS;
    /// The client wants this many bytes more in the server's pool.
    PoolWanted(u64) = 9, Some(Party::Client), 0..=0;
    /// The server grants these limits.
    Limits(Limits) = 10, Some(Party::Server), 0..=0;
    /// The client wants these limits.
    LimitsWanted(Limits) = 11, Some(Party::Client), 0..=0;
    /// The sender asks for the server's status, and does not become a client.
    Query(()) = 12, Some(Party::Client), 0..=0;
    /// The server's answer to a query; then it hangs up.
    Status(Status) = 13, Some(Party::Server), 0..=0;
    /// The sender ends the channel.
    Goodbye(Ending) = 14, None, 0..=0;
    /// What the server has passed for the clients that its status has listed. It follows the status.
    Traffic(Traffic) = 15, Some(Party::Server), 0..=0;
    /// The client wants to know how to lay out input buffers.
    LayoutWanted(LayoutWanted) = 16, Some(Party::Client), 0..=0;
    /// The server's answer; none where the layout makes no difference.
    Layout(Option<Preferred>) = 17, Some(Party::Server), 0..=0;
    /// The server may answer something else by now.
    LayoutsChanged(()) = 18, Some(Party::Server), 0..=0;
}

/// Why a message was not accepted. In each case the peer is broken, hostile, or no peer at all: end the channel.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes do not begin as a control message does.
    #[error(
        "{len} bytes that do not begin with GENIEctl are no control message; the peer is no Genie process"
    )]
    Magic {
        /// How many bytes came.
        len: usize,
    },
    /// The message is of a version that this code does not speak.
    #[error(
        "a control message of version {found} came where version {expected} was agreed; update the older side"
    )]
    Version {
        /// The message's version.
        found: u16,
        /// The version expected.
        expected: u16,
    },
    /// There is no message of this kind.
    #[error("no control message is of kind {kind}; the peer is newer, broken or hostile")]
    Kind {
        /// The number.
        kind: u16,
    },
    /// Only the other side may send this message.
    #[error("a {from:?} may not send the control message {kind:?}; the peer is broken or hostile")]
    Sender {
        /// The message's kind.
        kind: Kind,
        /// The side that sent it.
        from: Party,
    },
    /// The message came with too many or too few descriptors.
    #[error("the control message {kind:?} came with {found} descriptors instead of {least} to {most}")]
    Descriptors {
        /// The message's kind.
        kind: Kind,
        /// How many there were.
        found: usize,
        /// The fewest that belong to it.
        least: usize,
        /// The most that belong to it.
        most: usize,
    },
    /// A part of the message is wrong.
    #[error("control message: {0}")]
    Malformed(#[from] Malformed),
}

impl Kind {
    /// Whether the message belongs to the handshake, and so keeps its layout in all versions.
    pub const fn is_handshake(self) -> bool {
        matches!(
            self,
            Self::Hello | Self::Welcome | Self::Refused | Self::Query | Self::Status | Self::Traffic
        )
    }

    pub(super) fn of(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| *kind as u16 == code)
    }

    pub(super) const fn version(self) -> u16 {
        if self.is_handshake() { HANDSHAKE_VERSION } else { VERSION }
    }
}

impl Message {
    /// How many descriptors have to go with the message.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Welcome(welcome) => WELCOME_DESCRIPTORS + welcome.pool.len(),
            Self::Pool(pool) => pool.len(),
            message => *message.kind().descriptors().start(),
        }
    }

    /// Encodes the message, at most [`MAX_MESSAGE`] bytes.
    ///
    /// # Errors
    /// A name or list is too long, or something lies beyond where arenas end.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        let mut bytes = vec![0; size_of::<Head>()];
        self.write_body(&mut bytes)?;
        let len = (bytes.len() - size_of::<Head>()) as u32;
        let kind = self.kind();
        let head = Head {
            magic: MAGIC,
            version: kind.version().into(),
            kind: (kind as u16).into(),
            len: len.into(),
        };
        bytes[..size_of::<Head>()].copy_from_slice(head.as_bytes());
        Ok(bytes)
    }

    /// Checks and decodes what `from` sent with this many descriptors.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn decode(bytes: &[u8], descriptors: usize, from: Party) -> Result<Self, Error> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::Magic { len: bytes.len() });
        }
        let mut cursor = Cursor::new(bytes);
        let kind = decode_head(&mut cursor, bytes.len())?;
        if kind.sender().is_some_and(|sender| sender != from) {
            return Err(Error::Sender { kind, from });
        }
        check_descriptors(kind, descriptors, kind.descriptors())?;
        let message = Self::read_body(kind, &mut cursor)?;
        cursor.end()?;
        check_descriptors(kind, descriptors, message.descriptors()..=message.descriptors())?;
        Ok(message)
    }
}

/// Reads the head of a message of `len` bytes.
fn decode_head(cursor: &mut Cursor<'_>, len: usize) -> Result<Kind, Error> {
    let start = *cursor;
    let head = cursor.fixed::<Head>("the head of a control message")?;
    let (code, found) = (head.kind.get(), head.version.get());
    let kind = Kind::of(code).ok_or(Error::Kind { kind: code })?;
    let expected = kind.version();
    if found != expected {
        return Err(Error::Version { found, expected });
    }
    let announced = head.len.get() as usize;
    let body = len - size_of::<Head>();
    if announced != body || len > MAX_MESSAGE {
        let what =
            format!("{body} bytes follow the head, which announces {announced}; {MAX_MESSAGE} are the limit");
        return Err(start.malformed(what).into());
    }
    Ok(kind)
}

fn check_descriptors(kind: Kind, found: usize, allowed: RangeInclusive<usize>) -> Result<(), Error> {
    let (least, most) = allowed.into_inner();
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(Error::Descriptors { kind, found, least, most })
    }
}

#[cfg(test)]
mod tests;
