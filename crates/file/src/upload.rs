//! Uploads: files that appear whole or not at all.
//!
//! How:
//! 1. BEGIN creates a *part*, a file beside the future file, and tells the part's name to this client alone.
//! 2. The client stores into the part, in any order, by STORE with the part's path.
//! 3. COMMIT compares the part's size and checksum with those that the client states, makes the part durable, and renames it
//!    over the target; ABANDON removes the part instead.
//!
//! A client that was interrupted begins again with the same token, and gets the part that it left. By CHECKSUM, the client
//! finds out what the part holds.
//! Invariants: STORE never creates a part, LIST never names one, and no target bears a part's name. Nothing but regular
//! files is replaced: BEGIN and COMMIT refuse a target that is a directory, link, pipe, socket or device.
//! Trust: a client that knows a part's name may store into it after the check, and so spoil its own upload. What another
//! process puts in the target's place between COMMIT's last look and the renaming is replaced, unless it is a directory.
//! Limits: parts that are never committed stay until they are removed as leftovers; finding these reads the
//! names in the whole tree. A COMMIT hashes the whole file in the
//! thread that serves it; files larger than their file system are refused, so that sparse files cannot make the hashing
//! endless.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use genie_sys::Errno;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::argument::{self, Fields};
use super::attributes::{Attributes, Kind};
use super::checksum::{self, Checksum};
use super::parts::{Token, adopt, create, is_part};
use super::root::{Opened, Root, refuse};
use genie_io::ServerError;

/// How long the reply argument of BEGIN can be: 8 bytes that say how long the part is, then its name.
pub const BEGIN_ROOM: usize = 8 + 255;

/// An upload that a client begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// How long the file will be.
    pub size: u64,
    /// The client's name for it.
    pub token: Token,
    /// Whether to take over a part that was begun with the same token, if there is one.
    pub resume: bool,
}

/// An upload that a client commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// How long the file is to be.
    pub size: u64,
    /// The checksum of what the file is to hold, if that is to be checked.
    pub checksum: Option<Checksum>,
    /// Its permission bits; only those of `rwxrwxrwx` count.
    pub mode: u32,
    /// Whether to reply only when the file and its name are on the disk.
    pub durable: bool,
}

impl Begin {
    /// The argument of BEGIN: the file will be at `path`, relative to the server's root.
    pub fn argument(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = path.as_ref().as_os_str().as_bytes();
        [&self.size.to_le_bytes()[..], &self.token, &[u8::from(self.resume)], path].concat()
    }

    fn parse(argument: &[u8]) -> Result<(Self, &Path), ServerError> {
        let mut fields = Fields::new(argument);
        let size = fields.number("size")?;
        let token = *fields.take("token")?;
        let [resume] = *fields.take("choice to resume")?;
        Ok((Self { size, token, resume: resume != 0 }, fields.path()?))
    }
}

impl Commit {
    const CHECKED: u8 = 1;
    const DURABLE: u8 = 2;

    /// The argument of COMMIT: the part's name, as BEGIN told it, and the path with which it was begun.
    ///
    /// # Panics
    /// When `part` is longer than 255 bytes.
    pub fn argument(&self, part: impl AsRef<OsStr>, path: impl AsRef<Path>) -> Vec<u8> {
        let checked = if self.checksum.is_some() { Self::CHECKED } else { 0 };
        let durable = if self.durable { Self::DURABLE } else { 0 };
        let mut argument = [&self.size.to_le_bytes()[..], &self.mode.to_le_bytes()].concat();
        argument.push(checked | durable);
        argument.extend_from_slice(&self.checksum.map_or([0; Checksum::LEN], Checksum::to_bytes));
        argument::push_name(&mut argument, part.as_ref());
        argument.extend_from_slice(path.as_ref().as_os_str().as_bytes());
        argument
    }

    fn parse(argument: &[u8]) -> Result<(Self, &OsStr, &Path), ServerError> {
        let mut fields = Fields::new(argument);
        let size = fields.number("size")?;
        let mode = u32::from_le_bytes(*fields.take("mode")?);
        let [flags] = *fields.take("flags")?;
        let checksum = Checksum::from_bytes(*fields.take("checksum")?);
        let checksum = (flags & Self::CHECKED != 0).then_some(checksum);
        let part = fields.name("part's name")?;
        Ok((Self { size, checksum, mode, durable: flags & Self::DURABLE != 0 }, part, fields.path()?))
    }
}

