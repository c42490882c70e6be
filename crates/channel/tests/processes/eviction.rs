//! Eviction: the requests that a request originated are aborted before the request itself, wherever their servers are.
//!
//! ```text
//!   client -> a -> b -> c
//!                    -> d
//! ```
//!
//! Source: thesis §3.1.2, figure 3.1.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::{Setup, assert_idle, memory_limit};
use genie_io::{Error, Interface, Limits, Out, ServerHandle};
use genie_memory::GranuleKind;
use genie_passing::{Scheme, Thresholds};

use super::{connect, eventually, open, opening};
use crate::support::bytes::pattern;
use crate::support::holder::{Command, Control, HOLD, Held};
use crate::support::log::{self, Log, Noting};
use crate::support::peer::{Kind, Link, Peer};
use crate::support::relay::{Manner, Relay};

/// How long the client waits for its reply at first, and at most: in that time the request has to come to the last servers,
/// which takes longer on a busy machine.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(60)];

/// A client that has patience with servers that are to let requests go.
fn interface(test: &str) -> Option<Interface> {
    let limits = Limits { abort_timeout: Duration::from_secs(20), ..Limits::default() };
    let kind = GranuleKind::Base;
    Setup::allowed(kind).interface(test, memory_limit(kind), limits, Thresholds::ALWAYS)
}

/// A holder in this process that lets requests go, and notes it.
fn leaf(path: &Path, label: &str) -> (ServerHandle, Arc<Held>) {
    let (server, held) = Noting::new(None, Some(Log::open(path, label)));
    (ServerHandle::new(server), held)
}

/// A relay in this process.
fn relay(interface: &Interface, to: Vec<ServerHandle>, path: &Path, label: &str) -> ServerHandle {
    ServerHandle::new(Relay::new(interface.clone(), to, Manner::Plain, Some(Log::open(path, label))))
}

/// A holder in another process.
fn far_leaf(peer: &Peer, path: &Path, label: &str) -> Link {
    let log = Some((path.to_owned(), label.to_owned()));
    open(peer, opening(label, Kind::Holder { pooled: None, log }))
}

/// A relay in another process.
fn far_relay(peer: &Peer, to: Vec<(PathBuf, String)>, path: &Path, label: &str) -> Link {
    let log = Some((path.to_owned(), label.to_owned()));
    open(peer, opening(label, Kind::Relay { to, manner: Manner::Plain, log }))
}

/// Sends requests that get no reply, until one has come to the last servers before it timed out. Verifies that all servers
/// were then asked to let go, and none before the servers of the requests that it originated.
#[track_caller]
fn assert_post_order(interface: &Interface, path: &Path, send: impl Fn(Duration) -> Error) {
    let [mut timeout, longest] = TIMEOUTS;
    loop {
        let before = log::read(path).len();
        assert_eq!(send(timeout), Error::TimedOut { timeout });
        eventually("memory is held", || interface.pending_bytes() == 0);
        let mut order = log::read(path).split_off(before);
        if order.iter().filter(|event| event.ends_with("asked")).count() == 2 {
            order.retain(|event| event.ends_with("aborted"));
            order[..2].sort();
            assert_eq!(order, ["c aborted", "d aborted", "b aborted", "a aborted"]);
            return assert_idle(interface, 0);
        }
        timeout *= 4;
        assert!(timeout < longest, "not both servers were asked: {order:?}");
    }
}

/// A way to send a request that gets no reply.
fn send(interface: &Interface, server: &ServerHandle) -> impl Fn(Duration) -> Error {
    |timeout| {
        let buffer = super::filled(interface, 1, 100_000);
        let request = interface.request(server, HOLD).out(Out::emulated_copy(&buffer)).timeout(timeout);
        request.send().expect_err("nobody replies").error
    }
}

#[test]
fn a_timeout_here_evicts_in_post_order() {
    let Some(interface) = interface("a_timeout_here_evicts_in_post_order") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let (c, _) = leaf(&path, "c");
    let (d, _) = leaf(&path, "d");
    let b = relay(&interface, vec![c, d], &path, "b");
    let a = relay(&interface, vec![b], &path, "a");
    assert_post_order(&interface, &path, send(&interface, &a));
}

#[test]
fn a_timeout_evicts_in_post_order_across_processes() {
    let Some(interface) = interface("a_timeout_evicts_across_processes") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let [last, middle, first] = [Peer::own(), Peer::own(), Peer::own()];
    let leaves = vec![(last.run(), "c".to_owned()), (last.run(), "d".to_owned())];
    let _links = [
        far_leaf(&last, &path, "c"),
        far_leaf(&last, &path, "d"),
        far_relay(&middle, leaves, &path, "b"),
        far_relay(&first, vec![(middle.run(), "b".to_owned())], &path, "a"),
    ];
    let a = connect(&interface, &first, "a");
    assert_post_order(&interface, &path, send(&interface, &a));
}

#[test]
fn a_timeout_evicts_in_post_order_from_here_to_another_process() {
    let Some(interface) = interface("a_timeout_evicts_from_here") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let last = Peer::own();
    let _links = [far_leaf(&last, &path, "c"), far_leaf(&last, &path, "d")];
    let [c, d] = ["c", "d"].map(|label| connect(&interface, &last, label));
    let b = relay(&interface, vec![c, d], &path, "b");
    let a = relay(&interface, vec![b], &path, "a");
    assert_post_order(&interface, &path, send(&interface, &a));
}

