//! Waiting for descriptors: one with a deadline, many by epoll.
//!
//! Why: a server waits for its clients' control sockets, events and deaths at once, without a thread for each.
//! How: epoll, level-triggered unless asked otherwise: a descriptor is reported again until somebody takes what made it ready.
//! Trust: readiness is only a hint. Another thread may take what a peer sent before this one reads it, so readers use
//! calls that do not block.
//! Limits: one call reports at most 64 descriptors; the next calls report the others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::{Error, Result};

/// How many descriptors one call reports at most.
pub const READY_PER_WAIT: usize = 64;

/// What a wait reports of a descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The number that it was added with.
    pub token: u64,
    /// There is something to read, even if only the end.
    pub readable: bool,
    /// The other end has gone, or the descriptor failed; what it sent before can still be read.
    pub hang_up: bool,
}

/// A set of descriptors to wait for. It is itself readable while one of them is ready.
#[derive(Debug)]
#[doc(alias = "epoll")]
pub struct Poller {
    descriptor: OwnedFd,
}

impl Poller {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The limits on descriptors or on epoll instances.
    pub fn new() -> Result<Self> {
        let descriptor = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| Error::new("epoll_create1", "a poller", errno))?;
        Ok(Self { descriptor })
    }

    /// Adds a descriptor, which [`Ready`] will name by `token`.
    ///
    /// # Errors
    /// EEXIST: it is in the set. EPERM: it cannot be waited for; a file on a disk, for example, cannot.
    pub fn add(&self, descriptor: impl AsFd, token: u64) -> Result<()> {
        self.add_for(descriptor, token, EventFlags::IN | EventFlags::RDHUP)
    }

    /// The same, and the descriptor is reported once each time that something makes it readable, whether somebody takes that or not.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_edges(&self, descriptor: impl AsFd, token: u64) -> Result<()> {
        self.add_for(descriptor, token, EventFlags::IN | EventFlags::ET)
    }

    fn add_for(&self, descriptor: impl AsFd, token: u64, interest: EventFlags) -> Result<()> {
        epoll::add(&self.descriptor, descriptor, EventData::new_u64(token), interest)
            .map_err(|errno| Error::new("epoll_ctl(EPOLL_CTL_ADD)", format!("token {token}"), errno))
    }

    /// Takes a descriptor out of the set. Do so before closing it: the set would keep reporting a descriptor of which
    /// another process has a duplicate.
    ///
    /// # Errors
    /// ENOENT: it is not in the set.
    pub fn remove(&self, descriptor: impl AsFd) -> Result<()> {
        epoll::delete(&self.descriptor, descriptor)
            .map_err(|errno| Error::new("epoll_ctl(EPOLL_CTL_DEL)", "a descriptor", errno))
    }

    /// Waits until a descriptor is ready, for at most `timeout`. Replaces the contents of `events` by what is ready. If
    /// a signal came, `events` may be empty before the time is over.
    ///
    /// # Errors
    /// The kernel's, with no cause that a program could meet.
    pub fn wait(&self, timeout: Option<Duration>, events: &mut Vec<Ready>) -> Result<()> {
        events.clear();
        // In tests of interleavings a thread that sleeps lets others go on, and no test needs this to time out.
        #[cfg(interleaved)]
        if timeout != Some(Duration::ZERO) {
            readable(self, None)?;
        }
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut found =
            [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; READY_PER_WAIT];
        let count = match epoll::wait(&self.descriptor, &mut found, timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(Error::new("epoll_wait", "a poller", errno)),
        };
        events.extend(found[..count].iter().map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                readable: flags.contains(EventFlags::IN),
                hang_up: flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR),
            }
        }));
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits until `descriptor` is readable or hung up, for at most `timeout`; tells whether it is.
///
/// # Errors
/// ENOMEM: the kernel has no memory to wait with.
pub fn readable(descriptor: impl AsFd, timeout: Option<Duration>) -> Result<bool> {
    poll_until(descriptor, PollFlags::IN, timeout)
}

/// The same for several descriptors: waits until one of them is, and tells which are.
///
/// # Errors
/// As [`readable`].
pub fn any_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Result<[bool; N]> {
    poll_any(descriptors, PollFlags::IN, timeout)
}

/// Whether the other end of a connection has gone, as the kernel sees it now. What it sent before can still be read.
pub fn is_hung_up(descriptor: impl AsFd) -> bool {
    poll_until(descriptor, PollFlags::RDHUP, Some(Duration::ZERO)).unwrap_or(false)
}

