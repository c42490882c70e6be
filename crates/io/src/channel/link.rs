//! Links: the client's end of the control socket, and what happens when a server goes.
//!
//! How: one thread for each channel reads the socket. When the server hangs up, or is cut off because it broke the rules,
//! the thread ends the requests that are pending. Their memory is the client's again when nobody can touch it any more:
//! when the server's process has exited, or every holder of the client's *lifeline* has closed it, which the server does
//! when it has let go of its client's memory, and those to whom it passed fragments, too.
//! Source: thesis §3.1.2 (eviction). Differs: no kernel can unmap another process's pages, so memory that a silent server
//! may still touch stays in quarantine until it is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{PoisonError, Weak};
use std::time::{Duration, Instant};

use genie_memory::{LenderId, Space};
use genie_sys::event::Event;
use genie_sys::poll::Poller;
use genie_sys::socket::Socket;

use super::growth::Growth;
use super::remote::Remote;
use super::strangers;
use super::table::Continued;
use super::wire::control::{Ending, Limits, MAX_MESSAGE, Message, Party, Reason};
use crate::exchange::Awaited;
use crate::primitive::{AtomicBool, Mutex, Ordering, thread};
use crate::{Anticipated, Error, Incoming};

/// How long a server may take to answer on the control socket.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A channel's control socket, on the client's side.
#[derive(Debug)]
pub(super) struct Link {
    server: String,
    socket: Socket,
    /// Hangs up when nobody holds the other end any more.
    lifeline: Socket,
    growth: Growth,
    is_gone: AtomicBool,
    reason: Mutex<Option<Error>>,
    answers: Mutex<Receiver<()>>,
    /// An answer is due.
    is_asked: AtomicBool,
    /// What the server granted last, until it is applied.
    granted: Mutex<Option<Limits>>,
    /// The server is gone, nothing is pending any more, and nothing will be.
    is_over: AtomicBool,
    /// Signalled to whoever waits by descriptor: others took replies, or nothing is pending any more.
    news: Event,
    has_news: AtomicBool,
    /// What was pending when the client itself let the channel go.
    left: Mutex<Left>,
    /// Arenas that the server has forgotten.
    withdrawn: Mutex<Vec<u16>>,
}

/// Requests whose memory the server may still touch.
type Left = (Vec<Incoming>, Vec<Anticipated>);

impl Link {
    /// `lent` is how many bytes the server's pool has.
    pub(super) fn new(
        server: String,
        socket: Socket,
        lifeline: Socket,
        lent: usize,
    ) -> Result<(Self, Sender<()>), Error> {
        let (answered, answers) = std::sync::mpsc::channel();
        let link = Self {
            server,
            socket,
            lifeline,
            growth: Growth::new(lent),
            is_gone: AtomicBool::new(false),
            reason: Mutex::default(),
            answers: Mutex::new(answers),
            is_asked: AtomicBool::new(false),
            granted: Mutex::default(),
            is_over: AtomicBool::new(false),
            news: Event::new()?,
            has_news: AtomicBool::new(false),
            left: Mutex::default(),
            withdrawn: Mutex::default(),
        };
        Ok((link, answered))
    }

