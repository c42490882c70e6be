//! Aborting, anticipating and flushing.

use std::time::Duration;

use genie_io::servers::memory;
use genie_io::{Error, In, Limits, Out};

use super::{client, finish, submit};
use crate::support::holder::{Answer, Command, HOLD};

#[test]
fn an_aborted_request_is_let_go_by_its_server() {
    let Some(t) = client("an_aborted_request_is_let_go", Limits::default()) else { return };
    t.holder().set_obliging(true);
    let shared = t.interface().allocate(100).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::share(shared)).submit().expect("a request");
    let id = pending.id();
    let mut failed = pending.abort().expect_err("aborted");
    assert_eq!(failed.error, Error::Aborted);
    assert_eq!(t.holder().aborted(), [id]);
    assert!(failed.take_buffer().is_some(), "the shared buffer comes back");
    t.assert_idle();
}

#[test]
fn a_request_that_was_replied_to_cannot_be_aborted_any_more() {
    let Some(t) = client("a_request_that_was_replied_to", Limits::default()) else { return };
    let pending = submit(&t, b"done");
    t.holder().reply(pending.id());
    pending.abort().expect("the reply was there");
    assert!(t.holder().aborted().is_empty(), "nobody troubled the server");
    t.assert_idle();
}

#[test]
fn a_flush_waits_for_anticipated_requests_of_its_server_only() {
    let Some(t) = client("a_flush_waits", Limits::default()) else { return };
    let soon = Duration::from_millis(5);
    assert!(t.interface().flush(t.holder().handle(), soon), "there is nothing to wait for");
    let pending = submit(&t, b"anticipated");
    let id = pending.id();
    t.holder().anticipate(id);
    assert!(pending.sync().expect("an anticipated reply").anticipated);
    assert!(!t.interface().flush(t.holder().handle(), soon), "the server is not done");
    assert!(t.interface().flush(t.memory(), soon), "another server has nothing to do with it");
    assert_eq!(t.interface().pending_bytes(), b"anticipated".len(), "its bytes are pending still");
    std::thread::scope(|scope| {
        let (begins, begun) = std::sync::mpsc::channel();
        let flush = scope.spawn({
            let t = &t;
            move || {
                begins.send(()).expect("somebody waits for it");
                t.interface().flush(t.holder().handle(), Duration::from_secs(10))
            }
        });
        begun.recv().expect("the thread begins");
        std::thread::sleep(Duration::from_millis(50));
        // Requests made after the flush began do not delay it.
        let later = submit(&t, b"later");
        t.holder().drop_request(id);
        assert!(flush.join().expect("no panic"));
        finish(&t, later);
    });
    t.assert_idle();
}

#[test]
fn a_synchronous_request_may_be_anticipated() {
    let Some(t) = client("a_synchronous_request_may_be_anticipated", Limits::default()) else { return };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let request = t.interface().request(t.holder().handle(), HOLD);
            request.out(Out::copy(b"bytes")).send().expect("a reply").anticipated
        });
        let id = t.holder().arrival();
        t.holder().anticipate(id);
        assert!(client.join().expect("no panic"));
        assert_eq!(t.holder().read(id), b"bytes");
        assert!(!t.interface().flush(t.holder().handle(), Duration::ZERO));
        t.holder().drop_request(id);
        assert!(t.interface().flush(t.holder().handle(), Duration::from_secs(10)));
    });
    t.assert_idle();
}

#[test]
fn migrant_output_may_be_anticipated() {
    let Some(t) = client("migrant_output_may_be_anticipated", Limits::default()) else { return };
    let mut region = t.interface().allocate_migrant(9000, true).expect("a region");
    region.fill(7);
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_move(region)).submit().expect("a request");
    let id = pending.id();
    t.holder().anticipate(id);
    assert!(pending.sync().expect("a reply").take_migrant().is_none());
    assert_eq!(t.holder().read(id), [7; 9000]);
    t.holder().drop_request(id);
    t.assert_idle();
}

#[test]
fn what_the_client_waits_for_cannot_be_anticipated() {
    let Some(t) = client("what_the_client_waits_for", Limits::default()) else { return };
    let shared = t.interface().allocate(100).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_share(shared)).submit().expect("a request");
    let answer = t.holder().command(pending.id(), Command::Anticipate);
    assert!(matches!(answer, Answer::Refused(_)), "a shared buffer has to come back: {answer:?}");
    assert!(finish(&t, pending).take_buffer().is_some());

    let mut bytes = [0; 10];
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.input(In::copy(&mut bytes)).submit().expect("a request");
    let answer = t.holder().command(pending.id(), Command::Anticipate);
    assert!(matches!(answer, Answer::Refused(_)), "data is awaited: {answer:?}");
    t.holder().deliver(pending.id(), &[1; 10]);
    pending.sync().expect("a reply");
    assert_eq!(bytes, [1; 10]);
    t.assert_idle();
}

#[test]
fn a_request_without_buffers_is_a_request() {
    let Some(t) = client("a_request_without_buffers", Limits::default()) else { return };
    let reply = t.interface().request(t.memory(), memory::NULL).send().expect("a reply");
    assert!(reply.buffers.is_empty());
    t.assert_idle();
}