/// Waits until `descriptor` is ready for `flags` or hung up, for at most `timeout`; tells whether it is.
pub(crate) fn poll_until(descriptor: impl AsFd, flags: PollFlags, timeout: Option<Duration>) -> Result<bool> {
    poll_any([descriptor.as_fd()], flags, timeout).map(|[is_ready]| is_ready)
}

fn poll_any<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    flags: PollFlags,
    timeout: Option<Duration>,
) -> Result<[bool; N]> {
    // As in `Poller::wait`.
    #[cfg(interleaved)]
    while timeout != Some(Duration::ZERO)
        && !poll_any(descriptors, flags, Some(Duration::ZERO))?.contains(&true)
    {
        shuttle::thread::yield_now();
    }
    let deadline = timeout.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|time| Timespec::try_from(time).ok());
        let mut polled = descriptors.each_ref().map(|descriptor| PollFd::new(descriptor, flags));
        match rustix::event::poll(&mut polled, left.as_ref()) {
            Ok(_) => return Ok(polled.map(|polled| !polled.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::new("ppoll", "descriptors", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::socket::Socket;

    #[test]
    fn each_ready_descriptor_is_told_by_its_token() {
        let poller = Poller::new().unwrap();
        let bells = [Event::new().unwrap(), Event::new().unwrap(), Event::new().unwrap()];
        for (token, bell) in bells.iter().enumerate() {
            poller.add(bell, token as u64).unwrap();
        }
        bells[0].signal().unwrap();
        bells[2].signal().unwrap();
        let mut events = Vec::new();
        poller.wait(None, &mut events).unwrap();
        events.sort_by_key(|ready| ready.token);
        let of = |token| Ready { token, readable: true, hang_up: false };
        assert_eq!(events, [of(0), of(2)]);
        assert!(readable(&poller, Some(Duration::ZERO)).unwrap(), "the poller itself can be waited for");
    }

    #[test]
    fn nothing_ready_is_nothing_reported_when_the_time_is_over() {
        let poller = Poller::new().unwrap();
        let bell = Event::new().unwrap();
        poller.add(&bell, 1).unwrap();
        let mut events = vec![Ready { token: 9, readable: true, hang_up: false }];
        poller.wait(Some(Duration::from_micros(10)), &mut events).unwrap();
        assert_eq!(events, []);
        assert!(!readable(&bell, Some(Duration::from_micros(10))).unwrap());
    }

    #[test]
    fn a_removed_descriptor_is_reported_no_more() {
        let poller = Poller::new().unwrap();
        let bell = Event::new().unwrap();
        poller.add(&bell, 1).unwrap();
        assert_eq!(poller.add(&bell, 2).unwrap_err().errno, Errno::EXIST);
        bell.signal().unwrap();
        poller.remove(&bell).unwrap();
        assert_eq!(poller.remove(&bell).unwrap_err().errno, Errno::NOENT);
        let mut events = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut events).unwrap();
        assert_eq!(events, []);
    }

    #[test]
    fn a_gone_peer_is_a_hang_up_with_its_last_words_readable() {
        let poller = Poller::new().unwrap();
        let (ours, theirs) = Socket::pair().unwrap();
        poller.add(&ours, 5).unwrap();
        theirs.send(b"last", &[]).unwrap();
        drop(theirs);
        let mut events = Vec::new();
        poller.wait(None, &mut events).unwrap();
        assert_eq!(events, [Ready { token: 5, readable: true, hang_up: true }]);
    }

    #[test]
    fn a_crowd_is_reported_in_turns_and_nobody_is_left_out() {
        let poller = Poller::new().unwrap();
        let bells: Vec<Event> = (0..READY_PER_WAIT + 10).map(|_| Event::new().unwrap()).collect();
        for (token, bell) in bells.iter().enumerate() {
            poller.add(bell, token as u64).unwrap();
            bell.signal().unwrap();
        }
        let (mut seen, mut events) = (std::collections::BTreeSet::new(), Vec::new());
        for _ in 0..2 {
            poller.wait(Some(Duration::ZERO), &mut events).unwrap();
            assert!(events.len() <= READY_PER_WAIT);
            seen.extend(events.iter().map(|ready| ready.token));
        }
        assert_eq!(seen.len(), bells.len());
    }
}
