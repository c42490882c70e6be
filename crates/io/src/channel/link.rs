//! Links: the client's end of the control socket, and what happens when a server goes.
//!
//! How: one thread for each channel reads the socket. When the server hangs up, or is cut off because it broke the rules,
//! the thread ends the requests that are pending. Their memory is the client's again when no process can touch it any
//! more: when every holder of the client's *lifeline* has exited or closed it. The server closes it when it has let go of the
//! client's memory, and so do the servers to which it forwarded fragments.
//! Source: thesis §3.1.2 (eviction). Differs: no kernel can unmap another process's pages, so memory that a silent server
//! may still touch stays in quarantine until it is gone.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use genie_memory::{LenderId, Space};
use genie_sys::Errno;
use genie_sys::fork::Maker;
use genie_sys::socket::Socket;

use super::growth::Growth;
use super::outbox::{Outbox, Put};
use super::remote::Remote;
use super::unwanted;
use super::wire::control::{Ending, Limits, MAX_MESSAGE, Message, Party, Reason};
use crate::Error;
use crate::deadline::deadline_after;
use crate::exchange::Awaited;
use crate::news::News;
use crate::outgoing::Outgoing;
use crate::primitive::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, spawn, thread};

/// How long a server may take to welcome a client, and how long a client waits for other limits.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A channel's control socket, on the client's side.
#[derive(Debug)]
pub(super) struct Link {
    maker: Maker,
    server: String,
    socket: Socket,
    outbox: Outbox,
    /// Hangs up when no process holds the other end any more.
    lifeline: Socket,
    growth: Growth,
    is_gone: AtomicBool,
    reason: Mutex<Option<Error>>,
    questions: Mutex<Questions>,
    /// Signalled with each answer, and when the server is gone.
    answered: Condvar,
    /// The server is gone, nothing is pending any more, and nothing will be.
    is_over: AtomicBool,
    /// Tells an event loop that other threads took replies, or that nothing is pending any more.
    news: Mutex<News>,
    /// What was pending when the client itself let the channel go.
    left: Mutex<Vec<Outgoing>>,
    /// Arenas that the server has forgotten.
    withdrawn: Mutex<Vec<u16>>,
}

/// What the server was asked of its limits.
#[derive(Debug, Default)]
struct Questions {
    /// A question has no answer yet. It is the only one, so that no answer can find the socket full.
    is_open: bool,
    /// How many answers there were.
    answered: u64,
}

impl Link {
    /// `lent` is how many bytes the server's pool has.
    pub(super) fn new(server: String, socket: Socket, lifeline: Socket, lent: usize) -> Result<Self, Error> {
        Ok(Self {
            maker: Maker::this_process(),
            server,
            socket,
            outbox: Outbox::default(),
            lifeline,
            growth: Growth::new(lent),
            is_gone: AtomicBool::new(false),
            reason: Mutex::default(),
            questions: Mutex::default(),
            answered: Condvar::new(),
            is_over: AtomicBool::new(false),
            news: Mutex::new(News::new()?),
            left: Mutex::default(),
            withdrawn: Mutex::default(),
        })
    }

    /// Sends the server a message, behind earlier ones, without waiting until the server reads it; returns the message's
    /// number.
    pub(super) fn say(self: &Arc<Self>, message: &Message, descriptors: Vec<OwnedFd>) -> Result<u64, Error> {
        match self.outbox.put(&self.socket, message.encode()?, descriptors) {
            Ok(Put { number, wants_sender }) => {
                if wants_sender {
                    self.start_sender();
                }
                Ok(number)
            }
            // The server is gone: no request will rest on this message.
            Err(error) => self.unsaid(&error).map(|()| 0),
        }
    }

    /// Ends the channel because a message could not be sent. Where the server has hung up, the thread that reads the socket
    /// ends the channel instead: the server may have said why before.
    fn unsaid(&self, error: &genie_sys::Error) -> Result<(), Error> {
        if matches!(error.errno, Errno::PIPE | Errno::CONNRESET) {
            return Ok(());
        }
        self.break_off(&error.to_string());
        Err(self.error())
    }