/// Reads the reply argument of BEGIN: how long the part is, and its name. `None` when `argument` is no such argument.
pub fn begun(argument: &[u8]) -> Option<(u64, OsString)> {
    let (len, name) = argument.split_first_chunk()?;
    let name = OsStr::from_bytes(name);
    is_part(name).then(|| (u64::from_le_bytes(*len), name.to_owned()))
}

/// Makes or finds a part; the reply argument says which.
pub(crate) fn begin(root: &Root, argument: &[u8]) -> Result<Vec<u8>, ServerError> {
    let (begin, path) = Begin::parse(argument)?;
    let (directory, name) = root.parent(path)?;
    check_replaceable(root, path, &directory, name)?;
    let failed = |errno| root.refusal(path, errno, "written");
    let adopted =
        if begin.resume { adopt(&directory, &begin.token, begin.size).map_err(failed)? } else { None };
    let (len, part) = match adopted {
        Some(adopted) => adopted,
        None => (0, create(&directory, &begin.token).map_err(failed)?),
    };
    if let Err(error) = check_space(root, path, &directory, begin.size.saturating_sub(len)) {
        if len == 0 {
            // The error that ended the upload matters more than an error of removing its part.
            let _ = rustix::fs::unlinkat(&directory, &part, AtFlags::empty());
        }
        return Err(error);
    }
    Ok([&len.to_le_bytes()[..], part.as_bytes()].concat())
}

/// Makes the part the target, if the part has the size and checksum that the client states.
pub(crate) fn commit(root: &Root, argument: &[u8]) -> Result<(), ServerError> {
    let (commit, part, path) = Commit::parse(argument)?;
    let (directory, name) = root.parent(path)?;
    let opened = open_part(root, &directory, part, path)?;
    check(root, &commit, &opened, path)?;
    let mode = Mode::from_raw_mode(commit.mode & 0o777);
    rustix::fs::fchmod(&opened.file, mode).map_err(|errno| root.refusal(path, errno, "written"))?;
    if commit.durable {
        opened.file.sync_all().map_err(|error| root.lost(path, &error))?;
    }
    check_replaceable(root, path, &directory, name)?;
    rustix::fs::renameat(&directory, part, &directory, name).map_err(|errno| match errno {
        Errno::NOENT => root.gone(path),
        errno => root.refusal(path, errno, "written"),
    })?;
    if commit.durable {
        directory.sync_all().map_err(|error| root.lost(path, &error))?;
    }
    Ok(())
}

fn check(root: &Root, commit: &Commit, opened: &Opened, path: &Path) -> Result<(), ServerError> {
    let (name, size) = (root.name(path), opened.version.size);
    if size != commit.size {
        return Err(refuse(
            Errno::INVAL,
            format!("the upload of {name} holds {size} bytes in place of {}; store the rest", commit.size),
        ));
    }
    let Some(wanted) = commit.checksum else { return Ok(()) };
    let space = rustix::fs::fstatvfs(&opened.file).map_err(|errno| root.refusal(path, errno, "read"))?;
    if size > space.f_blocks.saturating_mul(space.f_frsize) {
        return Err(refuse(
            Errno::FBIG,
            format!("the {size} bytes of {name} are more than its file system has"),
        ));
    }
    let failed = |error: genie_sys::Error| {
        refuse(error.errno, format!("the upload of {name} cannot be read back: {error}; store it again"))
    };
    let (_, found) = checksum::of_file(opened, 0..size).map_err(failed)?;
    if found != wanted {
        return Err(refuse(
            Errno::BADMSG,
            format!("the upload of {name} has the checksum {found} in place of {wanted}; store it again"),
        ));
    }
    Ok(())
}

