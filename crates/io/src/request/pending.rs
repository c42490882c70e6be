//! Asynchronous requests, as their clients see them.
//!
//! Source: thesis §7.1 (`io_sync`, `io_abort`), §1.1.2 (interim replies).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use genie_sys::fork::Maker;
use smallvec::SmallVec;

use crate::client::presence::Presence;
use crate::deadline::deadline_after;
use crate::exchange::{Awaited, Exchange, Found, Pair};
use crate::sequel::{self, Continuation, Note, Sequel};
use crate::work::{Destinations, Work};
use crate::{Error, Failed, Interface, Reply, RequestId, ServerHandle, telemetry};

/// How often a thread looks whether the timer has given up a request whose time is over.
const LOOK: Duration = Duration::from_millis(1);

/// When a thread that sleeps on a channel looks again whether the timer has given up a request that `ends` then: nothing wakes
/// the thread.
pub(crate) fn next_look(ends: Option<Instant>) -> Option<Instant> {
    ends.map(|ends| ends.max(Instant::now() + LOOK))
}

/// A request that was submitted: the interim reply. It holds the client's input buffers borrowed; data is delivered to
/// them when the reply is taken, never before. Dropping it lets the request run on unobserved, unless
/// [`Pending::abort_on_drop`] says otherwise; inputs are discarded.
#[derive(Debug)]
#[must_use = "dropping a pending request discards its reply"]
pub struct Pending<'i> {
    /// None when the reply has been taken and nothing else is left of the request.
    exchange: Option<Arc<Exchange>>,
    server: ServerHandle,
    destinations: Destinations<'i>,
    /// How long the server may take to let an aborted request go.
    abort_timeout: Duration,
    /// Buffers were given by value.
    gave: bool,
    /// Dropping this aborts the request.
    aborts: bool,
    /// When the timer gives the request up.
    ends: Option<Instant>,
    maker: Maker,
    /// For a request with a timeout: the interface, whose timer watches it.
    _timed: Option<Interface>,
    /// For any other request that a server in this process has a part of: holding this shows that the client has not left.
    _presence: Option<Arc<Presence>>,
}

impl<'i> Pending<'i> {
    #[inline]
    pub(crate) fn new(
        exchange: Arc<Exchange>,
        server: ServerHandle,
        destinations: Destinations<'i>,
        (abort_timeout, gave, aborts, ends): (Duration, bool, bool, Option<Instant>),
        timed: Option<Interface>,
        presence: Option<Arc<Presence>>,
    ) -> Self {
        let maker = Maker::this_process();
        Self {
            exchange: Some(exchange),
            server,
            destinations,
            abort_timeout,
            gave,
            aborts,
            ends,
            maker,
            _timed: timed,
            _presence: presence,
        }
    }

    fn exchange(&self) -> &Exchange {
        self.exchange.as_ref().expect("a pending request has its exchange until its reply is taken")
    }

    /// The request's name.
    pub fn id(&self) -> RequestId {
        self.exchange().id()
    }

    /// Whether this process is a child, made by fork, of the one that made the request. In such a child there is an error to
    /// be taken.
    fn is_inherited(&self) -> bool {
        !self.maker.is_this_process()
    }

    /// Whether the reply is there (a poll). If it is not there yet, this takes the server's replies that have come. A loop
    /// that waits by [`Interface::descriptor`] is woken only if there were some.
    pub fn is_replied(&self) -> bool {
        if self.is_inherited() {
            return true;
        }
        if !self.exchange().is_replied() {
            self.server.collect();
        }
        self.exchange().is_replied()
    }