    /// Starts the thread that sends what the server has no room for yet.
    fn start_sender(self: &Arc<Self>) {
        let link = Arc::clone(self);
        let send = move || {
            if let Err(error) = link.outbox.send_all(&link.socket) {
                // Whatever waits for what was not sent ends with the channel.
                let _ = link.unsaid(&error);
            }
        };
        if spawn("genie-outbox", send).is_err() {
            self.outbox.has_no_sender();
        }
    }

    /// Whether so many messages wait for the server that requests had better wait, too.
    pub(super) fn is_crowded(&self) -> bool {
        self.outbox.is_crowded()
    }

    /// Asks for other limits, and waits until the server has granted some.
    ///
    /// # Errors
    /// The server is gone, or does not answer in time; then what it grants is valid as soon as it does.
    pub(super) fn adjust(self: &Arc<Self>, wanted: Limits) -> Result<(), Error> {
        let deadline = deadline_after(PATIENCE);
        let mut questions =
            self.await_answer(self.questions.lock(), deadline, |questions| !questions.is_open)?;
        self.say(&Message::LimitsWanted(wanted), Vec::new())?;
        questions.is_open = true;
        let before = questions.answered;
        self.await_answer(questions, deadline, |questions| questions.answered != before).map(drop)
    }

    /// Waits until the questions are as is wanted.
    fn await_answer<'a>(
        &'a self,
        questions: MutexGuard<'a, Questions>,
        deadline: Option<Instant>,
        is_it: impl Fn(&Questions) -> bool,
    ) -> Result<MutexGuard<'a, Questions>, Error> {
        let is_over = |questions: &Questions| is_it(questions) || self.is_gone();
        let (questions, is_over) = self.answered.wait_until(questions, deadline, is_over);
        match is_over {
            _ if is_it(&questions) => Ok(questions),
            true => Err(self.error()),
            false => Err(Error::Silent { server: self.server.clone(), timeout: PATIENCE }),
        }
    }

    /// Whether this process is a child, made by fork, of the one that has connected: the socket is its parent's.
    pub(super) fn is_inherited(&self) -> bool {
        !self.maker.is_this_process()
    }

    /// Has the server forget an arena that nothing names any more.
    pub(super) fn withdraw_arena(self: &Arc<Self>, number: u16) {
        // A channel that ends withdraws everything.
        if self.say(&Message::WithdrawArena(number), Vec::new()).is_ok() {
            self.withdrawn.lock().push(number);
        }
    }

    /// Takes the numbers of arenas that were withdrawn, to be given again.
    pub(super) fn withdrawn(&self) -> Vec<u16> {
        std::mem::take(&mut *self.withdrawn.lock())
    }

    /// Asks the server to add to its pool, in which `lacking` bytes are missing, without waiting for an answer.
    pub(super) fn want_pool(&self, lacking: usize) {
        let Some(bytes) = self.growth.ask(lacking, Instant::now()) else { return };
        let wanted = Message::PoolWanted(bytes as u64).encode();
        if !wanted.is_ok_and(|wanted| self.outbox.try_put(&self.socket, &wanted)) {
            self.growth.unasked(Instant::now());
        }
    }

    /// What an event loop is told of requests that are over. To be locked for moments.
    pub(super) fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Why requests fail from now on.
    pub(super) fn error(&self) -> Error {
        let reason = self.reason.lock();
        reason.clone().unwrap_or_else(|| self.gone("it hung up"))
    }

    /// Ends the channel for something that no honest server does.
    pub(super) fn break_off(&self, wrong: &str) {
        self.end(self.gone(wrong));
        self.socket.hang_up();
    }

    fn end(&self, error: Error) {
        self.reason.lock().get_or_insert(error);
        // Release: a thread that sees the flag sees the reason.
        self.is_gone.store(true, Ordering::Release);
    }

    fn gone(&self, why: &str) -> Error {
        Error::gone(&self.server, why)
    }

    /// Waits a moment for the link's thread to end what is pending.
    pub(super) fn settle(&self, awaited: &Awaited<'_>) {
        if self.is_gone() {
            awaited.pause();
        }
    }

    /// The client lets the channel go, with what is pending at the server.
    pub(super) fn leave(&self, left: Vec<Outgoing>) {
        self.left.lock().extend(left);
        let goodbye = Ending { reason: Reason::Closing, sentence: "the client is done".to_owned() };
        // A server that does not hear it will see the hang-up.
        let _ = Message::Goodbye(goodbye).encode().map(|bytes| self.outbox.try_put(&self.socket, &bytes));
        self.end(self.gone("the client let the channel go"));
        self.socket.hang_up();
        // The link's thread may stay for long, and no event loop looks any more.
        self.news().quiet();
    }

    /// Keeps a request that was replied to just when the server went: the server may still touch its memory.
    pub(super) fn keep(&self, request: Outgoing) {
        request.give_up(&self.error());
        self.left.lock().push(request);
    }

    /// Reads the socket until the server hangs up, then ends what is pending.
    pub(super) fn watch(&self, remote: &Weak<Remote>, space: &Space, lender: LenderId) {
        let mut bytes = vec![0; MAX_MESSAGE];
        let why = loop {
            match self.hear(&mut bytes, remote, space, lender) {
                Ok(()) => {}
                Err(why) => break why,
            }
        };
        self.end(self.gone(&why));
        // Taking the lock orders this after the look of a thread that is about to wait for an answer.
        drop(self.questions.lock());
        self.answered.notify_all();
        self.socket.hang_up();
        let mut left = std::mem::take(&mut *self.left.lock());
        if let Some(remote) = remote.upgrade() {
            // Replies that were on their way count.
            remote.collect();
            left = remote.sending.lock().table.drain();
            remote.wake(true);
        }
        let error = self.error();
        if left.is_empty() || !self.is_surely_gone(Some(PATIENCE / 50)) {
            left.iter().for_each(|request| request.give_up(&error));
            self.announce_end(remote);
            self.is_surely_gone(None);
        }
        left.append(&mut self.left.lock());
        left.into_iter().for_each(|request| request.fail(error.clone()));
        self.announce_end(remote);
        space.remove_lender(lender);
    }

    /// Tells threads and loops that wait that nothing is pending any more.
    fn announce_end(&self, remote: &Weak<Remote>) {
        // No event loop watches a channel that the client itself let go.
        if let Some(remote) = remote.upgrade() {
            self.is_over.store(true, Ordering::Release);
            remote.wake(true);
        }
    }

    /// Acts upon one message; an error says why the channel is over.
    fn hear(
        &self,
        bytes: &mut [u8],
        remote: &Weak<Remote>,
        space: &Space,
        lender: LenderId,
    ) -> Result<(), String> {
        let received = self.socket.receive(bytes).map_err(|error| error.to_string())?;
        if received.len == 0 {
            return Err("it hung up".to_owned());
        }
        let received = unwanted::sift(received)?;
        let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Server);
        let message = message.map_err(|error| error.to_string())?;
        match message {
            Message::Pool(_) => self.growth.take_in(received.descriptors, space, lender, Instant::now()),
            Message::Limits(limits) => self.take_limits(limits, remote),
            Message::Goodbye(ending) => Err(ending.sentence),
            other => Err(format!("it sent a {:?} in the middle of a channel", other.kind())),
        }
    }

    /// Applies limits that the server has granted.
    fn take_limits(&self, limits: Limits, remote: &Weak<Remote>) -> Result<(), String> {
        if !self.questions.lock().is_open {
            return Err("it granted limits that were not asked for".to_owned());
        }
        if let Some(remote) = remote.upgrade() {
            remote.grant(limits);
        }
        let mut questions = self.questions.lock();
        questions.is_open = false;
        questions.answered += 1;
        self.answered.notify_all();
        Ok(())
    }

    /// Waits until no process can touch the client's memory on the server's account any more; returns whether that is so.
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

#[cfg(all(test, not(interleaved)))]
mod tests;
