//! Explanations: whether a descriptor's buffers are passed or copied, and why.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::FileType;

use crate::error::{Error, Result};

/// What becomes of the bytes of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// The other side gets the same pages. Why.
    Passed(&'static str),
    /// The bytes are copied. Why.
    Copied(&'static str),
}

impl fmt::Display for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(why) => write!(f, "passed: {why}"),
            Self::Copied(why) => write!(f, "copied: {why}"),
        }
    }
}

/// What calls on a descriptor do with buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// `uf_write` of a buffer of the channel's pool, or the server's interface.
    pub write: Passing,
    /// `uf_write` of a part of a file that `uf_mmap` has mapped.
    pub write_mapped: Passing,
    /// `uf_read` and `uf_get`.
    pub read: Passing,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {}; write of mapped files {}; read {}", self.write, self.write_mapped, self.read)
    }
}

const NEVER_AGAIN: &str = "Linux does not tell when it lets go of pages that it was given, and new pages in their place cost \
                           more than copying";
const SOCKET: &str = "within a machine Linux copies what is sent even where it is asked not to (MSG_ZEROCOPY); elsewhere it would say by \
                      errors on the descriptor when it lets go of the pages, so that is not used";
const FILE: &str = "the file has pages of its own";
const OTHER: &str = "what is neither a file, a pipe nor a socket takes bytes, not pages";
const READ: &str = "Linux has the data in pages of its own";

/// What calls on a descriptor of the kernel's do. Of others, see [`Channel::explain`](crate::Channel::explain) and
/// [`Connection::explain`](crate::Connection::explain).
///
/// # Errors
/// Those of `fstat`.
#[doc(alias = "uf_explain")]
pub fn explain(fd: impl AsFd) -> Result<Explanation> {
    let found = rustix::fs::fstat(fd).map_err(|errno| Error::io("fstat", errno))?;
    let (write, write_mapped) = match FileType::from_raw_mode(found.st_mode) {
        FileType::Fifo => (NEVER_AGAIN, Passing::Passed("the pipe refers to the file's pages")),
        FileType::Socket => (
            SOCKET,
            Passing::Passed(
                "the socket refers to the file's pages, where its protocol can (TCP and Unix can)",
            ),
        ),
        FileType::RegularFile => (FILE, Passing::Copied(FILE)),
        _ => (OTHER, Passing::Copied(OTHER)),
    };
    Ok(Explanation { write: Passing::Copied(write), write_mapped, read: Passing::Copied(READ) })
}

impl crate::Channel {
    /// What calls on this channel do.
    pub fn explain(&self) -> Explanation {
        let shared = Passing::Passed("both ends have mapped the pool");
        let copied = Passing::Copied("a channel passes pages of its pool alone");
        Explanation { write: shared, write_mapped: copied, read: shared }
    }
}

impl crate::Connection {
    /// What calls on this connection do.
    pub fn explain(&self) -> Explanation {
        if self.is_untrusted() {
            let copied = Passing::Copied("client and server do not trust each other, and share no memory");
            return Explanation { write: copied, write_mapped: copied, read: copied };
        }
        let none = Passing::Copied("the server was opened without a service for this, so it fails");
        let (write, write_mapped) = match self.can_write() {
            true => (
                Passing::Passed(
                    "the server has the pages of fbufs of its interface, until it replies; it gets a copy of fbufs of pools",
                ),
                Passing::Copied("a server gets pages of its interface's memory alone"),
            ),
            false => (none, none),
        };
        let read = Passing::Passed("the server fills pages of this process, which are the fbuf");
        Explanation { write, write_mapped, read: if self.can_read() { read } else { none } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_descriptor_has_its_reasons() {
        let (read, write) = std::io::pipe().unwrap();
        let pipe = explain(&write).unwrap();
        assert_eq!(pipe, explain(&read).unwrap());
        assert!(matches!(pipe.write, Passing::Copied(NEVER_AGAIN)));
        assert!(matches!(pipe.write_mapped, Passing::Passed(_)));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(explain(&socket).unwrap().write, Passing::Copied(SOCKET)));
        let file = explain(tempfile::tempfile().unwrap()).unwrap();
        assert!(matches!((file.write, file.write_mapped), (Passing::Copied(_), Passing::Copied(_))));
        assert!(matches!(
            explain(std::fs::File::open("/dev/null").unwrap()).unwrap().write,
            Passing::Copied(OTHER)
        ));
        assert!(pipe.to_string().starts_with("write copied: Linux does not tell"), "{pipe}");
    }
}
