//! The root: opens the files beneath one directory, and nothing else.
//!
//! How: the kernel resolves each path by `openat2`, which refuses every step out of the root, even by a link that changes
//! meanwhile. Links that stay beneath the root are followed.
//! Limits: a path that is renamed again and again while the kernel resolves it is given up after some tries.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use genie_sys::Errno;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io;

use super::argument::{Argument, invalid};
use super::parts::is_part;
use genie_io::ServerError;

const TRIES: u32 = 16;
/// Longer than the kernel's clock tick, within which two changes could bear the same time.
const TICK: Duration = Duration::from_millis(20);
/// Longer than the tick of file systems that keep no fractions of seconds.
const WHOLE_SECONDS: Duration = Duration::from_secs(3);

/// The directory that is served.
#[derive(Debug)]
pub(crate) struct Root {
    directory: fs::File,
    path: PathBuf,
}

/// A file, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// What tells one content of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A regular file, open for one request.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: fs::File,
    pub(crate) id: FileId,
    /// The version when the file was opened.
    pub(crate) version: Version,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, ServerError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|errno| {
            refuse(
                errno,
                format!("cannot serve files beneath {path:?}: {errno}; name a directory that may be entered"),
            )
        })?;
        Ok(Self { directory: directory.into(), path: path.to_owned() })
    }

    /// Opens a file to be read.
    pub(crate) fn reader(&self, path: &Path) -> Result<Opened, ServerError> {
        self.regular(path, OFlags::RDONLY, "read")
    }

    /// Opens a file to be written. A missing file is created, unless it is a part of an upload.
    pub(crate) fn writer(&self, path: &Path) -> Result<Opened, ServerError> {
        if !path.file_name().is_some_and(is_part) {
            return self.regular(path, OFlags::WRONLY | OFlags::CREATE, "written");
        }
        let opened = self.regular(path, OFlags::WRONLY, "written");
        opened.map_err(|error| match Errno::from_raw_os_error(error.code) {
            Errno::NOENT => self.gone(path),
            _ => error,
        })
    }

    /// Opens a directory to be listed or changed.
    pub(crate) fn directory(&self, path: &Path) -> Result<fs::File, ServerError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY);
        directory.map_err(|errno| self.refusal(path, errno, "read"))
    }

    /// Opens the directory that holds a path's last step, or in which that step is to be made; returns the step, too.
    pub(crate) fn parent<'p>(&self, path: &'p Path) -> Result<(fs::File, &'p OsStr), ServerError> {
        let Some(name) = path.file_name() else {
            return Err(invalid(format!("{} has no name of its own; name what is in it", self.name(path))));
        };
        if is_part(name) {
            return Err(invalid(format!(
                "{} bears a name that uploads bear; choose another",
                self.name(path)
            )));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        match self.directory(parent) {
            Err(error) if error.code == Errno::NOENT.raw_os_error() => {
                Err(self.refusal(path, Errno::NOENT, "written"))
            }
            directory => Ok((directory?, name)),
        }
    }

    /// Makes what was stored in a file, and its entry in the directory by which it is named, durable.
    pub(crate) fn sync(&self, path: &Path) -> Result<(), ServerError> {
        self.reader(path)?.file.sync_all().map_err(|error| self.lost(path, &error))?;
        let directory = self.directory(path.parent().unwrap_or(Path::new("")))?;
        directory.sync_all().map_err(|error| self.lost(path, &error))
    }

    fn regular(&self, path: &Path, flags: OFlags, purpose: &str) -> Result<Opened, ServerError> {
        let file = self.beneath(path, flags).map_err(|errno| self.refusal(path, errno, purpose))?;
        self.opened(file, path, purpose)
    }

    /// Accepts an opened file if it is a regular one.
    pub(crate) fn opened(&self, file: fs::File, path: &Path, purpose: &str) -> Result<Opened, ServerError> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(self.refusal(path, Errno::ISDIR, purpose));
        }
        if !metadata.is_file() {
            return Err(self.refusal(path, Errno::NXIO, purpose));
        }
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        Ok(Opened { file, id, version: Version::of(&metadata) })
    }

    /// Opens whatever a path leads to.
    pub(crate) fn beneath(&self, path: &Path, flags: OFlags) -> Result<fs::File, Errno> {
        // Opening a pipe must not wait, and opening a terminal must not make it the process's own. Merely finding a file
        // does neither.
        let found = flags.contains(OFlags::PATH);
        let harmless = if found { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        let flags = flags | OFlags::CLOEXEC | harmless;
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut tries = TRIES;
        loop {
            match rustix::fs::openat2(&self.directory, path, flags, mode, resolve) {
                Err(Errno::AGAIN | Errno::INTR) if tries > 0 => tries -= 1,
                result => return result.map(fs::File::from),
            }
        }
    }

    /// A path, for messages.
    pub(crate) fn name(&self, path: &Path) -> String {
        format!("{path:?} beneath {:?}", self.path)
    }

    /// The error for a file that could not be opened, or to which something else could not be done.
    pub(crate) fn refusal(&self, path: &Path, errno: Errno, purpose: &str) -> ServerError {
        let name = self.name(path);
        let message = match errno {
            Errno::NOENT if matches!(purpose, "written" | "created") => {
                format!("the directory of {name} does not exist; create it first")
            }
            Errno::NOENT => format!("there is no file {name}; check the path, or store to it first"),
            Errno::ISDIR => format!("{name} is a directory; name a file in it"),
            Errno::NOTDIR => {
                format!("{name} is, or goes through, something that is no directory; check the path")
            }
            Errno::NXIO => format!("{name} is not a regular file; only such are served"),
            Errno::XDEV => format!("{name} leads out of the root by a link; name a file beneath the root"),
            Errno::LOOP => format!(
                "{name} leads through a magic link, or through links without end; name the file itself"
            ),
            Errno::ACCESS | Errno::PERM => {
                format!("{name} may not be {purpose} by this process ({errno}); change its owner or mode")
            }
            Errno::MFILE | Errno::NFILE => {
                format!("{name} cannot be {purpose}: {errno}; raise the limit on open files (ulimit -n)")
            }
            Errno::AGAIN => format!("{name} was renamed {TRIES} times while it was looked up; try again"),
            Errno::NOSPC | Errno::DQUOT => format!("{name} cannot be created: {errno}; free space"),
            other => format!("{name} cannot be {purpose}: {other}; check the file and its file system"),
        };
        refuse(errno, message)
    }

    /// The error for stored data that may not last.
    pub(crate) fn lost(&self, path: &Path, error: &std::io::Error) -> ServerError {
        let code = error.raw_os_error().unwrap_or_default();
        let name = self.name(path);
        ServerError {
            code,
            message: format!("what was stored in {name} may be lost: {error}; store it again"),
        }
    }

    /// The error for a part that a client names and that is not there.
    pub(crate) fn gone(&self, path: &Path) -> ServerError {
        let name = self.name(path);
        refuse(
            Errno::NOENT,
            format!(
                "the upload of {name} is gone: committed, abandoned, or resumed by another client; begin it again"
            ),
        )
    }

    /// The error of a server that changes nothing.
    pub(crate) fn unchangeable(&self) -> ServerError {
        refuse(
            Errno::ROFS,
            format!("the files beneath {:?} are served to be read only; store elsewhere", self.path),
        )
    }

    /// The error of a failed fetch.
    pub(crate) fn unreadable(&self, from: &Argument<'_>, error: &genie_sys::Error) -> ServerError {
        let (name, offset, errno) = (self.name(from.path), from.offset, error.errno);
        refuse(
            errno,
            format!("{name} cannot be read from offset {offset} on: {error}; look into the kernel's log"),
        )
    }

    /// The error of a failed store.
    pub(crate) fn unwritable(&self, to: &Argument<'_>, len: usize, error: &genie_sys::Error) -> ServerError {
        let (name, offset, errno) = (self.name(to.path), to.offset, error.errno);
        let remedy = match errno {
            Errno::NOSPC | Errno::DQUOT => "free space and store them again",
            Errno::FBIG => "keep to the longest file that the file system and `ulimit -f` allow",
            _ => "look into the kernel's log",
        };
        refuse(
            errno,
            format!("not all {len} bytes could be stored at offset {offset} of {name}: {error}; {remedy}"),
        )
    }
}

