//! Events: descriptors that become readable when somebody signals, for programs that wait with epoll.
//!
//! Why: a futex wakes a thread fastest, but epoll cannot wait for one.
//! How: two kinds, the same in use. A *counter* (eventfd) is one descriptor that all holders signal, clear and wait for.
//! A *pair* (two ends of a socket) is for two processes: a signal at one end makes the other end readable.
//! Trust: duplicates of a counter share its flags, so a hostile holder can make it blocking and fill it up, which stops
//! whoever signals it next. The holder of one end of a pair can do nothing that makes a call at the other end block. So
//! peers are given only ends of pairs, and only ends of pairs are taken from them.
//! Limits: signals are not counted; several signals before one [`Event::clear`] count as one.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::socket::is_unix_socket;
use crate::{Error, Result};

/// How many signals one call takes from an end. Where there are no more, one call says so.
const SIGNALS_PER_CALL: usize = 4096;
/// How many calls one [`Event::clear`] makes at most: a peer that floods an end does not hold its owner up.
const CALLS_PER_CLEAR: usize = 64;

/// What a descriptor of this module is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    End,
}

/// Something to signal and to wait for.
#[derive(Debug)]
pub struct Event {
    descriptor: OwnedFd,
    kind: Kind,
}

impl Event {
    /// Makes a counter: whoever holds it or a duplicate of it signals all holders.
    ///
    /// # Errors
    /// The limit on descriptors.
    #[doc(alias = "eventfd")]
    pub fn new() -> Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|descriptor| Self { descriptor, kind: Kind::Counter })
            .map_err(|errno| failed("eventfd", errno))
    }

    /// Makes a pair: a signal at either end makes the other end readable, and never the same end.
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn pair() -> Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| failed("socketpair", errno))?;
        let end = |descriptor| Self { descriptor, kind: Kind::End };
        Ok((end(one), end(other)))
    }

    /// Takes a descriptor that came from another process for an end of a pair. A counter is refused, because of what
    /// its other holders can do to it.
    ///
    /// # Errors
    /// EINVAL: it is no SOCK_STREAM socket of the Unix family; it is closed.
    pub fn try_from_descriptor(descriptor: OwnedFd) -> Result<Self> {
        if !is_unix_socket(&descriptor, SocketType::STREAM) {
            return Err(Error::new("check", "a descriptor that should be an event", Errno::INVAL)
                .with_remedy("its sender is to send an end of a pair of events"));
        }
        Ok(Self { descriptor, kind: Kind::End })
    }

    /// Makes the counter, or the other end, readable. If nobody holds the other end any more, nothing happens.
    ///
    /// # Errors
    /// The kernel's, where memory is lacking.
    pub fn signal(&self) -> Result<()> {
        let sent = match self.kind {
            Kind::Counter => rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()),
            Kind::End => rustix::net::send(&self.descriptor, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        };
        match sent {
            // AGAIN: as many signals wait as there can be, so it is readable.
            Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(errno) => Err(Error::new("write", "an event", errno)),
        }
    }

    /// Takes the signals that came, so that the event is not readable until the next signal; never blocks. Look for
    /// what was signalled after this call, not before it.
    ///
    /// An end whose other end has gone stays readable.
    ///
    /// # Errors
    /// The kernel's, with no cause that a program could meet.
    pub fn clear(&self) -> Result<()> {
        match self.kind {
            Kind::Counter => self.clear_counter(),
            Kind::End => self.clear_end(),
        }
        .map_err(|errno| Error::new("read", "an event", errno))
    }

    fn clear_counter(&self) -> std::result::Result<(), Errno> {
        let mut count = [0; 8];
        // Not a plain read: another holder may have made the counter blocking.
        let bytes = &mut [IoSliceMut::new(&mut count)];
        match rustix::io::preadv2(&self.descriptor, bytes, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn clear_end(&self) -> std::result::Result<(), Errno> {
        let mut bytes = [MaybeUninit::uninit(); SIGNALS_PER_CALL];
        for _ in 0..CALLS_PER_CLEAR {
            match rustix::net::recv(&self.descriptor, &mut bytes, RecvFlags::DONTWAIT) {
                // There may be more, or a signal to the thread has come between.
                Ok((_, SIGNALS_PER_CALL)) | Err(Errno::INTR) => {}
                // Nothing more, or nobody there.
                Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Another descriptor of the same counter or end. For a peer, make a pair, send the peer the other end, and keep no
    /// duplicate of that end.
    ///
    /// # Errors
    /// The limit on descriptors.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0)
            .map_err(|errno| failed("fcntl(F_DUPFD_CLOEXEC)", errno))
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<Event> for OwnedFd {
    fn from(event: Event) -> Self {
        event.descriptor
    }
}

fn failed(call: &'static str, errno: Errno) -> Error {
    Error::new(call, "an event", errno)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::OFlags;

    use super::*;
    use crate::poll::readable;

    fn is_ready(event: &Event) -> bool {
        readable(event, Some(Duration::ZERO)).unwrap()
    }

    #[test]
    fn a_counter_is_readable_from_signal_to_clear() {
        let event = Event::new().unwrap();
        assert!(!is_ready(&event));
        event.signal().unwrap();
        event.signal().unwrap();
        assert!(is_ready(&event));
        event.clear().unwrap();
        assert!(!is_ready(&event), "two signals are one");
        event.clear().unwrap();
    }

    #[test]
    fn a_duplicate_of_a_counter_is_the_same_counter() {
        let event = Event::new().unwrap();
        let other = event.duplicate().unwrap();
        event.signal().unwrap();
        assert!(readable(&other, Some(Duration::ZERO)).unwrap());
        rustix::io::read(&other, &mut [0; 8]).unwrap();
        assert!(!is_ready(&event));
    }

    #[test]
    fn a_full_counter_takes_another_signal_without_blocking() {
        let event = Event::new().unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        event.signal().unwrap();
        event.clear().unwrap();
        assert!(!is_ready(&event));
    }

    #[test]
    fn clearing_a_counter_that_a_holder_made_blocking_does_not_block() {
        let event = Event::new().unwrap();
        let flags = rustix::fs::fcntl_getfl(&event).unwrap();
        rustix::fs::fcntl_setfl(event.duplicate().unwrap(), flags - OFlags::NONBLOCK).unwrap();
        event.clear().unwrap();
        event.signal().unwrap();
        event.clear().unwrap();
        assert!(!is_ready(&event));
    }

    #[test]
    fn an_end_signals_the_other_end_and_not_itself() {
        let (ours, theirs) = Event::pair().unwrap();
        let theirs = Event::try_from_descriptor(theirs.into()).unwrap();
        ours.signal().unwrap();
        assert_eq!((is_ready(&ours), is_ready(&theirs)), (false, true));
        theirs.clear().unwrap();
        assert!(!is_ready(&theirs));
        theirs.signal().unwrap();
        assert_eq!((is_ready(&ours), is_ready(&theirs)), (true, false));
    }

    #[test]
    fn an_end_that_nobody_clears_takes_any_number_of_signals() {
        let (ours, theirs) = Event::pair().unwrap();
        // A hostile holder makes its own end blocking; it has nothing else.
        let flags = rustix::fs::fcntl_getfl(&theirs).unwrap();
        rustix::fs::fcntl_setfl(&theirs, flags - OFlags::NONBLOCK).unwrap();
        for _ in 0..100_000 {
            ours.signal().unwrap();
        }
        theirs.clear().unwrap();
        assert!(!is_ready(&theirs));
        theirs.clear().unwrap();
        // One that sends more than signals fills the socket's buffer, and no more.
        while rustix::net::send(&ours, &[1; 4096], SendFlags::DONTWAIT).is_ok() {}
        theirs.clear().unwrap();
        assert!(!is_ready(&theirs));
    }

    #[test]
    fn signalling_an_end_that_has_gone_is_no_error() {
        let (ours, theirs) = Event::pair().unwrap();
        theirs.signal().unwrap();
        drop(theirs);
        ours.signal().unwrap();
        ours.clear().unwrap();
        ours.clear().unwrap();
        assert!(is_ready(&ours), "that the other end has gone stays to be seen");
    }

    #[test]
    fn other_descriptors_and_counters_are_not_taken_from_peers() {
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let object = crate::Object::create(crate::GranuleKind::Base, 4096).unwrap();
        let (packets, _theirs) = crate::socket::Socket::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let counter = Event::new().unwrap();
        let hostile: [OwnedFd; 5] =
            [pipe, object.duplicate().unwrap(), packets.into(), null.into(), counter.into()];
        for descriptor in hostile {
            let error = Event::try_from_descriptor(descriptor).unwrap_err();
            assert_eq!(error.errno, Errno::INVAL);
            assert!(error.to_string().contains("an end of a pair"), "{error}");
        }
    }
}
