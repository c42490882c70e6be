//! Links: the client's end of the control socket, and what the client does when a server goes.
//!
//! How: one thread for each channel reads the socket. When the server hangs up, or is cut off because it broke the rules,
//! the thread ends the requests that are pending. Their memory is the client's again when no process can touch it any more:
//! when every holder of the client's *lifeline* has exited or closed the lifeline. The server closes it when it has let go
//! of the client's memory, and so do the servers to which it forwarded fragments.
//! Source: thesis §3.1.2 (eviction). Differs: no kernel lets a process unmap another process's pages, so memory that a
//! silent server may still touch stays in quarantine until that server is gone.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use genie_io::Error;
use genie_io::carrier::{Awaited, LoopWaker, Outgoing, deadline_after, have_left_run};
use genie_memory::{LenderId, Space};
use genie_passing::Preferred;
use genie_sys::Errno;
use genie_sys::fork::Maker;
use genie_sys::socket::Socket;

use super::growth::Growth;
use super::outbox::{Outbox, Put};
use super::remote::Remote;
use super::room::Room;
use super::telemetry;
use super::unwanted;
use super::wire::control::{Ending, LayoutWanted, Limits, MAX_MESSAGE, Message, Party, Reason};
use crate::primitive::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, spawn, thread};

/// How long a server may take to welcome a client, or to answer a client that asks for other limits.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A channel's control socket, on the client's side.
#[derive(Debug)]
pub(super) struct Link {
    maker: Maker,
    server: String,
    socket: Socket,
    outbox: Outbox,
    /// This end sees a hang-up when no process holds the other end any more.
    lifeline: Socket,
    growth: Growth,
    pub(super) room: Room,
    is_gone: AtomicBool,
    reason: Mutex<Option<Error>>,
    questions: Mutex<Questions>,
    /// How often the server has said that it prefers other layouts.
    changes: AtomicU64,
    /// Signalled with each answer, and when the server is gone.
    answered: Condvar,
    /// The server is gone, nothing is pending any more, and nothing will be pending again.
    is_over: AtomicBool,
    /// Tells an event loop that other threads took replies, or that nothing is pending any more.
    loop_waker: Mutex<LoopWaker>,
    /// The requests that were pending when the client itself let the channel go.
    left: Mutex<Vec<Outgoing>>,
    /// The numbers of arenas that the server has been told to forget.
    withdrawn: Mutex<Vec<u16>>,
}

/// The client's questions for which a thread waits.
#[derive(Debug, Default)]
struct Questions {
    /// The question that has no answer yet. Only one is asked at a time, so that there is always room in the socket for its answer.
    open: Option<Question>,
    /// How many answers have come.
    answered: u64,
    /// The server has answered a question for a layout, and has not said since then that layouts have changed.
    has_layouts: bool,
}

#[derive(Debug)]
enum Question {
    Limits,
    /// The answer goes there.
    Layout(Arc<OnceLock<Layout>>),
}

/// How to lay out input buffers, and how often the server had said before that it prefers something else.
type Layout = (Option<Preferred>, u64);

