//! Attributes: what STAT and LIST report about a file.
//!
//! How: 28 bytes, little-endian: size (8), modification time in seconds since 1970 (8, signed) and nanoseconds (4), mode
//! (4: permission bits), kind (4: 0 file, 1 directory, 2 link, 3 anything else).

use rustix::fs::{FileType, Stat};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; only in lists, since all else follows links.
    Link,
    /// Anything else, such as a pipe or a device; not served.
    Other,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// What the name stands for.
    pub kind: Kind,
    /// Bytes in it, as far as the file system says: files of procfs say 0, and directories anything. No file has more than
    /// `i64::MAX`.
    pub size: u64,
    /// Seconds from 1970 to its last modification.
    pub modified_seconds: i64,
    /// Nanoseconds to be added to those seconds.
    pub modified_nanoseconds: u32,
    /// Permission bits, as of `chmod`.
    pub mode: u32,
}

impl Attributes {
    /// How many bytes the attributes take.
    pub const LEN: usize = 28;

    /// Writes the attributes as bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.modified_seconds.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.modified_nanoseconds.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.mode.to_le_bytes());
        bytes[24..].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes
    }

    /// Reads attributes from bytes; `None` when the bytes are not attributes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk()?;
        let (modified_seconds, rest) = rest.split_first_chunk()?;
        let (modified_nanoseconds, rest) = rest.split_first_chunk()?;
        let (mode, kind) = rest.split_first_chunk()?;
        let kind = match u32::from_le_bytes(kind.try_into().ok()?) {
            0 => Kind::File,
            1 => Kind::Directory,
            2 => Kind::Link,
            3 => Kind::Other,
            _ => return None,
        };
        Some(Self {
            kind,
            size: Some(u64::from_le_bytes(*size)).filter(|size| i64::try_from(*size).is_ok())?,
            modified_seconds: i64::from_le_bytes(*modified_seconds),
            modified_nanoseconds: u32::from_le_bytes(*modified_nanoseconds),
            mode: u32::from_le_bytes(*mode),
        })
    }

    pub(crate) fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        };
        Self {
            kind,
            size: stat.st_size.try_into().unwrap_or_default(),
            modified_seconds: stat.st_mtime as _,
            modified_nanoseconds: stat.st_mtime_nsec as _,
            mode: stat.st_mode & 0o7777,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_being_passed_and_nothing_else_passes_for_them() {
        for kind in [Kind::File, Kind::Directory, Kind::Link, Kind::Other] {
            let attributes = Attributes {
                kind,
                size: i64::MAX as u64,
                modified_seconds: -5,
                modified_nanoseconds: 999_999_999,
                mode: 0o4755,
            };
            let bytes = attributes.to_bytes();
            assert_eq!(Attributes::from_bytes(&bytes), Some(attributes));
            assert_eq!(Attributes::from_bytes(&bytes[1..]), None);
            assert_eq!(Attributes::from_bytes(&[&bytes[..], &[0]].concat()), None);
            let mut wrong = bytes;
            wrong[24] = 4;
            assert_eq!(Attributes::from_bytes(&wrong), None);
            let too_long = Attributes { size: 1 << 63, ..attributes };
            assert_eq!(Attributes::from_bytes(&too_long.to_bytes()), None, "no file is so long");
        }
    }
}
