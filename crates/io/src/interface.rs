//! The I/O interface of one client: where its requests begin.
//!
//! How: a request is admitted (limits), its elements' request-time operations run, and the server gets it, in the
//! client's thread. A server that replies at once costs the client no lock that anyone contends for and no system call;
//! only a request that outlives the call is listed, so that it can be timed out, flushed or aborted.
//! Source: thesis §7.1.

use std::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Context;
use std::time::{Duration, Instant};

use genie_memory::{Buffer, Config, Migrant, Space};
use genie_passing::{Passing, Scheme};
use smallvec::SmallVec;

use crate::carrier::Carrier;
use crate::client::presence::Presence;
use crate::contract::Contract;
use crate::deadline::{Patience, deadline_after};
use crate::exchange::{Awaited, Exchange, Found, Pair};
use crate::interface::outstanding::Outstanding;
use crate::interface::timer::Timer;
use crate::limits::Pendings;
use crate::primitive::Mutex;
use crate::request::id::RequestIds;
use crate::request::pending::deliver;
use crate::request::plan::Sum;
use crate::sequel;
use crate::work::{Borrowings, Destinations, Work};
use crate::{Error, Failed, Limits, Pending, Plan, Reply, Request, ServerHandle, ServiceId};

mod borrow;
mod default_scheme;
pub(crate) mod outstanding;
pub(crate) mod preference;
pub(crate) mod timer;
mod watch;

use borrow::Borrow;
use watch::Watch;

/// Addresses are not given up below this many bytes of memory.
const LEAST_MEMORY: usize = 64 << 20;

/// A client's I/O interface. Cloning makes another handle to the same one.
///
/// A child made by fork can't use its copies of an interface, or of anything made with it: functions return
/// [`Error::Inherited`], or do nothing; dropping the copies has no effect on the parent; buffers hold zeros, which are the
/// child's own. The child opens an interface of its own and connects anew. This holds for children of the C library's
/// `fork`. A child made by `vfork`, or by the system call itself, must exec or exit, and use no handle.
#[derive(Debug, Clone)]
pub struct Interface(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    passing: Passing,
    limits: Limits,
    /// The default scheme's number.
    scheme: AtomicU8,
    pendings: Arc<Pendings>,
    ids: RequestIds,
    outstanding: Arc<Outstanding>,
    timer: Timer,
    /// The servers in other processes that this interface was ever connected to.
    carriers: Mutex<Vec<Weak<dyn Carrier>>>,
    /// Watches all servers, once the program has asked for a descriptor.
    watch: OnceLock<Watch>,
    /// Dropped last, when the timer aborts no more requests.
    presence: Arc<Presence>,
}