/// Removes a part.
pub(crate) fn abandon(root: &Root, path: &Path) -> Result<(), ServerError> {
    let Some(part) = path.file_name().filter(|name| is_part(name)) else {
        return Err(refuse(
            Errno::INVAL,
            format!("{} is no upload; only such are abandoned", root.name(path)),
        ));
    };
    let directory = root.directory(path.parent().unwrap_or(Path::new("")))?;
    match rustix::fs::unlinkat(&directory, part, AtFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(root.gone(path)),
        Err(errno) => Err(root.refusal(path, errno, "removed")),
    }
}

fn open_part(root: &Root, directory: &File, part: &OsStr, path: &Path) -> Result<Opened, ServerError> {
    if !is_part(part) {
        return Err(refuse(
            Errno::INVAL,
            format!("{part:?} is no upload's name; use the one that BEGIN told"),
        ));
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, part, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => root.gone(path),
        errno => root.refusal(path, errno, "written"),
    })?;
    root.opened(file.into(), path, "written")
}

fn check_space(root: &Root, path: &Path, directory: &File, needed: u64) -> Result<(), ServerError> {
    let space = rustix::fs::fstatvfs(directory).map_err(|errno| root.refusal(path, errno, "written"))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if needed > free {
        let name = root.name(path);
        return Err(refuse(
            Errno::NOSPC,
            format!(
                "{needed} bytes of {name} do not fit into the {free} that are free; free space and try again"
            ),
        ));
    }
    Ok(())
}

/// Refuses what an upload must not replace: all that is there and is no regular file.
fn check_replaceable(root: &Root, path: &Path, directory: &File, name: &OsStr) -> Result<(), ServerError> {
    let errno = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match Attributes::of(&stat).kind {
            Kind::File => return Ok(()),
            Kind::Directory => Errno::ISDIR,
            Kind::Link => {
                let name = root.name(path);
                let message = format!("{name} is a symbolic link; name what the link leads to, or remove it");
                return Err(refuse(Errno::LOOP, message));
            }
            Kind::Other => Errno::NXIO,
        },
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => errno,
    };
    Err(root.refusal(path, errno, "written"))
}

/// Removes the parts beneath the root that nobody has stored into for `age`; returns how many. Parts that may not be looked
/// at or removed are left.
pub(crate) fn remove_leftovers(root: &Root, age: Duration) -> usize {
    let Some(oldest) = SystemTime::now().checked_sub(age) else { return 0 };
    let mut removed = 0;
    let mut directories = vec![PathBuf::from(".")];
    while let Some(path) = directories.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let Ok(directory) = root.beneath(&path, flags) else { continue };
        let Ok(entries) = Dir::read_from(&directory) else { continue };
        for entry in entries.flatten() {
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => directories.push(path.join(name)),
                FileType::RegularFile if is_part(&name) && is_older(stat.st_mtime, oldest) => {
                    removed += usize::from(rustix::fs::unlinkat(&directory, &name, AtFlags::empty()).is_ok());
                }
                _ => {}
            }
        }
    }
    removed
}

fn is_older(modified_seconds: i64, oldest: SystemTime) -> bool {
    let modified = u64::try_from(modified_seconds).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(modified) < oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_and_committed_is_parsed_as_it_was_said() {
        for resume in [false, true] {
            let begin = Begin { size: 1 << 40, token: [7; 16], resume };
            assert_eq!(Begin::parse(&begin.argument("a/b")).unwrap(), (begin, Path::new("a/b")));
        }
        for (checksum, durable) in [(None, false), (Some(Checksum::of(b"x")), true)] {
            let commit = Commit { size: 3, checksum, mode: 0o755, durable };
            let argument = commit.argument(".genie-00.part", "a/b");
            let parsed = Commit::parse(&argument).unwrap();
            assert_eq!(parsed, (commit, OsStr::new(".genie-00.part"), Path::new("a/b")));
            for cut in 0..argument.len() - 3 {
                Commit::parse(&argument[..cut]).unwrap_err();
            }
        }
    }

    #[test]
    fn a_reply_that_names_no_part_is_none() {
        let part = begun(b"\x03\0\0\0\0\0\0\0.genie-00-11.part");
        assert_eq!(part, Some((3, OsString::from(".genie-00-11.part"))));
        assert_eq!(begun(b"12345678passwd"), None);
        assert_eq!(begun(b"1234567"), None);
    }
}