impl Version {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Self {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file's next change is sure to bear another time. That is not so right after a change, when the clock may
    /// not have ticked yet. Times in the future are never settled.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(self.changed.0), u32::try_from(self.changed.1))
        else {
            return false;
        };
        let tick = if nanoseconds == 0 { WHOLE_SECONDS } else { TICK };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(changed).is_ok_and(|age| age >= tick)
    }

    /// How many bytes there are from an offset on.
    pub(crate) fn bytes_from(&self, offset: u64) -> u64 {
        self.size.saturating_sub(offset)
    }
}

impl Opened {
    /// Replaces the contents of `bytes` by `len` bytes of the file, or as many as there are.
    pub(crate) fn read(&self, offset: u64, len: usize, bytes: &mut Vec<u8>) -> Result<(), genie_sys::Error> {
        bytes.clear();
        bytes.reserve_exact(len);
        while bytes.len() < len {
            let from = offset + bytes.len() as u64;
            let left = len - bytes.len();
            let room = rustix::buffer::spare_capacity(bytes);
            match io::pread(&self.file, room, from) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(genie_sys::Error::new("pread", format!("{left} bytes at {from}"), errno));
                }
            }
        }
        // The vector may have had more room than was asked for.
        bytes.truncate(len);
        Ok(())
    }
}

/// How many bytes a file can hold from an offset on. The kernel refuses to read beyond that.
pub(crate) fn bytes_possible(offset: u64) -> usize {
    usize::try_from((i64::MAX as u64).saturating_sub(offset)).unwrap_or(usize::MAX)
}

pub(crate) fn refuse(errno: Errno, message: String) -> ServerError {
    ServerError { code: errno.raw_os_error(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(seconds: i64, nanoseconds: i64) -> Version {
        Version { size: 1, modified: (0, 0), changed: (seconds, nanoseconds) }
    }

    #[test]
    fn a_version_settles_once_the_clock_must_have_ticked() {
        let now = SystemTime::UNIX_EPOCH + Duration::new(1000, 500_000_000);
        assert!(changed(1000, 480_000_000).is_settled(now));
        assert!(!changed(1000, 480_000_001).is_settled(now));
        assert!(!changed(1000, 0).is_settled(now), "times in whole seconds tick slowly");
        assert!(changed(997, 0).is_settled(now));
        assert!(!changed(1001, 1).is_settled(now), "a time to come says nothing");
        assert!(!changed(-1, 0).is_settled(now));
    }
}
