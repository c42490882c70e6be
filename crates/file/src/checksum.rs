//! Checksums: BLAKE3, by which client and server know that they hold the same bytes.
//!
//! Why: a hash without known collisions detects faults of machines and lies of peers alike, and this one is about as fast as
//! memory.
//! How: the server reads the file anew, around its cache, so that a stale block would be found out, too.
//! Limits: one request covers at most [`CHECKSUM_MAX`] bytes, so that no client can keep a server at a sparse file's holes.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::argument::{Fields, at, invalid};
use super::root::{Opened, bytes_possible};
use genie_io::ServerError;

/// The most bytes that one CHECKSUM request covers.
pub const CHECKSUM_MAX: u64 = 1 << 30;
/// How long a CHECKSUM's reply argument is: 8 bytes that say how many bytes there were, then the checksum.
pub const CHECKSUM_ROOM: usize = 8 + Checksum::LEN;

/// What the server reads at a time; it stays in a CPU's cache while it is hashed.
const PIECE: usize = 128 << 10;

/// The BLAKE3 hash of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum([u8; Checksum::LEN]);

impl Checksum {
    /// Its length in bytes.
    pub const LEN: usize = 32;

    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// A checksum that was passed as bytes.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The checksum as bytes.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// Reads the reply argument of CHECKSUM: how many bytes there were, and their checksum. `None` when `argument` is no
    /// such argument.
    pub fn from_reply(argument: &[u8]) -> Option<(u64, Self)> {
        let (len, checksum) = argument.split_first_chunk()?;
        Some((u64::from_le_bytes(*len), Self(checksum.try_into().ok()?)))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A checksum in the making, of bytes that come piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Checksummer(blake3::Hasher);

impl Checksummer {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn checksum(&self) -> Checksum {
        Checksum(*self.0.finalize().as_bytes())
    }
}

/// The argument of CHECKSUM: `len` bytes from `offset` on of the file at `path`, relative to the server's root.
pub fn range(path: impl AsRef<Path>, offset: u64, len: u64) -> Vec<u8> {
    [&len.to_le_bytes()[..], &at(path, offset)].concat()
}

/// The first field of CHECKSUM's argument, the length, checked; a place follows it.
pub(crate) fn parse_len(argument: &[u8]) -> Result<(u64, &[u8]), ServerError> {
    let len = Fields::new(argument).number("length")?;
    if len > CHECKSUM_MAX {
        return Err(invalid(format!(
            "a checksum of {len} bytes exceeds the {CHECKSUM_MAX} that one request covers; ask for parts"
        )));
    }
    Ok((len, &argument[8..]))
}

/// The reply argument of CHECKSUM.
pub(crate) fn reply(len: u64, checksum: Checksum) -> Vec<u8> {
    [&len.to_le_bytes()[..], &checksum.0].concat()
}

/// Hashes the bytes of a file in a range, as far as the file goes; returns how many there were.
pub(crate) fn of_file(opened: &Opened, bytes: Range<u64>) -> Result<(u64, Checksum), genie_sys::Error> {
    let mut checksummer = Checksummer::default();
    let mut piece = Vec::new();
    let mut at = bytes.start;
    while at < bytes.end {
        let left = usize::try_from(bytes.end - at).unwrap_or(usize::MAX);
        let len = PIECE.min(left).min(bytes_possible(at));
        opened.read(at, len, &mut piece)?;
        checksummer.add(&piece);
        at += piece.len() as u64;
        if piece.len() < len || len == 0 {
            break;
        }
    }
    Ok((at - bytes.start, checksummer.checksum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_in_pieces_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        let mut checksummer = Checksummer::default();
        bytes.chunks(77_777).for_each(|piece| checksummer.add(piece));
        assert_eq!(checksummer.checksum(), Checksum::of(&bytes));
        assert_ne!(checksummer.checksum(), Checksum::of(&bytes[1..]));
    }

    #[test]
    fn a_checksum_is_printed_as_the_usual_tools_print_it() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Checksum::of(b"").to_string(), empty);
    }

    #[test]
    fn a_reply_of_another_length_is_no_checksum() {
        let reply = reply(7, Checksum::of(b"seven"));
        assert_eq!(reply.len(), CHECKSUM_ROOM);
        assert_eq!(Checksum::from_reply(&reply), Some((7, Checksum::of(b"seven"))));
        assert_eq!(Checksum::from_reply(&reply[1..]), None);
        assert_eq!(Checksum::from_reply(b""), None);
    }
}