    /// Whether the reply is there; if not, the task is woken when it is: for futures. The thread that takes the reply off its channel,
    /// or has a server's [`Completer`](crate::Completer) look, wakes the task, so some thread must wait for a reply or call
    /// [`Interface::collect`]: see [`Interface::descriptor`]. The last task that asked is woken.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_inherited() || self.exchange().poll(context.waker()) {
            return Poll::Ready(());
        }
        self.server.tell();
        Poll::Pending
    }

    /// Has this noted when the reply is there: now, if it is. The server need not be told of a batch yet.
    pub(crate) fn note(&self, note: impl FnOnce() + Send + 'static) {
        self.exchange().then(Sequel::Note(Note(Box::new(note))));
    }

    /// How many bytes of buffer `index` are final, as the server has said so far ([`Incoming::progress`](crate::Incoming::progress)), or
    /// with the reply, if that is there: an input's first bytes have come, an output's are done with. 0 if it has said nothing, or there is
    /// no such buffer. This takes the server's words that have come, as [`Pending::is_replied`] does.
    ///
    /// This is a number: it shows no data. What the client may look at before the reply depends on the scheme. By share and emulated
    /// share, where the server works in the client's buffer, an input's final bytes lie there, and do not change any more; a program in C
    /// may read them, and safe Rust gets the buffer back with the reply. By every other scheme, the data is in memory of the server's or
    /// the interface's until the reply is taken, and the client's buffer is as it was. An output is the server's until the
    /// reply, its final bytes, too.
    ///
    /// A client that has enough of what is final gives up the rest by [`Pending::abort`].
    pub fn progress(&self, index: usize) -> usize {
        if self.is_replied() && self.is_inherited() {
            return 0;
        }
        self.exchange().come(index)
    }

    /// Waits until more than `beyond` bytes of buffer `index` are final, or the reply is there, at most for `timeout`; returns
    /// [`Pending::progress`].
    ///
    /// ```
    /// # use genie_io::servers::memory::{FETCH, Memory, STORE};
    /// # use genie_io::{In, Interface, Out, ServerHandle};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let interface = Interface::open()?;
    /// # let server = ServerHandle::new(Memory::customized());
    /// # interface.request(&server, STORE).out(Out::copy(&[7; 5000])).argument(b"name").send()?;
    /// let mut bytes = [0; 10_000];
    /// let request = interface.request(&server, FETCH).input(In::copy(&mut bytes)).argument(b"name");
    /// let pending = request.submit()?;
    /// let mut come = 0;
    /// while !pending.is_replied() && come < 4096 {
    ///     come = pending.wait_for_progress(0, come, Duration::from_secs(1));
    /// }
    /// // What has come is enough, unless all has.
    /// assert!(pending.abort()?.actual() >= 4096);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_for_progress(&self, index: usize, beyond: usize, timeout: Duration) -> usize {
        let deadline = deadline_after(sequel::patience(timeout));
        loop {
            let come = self.progress(index);
            let is_late = || deadline.is_some_and(|deadline| deadline <= Instant::now());
            if self.is_inherited() || come > beyond || self.exchange().is_replied() || is_late() {
                return come;
            }
            let until = deadline.into_iter().chain(next_look(self.ends)).min();
            self.server.wait(&mut Awaited::progress(self.exchange(), index, beyond), until);
        }
    }

    /// The same for futures: ready with [`Pending::progress`] if more than `beyond` bytes are final, or the reply is there; if not, the task
    /// is woken when that is so, in place of a task that asked before. As with [`Pending::poll`], some thread must take the replies.
    pub fn poll_progress(&self, index: usize, beyond: usize, context: &mut Context<'_>) -> Poll<usize> {
        if self.is_inherited() {
            return Poll::Ready(0);
        }
        match &self.exchange {
            Some(exchange) if !exchange.poll_progress(index, beyond, context.waker()) => {
                self.server.tell();
                Poll::Pending
            }
            _ => Poll::Ready(self.exchange().come(index)),
        }
    }

    /// Waits for the reply, at most for `timeout`; returns whether it is there. If it is not, the request goes on. With a timeout of
    /// zero, this looks only.
    ///
    /// A signal does not end the wait. A thread that is to react to one waits in steps of 0.1 s, say, and looks in between what the
    /// signal's handler has noted.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.is_inherited() || self.wait_until(deadline_after(timeout)) || self.is_inherited()
    }

    /// Waits for the reply and takes it, delivering the inputs' data to the buffers of the request: `io_sync` with
    /// *normal* delivery.
    ///
    /// # Errors
    /// See [`Error`]; after one, the input buffers are as they were.
    pub fn sync(mut self) -> Result<Reply, Failed> {
        let destinations = std::mem::take(&mut self.destinations);
        self.finish(destinations, &mut [])
    }

    /// Waits for the reply and copies the first input data bytes to `peeks`, one buffer for each of the request's native input
    /// elements, whether borrowed or given by value; the request stays pending, to be synchronized later: *peeked* delivery.
    /// Returns how many bytes went to each.
    ///
    /// # Errors
    /// The request failed; [`Pending::sync`] returns the reason, too.
    pub fn peek(&self, peeks: &mut [&mut [u8]]) -> Result<Vec<usize>, Error> {
        self.await_reply()?;
        self.exchange().look(|work| work.peek(peeks)).unwrap_or(Err(Error::Aborted))
    }

    /// Waits for the reply and takes it, delivering the inputs' data to `others` in place of the buffers of the request,
    /// in the order of its native input elements, whether borrowed or given by value: *redirected* delivery. Elements for which
    /// `others` has none are delivered as requested.
    ///
    /// A buffer that was given by value comes back as it was, unless it was shared: then the server has filled it, and the data
    /// is copied from there.
    ///
    /// # Errors
    /// As [`Pending::sync`]; also when a replacement is shorter than its data, and [`Error::TooManyDestinations`].
    pub fn redirect<'r>(mut self, others: impl IntoIterator<Item = &'r mut [u8]>) -> Result<Reply, Failed> {
        let mut others: Destinations<'r> = others.into_iter().collect();
        let destinations = std::mem::take(&mut self.destinations);
        self.finish(destinations, &mut others)
    }

    /// Has the request aborted if this is dropped before the reply is there. The server is asked to let the request go, and nothing
    /// waits until it does, so that a future may be dropped anywhere. Until then the memory stays the server's: buffers that were
    /// given by value are freed when the server has let them go, and the request counts against the limits.
    pub fn abort_on_drop(mut self) -> Self {
        self.aborts = true;
        self
    }

    /// Aborts the request: asks the server to let it go. It may still succeed, if the reply was on its way.
    ///
    /// If the server had said that part of the data is final ([`Pending::progress`]), the request succeeds with that part when the server
    /// drops it: only the rest is given up. Such a success has no argument. The reply does not say that the request was given up: a client
    /// that must know compares [`Reply::actual`] with what it asked for. If the server replies with an error instead, that part is lost, too;
    /// if it does not let go in time, [`Failed::actual`] says how far it had come.
    ///
    /// This waits until the server has let the request go, at most for
    /// [`Limits::abort_timeout`](crate::Limits::abort_timeout); in a short continuation ([`Pending::then`]), not at all.
    ///
    /// # Errors
    /// [`Error::Aborted`], normally, where nothing was final.
    pub fn abort(self) -> Result<Reply, Failed> {
        self.give_up();
        self.sync()
    }

    /// Aborts the request as [`Pending::abort`] does, and leaves what comes of it to be taken: for a request for which another thread
    /// waits.
    pub fn give_up(&self) {
        if !self.is_inherited() {
            self.server.evict(self.exchange(), &Error::Aborted, self.abort_timeout);
        }
    }

    /// When the timer gives the request up.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// Waits until there is a reply, or a reason why there is none, to be taken.
    fn await_reply(&self) -> Result<(), Error> {
        let is_there = !self.is_inherited() && (self.exchange().is_replied() || self.wait_until(None));
        // The server's code may have forked meanwhile.
        match is_there {
            _ if self.is_inherited() => Err(Error::Inherited),
            true => Ok(()),
            false => Err(Error::MayNotWait),
        }
    }

    /// Waits for the reply, or for the end of the request's time. A continuation that may not wait looks.
    fn wait_until(&self, deadline: Option<Instant>) -> bool {
        loop {
            if sequel::is_hijacked() || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                if !self.exchange().is_replied() {
                    self.server.collect();
                }
                return self.exchange().is_replied();
            }
            let look = next_look(self.ends);
            let is_replied = self.server.wait_for(self.exchange(), deadline.into_iter().chain(look).min());
            if is_replied || look.is_none() || self.is_inherited() {
                return is_replied;
            }
        }
    }

    fn finish(&mut self, destinations: Destinations<'_>, others: &mut [&mut [u8]]) -> Result<Reply, Failed> {
        self.await_reply()?;
        let taken = self.exchange.take().map(Pair::take);
        let (found, exchange) = taken.expect("a pending request has its exchange until its reply is taken");
        self.exchange = exchange;
        deliver(found, &self.server, (destinations, others), self.gave)
    }
}

