//! The link between the measuring program and a peer process: messages with descriptors attached.
//!
//! Why: one side makes the sockets, pipes and memory that pass data, and hands them over; so nothing has a name in a file
//! system that a crash could leave behind.
//! How: a pair of sockets, each message one JSON document; the peer's end is its standard input.
//! Limits: 4 KiB a message.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use genie_sys::socket::{Received, Socket};
use serde::Serialize;
use serde::de::DeserializeOwned;

const MESSAGE: usize = 4096;

/// One end of the link.
#[derive(Debug)]
pub struct Link(Socket);

impl Link {
    /// Makes an end to keep, and one to give to a child.
    ///
    /// # Errors
    /// The limit on descriptors is reached.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = Socket::pair().map_err(io::Error::other)?;
        Ok((Self(ours), theirs.into()))
    }

    /// The end that this process was started with.
    ///
    /// # Errors
    /// There is no such end.
    pub fn inherited() -> io::Result<Self> {
        let end = io::stdin().as_fd().try_clone_to_owned()?;
        Socket::try_from_descriptor(end).map(Self).map_err(io::Error::other)
    }

    /// Sends a message and duplicates of the descriptors.
    ///
    /// # Errors
    /// The other end has gone.
    ///
    /// # Panics
    /// When the message is too long.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        assert!(bytes.len() <= MESSAGE, "a message of {} bytes", bytes.len());
        self.0.send(&bytes, descriptors).map_err(io::Error::other)
    }

    /// Ends the link, as seen from the other end.
    pub fn close(&self) {
        self.0.hang_up();
    }

    /// Waits for a message; none when the other end is gone.
    ///
    /// # Errors
    /// The message makes no sense, or is too long.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = [0; MESSAGE];
        let received = self.0.receive(&mut bytes).map_err(io::Error::other)?;
        read(&bytes, received)
    }

    /// Takes a message if one is there already.
    pub fn look<T: DeserializeOwned>(&self) -> Option<T> {
        let mut bytes = [0; MESSAGE];
        let received = self.0.try_receive(&mut bytes).ok().flatten()?;
        read(&bytes, received).ok().flatten().map(|(message, _)| message)
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8], received: Received) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    if received.truncated || received.is_short {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the peer is too long"));
    }
    match received.len {
        0 => Ok(None),
        len => Ok(Some((serde_json::from_slice(&bytes[..len])?, received.descriptors))),
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_bring_their_descriptors_and_then_the_end() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link(Socket::try_from_descriptor(theirs).unwrap());
        let (reader, writer) = io::pipe().unwrap();
        ours.send(&"words", &[writer.as_fd()]).unwrap();
        drop((ours, writer));
        let (message, descriptors) = theirs.receive::<String>().unwrap().unwrap();
        assert_eq!((message.as_str(), descriptors.len()), ("words", 1));
        rustix::io::write(&descriptors[0], b"x").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0; 2]).unwrap(), 1);
        assert!(theirs.receive::<String>().unwrap().is_none());
    }

    #[test]
    fn a_link_without_a_message_has_none_to_look_at() {
        let (ours, _theirs) = Link::pair().unwrap();
        assert_eq!(ours.look::<String>(), None);
    }
}
