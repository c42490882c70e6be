//! Sockets between processes: whole messages, with descriptors attached.
//!
//! Why: shared memory carries data, but only a Unix-domain socket carries descriptors, says who the other side is, and
//! tells when it has gone.
//! How: SOCK_SEQPACKET: each send is one receive, in order, or is refused whole. No descriptor outlives an exec.
//! Trust: a peer may send any bytes and any descriptors, too many of them, too long messages, or nothing at all. A
//! descriptor may be of any file, even of one whose calls block; see [`Object::accept`](crate::Object::accept) and
//! [`Event::try_from_descriptor`](crate::event::Event::try_from_descriptor). Closing a descriptor also waits for its
//! file system: if a file system in user space does not answer, a thread that drops a descriptor of one of its files
//! waits.
//! Limits: [`MAX_DESCRIPTORS`] a message; a path of 107 bytes; a message as long as the send buffer (`net.core.wmem_default`).

mod credentials;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::poll::{self, poll_until, readable};
use crate::unshared::Unshared;
use crate::{Error, Result};

pub use credentials::Peer;

/// How many descriptors a message can carry.
pub const MAX_DESCRIPTORS: usize = 16;

/// How many clients may wait to be accepted; the kernel lowers this number to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// A socket at a path, at which clients ask to be connected. The path stays when it is dropped.
#[derive(Debug)]
pub struct Listener {
    _unshared: Option<Unshared>,
    descriptor: OwnedFd,
}

impl Listener {
    /// Makes a socket at `path`, with the rights that the umask leaves, and listens. Children made by fork do not have it, as far as
    /// [`unshared`](crate::unshared) has room.
    ///
    /// # Errors
    /// EADDRINUSE: there is something at the path. ENAMETOOLONG: it is longer than 107 bytes. What making a file there
    /// fails with.
    pub fn bind(path: &Path) -> Result<Self> {
        Self::listen(&address(path)?, &path.display().to_string())
    }

    /// Makes a socket that has a name and no path, and listens. Any process in this network namespace may connect, or may have taken the
    /// name. The name is free again when the socket is closed.
    ///
    /// # Errors
    /// EADDRINUSE: the name is taken. ENAMETOOLONG: it is longer than 107 bytes. The limit on descriptors.
    #[doc(alias = "abstract")]
    pub fn bind_name(name: &str) -> Result<Self> {
        Self::listen(&abstract_address(name)?, name)
    }