impl Link {
    /// `lent` is how many bytes the server's pool has, in granules of each size.
    pub(super) fn new(
        server: String,
        socket: Socket,
        lifeline: Socket,
        lent: [usize; 2],
    ) -> Result<Self, Error> {
        Ok(Self {
            maker: Maker::this_process(),
            server,
            socket,
            outbox: Outbox::default(),
            lifeline,
            growth: Growth::new(lent),
            room: Room::default(),
            is_gone: AtomicBool::new(false),
            reason: Mutex::default(),
            questions: Mutex::default(),
            changes: AtomicU64::new(0),
            answered: Condvar::new(),
            is_over: AtomicBool::new(false),
            loop_waker: Mutex::new(LoopWaker::new()?),
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
            // The channel is over: no request will rest on this message.
            Err(error) => self.unsaid(&error).map(|()| 0),
        }
    }

    /// Ends the channel because a message could not be sent. Where the server has hung up, the thread that reads the socket
    /// ends the channel instead: the server may have sent its reason before it hung up.
    fn unsaid(&self, error: &genie_sys::Error) -> Result<(), Error> {
        if matches!(error.errno, Errno::PIPE | Errno::CONNRESET) {
            return Ok(());
        }
        self.break_off(&error.to_string());
        Err(self.error())
    }

    /// Starts the thread that sends messages for which the socket has no room yet.
    fn start_sender(self: &Arc<Self>) {
        let link = Arc::clone(self);
        let send = move || match link.outbox.send_all(&link.socket) {
            // Requests may have waited for that.
            Ok(()) => {
                link.room.made();
                link.loop_waker().tell();
            }
            // Whatever waits for the unsent messages ends with the channel.
            Err(error) => drop(link.unsaid(&error)),
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
    /// The server is gone, or does not answer in time. In the second case, the limits that it grants later are valid from
    /// then on.
    pub(super) fn adjust(self: &Arc<Self>, wanted: Limits) -> Result<(), Error> {
        self.ask(&Message::LimitsWanted(wanted), Question::Limits)
    }

    /// Asks how to lay out input buffers for a service, and waits for the answer.
    ///
    /// # Errors
    /// The server is gone, or does not answer in time; the argument is too long.
    pub(super) fn preferred(self: &Arc<Self>, service: u16, argument: &[u8]) -> Result<Layout, Error> {
        let answer = Arc::new(OnceLock::new());
        let wanted = LayoutWanted { service, argument: argument.to_vec() };
        self.ask(&Message::LayoutWanted(wanted), Question::Layout(Arc::clone(&answer)))?;
        Ok(*answer.get().expect("what was answered has its answer"))
    }

    /// How often the server has said that it prefers other layouts.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn ask(self: &Arc<Self>, message: &Message, question: Question) -> Result<(), Error> {
        let deadline = deadline_after(PATIENCE);
        let mut questions =
            self.await_answer(self.questions.lock(), deadline, |questions| questions.open.is_none())?;
        self.say(message, Vec::new())?;
        questions.open = Some(question);
        let before = questions.answered;
        self.await_answer(questions, deadline, |questions| questions.answered != before).map(drop)
    }

    /// Waits until `is_it` says yes of the questions.
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

    /// The server's name.
    pub(super) fn server(&self) -> &str {
        &self.server
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

    /// Takes the numbers of withdrawn arenas, which can then be given again.
    pub(super) fn withdrawn(&self) -> Vec<u16> {
        std::mem::take(&mut *self.withdrawn.lock())
    }

    /// Asks the server to add to its pool, in which `lacking` bytes are missing, without waiting for an answer. They are
    /// missing in the smaller of two sizes of granules if `is_small`.
    pub(super) fn want_pool(&self, lacking: usize, is_small: bool) {
        let Some(bytes) = self.growth.ask(lacking, is_small, Instant::now()) else { return };
        let wanted = Message::PoolWanted(bytes as u64).encode();
        if !wanted.is_ok_and(|wanted| self.outbox.try_put(&self.socket, &wanted)) {
            self.growth.unasked(Instant::now());
        }
    }

    /// The loop_waker of requests that are over, for an event loop. Lock it only for moments.
    pub(super) fn loop_waker(&self) -> MutexGuard<'_, LoopWaker> {
        self.loop_waker.lock()
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

    /// If the server is gone, waits a moment for the link's thread to end what is pending.
    pub(super) fn settle(&self, awaited: &Awaited<'_>) {
        if self.is_gone() {
            awaited.pause();
        }
    }

    /// The client lets the channel go, and the requests in `left`, which are pending at the server.
    pub(super) fn leave(&self, left: Vec<Outgoing>) {
        self.left.lock().extend(left);
        let goodbye = Ending { reason: Reason::Closing, sentence: "the client is done".to_owned() };
        // If the goodbye can't be sent, the server still sees the hang-up.
        let _ = Message::Goodbye(goodbye).encode().map(|bytes| self.outbox.try_put(&self.socket, &bytes));
        self.end(self.gone("the client let the channel go"));
        self.socket.hang_up();
        // The link's thread may stay for long, and from now on no event loop takes loop_waker.
        self.loop_waker().begin_look();
    }

    /// Keeps a request that was replied to just when the server went: the server may still touch the request's memory.
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
        if let Some(remote) = remote.upgrade() {
            remote.waker.wake();
        }
        telemetry::ended(&self.server, &self.error());
        // A thread that waits for an answer holds the lock from its look at `is_gone` until it waits. Taking the lock puts
        // this notification before that look or after the wait has begun.
        drop(self.questions.lock());
        self.answered.notify_all();
        self.socket.hang_up();
        let mut left = std::mem::take(&mut *self.left.lock());
        if let Some(remote) = remote.upgrade() {
            // Replies that are already on the ring still count.
            remote.collect_last();
            left = remote.sending.lock().table.drain();
            remote.wake(true);
        }
        let error = self.error();
        if left.is_empty() || !self.is_surely_gone(Some(PATIENCE / 50)) {
            left.iter().for_each(|request| request.give_up(&error));
            self.announce_end(remote);
            while have_left_run().is_some() && !self.is_surely_gone(Some(PATIENCE / 50)) {}
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

    /// Receives one message and acts upon it; an error says why the channel is over.
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
            Message::Layout(preferred) => self.take_layout(preferred),
            Message::LayoutsChanged(()) => self.take_change(),
            Message::Goodbye(ending) => Err(ending.sentence),
            other => Err(format!("it sent a {:?} in the middle of a channel", other.kind())),
        }
    }

    /// Applies limits that the server has granted.
    fn take_limits(&self, limits: Limits, remote: &Weak<Remote>) -> Result<(), String> {
        if !matches!(self.questions.lock().open, Some(Question::Limits)) {
            return Err("it granted limits that were not asked for".to_owned());
        }
        if let Some(remote) = remote.upgrade() {
            remote.grant(limits);
        }
        self.answer(&mut self.questions.lock());
        Ok(())
    }

    fn take_layout(&self, preferred: Option<Preferred>) -> Result<(), String> {
        let mut questions = self.questions.lock();
        let Some(Question::Layout(answer)) = &questions.open else {
            return Err("it told of a layout that was not asked for".to_owned());
        };
        // Only this thread counts changes.
        let _ = answer.set((preferred, self.changes()));
        questions.has_layouts = true;
        self.answer(&mut questions);
        Ok(())
    }

    fn take_change(&self) -> Result<(), String> {
        if !std::mem::take(&mut self.questions.lock().has_layouts) {
            return Err("it changed layouts that were not asked for".to_owned());
        }
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The open question is answered.
    fn answer(&self, questions: &mut Questions) {
        questions.open = None;
        questions.answered += 1;
        self.answered.notify_all();
    }

    /// Waits until no process can touch the client's memory on the server's account any more; returns whether that is so.
    fn is_surely_gone(&self, timeout: Option<Duration>) -> bool {
        while !self.lifeline.wait_for_hang_up(timeout) {
            if timeout.is_some() {
                return false;
            }
            // The wait failed: the kernel has no memory for it.
            thread::sleep(PATIENCE);
        }
        true
    }
}

#[cfg(all(test, not(interleaved)))]
mod tests;
