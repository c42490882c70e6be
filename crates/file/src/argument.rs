//! The arguments of the file server's services: numbers, then a path.
//!
//! How: the simplest argument is a place in a file: 8 bytes of offset, then the bytes of the path, relative to the server's
//! root, without an end mark. Others have more fields before the path. All numbers are little-endian.
//! Trust: the bytes come from a client; each rule here is checked before the kernel sees the path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use genie_io::ServerError;

/// The kernel's limit on the bytes of a path, the end mark not counted.
const PATH_MAX: usize = 4095;

/// The argument that names the byte at `offset` of the file at `path`, relative to the server's root.
pub fn at(path: impl AsRef<Path>, offset: u64) -> Vec<u8> {
    let path = path.as_ref().as_os_str().as_bytes();
    [&offset.to_le_bytes(), path].concat()
}

/// The part of an argument that is still to be read.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    left: &'a [u8],
    len: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(argument: &'a [u8]) -> Self {
        Self { left: argument, len: argument.len() }
    }

    /// The next `N` bytes, which errors call `what`.
    pub(crate) fn take<const N: usize>(&mut self, what: &str) -> Result<&'a [u8; N], ServerError> {
        let Some((field, left)) = self.left.split_first_chunk() else {
            return Err(self.short(what, N));
        };
        self.left = left;
        Ok(field)
    }

    pub(crate) fn number(&mut self, what: &str) -> Result<u64, ServerError> {
        Ok(u64::from_le_bytes(*self.take(what)?))
    }

    /// The next bytes, as many as the byte before them says.
    pub(crate) fn name(&mut self, what: &str) -> Result<&'a OsStr, ServerError> {
        let [len] = *self.take(what)?;
        let Some((name, left)) = self.left.split_at_checked(len.into()) else {
            return Err(self.short(what, len.into()));
        };
        self.left = left;
        Ok(OsStr::from_bytes(name))
    }

    /// The path that ends the argument, checked.
    pub(crate) fn path(self) -> Result<&'a Path, ServerError> {
        check_path(self.left)?;
        Ok(Path::new(OsStr::from_bytes(self.left)))
    }

    fn short(&self, what: &str, needed: usize) -> ServerError {
        invalid(format!(
            "a file argument of {} bytes in all ends within its {what}, which takes {needed}",
            self.len
        ))
    }
}

/// Appends a name after a byte that says its length.
///
/// # Panics
/// When the name is longer than names of files can be.
pub(crate) fn push_name(argument: &mut Vec<u8>, name: &OsStr) {
    let name = name.as_bytes();
    argument.push(u8::try_from(name.len()).expect("no file's name is longer than 255 bytes"));
    argument.extend_from_slice(name);
}

/// A place in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument<'a> {
    /// At most `i64::MAX`.
    pub(crate) offset: u64,
    /// Relative and without "..", though links may still lead anywhere.
    pub(crate) path: &'a Path,
}

impl<'a> Argument<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ServerError> {
        let mut fields = Fields::new(bytes);
        let offset = fields.number("offset")?;
        let path = fields.path()?;
        if i64::try_from(offset).is_err() {
            return Err(invalid(format!(
                "offset {offset} in {path:?} exceeds {}, where files end",
                i64::MAX
            )));
        }
        Ok(Self { offset, path })
    }

    /// Makes sure that a file could be long enough for `len` bytes here.
    pub(crate) fn check_end(&self, len: usize) -> Result<(), ServerError> {
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
        return Err(invalid("a file argument ends without a path; add one".to_owned()));
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

pub(crate) fn invalid(message: String) -> ServerError {
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
        assert!(refusal(b"1234567").contains("7 bytes in all ends within its offset"));
        assert!(refusal(&at("", 0)).contains("without a path"));
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