impl Pending<'static> {
    /// Has `act` run with what came of the request, where the reply is taken: a continuation. `cost` says how long it takes at most.
    ///
    /// It runs once: with the reply, or with the error if the request was aborted, its time is over, or its server has dropped it, has panicked
    /// or has gone. If the reply is there already, it runs at once. A child made by fork runs no continuation of its parent's; one that calls
    /// this has it run with [`Error::Inherited`], and one that `act` forks in a thread of Genie's ends when `act` returns there. A panic of
    /// `act` ends there, after the panic hook.
    ///
    /// Until it has run, it keeps the server: one in this process is not dropped and does not hear that its client has left, and a
    /// connection stays open, even if the program has dropped all handles. So if the server never replies, it never runs. Give a request a
    /// timeout ([`Request::timeout`](crate::Request::timeout)) unless its server is sure to reply.
    ///
    /// *The thread* that runs it is whatever thread takes the reply: one that waits for another reply of that server or calls
    /// [`Interface::collect`], a thread of the server's that replies in this process, or one of Genie's (a timeout, a server that goes).
    /// As with [`Pending::poll`], *some thread must wait for a reply of that server or call [`Interface::collect`]*; on tokio,
    /// `genie::tokio::Interface::attend` does. None of Genie's locks is held, so `act` may make requests, by
    /// [`Request::submit`](crate::Request::submit), and take replies that are there. *It takes no lock that any thread holds while it makes
    /// requests, waits for replies or collects them*: that thread may be the one that runs `act`, and would wait for itself. A thread of
    /// the server's may hold locks of the server's own: a server in this process that its clients' continuations ask again replies without
    /// them.
    ///
    /// *The cost* is how long `act` may keep others waiting. A continuation is short if it costs no more than
    /// [`HIJACK_LIMIT`](crate::HIJACK_LIMIT), and else long. A thread that takes replies runs short ones, in the order of the replies, while
    /// their costs add up to no more than that limit; then it looks for the next replies. One that takes longer than it said is counted
    /// ([`overruns`](crate::overruns)), and counts towards the limit with what it took. The short ones that are left run one after the other
    /// in another thread. Each long one gets a thread of its own, which takes some 30 us more. So continuations of replies that were taken at
    /// different times may run at the same time, and in any order. Nothing limits the number of these threads.
    ///
    /// Where none can be started (`RLIMIT_NPROC`, a cgroup's limit), what would have one runs in the thread of the program's that takes the
    /// reply, one after the other, and what follows from one runs when that has returned: one that waits for another may wait for ever there.
    /// Threads of Genie's leave it (a timeout, a server that goes, a server's threads). It then runs when a thread can be started, or in a
    /// thread of the program's that calls [`Interface::collect`] or waits for a server in another process.
    ///
    /// *Waiting*: a long continuation may wait as long as it likes. A short one may not, nor may the code of a server in this process to which
    /// it submits a request. [`Request::send`](crate::Request::send) fails with [`Error::MayNotWait`] there, and so do
    /// [`Pending::sync`] where the reply is not there, and questions to servers in other processes
    /// ([`Interface::preferred`], [`ServerHandle::adjust`]). Calls that wait for a given time, such as [`Pending::wait`], only look, and
    /// [`Pending::abort`] gives the request up at once. Genie does not see whatever else would wait, such as connecting to a server: leave it to a long one.
    ///
    /// ```
    /// # use std::{sync::mpsc, time::Duration};
    /// # use genie_io::{Error, Interface, ServerHandle, servers::memory};
    /// # fn main() -> Result<(), Error> {
    /// # let (genie, server) = (Interface::open()?, ServerHandle::new(memory::Memory::customized()));
    /// let (sender, receiver) = mpsc::channel();
    /// let pending = genie.request(&server, memory::NULL).submit().map_err(|failed| failed.error)?;
    /// pending.then(Duration::from_micros(5), move |came| drop(sender.send(came.is_ok())));
    /// while receiver.try_recv() != Ok(true) {
    ///     genie.collect();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cost
    /// One allocation. [`Completions`](crate::Completions) keep requests for a thread that looks when it has time.
    ///
    /// # Source
    /// Thesis §11.2: the time that continuations take from the thread is limited as that of iolets is.
    pub fn then(self, cost: Duration, act: impl FnOnce(Result<Reply, Failed>) + Send + 'static) {
        if self.is_inherited() {
            return act(self.sync());
        }
        let exchange =
            self.exchange.clone().expect("a pending request has its exchange until its reply is taken");
        exchange.then(Sequel::Then(Continuation { cost, run: Box::new(move || act(self.sync())) }));
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        if self.is_inherited() {
            // What the exchange holds belongs to the parent, and threads of the parent may hold its locks.
            return std::mem::forget(exchange);
        }
        if self.aborts && !exchange.is_replied() {
            self.server.give_up(&exchange, &Error::Aborted, self.abort_timeout);
        }
        if exchange.depart() {
            self.server.tend();
        }
    }
}

