//! Claims: a server's name, held by one process.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use genie_sys::Errno;
use genie_sys::fork::Maker;
use genie_sys::record_lock::RecordLocks;
use genie_sys::socket::{Listener, Socket};
use rustix::fs::OFlags;

use super::{Error, LOCK_SUFFIX};

/// No more bytes than these are read of a lock file.
const PID_LEN_MAX: u64 = 16;

/// A server's name, held by this process, and the socket that listens under it. Dropping it removes the socket and the lock
/// file, unless other files are in their place.
///
/// A child made by fork has no part of the lock, and leaves the files when it drops its copy.
#[derive(Debug)]
pub struct Claim {
    listener: Listener,
    maker: Maker,
    path: PathBuf,
    socket: Identity,
    // Dropped last: the process that gets the lock after this must find the socket gone.
    _lock: Lock,
}

/// Tells one file from another, whatever their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Claim {
    /// Locks the name and listens at `path`.
    pub(super) fn take(name: &str, path: PathBuf) -> Result<Self, Error> {
        let lock = Lock::take(name, &path)?;
        clear(name, &path)?;
        let listener = Listener::bind(&path)?;
        let socket = fs::symlink_metadata(&path).map_err(file_error(&path, "looked at"))?;
        let maker = Maker::this_process();
        Ok(Self { listener, maker, socket: Identity::of(&socket), path, _lock: lock })
    }

    /// Claims a path, in whatever directory, and listens there, also in place of a process that was killed. A lock file is beside it,
    /// whose name ends in `.lock`.
    ///
    /// # Errors
    /// [`Error::Running`] where a living process listens there; otherwise the path, or the file there, can't be used.
    pub fn at(path: &Path) -> Result<Self, Error> {
        if path.as_os_str().is_empty() {
            return Ok(Err(genie_sys::Error::new("bind", "a socket without a path", Errno::NOENT))?);
        }
        Self::take(&path.display().to_string(), path.to_owned())
    }

    /// The socket, which accepts clients.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// The process that has claimed the name.
    pub(crate) fn maker(&self) -> Maker {
        self.maker
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.maker.is_this_process() {
            remove(&self.path, self.socket);
        }
    }
}

/// Makes way for a socket at `path`, under the lock: removes the socket of a server that was killed.
fn clear(name: &str, path: &Path) -> Result<(), Error> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(file_error(path, "looked at"))?,
    };
    if !found.file_type().is_socket() {
        return Err(Error::InTheWay { path: path.to_owned(), what: "it is no socket" });
    }
    match Socket::connect(path) {
        // A process listens and does not hold the lock: its lock file was removed by hand.
        Ok(socket) => {
            let pid =
                socket.peer().ok().and_then(|peer| u32::try_from(peer.pid).ok()).filter(|pid| *pid != 0);
            Err(Error::Running { name: name.to_owned(), pid })
        }
        // Its queue is full.
        Err(error) if error.errno == Errno::AGAIN => Err(Error::Running { name: name.to_owned(), pid: None }),
        Err(error) if error.errno == Errno::CONNREFUSED => {
            fs::remove_file(path).map_err(file_error(path, "removed"))
        }
        Err(error) if error.errno == Errno::PROTOTYPE => {
            Err(Error::InTheWay { path: path.to_owned(), what: "it is a socket of another type" })
        }
        Err(error) => Err(error.into()),
    }
}

/// A locked lock file. Dropping it removes the file, and then unlocks it.
#[derive(Debug)]
struct Lock {
    maker: Maker,
    path: PathBuf,
    file: File,
    /// The lock is on the first byte, whether or not that is there.
    _locks: RecordLocks,
}

impl Lock {
    /// Locks the file that belongs to the socket at `socket`.
    fn take(name: &str, socket: &Path) -> Result<Self, Error> {
        let mut path = OsString::from(socket);
        path.push(LOCK_SUFFIX);
        let path = PathBuf::from(path);
        loop {
            let file = open(&path)?;
            let locks = RecordLocks::open(&file)?;
            if !locks.try_lock(0)? {
                return Err(Error::Running { name: name.to_owned(), pid: read_pid(file) });
            }
            // Its last owner may have removed it between our opening and our locking it.
            if is_at(&file, &path)? {
                let lock = Self { maker: Maker::this_process(), path, file, _locks: locks };
                lock.write_pid().map_err(file_error(&lock.path, "written"))?;
                return Ok(lock);
            }
        }
    }

    /// Writes this process's number into the lock file, for error messages.
    fn write_pid(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        (&self.file).write_all(format!("{}\n", std::process::id()).as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.maker.is_this_process()
            && let Ok(metadata) = self.file.metadata()
        {
            remove(&self.path, Identity::of(&metadata));
        }
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    // A link could lead anywhere, and opening a pipe could wait.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = options.open(path).map_err(file_error(path, "opened"))?;
    let metadata = file.metadata().map_err(file_error(path, "looked at"))?;
    if metadata.is_file() {
        Ok(file)
    } else {
        Err(Error::InTheWay { path: path.to_owned(), what: "it is no regular file" })
    }
}

/// Whether `file` is what is at `path` now.
fn is_at(file: &File, path: &Path) -> Result<bool, Error> {
    let ours = file.metadata().map_err(file_error(path, "looked at"))?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Identity::of(&found) == Identity::of(&ours)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(file_error(path, "looked at")(error)),
    }
}

/// The process number in a lock file; its owner may not have written it yet.
fn read_pid(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_LEN_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Removes the file at `path` if it is the one meant. A failure does no harm: the next claim removes the file.
fn remove(path: &Path, meant: Identity) {
    if fs::symlink_metadata(path).is_ok_and(|found| Identity::of(&found) == meant) {
        let _ = fs::remove_file(path);
    }
}

fn file_error(path: &Path, done: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| match Errno::from_io_error(&source) {
        // The process's lack, not the directory's fault.
        Some(errno @ (Errno::MFILE | Errno::NFILE)) => {
            genie_sys::Error::new("open", path.display().to_string(), errno).into()
        }
        _ => Error::File { path, done, source },
    }
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}
