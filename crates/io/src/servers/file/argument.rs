//! The argument of the file server's services: a place in a file.
//!
//! How: 8 bytes of offset, little-endian, then the bytes of the path, relative to the server's root; nothing ends it.
//! Trust: the bytes come from a client; each rule here is checked before the kernel sees the path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use crate::ServerError;

const OFFSET_LEN: usize = 8;
/// The kernel's limit, its end mark not counted.
const PATH_MAX: usize = 4095;

/// The argument that names the byte at `offset` of the file at `path`, relative to the server's root.
pub fn at(path: impl AsRef<Path>, offset: u64) -> Vec<u8> {
    let path = path.as_ref().as_os_str().as_bytes();
    let mut argument = Vec::with_capacity(OFFSET_LEN + path.len());
    argument.extend_from_slice(&offset.to_le_bytes());
    argument.extend_from_slice(path);
    argument
}

/// A place in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument<'a> {
    /// At most `i64::MAX`.
    pub(super) offset: u64,
    /// Relative and without "..", though links may still lead anywhere.
    pub(super) path: &'a Path,
}

impl<'a> Argument<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ServerError> {
        let Some((offset, path)) = bytes.split_first_chunk::<OFFSET_LEN>() else {
            let len = bytes.len();
            return Err(invalid(format!(
                "a file argument has an offset of {OFFSET_LEN} bytes and a path; this one has {len} bytes in all"
            )));
        };
        let offset = u64::from_le_bytes(*offset);
        check_path(path)?;
        let path = Path::new(OsStr::from_bytes(path));
        if i64::try_from(offset).is_err() {
            return Err(invalid(format!(
                "offset {offset} in {path:?} exceeds {}, where files end",
                i64::MAX
            )));
        }
        Ok(Self { offset, path })
    }

    /// Makes sure that a file could be long enough for `len` bytes here.
    pub(super) fn check_end(&self, len: usize) -> Result<(), ServerError> {
        let (offset, path) = (self.offset, self.path);
        match offset.checked_add(len as u64).map(i64::try_from) {
            Some(Ok(_)) => Ok(()),
            _ => Err(invalid(format!(
                "{len} bytes at offset {offset} of {path:?} exceed {}, where files end",
                i64::MAX
            ))),
        }
    }
}

fn check_path(bytes: &[u8]) -> Result<(), ServerError> {
    let path = Path::new(OsStr::from_bytes(bytes));
    if bytes.is_empty() {
        return Err(invalid("a file argument has no path after its offset; add one".to_owned()));
    }
    if bytes.len() > PATH_MAX {
        return Err(invalid(format!(
            "a path of {} bytes is longer than the {PATH_MAX} that are possible",
            bytes.len()
        )));
    }
    if bytes.contains(&0) {
        return Err(invalid(format!("path {path:?} contains a zero byte; leave it out")));
    }
    if path.is_absolute() {
        return Err(invalid(format!("path {path:?} is absolute; give it relative to the server's root")));
    }
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(invalid(format!("path {path:?} contains \"..\"; give it relative to the server's root")));
    }
    Ok(())
}

fn invalid(message: String) -> ServerError {
    ServerError { code: genie_sys::Errno::INVAL.raw_os_error(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        Argument::parse(bytes).expect_err("a refusal").message
    }

    #[test]
    fn what_is_encoded_is_parsed_whatever_the_bytes_of_the_path() {
        for (path, offset) in
            [(&b"a"[..], 0), (b"dir/./a b\n", 1), (b"\xff\xfe..", 1 << 40), (b"...", i64::MAX as u64)]
        {
            let path = Path::new(OsStr::from_bytes(path));
            let bytes = at(path, offset);
            assert_eq!(Argument::parse(&bytes).unwrap(), Argument { offset, path });
        }
    }

    #[test]
    fn each_wrong_argument_is_refused_with_its_own_reason() {
        assert!(refusal(b"1234567").contains("7 bytes in all"));
        assert!(refusal(&at("", 0)).contains("no path"));
        assert!(refusal(&at("a\0b", 0)).contains("zero byte"));
        assert!(refusal(&at("/etc/passwd", 0)).contains("absolute"));
        for path in ["..", "../a", "a/../b", "a/.."] {
            assert!(refusal(&at(path, 0)).contains("\"..\""), "{path}");
        }
        assert!(refusal(&at("a".repeat(4096), 0)).contains("4096 bytes"));
        assert!(refusal(&at("a", 1 << 63)).contains("where files end"));
    }

    #[test]
    fn a_store_must_end_where_files_can() {
        let last = Argument { offset: i64::MAX as u64 - 5, path: Path::new("a") };
        last.check_end(5).unwrap();
        assert!(last.check_end(6).unwrap_err().message.contains("6 bytes"));
        last.check_end(usize::MAX).unwrap_err();
    }
}