impl Interface {
    /// Opens an interface with the default space and limits; the space has the best granules the machine has. If the
    /// program's global allocator is Genie's (feature `allocator` of the crate `genie`), the space is the allocator's. Where the
    /// process may not have addresses for all of the default space (`ulimit -v`), it is smaller. It takes memory as it is needed,
    /// and none that the process's memory cgroup has no room for.
    ///
    /// # Errors
    /// No memory object could be had; the error says what to do.
    ///
    /// # Cost
    /// The first time on a machine, about a second: what copying and protecting cost there is measured, and stored in the file
    /// that `genie calibrate` names. Memory of some 3 MiB.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(Limits::default())
    }

    /// The same with limits: a timeout for all requests, say.
    ///
    /// # Errors
    /// As [`Interface::open`].
    pub fn open_with(limits: Limits) -> Result<Self, Error> {
        #[cfg(feature = "allocator")]
        if let Some(space) = genie_memory::Allocator::space() {
            return Ok(Self::new(Passing::over(space), limits));
        }
        Self::open_configured(Config::default(), limits)
    }

    /// The same with a space of its own, made as `config` says, or smaller where addresses are limited.
    ///
    /// # Errors
    /// As [`Interface::open`].
    pub fn open_configured(mut config: Config, limits: Limits) -> Result<Self, Error> {
        let passing = loop {
            match Passing::open(&config) {
                Err(genie_memory::Error::AddressLimit(_)) if config.limit > LEAST_MEMORY => config.limit /= 2,
                opened => break opened?,
            }
        };
        Ok(Self::new(passing, limits))
    }

    /// Makes an interface from a data passing engine and limits.
    pub fn new(passing: Passing, limits: Limits) -> Self {
        let pendings =
            Arc::new(Pendings::new(limits.pending_bytes, limits.pending_requests, limits.kept_bytes));
        Self(Arc::new(Inner {
            passing,
            limits,
            scheme: AtomicU8::new(Scheme::EmulatedCopy as u8),
            presence: Presence::new(pendings.client()),
            pendings,
            ids: RequestIds::default(),
            outstanding: Arc::default(),
            timer: Timer::new(),
            carriers: Mutex::default(),
            watch: OnceLock::new(),
        }))
    }

    /// Begins a request for one of a server's services.
    pub fn request<'r, 'o, 'i>(
        &'r self,
        server: &'r ServerHandle,
        service: ServiceId,
    ) -> Request<'r, 'o, 'i> {
        Request::new(self, server, service)
    }

    /// Makes the server reachable to which `carrier` takes the requests of this interface. From now on this interface's waiting, its
    /// descriptor and its limits include that server; the carrier is dropped with the last handle.
    ///
    /// # Errors
    /// [`Error::Inherited`]; or the carrier's descriptors cannot be watched.
    pub fn attach(&self, carrier: Arc<dyn Carrier>) -> Result<ServerHandle, Error> {
        self.ensure_own()?;
        let mut carriers = self.0.carriers.lock();
        carriers.retain(|carrier| carrier.strong_count() > 0);
        if let Some(watch) = self.0.watch.get() {
            carrier.watch_by(&watch.poller, 0)?;
        }
        carriers.push(Arc::downgrade(&carrier));
        Ok(ServerHandle::connected(carrier))
    }

    /// Looks at the servers of this process that complete requests only when clients look; returns how many requests were
    /// completed.
    fn collect_here(&self) -> usize {
        if self.space().is_inherited() {
            return 0;
        }
        self.0.outstanding.looked_at().iter().map(ServerHandle::collect).sum()
    }

    /// Takes the replies of all servers; returns how many there were.
    fn collect_all(&self) -> usize {
        self.carriers().iter().map(|carrier| carrier.collect()).sum::<usize>() + self.collect_here()
    }

    /// Stops watching a server.
    fn forget(&self, gone: &Arc<dyn Carrier>) {
        let mut carriers = self.0.carriers.lock();
        carriers.retain(|carrier| !std::ptr::addr_eq(carrier.as_ptr(), Arc::as_ptr(gone)));
        if let Some(watch) = self.0.watch.get() {
            gone.unwatch_by(&watch.poller);
        }
    }

    fn carriers(&self) -> SmallVec<[Arc<dyn Carrier>; 4]> {
        if self.space().is_inherited() {
            return SmallVec::new();
        }
        let carriers = self.0.carriers.lock();
        carriers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Fails in a child made by fork that has this handle from its parent.
    pub(crate) fn ensure_own(&self) -> Result<(), Error> {
        if self.space().is_inherited() { Err(Error::Inherited) } else { Ok(()) }
    }

    /// The same for a request: the server's handle must be of this process, too.
    fn ensure_request(&self, server: &ServerHandle, plan: &mut Plan<'_, '_>) -> Result<(), Failed> {
        if self.space().is_inherited() || server.is_inherited() {
            return Err(Work::refuse(self, server, plan, Error::Inherited));
        }
        Ok(())
    }

    /// Allocates a native buffer; see [`Space::allocate`].
    ///
    /// # Errors
    /// The space's limit is reached, or the kernel has no memory.
    pub fn allocate(&self, len: usize) -> Result<Buffer, Error> {
        Ok(self.space().allocate(len)?)
    }

    /// Allocates a native buffer laid out as a server prefers; see [`Space::allocate_at`]. The server's granules may be
    /// longer: only the place of `offset` in a granule of this interface counts.
    ///
    /// # Errors
    /// As [`Interface::allocate`].
    pub fn allocate_at(&self, offset: usize, len: usize) -> Result<Buffer, Error> {
        Ok(self.space().allocate_at(offset % self.space().granule(), len)?)
    }

    /// Allocates a migrant buffer for the schemes of strong (move) or weak (weak move) integrity.
    ///
    /// # Errors
    /// As [`Interface::allocate`].
    pub fn allocate_migrant(&self, len: usize, strong: bool) -> Result<Migrant, Error> {
        Ok(self.space().allocate_migrant(len, strong)?)
    }

    /// Whether `other` is a handle to the same interface.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The interface's memory, for programs that measure or inspect: a part of `genie::mechanism`.
    pub fn space(&self) -> &Space {
        self.0.passing.space()
    }

    /// The interface's data passing engine, for programs that measure or inspect: a part of `genie::mechanism`.
    pub fn passing(&self) -> &Passing {
        &self.0.passing
    }

    /// Bytes in pending requests.
    pub fn pending_bytes(&self) -> usize {
        self.0.pendings.used()
    }

    /// Changes how many bytes and requests may be pending.
    ///
    /// # Errors
    /// A hard limit is exceeded; nothing has changed.
    pub fn adjust(&self, pending_bytes: usize, pending_requests: usize) -> Result<(), Error> {
        self.ensure_own()?;
        let limits = &self.0.limits;
        for (what, asked, hard) in [
            ("bytes", pending_bytes, limits.hard_bytes),
            ("requests", pending_requests, limits.hard_requests),
        ] {
            if asked > hard {
                return Err(Error::HardLimit { what, asked, hard });
            }
        }
        self.0.pendings.adjust(pending_bytes, pending_requests);
        Ok(())
    }

    /// Waits until the server has completed all of this interface's earlier requests to it, anticipated ones included
    /// (a flush). Returns whether it has, within `timeout`.
    pub fn flush(&self, server: &ServerHandle, timeout: Duration) -> bool {
        if self.space().is_inherited() || server.is_inherited() {
            return false;
        }
        let deadline = deadline_after(sequel::patience(timeout));
        if let Some(carrier) = server.carrier() {
            return carrier.flush(self.0.ids.bound(), deadline);
        }
        self.0.outstanding.wait_for(server, self.0.ids.bound(), deadline)
    }

    pub(crate) fn send(&self, server: &ServerHandle, plan: &mut Plan<'_, '_>) -> Result<Reply, Failed> {
        self.ensure_request(server, plan)?;
        if sequel::is_hijacked() {
            return Err(Work::refuse(self, server, plan, Error::MayNotWait));
        }
        let timeout = self.timeout(plan.timeout);
        let deadline = timeout.and_then(deadline_after);
        let sum = plan.sum();
        let gave = sum.gives;
        let collect = || self.collect_all();
        let collect: Option<&dyn Fn() -> usize> = if server.is_looked_at() { Some(&collect) } else { None };
        let work = Work::admitted(&self.0.pendings, |pendings| pendings.admit(sum.bytes, timeout, collect));
        let by = Patience::Until(deadline);
        let mut borrow = Borrow { space: self.space(), server, of: Borrowings::default() };
        let (exchange, destinations) = self.start(server, plan, &sum, work, by, Some(&mut borrow.of))?;
        let left = match exchange.is_replied() {
            true => {
                exchange.fail_if_late(deadline, timeout);
                None
            }
            false => self.wait(&exchange, server, deadline, timeout.map(|timeout| (timeout, gave))),
        };
        let exchange = self.still_here(exchange)?;
        let (mut found, exchange) = match left {
            Some((work, held)) => (Found::Work(work), Pair::keep(exchange, held)),
            None => Pair::take(exchange),
        };
        if let (Found::Anticipated(_), Some(exchange)) = (&found, &exchange) {
            self.list(exchange, server);
            server.tend();
        }
        match &mut found {
            // Outputs and inputs in place have ended.
            Found::Work(_) => borrow.over(),
            Found::Anticipated(reply) => borrow.end(&mut reply.buffers),
            Found::Failed(_) => drop(borrow),
        }
        deliver(found, server, (destinations, &mut []), gave)
    }

    /// Waits for a reply, or aborts the request when its time is over, and if it gave buffers, waits for those. Returns the
    /// work, where only this thread knows of the request.
    fn wait(
        &self,
        exchange: &Arc<Exchange>,
        server: &ServerHandle,
        deadline: Option<Instant>,
        timeout: Option<(Duration, bool)>,
    ) -> Option<(Box<Work>, Arc<Exchange>)> {
        self.list(exchange, server);
        // A contract that originated the request may abort it, and holds a weak reference.
        let mut awaited = match Arc::weak_count(exchange) {
            0 => Awaited::alone(exchange),
            _ => Awaited::by_many(exchange),
        };
        if let (false, Some((timeout, gave))) = (server.wait(&mut awaited, deadline), timeout)
            && !self.space().is_inherited()
        {
            let (reason, grace) = (Error::TimedOut { timeout }, self.0.limits.abort_timeout);
            // A reply that came while this thread did not run counts.
            server.collect();
            match gave {
                true => server.evict(exchange, &reason, grace),
                false => server.give_up(exchange, &reason, grace),
            }
        }
        awaited.into_left()
    }

    pub(crate) fn submit<'i>(
        &self,
        server: &ServerHandle,
        plan: &mut Plan<'_, 'i>,
    ) -> Result<Pending<'i>, Failed> {
        let admit = |pendings: &Pendings, bytes, _timeout, _server: &ServerHandle| pendings.try_admit(bytes);
        self.submit_admitted(server, plan, admit, |_| Patience::None)
    }

    pub(crate) fn submit_when_room<'i>(
        &self,
        server: &ServerHandle,
        plan: &mut Plan<'_, 'i>,
    ) -> Result<Pending<'i>, Failed> {
        if sequel::is_hijacked() {
            return self.submit(server, plan);
        }
        let collect = || self.collect_all();
        let admit = |pendings: &Pendings, bytes, timeout, server: &ServerHandle| {
            pendings.admit(bytes, timeout, server.is_looked_at().then_some(&collect))
        };
        self.submit_admitted(server, plan, admit, Patience::Until)
    }

    /// Whether the limits leave room for so many bytes, or never will.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.space().is_inherited() || self.0.pendings.has_room(bytes)
    }

    /// The same; the task is woken when there may be room.
    pub(crate) fn poll_room(&self, bytes: usize, context: &mut Context<'_>) -> bool {
        self.space().is_inherited() || self.0.pendings.poll(bytes, context.waker())
    }

    #[inline]
    fn submit_admitted<'i>(
        &self,
        server: &ServerHandle,
        plan: &mut Plan<'_, 'i>,
        admit: impl FnOnce(&Pendings, usize, Option<Duration>, &ServerHandle) -> Result<u64, Error>,
        patience: impl FnOnce(Option<Instant>) -> Patience,
    ) -> Result<Pending<'i>, Failed> {
        self.ensure_request(server, plan)?;
        let timeout = self.timeout(plan.timeout);
        let deadline = timeout.and_then(deadline_after);
        let sum = plan.sum();
        let (bytes, gave) = (sum.bytes, sum.gives);
        let work = match timeout.map(|_| self.0.timer.start()) {
            Some(Err(error)) => Err(error),
            _ => Work::admitted(&self.0.pendings, |pendings| admit(pendings, bytes, timeout, server)),
        };
        let (exchange, destinations) = self.start(server, plan, &sum, work, patience(deadline), None)?;
        let listed = self.list(&exchange, server);
        if !listed {
            exchange.fail_if_late(deadline, timeout);
        }
        let timeout = timeout.filter(|_| listed);
        let mut ends = None;
        if let Some(timeout) = timeout {
            let grace = self.0.limits.abort_timeout;
            self.0.timer.watch(&exchange, server, (timeout, deadline), (grace, gave));
            let more = if gave { grace } else { Duration::ZERO };
            ends = deadline.and_then(|deadline| deadline.checked_add(more));
        }
        let timed = timeout.map(|_| self.clone());
        let is_held_here = listed && timed.is_none() && !server.is_remote();
        let presence = is_held_here.then(|| Arc::clone(&self.0.presence));
        let abort_timeout = self.0.limits.abort_timeout;
        Ok(Pending::new(
            exchange,
            server.clone(),
            destinations,
            (abort_timeout, gave, plan.aborts, ends),
            timed,
            presence,
        ))
    }

    /// Lists a request that outlives the call that made it, unless the request is over already; returns whether it is still
    /// under way. Requests at a server in another process are in the table of its channel already.
    fn list(&self, exchange: &Arc<Exchange>, server: &ServerHandle) -> bool {
        match server.carrier() {
            Some(_) => !exchange.is_replied(),
            None => exchange.list(|| self.0.outstanding.add(exchange, server)),
        }
    }

    /// Runs the request-time operations and hands the request to its server. If the borrow of its outputs lasts, this notes them in
    /// `borrowings`, and the caller ends it.
    fn start<'i>(
        &self,
        server: &ServerHandle,
        plan: &mut Plan<'_, 'i>,
        sum: &Sum,
        work: Result<Box<Work>, Error>,
        patience: Patience,
        borrowings: Option<&mut Borrowings>,
    ) -> Result<(Arc<Exchange>, Destinations<'i>), Failed> {
        let is_told_later = std::mem::take(&mut plan.is_told_later);
        let access = server.access(plan.service);
        let foreign =
            || plan.foreign_server(server, sum, self.space()).map(|server| server.name().to_owned());
        let access = access.and_then(|access| match foreign() {
            Some(server) => Err(Error::OtherInterface { server }),
            None => Ok(access),
        });
        let (access, work) = match access.and_then(|access| Ok((access, work?))) {
            Ok(both) => both,
            Err(error) => return Err(Work::refuse(self, server, plan, error)),
        };
        let id = self.0.ids.take();
        let (work, destinations) = Work::begin(work, self, server, plan, borrowings)?;
        let Pair { client: exchange, server: served } = Pair::new(id);
        let originate = |contract: &Contract| contract.originate(server.originated(&exchange));
        let is_sent = match work.each_contract(originate) {
            Ok(()) => {
                server.asked_by(&self.0.presence);
                let by = (self.passing(), patience, is_told_later);
                server.request(work, served, (plan.service, access), by)
            }
            Err(reason) => {
                served.reply(work, Some(reason));
                false
            }
        };
        let exchange = self.still_here(exchange)?;
        if is_sent {
            if exchange.is_aborting() && !exchange.is_replied() {
                // The abort may have come before the server had the request.
                server.abort(id);
            }
            return Ok((exchange, destinations));
        }
        Err(deliver(exchange.take(), server, (destinations, &mut []), false)
            .err()
            .unwrap_or_else(|| Error::Aborted.into()))
    }

    /// Gives a request back, unless its server's code has forked since it was made and this is the child.
    ///
    /// # Errors
    /// [`Error::Inherited`]. The request is the parent's, and its locks may be held by the parent's threads.
    #[inline]
    fn still_here(&self, exchange: Arc<Exchange>) -> Result<Arc<Exchange>, Failed> {
        if self.space().is_inherited() {
            std::mem::forget(exchange);
            return Err(Error::Inherited.into());
        }
        Ok(exchange)
    }

    fn timeout(&self, asked: Option<Duration>) -> Option<Duration> {
        match (asked, self.0.limits.timeout) {
            (Some(asked), Some(longest)) => Some(asked.min(longest)),
            (asked, longest) => asked.or(longest),
        }
    }
}