/// Runs the reply-time operations of the inputs and makes a reply from what was found; see [`Work::finish_inputs`]. `gave` says
/// whether buffers were given by value.
///
/// [`Work::finish_inputs`]: crate::work::Work::finish_inputs
pub(crate) fn deliver(
    found: Found,
    server: &ServerHandle,
    (destinations, others): (Destinations<'_>, &mut [&mut [u8]]),
    gave: bool,
) -> Result<Reply, Failed> {
    let mut work = match found {
        Found::Work(work) => work,
        Found::Anticipated(reply) => return Ok(*reply),
        Found::Failed(failed) => {
            telemetry::failed(&failed.error);
            return Err(Failed { kept: gave, ..*failed });
        }
    };
    let error = match work.error.take() {
        Some(error) => Some(error),
        None => work.finish_inputs(destinations, others, || server.has_losses()).err(),
    };
    match &error {
        None => telemetry::replied(work.passed()),
        Some(error) => telemetry::failed(error),
    }
    match error {
        None => succeeded(work),
        Some(error) => {
            let mut buffers = SmallVec::new();
            work.give_back(&mut buffers);
            work.end();
            Err(Failed { error, buffers: buffers.into_vec(), kept: false })
        }
    }
}

/// What the client gets of a success. It is filled where it is returned: moving it costs as much as filling it.
fn succeeded(mut work: Box<Work>) -> Result<Reply, Failed> {
    let mut replied = Ok(Reply::default());
    if let Ok(reply) = &mut replied {
        work.reply(reply);
    }
    work.end();
    replied
}
