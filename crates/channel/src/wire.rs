//! The layout of what travels over a channel: records on its rings, messages on its control socket.
//!
//! Why: the two processes are built apart and may be of different versions, and either may be hostile. So each byte has a
//! meaning that is written down (docs/channel.md), and the whole of a record or message is checked before any of it is acted
//! upon.
//! How: the fixed parts are structures without alignment, integers are little-endian, and a part of variable length follows
//! its count. A decoder first makes sure that everything is well-formed, then gives views of it.
//! Invariants: each record and each message has one encoding only: what was decoded encodes to the same bytes.
//! Trust: decoders take a private copy of what a peer sent, never memory that the peer can still change.
//! Limits: [`MAX_OFFSET`]; the limits of records and messages are beside their decoders.

pub mod control;
mod cursor;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod record;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Declares the fixed parts of records and messages: structures that are sent byte for byte.
macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type),* }
    )* };
}
use parts;

/// The last offset in an arena, and the most bytes of anything: 256 TiB less one byte, which no process's addresses exceed.
pub const MAX_OFFSET: u64 = (1 << 48) - 1;

/// What is wrong with bytes that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}; the peer is broken or hostile, end its channel")]
pub struct Malformed {
    /// Where the wrong part begins, from the first byte of the record's body or of the message.
    pub offset: usize,
    /// What is wrong there.
    pub what: String,
}

impl Malformed {
    fn new(offset: usize, what: impl Into<String>) -> Self {
        Self { offset, what: what.into() }
    }
}

/// Something is larger than a record or message can say, and was not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{count} {what} are more than the {max} that a channel carries at once; shorten or split them")]
pub struct TooLarge {
    /// What there is too much of.
    pub what: &'static str,
    /// How much.
    pub count: u64,
    /// How much there may be.
    pub max: u64,
}

impl From<TooLarge> for genie_io::Error {
    fn from(TooLarge { what, count, max }: TooLarge) -> Self {
        Self::Uncarriable { what, count, max }
    }
}

/// `count` as a number of fewer bytes, unless it exceeds `max`.
#[inline]
fn count<T: TryFrom<usize>>(what: &'static str, count: usize, max: usize) -> Result<T, TooLarge> {
    let too_large = TooLarge { what, count: count as u64, max: max as u64 };
    if count > max {
        return Err(too_large);
    }
    T::try_from(count).map_err(|_| too_large)
}

/// The start of `text` that fits into `len_max` bytes, in whole characters.
fn cut(text: &str, len_max: usize) -> &str {
    &text[..text.floor_char_boundary(len_max)]
}

/// A number below 2^48, in six bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct U48([u8; 6]);

impl U48 {
    /// The number, unless it is too large.
    pub fn new(value: u64) -> Option<Self> {
        match value.to_le_bytes() {
            [low @ .., 0, 0] => Some(Self(low)),
            _ => None,
        }
    }

    /// A number that is below 2^16.
    ///
    /// # Panics
    /// When it is not.
    #[inline]
    fn short(value: usize) -> Self {
        let [a, b] = u16::try_from(value).expect("below 2^16").to_le_bytes();
        Self([a, b, 0, 0, 0, 0])
    }

    /// The number.
    pub fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        U64::from_bytes([a, b, c, d, e, f, 0, 0]).get()
    }
}

/// Whether `len` bytes from `offset` on end where an arena can still have bytes.
fn fits(offset: u64, len: u64) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= MAX_OFFSET)
}

#[cfg(test)]
mod tests;
