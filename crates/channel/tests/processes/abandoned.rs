//! Abandoned requests, for whose replies no thread waits: their memory comes back as soon as the server is done, and not
//! only with the client's next request.

use std::time::Duration;

use genie_conformance::assert_idle;
use genie_io::{Error, In, Limits, Out};
use genie_memory::GranuleKind;

use super::{Fixture, eventually};
use crate::support::bytes::{pattern, same};
use crate::support::holder::{HOLD, Name};
use crate::support::transport::Place;

fn fixture(test: &str) -> Option<Fixture> {
    let limits = Limits { abort_timeout: Duration::from_millis(5), ..Limits::default() };
    Fixture::open_with(test, GranuleKind::Base, Place::Cached, limits)
}

/// Waits until nothing is pending, without a request of the client's.
#[track_caller]
fn assert_back(fixture: &Fixture) {
    eventually("memory is held", || fixture.interface().pending_bytes() == 0);
    assert_idle(fixture.interface(), 0);
}

#[test]
fn a_forgotten_request_gives_its_memory_back() {
    let Some(fixture) = fixture("a_forgotten_request_gives_its_memory_back") else { return };
    let (buffer, mut into) = (fixture.buffer(1), fixture.buffer(2));
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    drop(request.out(Out::emulated_copy(&buffer)).submit().expect("a request"));
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    drop(request.input(In::emulated_copy(&mut into)).submit().expect("a request"));
    drop((buffer, into));
    assert_eq!(fixture.interface().pending_bytes(), 2 * fixture.len(), "the server has not replied");
    for arrival in [0, 1] {
        fixture.holder().reply(Name::Arrival(arrival));
    }
    assert_back(&fixture);
}

#[test]
fn an_anticipated_request_gives_its_memory_back_when_the_server_is_done() {
    let Some(fixture) = fixture("an_anticipated_request_gives_its_memory_back") else { return };
    let buffer = fixture.buffer(3);
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    fixture.holder().anticipate(pending.id());
    assert!(pending.sync().expect("a reply").anticipated);
    drop(buffer);
    assert_eq!(fixture.interface().pending_bytes(), fixture.len(), "the server is not done");
    fixture.holder().drop_request(Name::Arrival(0));
    assert_back(&fixture);
}

/// A server does not know what its client shared by value, and may anticipate such a request. That once ended the channel.
#[test]
fn a_shared_buffer_comes_back_when_the_server_is_done_and_not_before() {
    let Some(fixture) = fixture("a_shared_buffer_comes_back_when_the_server_is_done") else { return };
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_share(fixture.buffer(5))).submit().expect("a request");
    fixture.holder().anticipate(pending.id());
    // Its reply comes behind the anticipated one.
    assert_eq!(fixture.holder().held(), [Name::Arrival(0)]);
    assert!(!pending.is_replied(), "the server has the buffer");
    fixture.holder().drop_request(Name::Arrival(0));
    let mut reply = pending.sync().expect("a reply");
    let buffer = reply.take_buffer().expect("the buffer");
    assert!(!reply.anticipated);
    same(&buffer, &pattern(5, fixture.len()), "what was shared");
    drop(buffer);
    assert_back(&fixture);
}

#[test]
fn a_request_given_up_gives_its_memory_back_when_the_server_is_done() {
    let Some(fixture) = fixture("a_request_given_up_gives_its_memory_back") else { return };
    let buffer = fixture.buffer(4);
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let request = request.out(Out::emulated_copy(&buffer)).timeout(Duration::from_millis(5));
    let error = request.send().expect_err("nobody replies").error;
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    drop(buffer);
    assert_eq!(fixture.interface().pending_bytes(), fixture.len(), "the server has not let go");
    fixture.holder().reply(Name::Arrival(0));
    assert_back(&fixture);
}
