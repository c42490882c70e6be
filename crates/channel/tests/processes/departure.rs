//! Departures: a client or a server that is killed, or stopped, harms no other process, and memory comes back.
//!
//! Source: thesis §3.1.2 (eviction on exit).

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::checked;
use genie_conformance::machine::Backed;
use genie_io::servers::memory::Memory;
use genie_io::{Completions, Error, In, Incoming, Limits, Out, RequestId, Server, Service};
use genie_memory::{GranuleKind, Mapping};
use genie_sys::Condvar;
use genie_sys::lock::Mutex;

use super::{Fixture, eventually};
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{Answer, Command, Control, HOLD, Held, HoldingServer, Name};
use crate::support::peer::{Ask, Peer};
use crate::support::transport::Place;

on_both_granules! {
    requests_of_a_server_that_is_killed_fail_and_their_memory_comes_back,
    a_request_of_a_stopped_server_times_out_and_holds_its_memory_until_the_server_is_gone,
    requests_of_a_server_that_is_killed_come_out_of_a_queue_that_waits_for_another,
    a_server_that_is_killed_while_it_is_told_of_memory_holds_nobody_up,
}

/// Waits until nothing is left of a server that is gone.
#[track_caller]
fn assert_gone(fixture: &Fixture) {
    eventually("memory is held", || {
        let usage = checked(fixture.interface().space());
        fixture.interface().pending_bytes() == 0
            && (usage.references, usage.deferred, usage.system) == (0, 0, 0)
    });
}

fn requests_of_a_server_that_is_killed_fail_and_their_memory_comes_back(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let (mut output, mut copied, mut input) = (fixture.buffer(1), fixture.buffer(2), fixture.buffer(3));
    let before = input.to_vec();
    let request = || fixture.interface().request(fixture.holder().handle(), HOLD);
    let region = fixture.interface().allocate_migrant(fixture.len(), true).expect("a region");
    let pending = [
        request().out(Out::emulated_copy(&output)).submit().expect("a request"),
        request().out(Out::copy(&copied)).submit().expect("a request"),
        request().out(Out::emulated_move(region)).submit().expect("a request"),
        request().out(Out::share(fixture.buffer(4))).submit().expect("a request"),
        request().input(In::emulated_copy(&mut input)).submit().expect("a request"),
    ];
    fixture.holder().write(pending[4].id(), 0, &[0xee; 100]);
    assert!(fixture.interface().pending_bytes() > 0);
    fixture.peer.kill();
    let errors = pending.map(|pending| pending.sync().expect_err("its server is gone").error);
    for error in errors {
        assert!(matches!(error, Error::Gone { .. }), "{error}");
    }
    same(&input, &before, "nothing has arrived");
    for buffer in [&mut output, &mut copied, &mut input] {
        buffer.fill(7);
    }
    assert_gone(&fixture);
    let error =
        fixture.interface().request(fixture.holder().server(), HOLD).send().expect_err("it is gone").error;
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    drop((output, copied, input));
    eventually("a lent object is kept", || checked(fixture.interface().space()).lent == 0);
}

/// As a program waits whose server was started again.
fn requests_of_a_server_that_is_killed_come_out_of_a_queue_that_waits_for_another(
    test: &str,
    kind: GranuleKind,
) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let listener = Listener::bind_in(&directory, "another", Memory::customized(), ServeOptions::default());
    let _serving = listener.expect("a name").start().expect("threads");
    let another = fixture.interface().connect_with(&directory, "another", &ConnectOptions::default());
    let another = another.expect("a connection");
    let completions = Completions::default();
    let output = fixture.buffer(1);
    let request = fixture.interface().request(fixture.holder().handle(), HOLD).out(Out::copy(&output));
    completions.add(request.submit().expect("a request"), ());
    fixture.peer.kill();
    assert!(completions.wait(&another, Duration::from_secs(5)), "it waits for the other server");
    let (pending, ()) = completions.next().expect("the request whose server is gone");
    let error = pending.sync().expect_err("its server is gone").error;
    assert!(matches!(error, Error::Gone { .. }), "{error}");
}