    /// Sends a message and waits until the server has done what it asks for.
    pub(super) fn ask(&self, message: &Message, descriptors: &[OwnedFd]) -> Result<(), Error> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_asked.store(true, Ordering::Release);
        self.tell(message, descriptors)?;
        match answers.recv_timeout(PATIENCE) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                self.break_off("it does not answer on its control socket");
                Err(self.error())
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.error()),
        }
    }

    /// Has the server forget an arena that nothing names any more.
    pub(super) fn withdraw_arena(&self, number: u16) {
        // With a channel that ends everything is withdrawn.
        if self.ask(&Message::WithdrawArena(number), &[]).is_ok() {
            self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        }
    }

    /// Takes the numbers of arenas that were withdrawn, to be given again.
    pub(super) fn withdrawn(&self) -> Vec<u16> {
        std::mem::take(&mut *self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a message.
    pub(super) fn tell(&self, message: &Message, descriptors: &[OwnedFd]) -> Result<(), Error> {
        let bytes = message.encode()?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.socket.send(&bytes, &descriptors).map_err(|error| {
            self.break_off(&error.to_string());
            self.error()
        })
    }

    /// Asks for more of the server's pool, in which `lacking` bytes were found not to be there; does not wait for it.
    pub(super) fn want_pool(&self, lacking: usize) {
        let Some(bytes) = self.growth.ask(lacking, Instant::now()) else { return };
        let wanted = Message::PoolWanted(bytes as u64).encode();
        if !wanted.is_ok_and(|wanted| self.socket.try_send(&wanted, &[]).unwrap_or(false)) {
            self.growth.unasked(Instant::now());
        }
    }

    /// Adds a descriptor that becomes readable with [`Link::tell_watcher`].
    pub(super) fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error> {
        Ok(poller.add(&self.news, token)?)
    }

    pub(super) fn unwatch_by(&self, poller: &Poller) {
        // What is not in the set need not be taken out.
        let _ = poller.remove(&self.news);
    }

    /// Has whoever waits by descriptor look: after something was done, or the ring let go.
    pub(super) fn tell_watcher(&self) {
        // Nobody can be told that the signal failed; who waits has timeouts.
        let _ = self.news.signal();
        // After the signal: who clears the flag takes the signal, too.
        self.has_news.store(true, Ordering::Release);
    }

    /// The watcher is about to look; to be called before it does.
    pub(super) fn quiet(&self) {
        if self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::AcqRel) {
            // What was not cleared is looked at once more.
            let _ = self.news.clear();
        }
    }

    /// Takes what the server granted last.
    pub(super) fn granted(&self) -> Option<Limits> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Why requests fail from now on.
    pub(super) fn error(&self) -> Error {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone().unwrap_or_else(|| self.gone("it hung up"))
    }

    /// Ends the channel for something that no honest server does.
    pub(super) fn break_off(&self, wrong: &str) {
        self.end(self.gone(wrong));
        self.socket.hang_up();
    }

    fn end(&self, error: Error) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        // Release: whoever sees the flag sees the reason.
        self.is_gone.store(true, Ordering::Release);
    }

    fn gone(&self, why: &str) -> Error {
        Error::Gone { server: self.server.clone(), why: why.to_owned() }
    }

    /// Waits a moment for the link's thread to end what is pending.
    pub(super) fn settle(&self, awaited: &Awaited<'_>) {
        if self.is_gone() {
            awaited.sleep(Some(Instant::now() + Duration::from_millis(20)));
        }
    }

    /// The client lets the channel go, with what is pending at the server.
    pub(super) fn leave(&self, left: Left) {
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.extend(left.0);
        all.1.extend(left.1);
        drop(all);
        let goodbye = Ending { reason: Reason::Closing, sentence: "the client is done".to_owned() };
        // A server that does not hear it will see the hang-up.
        let _ = self.tell(&Message::Goodbye(goodbye), &[]);
        self.end(self.gone("the client let the channel go"));
        self.socket.hang_up();
        // The thread may stay for long; nobody looks any more.
        let _ = self.news.clear();
    }

    /// Keeps what had its reply just when the server went, which may still touch the memory.
    pub(super) fn keep(&self, continued: Continued) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        match continued {
            Ok(anticipated) => left.1.push(anticipated),
            Err(request) => {
                request.give_up(&self.error());
                left.0.push(request);
            }
        }
    }

    /// Reads the socket until the server hangs up, then ends what is pending.
    pub(super) fn watch(&self, answered: Sender<()>, remote: &Weak<Remote>, space: &Space, lender: LenderId) {
        let mut bytes = vec![0; MAX_MESSAGE];
        let why = loop {
            match self.hear(&mut bytes, &answered, space, lender) {
                Ok(()) => {}
                Err(why) => break why,
            }
        };
        self.end(self.gone(&why));
        // Who waits for an answer holds what is needed here.
        drop(answered);
        self.socket.hang_up();
        let mut left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(remote) = remote.upgrade() {
            // Replies that were on their way count.
            remote.collect();
            left = remote.sending().table.drain();
            remote.pass();
        }
        let error = self.error();
        let is_idle = left.0.is_empty() && left.1.is_empty();
        if is_idle || !self.is_surely_gone(Some(PATIENCE / 50)) {
            left.0.iter().for_each(|request| request.give_up(&error));
            self.announce_end(remote);
            self.is_surely_gone(None);
        }
        let kept = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        left.0.into_iter().chain(kept.0).for_each(|request| request.fail(error.clone()));
        drop((left.1, kept.1));
        self.announce_end(remote);
        space.remove_lender(lender, false);
    }

    /// Tells whoever waits that nothing is pending any more.
    fn announce_end(&self, remote: &Weak<Remote>) {
        // A channel that the client itself let go has no watcher, whose descriptor would stay readable.
        if let Some(remote) = remote.upgrade() {
            self.is_over.store(true, Ordering::Release);
            remote.pass();
        }
    }

    /// Acts upon one message; an error says why the channel is over.
    fn hear(
        &self,
        bytes: &mut [u8],
        answered: &Sender<()>,
        space: &Space,
        lender: LenderId,
    ) -> Result<(), String> {
        let received = self.socket.receive(bytes).map_err(|error| error.to_string())?;
        if received.len == 0 {
            return Err("it hung up".to_owned());
        }
        let received = strangers::sift(received)?;
        let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Server);
        let message = message.map_err(|error| error.to_string())?;
        let is_answer = matches!(message, Message::Acknowledged | Message::Limits(_));
        if is_answer && !self.is_asked.swap(false, Ordering::AcqRel) {
            return Err(format!("it sent a {:?} that nobody had asked for", message.kind()));
        }
        match message {
            Message::Acknowledged => answered.send(()).map_err(|error| error.to_string()),
            Message::Pool(_) => self.growth.take_in(received.descriptors, space, lender, Instant::now()),
            Message::Goodbye(ending) => Err(ending.sentence),
            Message::Limits(limits) => {
                // Applied by whoever asked: a thread that waits for an answer may hold the lock that this takes.
                *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
                answered.send(()).map_err(|error| error.to_string())
            }
            other => Err(format!("it sent a {:?} in the middle of a channel", other.kind())),
        }
    }

    /// Waits until nobody can touch the client's memory on the server's account any more; returns whether that is so.
    fn is_surely_gone(&self, timeout: Option<Duration>) -> bool {
        while !self.lifeline.wait_for_hang_up(timeout) {
            if timeout.is_some() {
                return false;
            }
            // The kernel has no memory to wait with.
            thread::sleep(PATIENCE);
        }
        true
    }
}
