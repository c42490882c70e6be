//! Servers in this process that complete requests when clients look, and event loops that wait for them.
//!
//! How: the rings signal an eventfd when something is done. Each wait is bounded by a time that no test takes, so a loop
//! that is not woken fails.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use genie_io::{
    Completer, Completions, Incoming, Interface, Pending, RequestId, Server, ServerHandle, Service,
};
use genie_sys::event::Event;
use genie_sys::lock::{Mutex, MutexGuard};
use genie_sys::poll::readable;

use super::fixture::{ASK, FOR_EVER, SERVICES};

/// What a ring gives for its descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Gives {
    #[default]
    Bell,
    Nothing,
    /// A file, for which epoll can't wait.
    File,
    PanicForDescriptor,
    /// The descriptor, and a panic when it is armed.
    PanicForArm,
    /// The descriptor, which says when it is armed that there may be something, always.
    NoRest,
    /// The descriptor, which becomes readable once each time that it is armed.
    WhenArmed,
    /// The descriptor; a thread that reaps takes one request.
    OneByOne,
    /// A panic when it is asked for its completer, but for the first time and from the fifth time on.
    PanicForCompleter,
}

/// What is asked waits until `work`, and then until a thread reaps.
#[derive(Clone)]
pub(crate) struct Ring(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    asked: Mutex<Vec<Incoming>>,
    done: Mutex<Vec<Incoming>>,
    bell: Event,
    file: std::fs::File,
    gives: Gives,
    /// The threads that have reaped.
    reapers: Mutex<HashSet<ThreadId>>,
    /// The names of the threads that have reaped, for each time that there was something.
    reaped: Mutex<Vec<String>>,
    is_armed: AtomicBool,
    /// How often it was asked for its descriptor, or for its completer, and armed.
    pub(crate) asks: AtomicU32,
    pub(crate) arms: AtomicU32,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Ring {
    pub(crate) fn new(gives: Gives) -> Self {
        Self(Arc::new(Inner {
            asked: Mutex::default(),
            done: Mutex::default(),
            bell: Event::new().expect("an eventfd"),
            file: tempfile::tempfile().expect("a file"),
            gives,
            reapers: Mutex::default(),
            reaped: Mutex::default(),
            is_armed: AtomicBool::new(false),
            asks: AtomicU32::new(0),
            arms: AtomicU32::new(0),
        }))
    }

    /// Completes what has been asked; returns how many requests.
    pub(crate) fn work(&self) -> usize {
        let asked = std::mem::take(&mut *lock(&self.0.asked));
        let count = asked.len();
        lock(&self.0.done).extend(asked);
        if count > 0 {
            self.ring();
        }
        count
    }

    /// Completes the request that was asked first; returns whether there was one.
    pub(crate) fn work_one(&self) -> bool {
        let mut asked = lock(&self.0.asked);
        let first = (!asked.is_empty()).then(|| asked.remove(0));
        drop(asked);
        let is_there = first.is_some();
        lock(&self.0.done).extend(first);
        if is_there {
            self.ring();
        }
        is_there
    }

    /// How many requests have been asked, and not completed.
    pub(crate) fn asked(&self) -> usize {
        lock(&self.0.asked).len()
    }

    pub(crate) fn reapers(&self) -> HashSet<ThreadId> {
        lock(&self.0.reapers).clone()
    }

    pub(crate) fn reaped(&self) -> Vec<String> {
        lock(&self.0.reaped).clone()
    }

    pub(crate) fn ring(&self) {
        if self.0.gives == Gives::WhenArmed && !self.0.is_armed.swap(false, Ordering::SeqCst) {
            return;
        }
        self.0.bell.signal().expect("a signal");
    }

    /// Completes what comes, from a thread of its own, until `is_over`.
    pub(crate) fn work_until(&self, is_over: impl Fn() -> bool) {
        while !is_over() {
            self.work();
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Server for Ring {
    fn name(&self) -> &str {
        "ring"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        lock(&self.0.asked).push(request);
    }

    fn abort(&self, request: RequestId) {
        let gone: Vec<_> = lock(&self.0.asked).extract_if(.., |asked| asked.id() == request).collect();
        drop(gone);
    }

    fn completer(&self) -> Option<&dyn Completer> {
        if self.0.gives == Gives::PanicForCompleter {
            let asks = self.0.asks.fetch_add(1, Ordering::Relaxed);
            assert!(!(1..4).contains(&asks), "a completer's panic is part of the test");
        }
        Some(self)
    }
}

impl Completer for Ring {
    fn collect(&self) -> usize {
        let mut reapers = self.0.reapers.try_lock().expect("one thread at a time reaps");
        self.0.is_armed.store(false, Ordering::SeqCst);
        let mut left = lock(&self.0.done);
        let count = if self.0.gives == Gives::OneByOne { left.len().min(1) } else { left.len() };
        let done: Vec<_> = left.drain(..count).collect();
        if left.is_empty() {
            self.0.bell.clear().expect("an eventfd");
        }
        drop(left);
        if count > 0 {
            reapers.insert(std::thread::current().id());
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("a thread's name");
            lock(&self.0.reaped).push(name.trim_end().to_owned());
        }
        done.into_iter().for_each(|request| request.reply(Ok(())));
        count
    }

    fn wait(&self, timeout: Duration) {
        readable(&self.0.bell, Some(timeout)).expect("an eventfd");
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.asks.fetch_add(1, Ordering::Relaxed);
        match self.0.gives {
            Gives::Nothing | Gives::PanicForCompleter => None,
            Gives::File => Some(self.0.file.as_fd()),
            Gives::PanicForDescriptor => panic!("a descriptor's panic is part of the test"),
            _ => Some(self.0.bell.as_fd()),
        }
    }

    fn arm(&self) -> bool {
        self.0.arms.fetch_add(1, Ordering::Relaxed);
        assert!(self.0.gives != Gives::PanicForArm, "a panic when it is armed is part of the test");
        self.0.is_armed.store(true, Ordering::SeqCst);
        let has_any = || !lock(&self.0.done).is_empty();
        self.0.gives != Gives::NoRest && (self.0.gives != Gives::WhenArmed || !has_any())
    }
}

/// A server that has another one do its work, over a channel or in this process.
pub(crate) struct Middle {
    flying: Completions<Option<Incoming>>,
    inner: Interface,
    behind: ServerHandle,
}

impl Middle {
    pub(crate) fn new(behind: ServerHandle, inner: Interface) -> Self {
        Self { flying: Completions::default(), inner, behind }
    }

    pub(crate) fn serve(behind: ServerHandle, inner: Interface) -> ServerHandle {
        ServerHandle::new(Self::new(behind, inner))
    }
}

impl Server for Middle {
    fn name(&self) -> &str {
        "middle"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let pending = self.inner.request(&self.behind, ASK).submit().expect("a request");
        self.flying.add(pending, Some(request));
    }

    fn abort(&self, request: RequestId) {
        drop(self.flying.remove(|it| it.as_ref().is_some_and(|it| it.id() == request)));
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for Middle {
    fn collect(&self) -> usize {
        self.flying.wait(&self.behind, Duration::ZERO);
        let mut count = 0;
        while let Some((pending, original)) = self.flying.next() {
            pending.sync().expect("a reply");
            original.into_iter().for_each(|request| request.reply(Ok(())));
            count += 1;
        }
        count
    }

    fn wait(&self, timeout: Duration) {
        self.flying.wait(&self.behind, timeout);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor().ok()
    }

    fn arm(&self) -> bool {
        self.inner.collect();
        self.inner.arm() && !self.flying.has_next()
    }
}

/// A server whose completer waits as long as it takes, so that a thread that is not woken fails its test.
pub(crate) struct Patient<S>(pub(crate) S);

impl<S: Server + Completer> Server for Patient<S> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn services(&self) -> &[Service] {
        self.0.services()
    }

    fn request(&self, request: Incoming) {
        self.0.request(request);
    }

    fn abort(&self, request: RequestId) {
        self.0.abort(request);
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl<S: Server + Completer> Completer for Patient<S> {
    fn collect(&self) -> usize {
        self.0.collect()
    }

    fn wait(&self, _timeout: Duration) {
        self.0.wait(FOR_EVER);
    }
}

pub(crate) fn submit(interface: &Interface, server: &ServerHandle) -> Pending<'static> {
    interface.request(server, ASK).submit().expect("a request")
}

/// Whether it is replied to, as far as anybody has looked; this looks at no server.
pub(crate) fn is_over(pending: &Pending<'_>) -> bool {
    pending.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Runs the event loop until that is so; returns how often it slept and was woken.
#[track_caller]
pub(crate) fn run_until(interface: &Interface, is_over: impl Fn() -> bool) -> u32 {
    let (start, mut wakes) = (Instant::now(), 0);
    loop {
        interface.collect();
        if is_over() {
            return wakes;
        }
        if interface.arm() {
            let is_woken = readable(interface.descriptor().expect("a descriptor"), Some(FOR_EVER));
            assert!(is_woken.expect("a descriptor"), "nothing made the descriptor readable");
            wakes += 1;
        }
        assert!(start.elapsed() < FOR_EVER, "the loop does not end");
    }
}

/// Arms as a loop does that has nothing to look at; returns whether the descriptor is readable then.
#[track_caller]
pub(crate) fn is_readable_when_armed(interface: &Interface) -> bool {
    let (descriptor, start) = (interface.descriptor().expect("a descriptor"), Instant::now());
    loop {
        interface.collect();
        if interface.arm() {
            return readable(descriptor, Some(Duration::ZERO)).expect("a descriptor");
        }
        assert!(start.elapsed() < FOR_EVER, "it can't be armed");
    }
}