fn a_request_of_a_stopped_server_times_out_and_holds_its_memory_until_the_server_is_gone(
    test: &str,
    kind: GranuleKind,
) {
    let limits = Limits { abort_timeout: Duration::from_millis(10), ..Limits::default() };
    let Some(fixture) = Fixture::open_with(test, kind, Place::Cached, limits) else { return };
    let mut buffer = fixture.buffer(1);
    let request = |timeout| {
        let request = fixture.interface().request(fixture.holder().handle(), HOLD);
        request.timeout(Duration::from_millis(timeout))
    };
    let pending = request(60_000).out(Out::emulated_copy(&buffer)).submit().expect("a request");
    fixture.holder().reply(pending.id());
    pending.sync().expect("a reply");

    fixture.peer.stop();
    let error = request(20).out(Out::emulated_copy(&buffer)).send().expect_err("nobody replies").error;
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let held = || checked(fixture.interface().space()).references;
    assert!(held() > 0, "the server may still look at it");
    assert_eq!(fixture.interface().pending_bytes(), fixture.len());
    buffer.fill(9);
    std::thread::sleep(Duration::from_millis(50));
    assert!(held() > 0, "however long it takes");
    fixture.peer.kill();
    assert_gone(&fixture);
    assert!(buffer.iter().all(|byte| *byte == 9));
}

/// A thread that waited for the server's answer held a lock. The thread that noticed the server's end needed that lock, so
/// each waited for the other until the answer was overdue, after 5 seconds.
fn a_server_that_is_killed_while_it_is_told_of_memory_holds_nobody_up(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let buffer = fixture.buffer(1);
    fixture.peer.stop();
    std::thread::scope(|scope| {
        let request = fixture.interface().request(fixture.holder().server(), HOLD);
        let asking = scope.spawn(|| request.out(Out::emulated_copy(&buffer)).send());
        std::thread::sleep(Duration::from_millis(50));
        fixture.peer.kill();
        let deadline = Instant::now() + Duration::from_secs(4);
        while !asking.is_finished() {
            assert!(Instant::now() < deadline, "the end of the server is not noticed");
            std::thread::sleep(Duration::from_millis(2));
        }
        let error = asking.join().expect("no panic").expect_err("the server is gone").error;
        assert!(matches!(error, Error::Gone { .. }), "{error}");
    });
    assert_gone(&fixture);
}

/// A server that is asked to let a request go before it keeps that request, and then keeps it unless it is asked again.
#[derive(Default)]
struct Slow {
    kept: Mutex<Option<Incoming>>,
    aborts: Mutex<u32>,
    aborted: Condvar,
}

static SLOW: [Service; 1] = [Service::new("slow", true, true)];

/// Its face.
struct SlowFace(Arc<Slow>);

impl Server for SlowFace {
    fn name(&self) -> &str {
        "slow"
    }

    fn services(&self) -> &[Service] {
        &SLOW
    }

    fn request(&self, incoming: Incoming) {
        let aborts = self.0.aborts.lock();
        let end = Instant::now() + Duration::from_secs(10);
        drop(self.0.aborted.wait_until(aborts, Some(end), |aborts| *aborts > 0));
        *self.0.kept.lock() = Some(incoming);
    }

    fn abort(&self, _request: RequestId) {
        let kept = self.0.kept.lock().take();
        drop(kept);
        *self.0.aborts.lock() += 1;
        self.0.aborted.notify_all();
    }
}

/// The control thread aborted the request while the worker was still handing it over, and did not abort it again.
#[test]
fn a_request_is_evicted_that_the_server_was_just_about_to_keep() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = Directory::at(directory.path().join("run")).expect("a run-time directory");
    let slow = Arc::new(Slow::default());
    let serving = Listener::bind_in(&at, "slow", SlowFace(Arc::clone(&slow)), ServeOptions::default());
    let running = serving.expect("a server").start().expect("threads");
    let client = Peer::own();
    let send = Ask::Send { directory: at.path().to_owned(), server: "slow".to_owned(), len: 10_000 };
    client.link_for_good().done(send);
    eventually("the request is not there", || {
        running.status().clients.iter().any(|client| client.pending.pending_requests == 1)
    });
    client.kill();
    eventually("the server was not asked twice", || *slow.aborts.lock() >= 2);
    assert!(slow.kept.lock().is_none(), "the request is let go");
}

