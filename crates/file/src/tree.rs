//! The tree beneath the root: what is in a directory, what a name stands for, and new directories.
//!
//! How: a list comes in pages, each as long as the client's buffer allows, in the order of the names; the next page begins
//! after the last name of the page before. So an entry that stays is listed exactly once, whatever happens to other entries
//! meanwhile. An entry takes 28 bytes of [`Attributes`], one byte that says how long its name is, and the name.
//! Limits: each page reads the names of the whole directory and sorts them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use genie_sys::Errno;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::argument::{self, Fields, invalid};
use super::attributes::Attributes;
use super::parts;
use super::root::Root;
use genie_io::ServerError;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: OsString,
    /// Its own attributes; those of a link, not of what the link leads to.
    pub attributes: Attributes,
}

/// The argument of LIST: a directory, relative to the server's root, which is itself "."; and `name`, after which the listed
/// entries come. `name` is empty at first, and then the last name of the page before.
///
/// # Panics
/// When `name` is longer than 255 bytes.
pub fn after(directory: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Vec<u8> {
    let mut argument = Vec::new();
    argument::push_name(&mut argument, name.as_ref());
    argument.extend_from_slice(directory.as_ref().as_os_str().as_bytes());
    argument
}

/// Reads the entries of a list from exactly the bytes that were passed. `None` when the bytes are no entries, or when an
/// entry has a name that would lead out of its directory, which no honest server sends.
pub fn entries(mut bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (attributes, rest) = bytes.split_at_checked(Attributes::LEN)?;
        let (len, rest) = rest.split_first()?;
        let (name, rest) = rest.split_at_checked((*len).into())?;
        let name = OsStr::from_bytes(name);
        if !is_plain(name) {
            return None;
        }
        entries.push(Entry { name: name.to_owned(), attributes: Attributes::from_bytes(attributes)? });
        bytes = rest;
    }
    Some(entries)
}

/// Whether a name leads exactly one step down.
fn is_plain(name: &OsStr) -> bool {
    let mut components = Path::new(name).components();
    let is_one = matches!(components.next(), Some(Component::Normal(first)) if first == name);
    is_one && components.next().is_none() && !name.as_bytes().contains(&0)
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
    /// Whether there are entries that did not fit.
    pub(crate) is_followed: bool,
}

/// Lists as many entries as fit into `room` bytes.
pub(crate) fn list(root: &Root, argument: &[u8], room: usize) -> Result<Page, ServerError> {
    let mut fields = Fields::new(argument);
    let last = fields.name("last name")?;
    let path = fields.path()?;
    let directory = root.directory(path)?;
    let mut bytes = Vec::new();
    for name in names_after(&directory, last).map_err(|errno| root.refusal(path, errno, "listed"))? {
        let attributes = match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Attributes::of(&stat),
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(root.refusal(&path.join(&name), errno, "listed")),
        };
        let needed = Attributes::LEN + 1 + name.len();
        if needed > room - bytes.len() {
            if bytes.is_empty() {
                return Err(invalid(format!(
                    "a list of {path:?} needs {needed} bytes for its next entry; the buffer has {room}"
                )));
            }
            return Ok(Page { bytes, is_followed: true });
        }
        bytes.extend_from_slice(&attributes.to_bytes());
        argument::push_name(&mut bytes, &name);
    }
    Ok(Page { bytes, is_followed: false })
}

/// The names in a directory that come after `last`, in order, without those of uploads' parts.
fn names_after(directory: &std::fs::File, last: &OsStr) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name > last && is_plain(name) && !parts::is_part(name) {
            names.push(OsString::from_vec(entry.file_name().to_bytes().to_vec()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The attributes of what a path leads to.
pub(crate) fn attributes(root: &Root, path: &Path) -> Result<Attributes, ServerError> {
    let refuse = |errno| root.refusal(path, errno, "looked at");
    let found = root.beneath(path, OFlags::PATH).map_err(refuse)?;
    Ok(Attributes::of(&rustix::fs::fstat(&found).map_err(refuse)?))
}

/// Makes a directory, unless it is there.
pub(crate) fn make_directory(root: &Root, path: &Path) -> Result<(), ServerError> {
    let (parent, name) = root.parent(path)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => root.directory(path).map(drop),
        Err(errno) => Err(root.refusal(path, errno, "created")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn listed(name: &[u8]) -> Vec<u8> {
        let attributes = Attributes {
            kind: Kind::File,
            size: 1,
            modified_seconds: 2,
            modified_nanoseconds: 3,
            mode: 0o600,
        };
        let mut bytes = attributes.to_bytes().to_vec();
        argument::push_name(&mut bytes, OsStr::from_bytes(name));
        bytes
    }

    #[test]
    fn entries_are_read_back_whatever_the_bytes_of_their_names() {
        let bytes = [listed(b"a"), listed(b"..."), listed(b"\xff \n")].concat();
        let names: Vec<_> = entries(&bytes).unwrap().into_iter().map(|entry| entry.name.into_vec()).collect();
        assert_eq!(names, [&b"a"[..], b"...", b"\xff \n"]);
        for cut in 1..listed(b"name").len() {
            assert_eq!(entries(&listed(b"name")[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn an_entry_that_leads_elsewhere_is_none() {
        for name in [&b""[..], b".", b"..", b"/etc", b"a/b", b"../a", b"a/", b"a\0b"] {
            assert_eq!(entries(&listed(name)), None, "{}", name.escape_ascii());
        }
    }
}
