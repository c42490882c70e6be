//! The run-time directory: where servers' sockets are, each under its server's name.
//!
//! Why: a name that clients can find must lie where no other user can put something else. And a killed server leaves its
//! socket behind, which must neither be taken for a living server nor keep the next server from the name.
//! How: the directory is `$GENIE_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/genie`, else `/tmp/genie-$UID`. A process that claims
//! a name locks `NAME.lock`, which the kernel unlocks however the process ends. Under that lock, a socket on which no
//! process listens is a dead server's, and is replaced. A lock file is removed under its own lock, and a process that has
//! locked a file checks that the file is still at that path.
//! Invariants: at most one living process has claimed a name. A directory chosen by default belongs to this user, is no
//! link, and no other user can write to it.
//! Trust: other users may do what permissions allow, at any moment: in a directory that an administrator shares among
//! several, a name belongs to the first process that claims it.
//! Limits: names of [`MAX_NAME`] bytes, paths of [`MAX_PATH`].

mod claim;
mod place;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

pub use claim::Claim;
use place::{ChosenBy, Place};

pub use genie_io::carrier::MAX_NAME;

/// The longest path of a socket, in bytes: the kernel's limit, its end mark not counted.
pub const MAX_PATH: usize = 107;

const LOCK_SUFFIX: &str = ".lock";

/// Why a server's name cannot be found or claimed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory is not there, or cannot be made or looked at.
    #[error(
        "the run-time directory {path:?} cannot be used: {source}; name another one in GENIE_RUNTIME_DIR"
    )]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The directory is not safe to use.
    #[error("the run-time directory {path:?} is not safe: {what}; {remedy}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A name that no server can have.
    #[error(
        "{name:?} cannot be a server's name: {what}; use up to 64 of A-Z a-z 0-9 . _ - and no dot in front"
    )]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The path of the socket exceeds what the kernel takes.
    #[error(
        "the socket path {path:?} has {len} bytes, more than {MAX_PATH}; use a shorter name or GENIE_RUNTIME_DIR"
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// Another process serves under this name.
    #[error("server {name} is running already, {}; stop it, or serve under another name", owner(*pid))]
    Running {
        /// The name.
        name: String,
        /// The number of its process, where that is known.
        pid: Option<u32>,
    },
    /// Something other than a dead server's socket is in the way.
    #[error("{path:?} is in the way of a server: {what}; remove it")]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A file of the directory could not be used.
    #[error("{path:?} cannot be {done}: {source}; check the directory's permissions and file system")]
    File {
        /// The file.
        path: PathBuf,
        /// What was to be done: "locked", "removed" and the like.
        done: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// The socket could not be made or asked, or this process may open no more files.
    #[error(transparent)]
    Socket(#[from] genie_sys::Error),
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "in a process that does not say its number".to_owned(), |pid| format!("process {pid}"))
}

impl From<Error> for genie_io::Error {
    fn from(error: Error) -> Self {
        let unusable = |path, why, remedy| Self::Directory { path, why, remedy };
        match error {
            Error::Name { name, what } => Self::BadName { name, why: what },
            Error::Running { name, pid } => Self::Running { server: name, pid },
            Error::Socket(error) => error.into(),
            Error::Unusable { path, source } => {
                unusable(path, format!("cannot be used: {source}"), "name another one in GENIE_RUNTIME_DIR")
            }
            Error::Unsafe { path, what, remedy } => unusable(path, format!("is not safe: {what}"), remedy),
            Error::TooLong { path, len } => unusable(
                path,
                format!("is a socket path of {len} bytes, more than {MAX_PATH}"),
                "use a shorter name or GENIE_RUNTIME_DIR",
            ),
            Error::InTheWay { path, what } => {
                unusable(path, format!("is in the way of a server: {what}"), "remove it")
            }
            Error::File { path, done, source } => unusable(
                path,
                format!("cannot be {done}: {source}"),
                "check the directory's permissions and file system",
            ),
        }
    }
}

/// The run-time directory, which was checked when it was opened.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Opens the directory that the environment names, and makes it where it is missing.
    ///
    /// # Errors
    /// It cannot be made, or is not safe to use.
    pub fn open() -> Result<Self, Error> {
        let variable = |name| std::env::var_os(name);
        let user = rustix::process::geteuid().as_raw();
        let place = place::choose(variable("GENIE_RUNTIME_DIR"), variable("XDG_RUNTIME_DIR"), user);
        place.prepare(user).map(|path| Self { path })
    }

    /// Opens the directory at `path`, as if GENIE_RUNTIME_DIR named it, and makes it where it is missing.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn at(path: impl AsRef<Path>) -> Result<Self, Error> {
        let place = Place { path: path.as_ref().to_owned(), chosen_by: ChosenBy::Administrator };
        place.prepare(rustix::process::geteuid().as_raw()).map(|path| Self { path })
    }

    /// Where the directory is: an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the socket of the server with this name is, or would be.
    ///
    /// # Errors
    /// No server can have that name, or the path would be too long.
    pub fn socket_path(&self, name: &str) -> Result<PathBuf, Error> {
        check_name(name).map_err(|what| Error::Name { name: name.to_owned(), what })?;
        let path = self.path.join(name);
        match path.as_os_str().len() {
            len if len > MAX_PATH => Err(Error::TooLong { path, len }),
            _ => Ok(path),
        }
    }

    /// The names under which there are sockets, sorted. Some may be of servers that were killed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let unusable = |source| Error::Unusable { path: self.path.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(unusable)? {
            let entry = entry.map_err(unusable)?;
            let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
            match entry.file_name().into_string() {
                Ok(name) if is_socket && check_name(&name).is_ok() => names.push(name),
                _ => {}
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Claims a name for this process and listens under it, also in place of a server that was killed. The permissions of
    /// the directory and of the socket, which the umask sets, decide who may connect.
    ///
    /// # Errors
    /// [`Error::Running`] where a living process has the name; otherwise the name, or the file at its path, can't be used.
    pub fn claim(&self, name: &str) -> Result<Claim, Error> {
        Claim::take(name, self.socket_path(name)?)
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match name {
        "" => Err("it is empty"),
        _ if name.len() > MAX_NAME => Err("it is too long"),
        _ if name.starts_with('.') => Err("it starts with a dot"),
        _ if name.ends_with(LOCK_SUFFIX) => Err("it ends in .lock, as lock files do"),
        _ if !name.bytes().all(is_allowed) => Err("it has other characters than those allowed"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
