//! One client's channel as the control thread keeps it, and what the client may say on its control socket.
//!
//! Trust: a client that says anything else, or does not read the answers, loses its channel. The descriptors that a client
//! announces stay open, and count against its share.
//! Limits: a client may announce no more than its share ([`Shares`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use genie_io::ServiceId;
use genie_io::carrier::Code;
use genie_memory::Error;
use genie_sys::Errno;
use genie_sys::socket::{Received, Socket};

use super::evictions::Departure;
use super::pool::Pool;
use super::session::Session;
use super::shared::Shared;
use super::shares::Shares;
use super::unwanted::{self, Unusable};
use super::wire::control::{Ending, LayoutWanted, Limits, Message, Party, Reason, Trust};

/// One client's channel, as the control thread keeps it.
pub(super) struct ClientChannel {
    pub(super) socket: Socket,
    pub(super) session: Arc<Session>,
    pub(super) departure: Arc<Departure>,
    pub(super) post: usize,
    pub(super) trust: Trust,
    /// The most that the client may raise its limits to: (bytes, requests).
    pub(super) hard: (usize, u32),
    /// How many objects the client has announced.
    pub(super) objects: usize,
    /// How many arenas it has announced besides its own.
    pub(super) arenas: usize,
    pub(super) pool: Pool,
    /// Set while the client has answers about layouts: how often these had changed when the server gave the first of them.
    pub(super) answered: Option<u64>,
}

impl Ending {
    pub(super) fn new(reason: Reason, sentence: impl ToString) -> Self {
        Self { reason, sentence: sentence.to_string() }
    }

    /// The ending for an error: with this reason, unless the kernel has run out of something.
    pub(super) fn of(reason: Reason, error: &Error) -> Self {
        let is_short = match error {
            Error::Kernel(error) => {
                matches!(error.errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC)
            }
            _ => false,
        };
        if is_short { Self::exhausted(error) } else { Self::new(reason, error) }
    }

    /// The ending when something has run out in the server's process. The sentence names the process.
    pub(super) fn exhausted(error: impl std::fmt::Display) -> Self {
        Self::new(Reason::Exhausted, format!("in process {}: {error}", std::process::id()))
    }
}

impl From<Unusable> for Ending {
    fn from(unusable: Unusable) -> Self {
        let reason = match unusable {
            Unusable::Wrong(_) => Reason::Object,
            Unusable::Short => Reason::Exhausted,
        };
        Self::new(reason, unusable)
    }
}

impl ClientChannel {
    /// Acts upon a message.
    pub(super) fn act(
        &mut self,
        shared: &Shared,
        bytes: &[u8],
        received: Received,
        shares: &Shares,
    ) -> Result<(), Ending> {
        let malformed = |wrong: String| Ending::new(Reason::Malformed, wrong);
        let received = unwanted::sift(received)?;
        let descriptors = received.descriptors;
        let message = Message::decode(&bytes[..received.len], descriptors.len(), Party::Client);
        let message = message.map_err(|error| malformed(error.to_string()))?;
        if self.trust == Trust::Copied && matches!(message, Message::Object(_) | Message::Arena(_)) {
            return Err(Ending::new(
                Reason::Trust,
                "memory was announced on a channel on which nothing is mapped",
            ));
        }
        let is_idle = || self.session.is_idle();
        let arenas = &self.session.arenas;
        match (message, descriptors.into_iter().next()) {
            (Message::Object(place), Some(object)) => {
                shares.object(&object)?;
                arenas.announce(&place, object)?;
            }
            (Message::Arena(place), Some(lifeline)) => {
                shares.arena(&lifeline)?;
                arenas.add(&place, checked_lifeline(lifeline)?)?;
            }
            (Message::Withdraw(id), _) => arenas.withdraw(id, is_idle).map_err(malformed)?,
            (Message::WithdrawArena(number), _) => {
                arenas.remove(number).map_err(malformed)?;
                shared.posts[self.post].notify();
            }
            (Message::LimitsWanted(wanted), _) => return self.adjust(wanted),
            (Message::PoolWanted(bytes), _) => return self.lend(bytes),
            (Message::LayoutWanted(wanted), _) => return self.prefer(&shared.server, &wanted),
            (Message::Goodbye(_), _) => return Err(Ending::new(Reason::Closing, "the client said goodbye")),
            (other, _) => return Err(malformed(format!("a {:?} came in the middle", other.kind()))),
        }
        (self.objects, self.arenas) = (self.session.arenas.objects_count(), self.session.arenas.count() - 1);
        Ok(())
    }