#[test]
fn an_asynchronous_request_is_evicted_in_post_order_too() {
    let Some(interface) = interface("an_asynchronous_request_is_evicted") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let (c, _) = leaf(&path, "c");
    let (d, _) = leaf(&path, "d");
    let b = relay(&interface, vec![c, d], &path, "b");
    let a = relay(&interface, vec![b], &path, "a");
    let bytes = pattern(2, 10_000);
    assert_post_order(&interface, &path, |timeout| {
        let request = interface.request(&a, HOLD).out(Out::copy(&bytes)).timeout(timeout);
        request.submit().expect("a request").sync().expect_err("nobody replies").error
    });
}

/// A client's request to a relay `b` that has forwarded it to `c`, which does not let go until it is told to, and to `d`.
struct Meeting {
    interface: Interface,
    path: PathBuf,
    to: Vec<ServerHandle>,
    c: Arc<Held>,
    d: Arc<Held>,
    directory: tempfile::TempDir,
}

impl Meeting {
    fn new(test: &str) -> Option<Self> {
        let interface = interface(test)?;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let (to_c, c) = leaf(&path, "c");
        c.set_obliging(false);
        let (to_d, d) = leaf(&path, "d");
        Some(Self { interface, path, to: vec![to_c, to_d], c, d, directory })
    }

    fn b(&self) -> ServerHandle {
        relay(&self.interface, self.to.clone(), &self.path, "b")
    }

    /// Waits until a first thread has come to `c`, gives a second one, which does `second`, the time to pass it by, and lets `c`
    /// go on. Verifies that each of the `servers` was asked once, in this order.
    #[track_caller]
    fn assert_order(&self, second: impl FnOnce() + Send, servers: &[&str]) {
        eventually("c is not asked to let go", || !self.c.aborted().is_empty());
        std::thread::scope(|scope| {
            scope.spawn(second);
            std::thread::sleep(Duration::from_millis(50));
            self.c.command(self.c.held()[0], Command::Drop);
        });
        let expected: Vec<_> = servers.iter().map(|server| format!("{server} aborted")).collect();
        let aborted = || {
            let mut events = log::read(&self.path);
            events.retain(|event| event.ends_with("aborted"));
            events
        };
        eventually("a server is not asked to let go", || aborted().len() >= servers.len());
        eventually("memory is held", || self.interface.pending_bytes() == 0);
        assert_eq!(aborted(), expected);
        assert!(self.d.held().is_empty());
    }
}

/// The second thread once found the list of what was originated taken, and asked the contractor before its second
/// subcontractor; the first thread asked the contractor again.
#[test]
fn two_aborts_of_one_request_evict_in_post_order() {
    let Some(meeting) = Meeting::new("two_aborts_of_one_request") else { return };
    let b = meeting.b();
    let pending = meeting.interface.request(&b, HOLD).out(Out::copy(b"forwarded")).submit();
    let pending = Arc::new(pending.expect("a request"));
    let first = Arc::clone(&pending);
    let first = std::thread::spawn(move || first.give_up());
    meeting.assert_order(move || pending.give_up(), &["c", "d", "b"]);
    first.join().expect("no panic");
}

/// See `two_aborts_of_one_request_evict_in_post_order`.
#[test]
fn an_abort_that_meets_the_requests_timeout_evicts_in_post_order() {
    for gives in [false, true] {
        let Some(meeting) = Meeting::new("an_abort_that_meets_the_requests_timeout") else { return };
        let b = meeting.b();
        let request = meeting.interface.request(&b, HOLD).timeout(Duration::from_millis(50));
        let buffer = super::filled(&meeting.interface, 1, 10_000);
        let out = if gives { Out::owned(Scheme::Copy, buffer) } else { Out::copy(b"forwarded") };
        let pending = request.out(out).submit().expect("a request");
        meeting.assert_order(|| drop(pending.abort().expect_err("nobody replies")), &["c", "d", "b"]);
    }
}

/// A request that had timed out, and whose eviction was under way, was once passed by as over, so that the request that had originated
/// it was aborted before it.
#[test]
fn an_abort_that_meets_the_timeout_of_what_was_originated_evicts_in_post_order() {
    let Some(meeting) = Meeting::new("an_abort_that_meets_another_timeout") else { return };
    let limits = Limits { timeout: Some(Duration::from_millis(50)), ..Limits::default() };
    let hasty = Interface::new(meeting.interface.passing().clone(), limits);
    let a = relay(&hasty, vec![meeting.b()], &meeting.path, "a");
    let request = meeting.interface.request(&a, HOLD).out(Out::copy(b"forwarded"));
    let pending = request.submit().expect("a request");
    meeting.assert_order(|| drop(pending.abort().expect_err("nobody replies")), &["c", "d", "b", "a"]);
}

/// See `two_aborts_of_one_request_evict_in_post_order`.
#[test]
fn a_client_elsewhere_that_aborts_and_then_dies_is_evicted_in_post_order() {
    let Some(meeting) = Meeting::new("a_client_elsewhere_that_aborts_and_then_dies") else { return };
    let Some(client) = interface("a_client_elsewhere_that_aborts_and_then_dies") else { return };
    let directory = Directory::at(meeting.directory.path().join("run")).expect("a run-time directory");
    let options = ServeOptions { abort_timeout: Duration::from_secs(20), ..ServeOptions::default() };
    let log = Some(Log::open(&meeting.path, "b"));
    let b = Relay::new(meeting.interface.clone(), meeting.to.clone(), Manner::Plain, log);
    let running = Listener::bind_in(&directory, "b", b, options).expect("a name").start().expect("threads");
    let server = client.connect_with(&directory, "b", &ConnectOptions::default()).expect("a connection");
    let request = client.request(&server, HOLD).out(Out::copy(b"forwarded"));
    let pending = request.timeout(Duration::from_millis(50)).submit().expect("a request");
    let die = move || drop((pending, server, client));
    meeting.assert_order(die, &["c", "d", "b"]);
    drop(running);
}
