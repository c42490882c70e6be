//! The cursor: reads what a peer sent, from front to back, and never beyond the end.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::Malformed;

/// A position in received bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0 }
    }

    /// A complaint about the part that begins at the next byte.
    pub(super) fn malformed(&self, what: impl Into<String>) -> Malformed {
        Malformed::new(self.offset, what)
    }

    /// The next fixed part, called `name` in the complaint when the bytes end before it does.
    #[inline(always)]
    pub(super) fn fixed<T>(&mut self, name: &str) -> Result<&'a T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        match T::ref_from_prefix(self.rest) {
            Ok((value, rest)) => {
                self.advance(rest);
                Ok(value)
            }
            Err(_) => Err(self.too_short(name, size_of::<T>())),
        }
    }

    /// The next `count` fixed parts.
    #[inline(always)]
    pub(super) fn several<T>(&mut self, name: &str, count: usize) -> Result<&'a [T], Malformed>
    where
        T: FromBytes + Immutable + Unaligned,
    {
        match <[T]>::ref_from_prefix_with_elems(self.rest, count) {
            Ok((values, rest)) => {
                self.advance(rest);
                Ok(values)
            }
            Err(_) => Err(self.too_short(name, count.saturating_mul(size_of::<T>()))),
        }
    }

    /// The next `len` bytes.
    #[inline(always)]
    pub(super) fn bytes(&mut self, name: &str, len: usize) -> Result<&'a [u8], Malformed> {
        self.several(name, len)
    }

    /// The next `len` bytes, at most `len_max`, as text.
    pub(super) fn text(&mut self, name: &str, len: usize, len_max: usize) -> Result<&'a str, Malformed> {
        let start = *self;
        if len > len_max {
            return Err(start.malformed(format!("{name} has {len} bytes, more than the {len_max} allowed")));
        }
        let bytes = self.bytes(name, len)?;
        std::str::from_utf8(bytes).map_err(|error| {
            let at = start.offset + error.valid_up_to();
            Malformed::new(at, format!("{name} is not valid UTF-8"))
        })
    }

    /// All further bytes, of which there are at most `len_max`.
    #[inline(always)]
    pub(super) fn rest(&self, len_max: usize) -> Result<&'a [u8], Malformed> {
        match self.rest.len() <= len_max {
            true => Ok(self.rest),
            false => self.end().map(|()| self.rest),
        }
    }

    /// Makes sure that all bytes have been read.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.malformed(format!("{left} bytes follow where the end should be"))),
        }
    }

    #[inline(always)]
    fn advance(&mut self, rest: &'a [u8]) {
        self.offset += self.rest.len() - rest.len();
        self.rest = rest;
    }

    #[cold]
    fn too_short(&self, name: &str, needed: usize) -> Malformed {
        self.malformed(format!("{name} needs {needed} bytes, and {} are left", self.rest.len()))
    }
}
