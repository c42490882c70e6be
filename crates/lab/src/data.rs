//! The bytes that are passed, from a file or generated, and the checks that they arrived.
//!
//! Limits: if a file is longer than the greatest length, only its beginning is passed. The file is read once, into memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use fastrand::Rng;

/// The document's name for data that is in no file.
const GENERATED: &str = "generated";

/// The data, and its opposite: bytes that differ from it at every place.
#[derive(Debug)]
pub struct Data {
    /// The file's name, or `generated`.
    pub name: String,
    bytes: Vec<u8>,
    opposite: Vec<u8>,
}

impl Data {
    /// Reads as much of the file as the greatest length needs, and repeats it to that length.
    ///
    /// # Errors
    /// It cannot be read, is a directory, or empty.
    pub fn read(path: &Path, longest: usize) -> Result<Self> {
        let cannot = |source| Error::File { path: path.to_owned(), what: "cannot be read", source };
        let nothing = |what| Error::NoData { path: path.to_owned(), what };
        let file = File::open(path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.is_dir() {
            return Err(nothing("is a directory; name a file"));
        }
        let mut bytes = Vec::new();
        file.take(longest as u64).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.is_empty() {
            return Err(nothing("is empty; name a file with at least one byte"));
        }
        Ok(Self::new(path.display().to_string(), repeated(&bytes, longest)))
    }

    /// Generates pseudo-random bytes, always the same ones.
    pub fn generate(longest: usize) -> Self {
        let mut random = Rng::with_seed(0x6765_6e69_6520_3031);
        let mut bytes = Vec::with_capacity(longest + 8);
        while bytes.len() < longest {
            bytes.extend_from_slice(&random.u64(..).to_le_bytes());
        }
        bytes.truncate(longest);
        Self::new(GENERATED.to_owned(), bytes)
    }

    fn new(name: String, bytes: Vec<u8>) -> Self {
        let opposite = bytes.iter().map(|byte| !byte).collect();
        Self { name, bytes, opposite }
    }

    /// All of the data.
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// The first `len` bytes.
    pub fn of(&self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }

    /// `len` bytes, each of which differs from the data's byte at its place.
    pub fn opposite(&self, len: usize) -> &[u8] {
        &self.opposite[..len]
    }
}

/// The result of a check: nothing wrong, or a few words on what is wrong.
pub type Verdict = std::result::Result<(), String>;

/// The first offset at which bytes differ from the expected ones, of which there are as many.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    // Comparing all bytes at once is quicker, and mostly enough.
    if found == expected {
        return None;
    }
    found.iter().zip(expected).position(|(found, expected)| found != expected)
}

/// The sum that a server replies when it reads all bytes: the sum of little-endian 64-bit words, of which the last is filled
/// up with zeros.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn repeated(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut repeated = bytes.repeat(len.div_ceil(bytes.len()));
    repeated.truncate(len);
    repeated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_data_is_repeated_and_its_opposite_differs_everywhere() {
        let data = Data::new("x".to_owned(), repeated(b"abc", 8));
        assert_eq!(data.of(8), b"abcabcab");
        assert!(data.of(8).iter().zip(data.opposite(8)).all(|(a, b)| a != b));
    }

    #[test]
    fn sums_fill_up_the_last_word() {
        assert_eq!(sum(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), 3);
        assert_eq!(sum(b""), 0);
    }

    #[test]
    fn generated_data_has_the_length_asked_for_and_is_the_same_each_time() {
        let (one, two) = (Data::generate(13), Data::generate(16));
        assert_eq!(one.all().len(), 13);
        assert_eq!(one.all(), two.of(13));
    }
}