    fn listen(address: &SocketAddrUnix, place: &str) -> Result<Self> {
        let failed = |call, errno| Error::new(call, format!("a socket at {place}"), errno);
        let descriptor = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&descriptor, address).map_err(|errno| match errno {
            Errno::ADDRINUSE => failed("bind", errno).with_remedy("remove what is there, if nobody listens"),
            _ => failed("bind", errno),
        })?;
        rustix::net::listen(&descriptor, BACKLOG).map_err(|errno| failed("listen", errno))?;
        Ok(Self { _unshared: Unshared::new(&descriptor).ok(), descriptor })
    }

    /// Connects the client that has waited longest. If no client waits, returns `None` at once.
    ///
    /// # Errors
    /// The limit on descriptors, or memory: the client still waits.
    pub fn accept(&self) -> Result<Option<Socket>> {
        loop {
            match rustix::net::accept_with(&self.descriptor, SocketFlags::CLOEXEC) {
                Ok(descriptor) => return Ok(Some(Socket { unshared: None, descriptor })),
                Err(Errno::AGAIN) => return Ok(None),
                // A client that has given up meanwhile is ignored.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(Error::new("accept4", "a client's connection", errno)),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// What [`Socket::receive`] got.
#[derive(Debug)]
pub struct Received {
    /// How many bytes of the message are in the buffer; 0: the other side has hung up (or sent an empty message, which
    /// [`Socket::send`] does not).
    pub len: usize,
    /// Bytes or descriptors were lost, because the message had more bytes than the buffer holds, or more descriptors
    /// than [`MAX_DESCRIPTORS`].
    pub truncated: bool,
    /// Descriptors were lost, because this process may have no more of them.
    pub is_short: bool,
    /// The descriptors attached, in order, as far as there was room. Closing one may wait: see the module's Trust.
    pub descriptors: Vec<OwnedFd>,
}

impl Received {
    const HANG_UP: Self = Self { len: 0, truncated: false, is_short: false, descriptors: Vec::new() };
}

/// One end of a connection.
#[derive(Debug)]
pub struct Socket {
    unshared: Option<Unshared>,
    descriptor: OwnedFd,
}

impl Socket {
    /// Keeps the socket from children made by fork from now on, so that the other end learns of this process's end although a child
    /// lives. Where [`unshared`](crate::unshared) has no room, children have it as before.
    pub fn unshare(&mut self) {
        self.unshared = self.unshared.take().or_else(|| Unshared::new(&self.descriptor).ok());
    }

    /// Connects to the listener at `path`; does not wait for it to accept.
    ///
    /// # Errors
    /// ENOENT: there is no such server. ECONNREFUSED: nobody listens there any more. EACCES: the path's rights forbid it.
    /// EPROTOTYPE: it is a socket of another type. EAGAIN: the server has stopped accepting.
    pub fn connect(path: &Path) -> Result<Self> {
        Self::connect_to(&address(path)?, &path.display().to_string())
    }

    /// Connects to the listener that has this name ([`Listener::bind_name`]), as [`Socket::connect`] does.
    ///
    /// # Errors
    /// ECONNREFUSED: nobody has the name. EAGAIN: whoever has it has stopped accepting.
    pub fn connect_to_name(name: &str) -> Result<Self> {
        Self::connect_to(&abstract_address(name)?, name)
    }

    fn connect_to(address: &SocketAddrUnix, place: &str) -> Result<Self> {
        // Not blocking: a server that hangs, with a full backlog, would otherwise hang its clients.
        let descriptor = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::connect(&descriptor, address).map_err(|errno| refused(place, errno))?;
        rustix::io::ioctl_fionbio(&descriptor, false)
            .map_err(|errno| Error::new("ioctl(FIONBIO)", "a socket", errno))?;
        Ok(Self { unshared: None, descriptor })
    }

    /// Makes two ends connected to each other.
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn pair() -> Result<(Self, Self)> {
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| failed_to_open("socketpair", errno))?;
        Ok((Self { unshared: None, descriptor: one }, Self { unshared: None, descriptor: other }))
    }

    /// Takes an end that came from another process. A process that holds a duplicate can set whether calls on it block.
    ///
    /// # Errors
    /// EINVAL: it is no SOCK_SEQPACKET socket of the Unix family; it is closed.
    pub fn try_from_descriptor(descriptor: OwnedFd) -> Result<Self> {
        if !is_unix_socket(&descriptor, SocketType::SEQPACKET) {
            return Err(Error::new("check", "a descriptor that should be a socket", Errno::INVAL)
                .with_remedy("its sender is to send a Unix-domain socket of type SOCK_SEQPACKET"));
        }
        Ok(Self { unshared: None, descriptor })
    }

    /// Sends one message, waiting while too many messages wait for the other side to receive them.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET: the other side has hung up. EMSGSIZE: the message is longer than the send buffer. ETOOMANYREFS:
    /// too many descriptors are on their way. In all these cases the message was not sent.
    ///
    /// # Panics
    /// When `bytes` is empty, which the other side would take for a hang-up, or there are more descriptors than
    /// [`MAX_DESCRIPTORS`].
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.transmit(bytes, descriptors, SendFlags::empty())
            .map_err(|errno| unsent(bytes, descriptors, errno))
    }

    /// Sends one message if that needs no waiting; returns whether it was sent.
    ///
    /// # Errors
    /// As [`Socket::send`].
    ///
    /// # Panics
    /// As [`Socket::send`].
    pub fn try_send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<bool> {
        match self.transmit(bytes, descriptors, SendFlags::DONTWAIT) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(unsent(bytes, descriptors, errno)),
        }
    }

    fn transmit(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> std::result::Result<(), Errno> {
        assert!(!bytes.is_empty(), "an empty message would be taken for a hang-up");
        assert!(
            descriptors.len() <= MAX_DESCRIPTORS,
            "{} descriptors in one message, of which {MAX_DESCRIPTORS} are allowed",
            descriptors.len()
        );
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "the buffer holds {MAX_DESCRIPTORS} descriptors");
        }
        let message = [IoSlice::new(bytes)];
        loop {
            match rustix::net::sendmsg(&self.descriptor, &message, &mut control, flags | SendFlags::NOSIGNAL)
            {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sleeps until there is room for a message, or the other side has hung up.
    ///
    /// # Errors
    /// ENOMEM: the kernel has no memory to wait with.
    #[doc(alias = "POLLOUT")]
    pub fn wait_for_room(&self) -> Result<()> {
        poll_until(&self.descriptor, PollFlags::OUT, None).map(drop)
    }

    /// Waits for a message and receives it.
    ///
    /// # Errors
    /// The kernel's, where memory is lacking.
    pub fn receive(&self, bytes: &mut [u8]) -> Result<Received> {
        loop {
            // A process that holds a duplicate may have made the socket non-blocking.
            readable(&self.descriptor, None)?;
            if let Some(received) = self.try_receive(bytes)? {
                return Ok(received);
            }
        }
    }

    /// Receives a message if there is one.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn try_receive(&self, bytes: &mut [u8]) -> Result<Option<Received>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = loop {
            let parts = &mut [IoSliceMut::new(bytes)];
            match rustix::net::recvmsg(&self.descriptor, parts, &mut control, flags) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                // The other side hung up without having received all that was sent to it.
                Err(Errno::CONNRESET) => return Ok(Some(Received::HANG_UP)),
                Err(errno) => return Err(Error::new("recvmsg", "a connection", errno)),
            }
        };
        let descriptors = descriptors_of(&mut control);
        let is_cut = message.flags.contains(ReturnFlags::CTRUNC);
        // The kernel fills the buffer with descriptors before it leaves any out, unless this process can have no more.
        let is_short = is_cut && descriptors.len() < MAX_DESCRIPTORS;
        let truncated = message.flags.contains(ReturnFlags::TRUNC)
            || is_cut && !is_short
            || descriptors.len() > MAX_DESCRIPTORS;
        Ok(Some(Received { len: message.bytes, truncated, is_short, descriptors }))
    }

    /// Waits for a message, for at most `timeout`, and receives it.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive_timeout(&self, bytes: &mut [u8], timeout: Duration) -> Result<Option<Received>> {
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.receive(bytes).map(Some);
        };
        while readable(&self.descriptor, Some(deadline.saturating_duration_since(Instant::now())))? {
            // Another thread may have taken the message.
            if let Some(received) = self.try_receive(bytes)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    /// Ends the connection for all holders of this end: the other side receives what was sent, then the hang-up; here,
    /// [`Socket::receive`] returns what came before, then the hang-up.
    #[doc(alias = "shutdown")]
    pub fn hang_up(&self) {
        // It fails only where there is no connection any more.
        let _ = rustix::net::shutdown(&self.descriptor, Shutdown::Both);
    }

    /// Whether the connection has ended: nobody holds the other end, or a side has hung up. Messages that came before may
    /// still be received.
    pub fn is_hung_up(&self) -> bool {
        poll::is_hung_up(self)
    }

    /// Sleeps until the connection has ended, for at most `timeout`; returns whether it has.
    ///
    /// Without a timeout it returns false only where the kernel has no memory to wait with.
    #[doc(alias = "POLLRDHUP")]
    pub fn wait_for_hang_up(&self, timeout: Option<Duration>) -> bool {
        poll_until(&self.descriptor, PollFlags::RDHUP, timeout).unwrap_or(false)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.descriptor
    }
}

