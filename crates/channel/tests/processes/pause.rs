//! Pauses: a server that is stopped for a while holds up its own requests and nothing else, and goes on afterwards.

use std::time::{Duration, Instant};

use genie_conformance::checked;
use genie_io::servers::memory::{FETCH, NULL, STORE};
use genie_io::{Error, In, Interface, Out, ServerHandle};
use genie_memory::GranuleKind;

use super::{Fixture, eventually, filled};
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::transport::Place;

on_both_granules! {
    a_stopped_server_holds_up_neither_a_submit_that_announces_memory_nor_another_thread,
    a_request_does_not_overtake_the_memory_that_it_names,
}

/// Less than any wait of the library's own for a server, and more than a busy machine takes for what needs no wait.
const SOON: Duration = Duration::from_secs(4);
/// How long requests of a stopped server may take.
const SHORT: Duration = Duration::from_millis(100);

/// Runs something that has to be over soon.
#[track_caller]
fn soon<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    assert!(start.elapsed() < SOON, "{what} took {:?}", start.elapsed());
    result
}

/// The server serves as it did before, and nothing is left of what was given up.
#[track_caller]
fn assert_goes_on(interface: &Interface, server: &ServerHandle, len: usize) {
    assert!(interface.flush(server, Duration::from_secs(60)), "requests are left");
    let bytes = pattern(9, len);
    let mut buffer = filled(interface, 9, len);
    let store = interface.request(server, STORE).out(Out::emulated_copy(&buffer));
    store.argument(b"after the pause").send().expect("a reply");
    buffer.fill(0);
    let fetch = interface.request(server, FETCH).input(In::emulated_copy(&mut buffer));
    fetch.argument(b"after the pause").send().expect("a reply");
    same(&buffer, &bytes, "what was stored after the pause");
    drop(buffer);
    eventually("something is left", || {
        let usage = checked(interface.space());
        interface.pending_bytes() == 0 && (usage.references, usage.deferred, usage.system) == (0, 0, 0)
    });
}

/// A submit that announced memory waited 5 seconds for a stopped server, whatever its timeout. Meanwhile it held a lock that
/// other threads needed for requests and replies. Then it ended the channel, though the server went on.
fn a_stopped_server_holds_up_neither_a_submit_that_announces_memory_nor_another_thread(
    test: &str,
    kind: GranuleKind,
) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let (interface, memory) = (fixture.interface(), fixture.channel.memory());
    let request = |service| interface.request(memory, service).timeout(SHORT);
    let buffer = fixture.buffer(1);
    fixture.peer.stop();
    std::thread::scope(|scope| {
        let announcing = scope.spawn(|| {
            let pending = soon("a submit", || request(NULL).out(Out::emulated_copy(&buffer)).submit());
            soon("a sync", || pending.expect("a request").sync().expect_err("nobody replies").error)
        });
        let short = scope.spawn(|| {
            std::thread::sleep(SHORT / 2);
            let pending = soon("a short submit", || request(NULL).submit()).expect("a request");
            let sent = soon("a short send", || request(NULL).send()).expect_err("nobody replies").error;
            let synced = soon("a short sync", || pending.sync()).expect_err("nobody replies").error;
            [sent, synced]
        });
        let late = announcing.join().expect("no panic");
        let [sent, synced] = short.join().expect("no panic");
        for error in [late, sent, synced] {
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        }
    });
    fixture.peer.go_on();
    assert_goes_on(interface, memory, fixture.len());
}

/// The control socket and the ring are two ways to a server; when the server goes on, it may look at either first.
fn a_request_does_not_overtake_the_memory_that_it_names(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let memory = fixture.channel.memory();
    for round in 0..8 {
        let setup = genie_conformance::Setup::allowed(kind);
        let limit = genie_conformance::memory_limit(kind);
        let thresholds = genie_passing::Thresholds::ALWAYS;
        let Some(fresh) = setup.interface(test, limit, genie_io::Limits::default(), thresholds) else {
            return;
        };
        let server = super::connect(&fresh, &fixture.peer, memory.name());
        let mut buffer = filled(&fresh, round, fixture.len());
        fixture.peer.stop();
        let store = fresh.request(&server, STORE).out(Out::emulated_copy(&buffer));
        let pending = store.argument(b"in order").submit().expect("a request");
        fixture.peer.go_on();
        pending.sync().expect("a reply");
        buffer.fill(0);
        let fetch = fresh.request(&server, FETCH).input(In::emulated_copy(&mut buffer));
        fetch.argument(b"in order").send().expect("a reply");
        same(&buffer, &pattern(round, fixture.len()), "what was stored");
    }
}

/// A question about limits that a stopped server did not answer ended the channel.
#[test]
fn limits_asked_of_a_stopped_server_are_granted_when_it_goes_on() {
    const TEST: &str = "limits_asked_of_a_stopped_server_are_granted_when_it_goes_on";
    let Some(fixture) = Fixture::open(TEST, GranuleKind::Base, Place::Cached) else { return };
    let memory = fixture.channel.memory();
    fixture.peer.stop();
    let error = memory.adjust(1 << 20, 32).expect_err("nobody answers");
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| memory.adjust(1 << 21, 32))).collect();
        std::thread::sleep(SHORT);
        fixture.peer.go_on();
        for asking in asking {
            assert_eq!(asking.join().expect("no panic").expect("limits").0, 1 << 21);
        }
    });
    assert_goes_on(fixture.interface(), memory, fixture.len());
}
