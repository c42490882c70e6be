//! Progress: a server says how much of a buffer is final, before it replies, and the client has that much whatever comes.
//!
//! Source: thesis §6.5 (partial completion), §3.1.2.

use std::time::Duration;

use genie_io::{Error, In, Pending, Reply};
use genie_passing::Scheme;
use genie_passing::model::Allocation;

use super::schemes::{buffer_len, failed, filled, is_strong, replied, strong_native, submit_out};
use super::strong_input::{lies_there, submit_in};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::{Answer, Command, HOLD, Name};
use crate::setup::fresh_seed;

/// Has the server say that so much of buffer 0 is final, and waits until the client hears it.
#[track_caller]
fn tell(t: &Scene, pending: &Pending<'_>, len: usize) {
    let before = pending.progress(0);
    t.holder().progress(pending.id(), len);
    let heard = pending.wait_for_progress(0, before, Duration::from_secs(10));
    assert_eq!((heard, pending.progress(0)), (len, len));
    assert!(!pending.is_replied(), "progress is no reply");
}

#[track_caller]
fn is_refused(t: &Scene, pending: &Pending<'_>, buffer: usize, len: usize) {
    let answer = t.holder().command(pending.id(), Command::Progress { buffer, len });
    assert!(matches!(answer, Answer::Refused(_)), "{len} bytes of buffer {buffer}: {answer:?}");
}

pub(crate) fn how_far_it_has_come_is_told_before_the_reply(t: &Scene) {
    let len = buffer_len(t);
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let (after, addresses) = (pattern(fresh_seed(), len), buffer.addresses());
        let pending = submit_in(t, scheme, &mut buffer);
        assert_eq!(pending.wait_for_progress(0, 0, Duration::from_millis(2)), 0, "{scheme}: nothing yet");
        for come in [1, len / 2, len / 2 + 1] {
            t.holder().write(pending.id(), 0, &after[..come]);
            tell(t, &pending, come);
        }
        is_refused(t, &pending, 0, len / 2);
        is_refused(t, &pending, 0, len + 1);
        is_refused(t, &pending, 1, 1);
        let less = Command::SetActual { buffer: 0, actual: len / 2 };
        assert!(
            matches!(t.holder().command(pending.id(), less), Answer::Refused(_)),
            "{scheme}: less in all"
        );
        assert_eq!((pending.progress(0), pending.progress(1)), (len / 2 + 1, 0), "{scheme}");
        same(&lies_there(&addresses), &before, format_args!("{scheme}: a number, no data"));
        t.holder().deliver(pending.id(), &after);
        assert_eq!(replied(pending).actual(), len, "{scheme}");
        same(&buffer, &after, scheme);
    }
    for scheme in strong_native() {
        let (buffer, before) = filled(t);
        let pending = submit_out(t, scheme, &buffer);
        tell(t, &pending, len / 3);
        same(&t.holder().read(pending.id()), &before, format_args!("{scheme}: all of it can be read still"));
        tell(t, &pending, len);
        t.holder().reply(pending.id());
        assert_eq!(replied(pending).actual(), len, "{scheme}");
    }
}

/// What the server has stored behind what is final does not come along.
pub(crate) fn a_request_that_is_given_up_succeeds_with_what_has_come(t: &Scene) {
    t.holder().set_obliging(true);
    for scheme in Scheme::ALL {
        in_time(scheme, || has_come_by(t, scheme));
    }
    in_time(Scheme::EmulatedCopy, || {
        let (buffer, before) = filled(t);
        let pending = submit_out(t, Scheme::EmulatedCopy, &buffer);
        tell(t, &pending, before.len() / 2);
        given_up(pending).map(|reply| assert_eq!(reply.actual(), before.len() / 2))
    });
}

/// Tries again where the server was too late: a loaded machine may keep it from letting a request go within the interface's time.
fn in_time(scheme: Scheme, once: impl Fn() -> Option<()>) {
    assert!((0..50).any(|_| once().is_some()), "{scheme}: the server never lets the request go in time");
}

/// Gives a request up; none if the server did not let it go in time.
fn given_up(pending: Pending<'_>) -> Option<Reply> {
    pending.abort().map_err(|failed| assert_eq!(failed.error, Error::Aborted)).ok()
}

fn has_come_by(t: &Scene, scheme: Scheme) -> Option<()> {
    let (buffer, before) = filled(t);
    let (come, stored) = (before.len() / 2 + 5, before.len() / 4 * 3);
    let data = pattern(fresh_seed(), stored);
    let request = t.interface().request(t.holder().handle(), HOLD);
    let is_migrant = scheme.allocation() == Allocation::Migrant;
    let element = match is_migrant {
        true => In::migrant(scheme, before.len()),
        false => In::owned(scheme, buffer),
    };
    let pending = request.input(element).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
    t.holder().write(pending.id(), 0, &data);
    tell(t, &pending, come);
    let mut reply = given_up(pending)?;
    assert_eq!(reply.actual(), come, "{scheme}");
    if is_migrant {
        same(&reply.take_migrant().expect("a region"), &data[..come], scheme);
        return Some(());
    }
    let buffer = reply.take_buffer().expect("the buffer");
    same(&buffer[..come], &data[..come], scheme);
    if is_strong(scheme) {
        same(&buffer[come..], &before[come..], format_args!("{scheme}: the rest"));
    }
    Some(())
}

pub(crate) fn a_failure_says_how_far_it_had_come(t: &Scene) {
    for way in ["fail", "drop", "abort"] {
        for scheme in strong_native() {
            let (mut buffer, before) = filled(t);
            let come = before.len() / 2;
            let pending = submit_in(t, scheme, &mut buffer);
            t.holder().write(pending.id(), 0, &pattern(fresh_seed(), before.len()));
            tell(t, &pending, come);
            t.holder().set_obliging(false);
            let failed = match way {
                "fail" => {
                    t.holder().fail(pending.id(), "no");
                    failed(pending)
                }
                "drop" => {
                    t.holder().drop_request(pending.id());
                    failed(pending)
                }
                _ => {
                    let failed = pending.abort().expect_err("the server has it still");
                    assert_eq!(failed.error, Error::Aborted, "{scheme}");
                    // What the server says now is nobody's any more.
                    let late: Name = *t.holder().held().first().expect("the request");
                    t.holder().progress(late, come + 1);
                    t.holder().drop_request(late);
                    failed
                }
            };
            assert_eq!((failed.actual(0), failed.actual(1)), (come, 0), "{scheme}, {way}: {failed}");
            same(&buffer, &before, format_args!("{scheme}, {way}"));
        }
    }
}
