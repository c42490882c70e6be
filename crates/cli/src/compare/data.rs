//! The bytes that are passed: a file's, or generated ones.
//!
//! Limits: of a file longer than the greatest length only its beginning is passed; it is read once, into memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use genie_lab::random::Random;

use crate::failure::Failure;

/// What the document calls data that is in no file.
const GENERATED: &str = "generated";

/// The data, and its opposite: bytes that differ from it at every place.
#[derive(Debug)]
pub(super) struct Data {
    /// The file's name, or `generated`.
    pub(super) name: String,
    bytes: Vec<u8>,
    opposite: Vec<u8>,
}

impl Data {
    /// Reads as much of the file as the greatest length needs, and repeats it to that length.
    pub(super) fn read(path: &Path, longest: usize) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let cannot = |error: std::io::Error| Failure::could_not(format!("{name} cannot be read: {error}"));
        let file = File::open(path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.is_dir() {
            return Err(Failure::could_not(format!("{name} is a directory; name a file")));
        }
        let mut bytes = Vec::new();
        file.take(longest as u64).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.is_empty() {
            return Err(Failure::could_not(format!("{name} is empty; name a file with at least one byte")));
        }
        Ok(Self::new(name, repeated(bytes, longest)))
    }

    /// Generates bytes that no two places have in common by any rule: always the same ones.
    pub(super) fn generate(longest: usize) -> Self {
        let mut random = Random::new(0x6765_6e69_6520_3031);
        let mut bytes = Vec::with_capacity(longest + 8);
        while bytes.len() < longest {
            bytes.extend_from_slice(&random.number().to_le_bytes());
        }
        bytes.truncate(longest);
        Self::new(GENERATED.to_owned(), bytes)
    }

    fn new(name: String, bytes: Vec<u8>) -> Self {
        let opposite = bytes.iter().map(|byte| !byte).collect();
        Self { name, bytes, opposite }
    }

    /// All of the data.
    pub(super) fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// The first `len` bytes.
    pub(super) fn of(&self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }

    /// As many bytes, each unlike the data's.
    pub(super) fn opposite(&self, len: usize) -> &[u8] {
        &self.opposite[..len]
    }
}

fn repeated(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    let period = bytes.len();
    bytes.reserve_exact(len.saturating_sub(period));
    while bytes.len() < len {
        let more = period.min(len - bytes.len());
        bytes.extend_from_within(..more);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_data_is_repeated_and_its_opposite_differs_everywhere() {
        let data = Data::new("x".to_owned(), repeated(b"abc".to_vec(), 8));
        assert_eq!(data.of(8), b"abcabcab");
        assert!(data.of(8).iter().zip(data.opposite(8)).all(|(a, b)| a != b));
    }

    #[test]
    fn generated_data_has_the_length_asked_for_and_is_the_same_each_time() {
        let (one, two) = (Data::generate(13), Data::generate(16));
        assert_eq!(one.all().len(), 13);
        assert_eq!(one.all(), two.of(13));
    }
}