/// Whether a descriptor from another process is a SOCK_SEQPACKET socket of the Unix family. Only the kernel's socket code is
/// asked: the file system of a hostile descriptor might never answer.
pub(crate) fn is_unix_socket(descriptor: &OwnedFd, kind: SocketType) -> bool {
    sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(descriptor) == Ok(kind)
}

fn descriptors_of(control: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    descriptors
}

fn open(flags: SocketFlags) -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| failed_to_open("socket", errno))
}

fn failed_to_open(call: &'static str, errno: Errno) -> Error {
    Error::new(call, "a Unix-domain socket", errno)
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    // The kernel would take no path for one of its own choice.
    let address = if path.as_os_str().is_empty() { Err(Errno::NOENT) } else { SocketAddrUnix::new(path) };
    address.map_err(|errno| {
        Error::new("bind or connect", format!("a socket at {}", path.display()), errno)
            .with_remedy("use a path of 1 to 107 bytes; GENIE_RUNTIME_DIR can name a shorter directory")
    })
}

fn abstract_address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
        .map_err(|errno| Error::new("bind or connect", format!("a socket named {name}"), errno))
}

fn refused(place: &str, errno: Errno) -> Error {
    let error = Error::new("connect", format!("the server at {place}"), errno);
    match errno {
        Errno::NOENT => error.with_remedy(
            "nobody listens there; start the server, and make sure that both sides name the same path",
        ),
        Errno::CONNREFUSED => error
            .with_remedy("the server has gone and left its path, or another file is there; start it again"),
        Errno::ACCESS | Errno::PERM => {
            error.with_remedy("not permitted; ask the server's owner for write permission on its path")
        }
        Errno::PROTOTYPE => error.with_remedy("what listens there is no Genie server"),
        Errno::AGAIN => error.with_remedy("the server does not accept clients; it hangs or is overrun"),
        _ => error,
    }
}

fn unsent(bytes: &[u8], descriptors: &[BorrowedFd<'_>], errno: Errno) -> Error {
    let subject = format!("a message of {} bytes and {} descriptors", bytes.len(), descriptors.len());
    let error = Error::new("sendmsg", subject, errno);
    match errno {
        Errno::PIPE | Errno::CONNRESET => error.with_remedy("the other side has hung up; connect again"),
        Errno::MSGSIZE => error.with_remedy("send less at once, or raise net.core.wmem_default"),
        Errno::TOOMANYREFS => {
            error.with_remedy("wait until descriptors sent before are received, or raise `ulimit -n`")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
