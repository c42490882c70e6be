//! The file server's services that pass no file data, as calls.
//!
//! Trust: what a server answers is checked before it is used; names in a list must be single steps down.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use genie::file::{self, Attributes, Begin, Checksum, Commit, Entry};
use genie::{Error, Failed, In, Interface, ServerHandle, ServiceId};

use crate::failure::Failure;

/// The room for one page of a list: some thousand entries.
const PAGE: usize = 256 << 10;

/// A file server's client; several threads may use it at a time.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) genie: Interface,
    pub(super) server: ServerHandle,
}

impl Client {
    /// Makes a client of a server, which is assumed to be a file server.
    pub(super) fn new(genie: Interface, server: ServerHandle) -> Self {
        Self { genie, server }
    }

    /// The attributes of what a path leads to.
    pub(super) fn stat(&self, path: &Path) -> Result<Attributes, Failure> {
        self.find(path)?
            .ok_or_else(|| Failure::could_not(format!("the server has nothing at {path:?}; check the path")))
    }

    /// The attributes of what a path leads to; `None` if there is nothing.
    pub(super) fn find(&self, path: &Path) -> Result<Option<Attributes>, Failure> {
        match self.ask(file::STAT, &file::at(path, 0), Attributes::LEN) {
            Ok(reply) => Ok(Some(Attributes::from_bytes(&reply).ok_or_else(|| nonsense("stat", path))?)),
            Err(failed) if is_missing(&failed) => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Everything in a directory, which may be `most` entries.
    pub(super) fn list(&self, directory: &Path, most: usize) -> Result<Vec<Entry>, Failure> {
        let mut all: Vec<Entry> = Vec::new();
        let mut page = vec![0; PAGE];
        loop {
            let last = all.last().map_or(OsStr::new(""), |entry| &entry.name);
            let after = file::after(directory, last);
            let request = self.genie.request(&self.server, file::LIST);
            let reply = request.input(In::copy(&mut page)).argument(&after).room(1).send()?;
            let entries = page.get(..reply.actual()).and_then(file::entries);
            let entries = entries.ok_or_else(|| nonsense("list", directory))?;
            let is_followed = reply.argument() == [1];
            // Entries must come in order, so a server that lists without end is found out.
            if (entries.is_empty() && is_followed)
                || entries.first().is_some_and(|first| *first.name <= *last)
            {
                return Err(nonsense("list", directory));
            }
            all.extend(entries);
            if all.len() > most {
                return Err(Failure::could_not(format!(
                    "the server lists too many entries: with those in {directory:?}, more than a tree may have; fetch the \
                     directories one by one"
                )));
            }
            if !is_followed {
                return Ok(all);
            }
        }
    }

    /// The checksum of `len` bytes of a file, which must have that many from `offset` on.
    pub(super) fn checksum(&self, path: &Path, offset: u64, len: u64) -> Result<Checksum, Failure> {
        let reply = self.ask(file::CHECKSUM, &file::range(path, offset, len), file::CHECKSUM_ROOM)?;
        read_checksum(&reply, path, offset, len)
    }

    /// Begins an upload; returns the length and the name of its part.
    pub(super) fn begin(&self, path: &Path, begin: &Begin) -> Result<(u64, OsString), Failure> {
        let reply = self.ask(file::BEGIN, &begin.argument(path), file::BEGIN_ROOM)?;
        file::begun(&reply).ok_or_else(|| nonsense("begin", path))
    }

    /// Ends an upload.
    pub(super) fn commit(&self, path: &Path, part: &OsStr, commit: &Commit) -> Result<(), Failure> {
        self.ask(file::COMMIT, &commit.argument(part, path), 0)?;
        Ok(())
    }

    /// Gives an upload up.
    pub(super) fn abandon(&self, part: &Path) -> Result<(), Failure> {
        self.ask(file::ABANDON, &file::at(part, 0), 0)?;
        Ok(())
    }

    /// Makes a directory and its parents.
    pub(super) fn make_directories(&self, path: &Path) -> Result<(), Failure> {
        let make = || self.ask(file::MKDIR, &file::at(path, 0), 0);
        let made = make().or_else(|failed| match path.parent().filter(|up| !up.as_os_str().is_empty()) {
            Some(parent) if is_missing(&failed) => {
                self.make_directories(parent)?;
                Ok(make()?)
            }
            _ => Err(Failure::from(failed)),
        });
        made.map(drop)
    }

    fn ask(&self, service: ServiceId, argument: &[u8], room: usize) -> Result<Vec<u8>, Failed> {
        let request = self.genie.request(&self.server, service);
        Ok(request.argument(argument).room(room).send()?.argument().to_vec())
    }
}

/// Reads the reply to a request for the checksum of `len` bytes.
pub(super) fn read_checksum(reply: &[u8], path: &Path, offset: u64, len: u64) -> Result<Checksum, Failure> {
    match Checksum::from_reply(reply) {
        Some((found, checksum)) if found == len => Ok(checksum),
        Some((found, _)) => Err(Failure::could_not(format!(
            "{path:?} ends {found} bytes after offset {offset}, where {len} were expected: it was changed meanwhile"
        ))),
        None => Err(nonsense("checksum", path)),
    }
}

/// The failure of a request, in the server's words if the server gave the reason.
impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        match failed.error {
            Error::Server(error) => Self::could_not(error.message),
            error @ Error::Gone { .. } => Self::could_not(format!(
                "{error}; when it serves again, go on by the same command with --resume"
            )),
            error => Self::could_not(error),
        }
    }
}

fn is_missing(failed: &Failed) -> bool {
    matches!(&failed.error, Error::Server(error) if error.code == genie_sys::Errno::NOENT.raw_os_error())
}

fn nonsense(service: &str, path: &Path) -> Failure {
    Failure::could_not(format!(
        "the server's answer to {service} of {path:?} makes no sense; is it a file server of this version?"
    ))
}
