//! Limits on the bytes in pending requests.

use std::time::{Duration, Instant};

use genie_io::{Error, In, Limits, Out};
use genie_passing::Scheme;

use super::{client, finish, submit, submit_to};
use crate::support::holder::HOLD;

const LIMIT: usize = 100_000;

fn limits() -> Limits {
    Limits { pending_bytes: LIMIT, abort_timeout: Duration::from_millis(5), ..Limits::default() }
}

#[test]
fn a_request_that_never_fits_is_refused_and_gives_its_buffers_back() {
    let Some(t) = client("a_request_that_never_fits", limits()) else { return };
    let expected = Error::TooLarge { asked: LIMIT + 1, limit: LIMIT };
    let shared = t.interface().allocate(LIMIT).expect("a buffer");
    let moved = t.interface().allocate_migrant(1, true).expect("a region");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let request = request.out(Out::emulated_share(shared)).and_out(Out::emulated_move(moved));
    let mut failed = request.send().expect_err("too large");
    assert_eq!(failed.error, expected);
    assert_eq!(failed.take_buffer().expect("the shared buffer").len(), LIMIT);
    assert_eq!(failed.take_migrant().expect("the migrant buffer").len(), 1);

    let request = t.interface().request(t.holder().handle(), HOLD);
    let failed = request.input(In::emulated_move(LIMIT + 1)).submit().expect_err("too large");
    assert_eq!(failed.error, expected);
    assert!(t.holder().held().is_empty(), "the server never saw it");
    t.assert_idle();
}

#[test]
fn an_asynchronous_request_that_does_not_fit_now_is_refused() {
    let Some(t) = client("an_asynchronous_request_that_does_not_fit_now", limits()) else { return };
    let bytes = vec![1; LIMIT];
    let first = submit(&t, &bytes[..60_000]);
    assert_eq!(t.interface().pending_bytes(), 60_000);
    let refused = submit_to(t.interface(), t.holder(), &bytes[..40_001]).expect_err("no room");
    assert_eq!(refused.error, Error::Exhausted { asked: 40_001, pending: 60_000, limit: LIMIT });
    let second = submit(&t, &bytes[..40_000]);
    finish(&t, first);
    assert_eq!(t.interface().pending_bytes(), 40_000);
    let third = submit(&t, &bytes[..60_000]);
    finish(&t, second);
    finish(&t, third);
    t.assert_idle();
}

#[test]
fn a_synchronous_request_waits_for_room() {
    let Some(t) = client("a_synchronous_request_waits_for_room", limits()) else { return };
    let bytes = vec![2; LIMIT];
    let first = submit(&t, &bytes);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let request = t.interface().request(t.memory(), genie_io::servers::memory::SINK);
            request.out(Out::copy(&bytes[..10])).send().map(drop).map_err(|failed| failed.error)
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished(), "it should wait");
        finish(&t, first);
        assert_eq!(waiter.join().expect("no panic"), Ok(()));
    });
    t.assert_idle();
}

#[test]
fn waiting_for_room_ends_with_the_timeout_and_gives_buffers_back() {
    let Some(t) = client("waiting_for_room_ends_with_the_timeout", limits()) else { return };
    let first = submit(&t, &vec![3; LIMIT]);
    let timeout = Duration::from_millis(10);
    let shared = t.interface().allocate(10).expect("a buffer");
    let began = Instant::now();
    let request = t.interface().request(t.memory(), genie_io::servers::memory::NULL).timeout(timeout);
    let mut failed = request.out(Out::emulated_share(shared)).send().expect_err("no room");
    assert_eq!(failed.error, Error::Exhausted { asked: 10, pending: LIMIT, limit: LIMIT }, "never sent");
    assert!(began.elapsed() >= timeout);
    assert!(failed.take_buffer().is_some(), "the buffer comes back");
    finish(&t, first);
    t.assert_idle();
}

#[test]
fn what_a_server_keeps_after_a_timeout_still_counts() {
    let Some(t) = client("what_a_server_keeps_after_a_timeout", limits()) else { return };
    let buffer = t.interface().allocate(LIMIT).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(Duration::from_millis(1));
    let failed = request.out(Out::emulated_copy(&buffer)).send().expect_err("no reply");
    assert!(matches!(failed.error, Error::TimedOut { .. }), "{failed}");
    assert_eq!(t.interface().pending_bytes(), LIMIT, "the server may still read it");
    let refused = submit_to(t.interface(), t.holder(), &[1]).expect_err("no room");
    assert!(matches!(refused.error, Error::Exhausted { .. }), "{refused}");
    let late = t.holder().held()[0];
    t.holder().reply(late);
    assert_eq!(t.interface().pending_bytes(), 0);
    drop(buffer);
    t.assert_idle();
}

#[test]
fn a_refused_element_leaves_nothing_pending() {
    let Some(t) = client("a_refused_element_leaves_nothing_pending", limits()) else { return };
    let weak = t.interface().allocate_migrant(5000, false).expect("a region");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let request = request.out(Out::copy(&[1; 100])).and_out(Out::migrant(Scheme::Move, weak));
    request.send().expect_err("a weak buffer cannot be passed by move");
    t.assert_idle();
}
