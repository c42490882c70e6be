//! The line between whoever measures and a peer process: messages with descriptors attached.
//!
//! Why: whatever passes data (sockets, pipes, memory) is made by the one and handed over, so that nothing has a
//! name in a file system that a crash could leave behind.
//! How: a pair of SOCK_SEQPACKET sockets, each message one JSON document; the peer's end is its standard input.
//! Limits: 4 KiB and four descriptors a message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const MESSAGE: usize = 4096;
const DESCRIPTORS: usize = 4;

/// One end.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Makes an end to keep, and one to give to a child.
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that this process was started with.
    ///
    /// # Errors
    /// There is none.
    pub fn inherited() -> io::Result<Self> {
        let link = io::stdin().as_fd().try_clone_to_owned()?;
        match rustix::net::sockopt::socket_type(&link) {
            Ok(SocketType::SEQPACKET) => Ok(Self(link)),
            _ => Err(io::Error::new(io::ErrorKind::NotConnected, "standard input is no link")),
        }
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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        assert!(bytes.len() <= MESSAGE && attached.push(SendAncillaryMessage::ScmRights(descriptors)));
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut attached, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Ends the link, as seen from the other end.
    pub fn close(&self) {
        // This fails only where the other end has gone already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Waits for a message; none when the other end has gone.
    ///
    /// # Errors
    /// It makes no sense, or is too long.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC)
    }

    /// Takes a message that is already there; none when there is none.
    pub fn look<T: DeserializeOwned>(&self) -> Option<T> {
        let found = self.receive_with(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT);
        found.ok().flatten().map(|(message, _)| message)
    }

    fn receive_with<T: DeserializeOwned>(&self, flags: RecvFlags) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = [0; MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut attached = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut attached, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                result => break result?,
            }
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the peer is too long"));
        }
        let descriptors = attached.drain().flat_map(descriptors_of).collect();
        Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, descriptors)))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn descriptors_of(message: RecvAncillaryMessage<'_>) -> Vec<OwnedFd> {
    match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_bring_their_descriptors_and_then_the_end() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link(theirs);
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
