//! The header that the protocol puts before each datagram: 16 bytes.

/// The header's length.
pub(super) const LEN: usize = 16;
/// The bytes with which every header begins.
const MAGIC: [u8; 4] = *b"gnie";

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// How long the data is.
    pub(super) len: u64,
    /// The data's checksum, or 0.
    pub(super) checksum: u32,
}

impl Header {
    pub(super) fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[8..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// None, where the bytes are no header.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, len) = rest.split_first_chunk::<4>()?;
        let len = u64::from_le_bytes(*len.first_chunk()?);
        (*magic == MAGIC).then_some(Self { len, checksum: u32::from_le_bytes(*checksum) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_nothing_else_is_one() {
        let header = Header { len: 1 << 33, checksum: 0xdead_beef };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        assert_eq!(Header::decode(&[0; LEN]), None);
        assert_eq!(Header::decode(&header.encode()[..15]), None);
    }
}