    /// Grants what a client wants, up to the hard limits.
    fn adjust(&self, wanted: Limits) -> Result<(), Ending> {
        let bytes = (wanted.pending_bytes as usize).min(self.hard.0);
        let requests = wanted.pending_requests.clamp(1, self.hard.1.max(1));
        let (bytes, requests) = self.session.in_progress.lock().grant(bytes, requests);
        self.say(&Message::Limits(Limits { pending_bytes: bytes as u64, pending_requests: requests }), &[])
    }

    /// Lends a client more, up to what it may have.
    fn lend(&mut self, bytes: u64) -> Result<(), Ending> {
        let lent = self.pool.lend(usize::try_from(bytes).unwrap_or(usize::MAX));
        let lens = lent.iter().map(|object| object.len() as u64).collect();
        let descriptors: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
        self.say(&Message::Pool(lens), &descriptors)
    }

    /// Tells a client how to lay out input buffers.
    fn prefer(&mut self, server: &Code, wanted: &LayoutWanted) -> Result<(), Ending> {
        let (service, count) = (wanted.service, server.services().len());
        if usize::from(service) >= count {
            let what = format!("a layout is wanted for service {service} of {count}");
            return Err(Ending::new(Reason::Malformed, what));
        }
        // What changes from here on is told later.
        let changes = server.changes();
        self.tell(changes)?;
        let preferred = server.preferred(self.session.client(), ServiceId(service.into()), &wanted.argument);
        self.answered = Some(changes);
        self.say(&Message::Layout(preferred), &[])
    }

    /// Tells a client that has answers about layouts that these have changed, if they have changed so often by now.
    pub(super) fn tell(&mut self, changes: u64) -> Result<(), Ending> {
        match self.answered.take_if(|answered| *answered != changes) {
            Some(_) => self.say(&Message::LayoutsChanged(()), &[]),
            None => Ok(()),
        }
    }

    fn say(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), Ending> {
        answer(&self.socket, message, descriptors, "the client does not read its control socket")
    }
}

/// Accepts a lifeline that a peer sent. It must be a socket: only a socket's other end notices that it is closed.
pub(super) fn checked_lifeline(descriptor: OwnedFd) -> Result<OwnedFd, Ending> {
    let socket =
        Socket::try_from_descriptor(descriptor).map_err(|error| Ending::new(Reason::Object, error))?;
    Ok(socket.into())
}

/// Sends a message without waiting for room. The ending is what keeps it from being sent: a client that reads nothing, as
/// `silent` says, or this process's own limit, where its user's processes have sent too many descriptors that are unread.
pub(super) fn answer(
    socket: &Socket,
    message: &Message,
    descriptors: &[BorrowedFd<'_>],
    silent: &str,
) -> Result<(), Ending> {
    let bytes = message.encode().map_err(|wrong| Ending::new(Reason::Malformed, wrong))?;
    match socket.try_send(&bytes, descriptors) {
        Ok(true) => Ok(()),
        Err(error) if error.errno == Errno::TOOMANYREFS => Err(Ending::exhausted(error)),
        Ok(false) | Err(_) => Err(Ending::new(Reason::Silent, silent)),
    }
}

/// Sends what a client may miss that reads nothing.
pub(super) fn tell(socket: &Socket, message: &Message) {
    let _ = answer(socket, message, &[], "");
}

pub(super) fn refuse(socket: &Socket, ending: Ending) {
    tell(socket, &Message::Refused(ending));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client was told that there were too many open files, and to raise the limit, as if the client's own limit were
    /// meant.
    #[test]
    fn what_has_run_out_is_said_to_have_in_the_servers_process() {
        let found = genie_sys::Error::new("socketpair", "an event", Errno::MFILE);
        let ending = Ending::of(Reason::Granule, &Error::Kernel(found));
        assert_eq!(ending.reason, Reason::Exhausted);
        let process = format!("in process {}: socketpair", std::process::id());
        assert!(ending.sentence.starts_with(&process), "{}", ending.sentence);
        let wrong = Ending::of(Reason::Granule, &Error::Inherited);
        assert_eq!((wrong.reason, wrong.sentence), (Reason::Granule, Error::Inherited.to_string()));
    }
}
