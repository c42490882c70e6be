//! How small arguments and results become bytes: by serde and postcard, or as they are in memory.
//!
//! Trust: what is decoded comes from a peer. Decoding checks all lengths against the bytes that are there, and reserves no
//! more memory than they can fill. Elements of no bytes fill any length: [`MOST_EMPTY`] bounds them. A value in which values of
//! its own type are nested takes stack for each: [`DEEPEST`] bounds it.

mod elements;

use std::cell::Cell;

use elements::Counted;
use postcard::{de_flavors, ser_flavors};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Encoded arguments, or an encoded result. Short ones allocate nothing.
pub(crate) type Bytes = SmallVec<[u8; 64]>;

/// Types whose values are plain bytes: any bytes are a value, and all bytes of a value are defined. Derive zerocopy's
/// `FromBytes`, `IntoBytes` and `Immutable`.
pub trait PlainData: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> PlainData for T {}

/// Makes bytes of values.
pub trait Encode<T: ?Sized> {
    /// Appends the value's bytes.
    fn encode(value: &T, to: &mut Bytes) -> Result<(), String>;
}

/// Makes values of bytes: [`Serde`] does for types that serde deserializes, [`Plain`] for plain data.
pub trait Decode<'r, T> {
    /// Takes a value off the front.
    ///
    /// # Errors
    /// There is no value of the type, as the text says.
    fn decode(from: &mut &'r [u8]) -> Result<T, String>;
}

/// Serde's data model in postcard's format.
#[derive(Debug)]
pub struct Serde;

/// The bytes of the value.
#[derive(Debug)]
pub struct Plain;

impl<T: Serialize + ?Sized> Encode<T> for Serde {
    #[inline]
    fn encode(value: &T, to: &mut Bytes) -> Result<(), String> {
        postcard::serialize_with_flavor(value, Appending(to)).map_err(|error| error.to_string())
    }
}

impl<'r, T: Deserialize<'r>> Decode<'r, T> for Serde {
    // A frame of its own: in a caller's, other values would pass for depth.
    #[inline(never)]
    fn decode(from: &mut &'r [u8]) -> Result<T, String> {
        let mut deserializer = postcard::Deserializer::from_flavor(Taking {
            rest: from,
            base: here(),
            most: DEEPEST + 8 * size_of::<T>(),
        });
        let left = Cell::new(from.len().checked_add(MOST_EMPTY));
        let value = T::deserialize(Counted::new(&mut deserializer, &left));
        let value = value.map_err(|error| why(error, from.len(), left.get().is_none()))?;
        *from = deserializer.finalize().map_err(|error| error.to_string())?;
        Ok(value)
    }
}

/// What is wrong with `len` bytes.
#[cold]
fn why(error: postcard::Error, len: usize, claim_too_many: bool) -> String {
    match error {
        _ if claim_too_many => {
            format!("its lists claim more elements than there are bytes left ({len}), plus {MOST_EMPTY}")
        }
        TOO_DEEP => "values in it are nested too deeply, or are too large".to_owned(),
        error => error.to_string(),
    }
}

impl<T: IntoBytes + Immutable + ?Sized> Encode<T> for Plain {
    #[inline]
    fn encode(value: &T, to: &mut Bytes) -> Result<(), String> {
        to.extend_from_slice(value.as_bytes());
        Ok(())
    }
}

impl<T: FromBytes> Decode<'_, T> for Plain {
    #[inline]
    fn decode(from: &mut &[u8]) -> Result<T, String> {
        let len = from.len();
        let (value, rest) = T::read_from_prefix(from)
            .map_err(|_| format!("{len} bytes are left, and it takes {}", size_of::<T>()))?;
        *from = rest;
        Ok(value)
    }
}

/// Takes a value off bytes that hold nothing else.
#[inline]
pub(crate) fn decode_all<'r, C: Decode<'r, T>, T>(mut bytes: &'r [u8]) -> Result<T, String> {
    let value = C::decode(&mut bytes)?;
    ensure_empty(bytes)?;
    Ok(value)
}

/// Makes sure that nothing is left.
#[inline]
pub(crate) fn ensure_empty(rest: &[u8]) -> Result<(), String> {
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes are left over", rest.len())) }
}

/// Has postcard append to bytes.
struct Appending<'b>(&'b mut Bytes);

impl ser_flavors::Flavor for Appending<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// How many more elements than bytes there may be in a value, in all its sequences and maps together.
const MOST_EMPTY: usize = 1024;

/// The most bytes of stack that decoding takes, beside a few of the value itself.
const DEEPEST: usize = 128 << 10;

/// Postcard itself does not use this error.
const TOO_DEEP: postcard::Error = postcard::Error::NotYetImplemented;

/// Has postcard take bytes, while there is stack left.
struct Taking<'r> {
    rest: &'r [u8],
    /// Where the stack was when decoding began.
    base: usize,
    most: usize,
}

/// About where the stack ends.
#[inline(always)]
fn here() -> usize {
    let local = 0_u8;
    std::ptr::from_ref(&local).addr()
}

impl<'r> Taking<'r> {
    #[inline(always)]
    fn ensure_stack(&self) -> postcard::Result<()> {
        if self.base.abs_diff(here()) > self.most { Err(TOO_DEEP) } else { Ok(()) }
    }
}

impl<'r> de_flavors::Flavor<'r> for Taking<'r> {
    type Remainder = &'r [u8];
    type Source = &'r [u8];

    #[inline]
    fn pop(&mut self) -> postcard::Result<u8> {
        self.ensure_stack()?;
        let (first, rest) = self.rest.split_first().ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }

    #[inline]
    fn try_take_n(&mut self, count: usize) -> postcard::Result<&'r [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    fn finalize(self) -> postcard::Result<&'r [u8]> {
        Ok(self.rest)
    }
}