#[test]
fn requests_of_a_client_that_is_killed_are_evicted() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = Directory::at(directory.path().join("run")).expect("a run-time directory");
    let held = Arc::new(Held::new(None));
    held.set_obliging(true);
    let serving = Listener::bind_in(&at, "holder", HoldingServer(Arc::clone(&held)), ServeOptions::default());
    let running = serving.expect("a server").start().expect("threads");
    let survivor = Peer::own();
    let client = Peer::own();
    for peer in [&survivor, &client] {
        let send = Ask::Send { directory: at.path().to_owned(), server: "holder".to_owned(), len: 10_000 };
        peer.link_for_good().done(send);
    }
    eventually("not both requests have arrived", || held.held().len() == 2);
    let [kept, evicted] = [0, 1].map(|number| Name::Client(held.arrival(number).expect("an arrival")));
    client.kill();
    eventually("the server was not asked to let go", || held.aborted() == [evicted]);
    assert_eq!(held.held(), [kept], "the other client's request is as it was");
    eventually("the client is still there", || running.status().clients.len() == 1);
    assert_eq!(running.status().clients[0].pending.pending_requests, 1);
    assert_eq!(held.command(kept, Command::Reply), Answer::Done);
    eventually("the request is pending", || running.status().clients[0].pending.pending_requests == 0);
}

#[test]
fn pins_hold_the_memory_of_a_client_that_is_killed() {
    for mapping in [Mapping::Cached, Mapping::Transient] {
        let directory = tempfile::tempdir().expect("a directory");
        let at = Directory::at(directory.path().join("run")).expect("a run-time directory");
        let held = Arc::new(Held::new(None));
        held.set_obliging(true);
        let options = ServeOptions { mapping, ..ServeOptions::default() };
        let serving = Listener::bind_in(&at, "holder", HoldingServer(Arc::clone(&held)), options);
        let running = serving.expect("a server").start().expect("threads");
        let client = Peer::own();
        let send = Ask::Send { directory: at.path().to_owned(), server: "holder".to_owned(), len: 10_000 };
        client.link_for_good().done(send);
        let request = Name::Client(held.arrival(0).expect("an arrival"));
        let data = held.command(request, Command::Read { buffer: 0 });
        assert!(matches!(&data, Answer::Bytes(bytes) if bytes.len() == 10_000), "{data:?}");
        assert_eq!(held.command(request, Command::Pin { buffer: 0 }), Answer::Done);
        client.kill();
        eventually("the server has not let go of the request", || held.held().is_empty());
        assert_eq!(held.command(request, Command::ReadPinned), data, "{mapping:?}");
        let named = held.command(request, Command::PinnedBackings);
        let is_named = |part: &Backed| part.1.is_some();
        assert!(matches!(&named, Answer::Backings(parts) if parts.iter().all(is_named)), "{named:?}");
        assert_eq!(held.command(request, Command::Unpin), Answer::Done);
        eventually("the client is still there", || running.status().clients.is_empty());
    }
}

#[test]
fn transfers_go_on_into_memory_of_a_client_that_is_killed() {
    for untrusted in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let at = Directory::at(directory.path().join("run")).expect("a run-time directory");
        let held = Arc::new(Held::new(None));
        let options = ServeOptions { untrusted, ..ServeOptions::default() };
        let serving = Listener::bind_in(&at, "holder", HoldingServer(Arc::clone(&held)), options);
        let running = serving.expect("a server").start().expect("threads");
        let client = Peer::own();
        let send = Ask::Send { directory: at.path().to_owned(), server: "holder".to_owned(), len: 100_000 };
        client.link_for_good().done(send);
        let request = Name::Client(held.arrival(0).expect("an arrival"));
        let done =
            |command| assert_eq!(held.command(request, command), Answer::Done, "untrusted: {untrusted}");
        done(Command::BeginTransfer { buffer: 1 });
        done(Command::SetActual { buffer: 1, actual: 100_000 });
        done(Command::Reply);
        client.kill();
        eventually("the server was not asked to abort", || !held.aborted().is_empty());
        let bytes = pattern(3, 100_000);
        done(Command::WritePinned { bytes: bytes.clone() });
        assert_eq!(held.command(request, Command::ReadPinned), Answer::Bytes(bytes));
        done(Command::EndTransfer { error: None });
        eventually("the client is still there", || running.status().clients.is_empty());
    }
}
