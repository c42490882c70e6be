//! Transfers: a device fills an input by itself, and the reply waits for it, whatever the server has said and the client gives up.
//!
//! Source: thesis §3.1.2, §6.6 to §6.8, §7.4.4.

use std::thread;
use std::time::Duration;

use genie_io::{Error, Failed, In, Pending, Reply, Request};
use genie_memory::Buffer;
use genie_passing::Scheme;
use genie_passing::model::{Allocation, Integrity};

use super::schemes::{buffer_len, failed, filled, migrant, replied, strong_native, weak_native};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::{Answer, Command, HOLD, Name};
use crate::setup::fresh_seed;

/// An input of a whole buffer.
fn input(t: &Scene, element: In<'static>) -> Pending<'static> {
    let request = t.interface().request(t.holder().handle(), HOLD).input(element);
    request.submit().unwrap_or_else(|failed| panic!("{failed}"))
}

/// Has the server begin a transfer of a whole buffer, and reply.
#[track_caller]
fn begin_and_reply(t: &Scene, request: impl Into<Name>) {
    let request = request.into();
    assert_eq!(t.holder().command(request, Command::BeginTransfer { buffer: 0 }), Answer::Done);
    t.holder().set_actual(request, buffer_len(t));
    t.holder().reply(request);
}

/// Has the device store `bytes`, from the buffer's beginning on.
#[track_caller]
fn store(t: &Scene, request: impl Into<Name>, bytes: &[u8]) {
    let request = request.into();
    assert_eq!(t.holder().command(request, Command::WritePinned { bytes: bytes.to_vec() }), Answer::Done);
}

#[track_caller]
fn end(t: &Scene, request: impl Into<Name>, error: Option<&str>) {
    let error = error.map(str::to_owned);
    assert_eq!(t.holder().command(request, Command::EndTransfer { error }), Answer::Done);
}

pub(crate) fn a_reply_waits_for_the_transfer(t: &Scene) {
    for scheme in Scheme::ALL {
        let data = pattern(fresh_seed(), buffer_len(t));
        let pending = match scheme.allocation() {
            Allocation::Migrant => input(t, In::migrant(scheme, data.len())),
            Allocation::Native => input(t, In::owned(scheme, filled(t).0)),
        };
        begin_and_reply(t, pending.id());
        store(t, pending.id(), &data);
        assert!(!pending.wait(Duration::from_millis(2)), "{scheme}: nobody has said that all of it is there");
        end(t, pending.id(), None);
        let mut reply = replied(pending);
        match scheme.allocation() {
            Allocation::Migrant => same(&reply.take_migrant().expect("a region"), &data, scheme),
            Allocation::Native => same(&reply.take_buffer().expect("the buffer"), &data, scheme),
        }
    }
}

/// A device finds half of its data damaged, or is gone. The receipt says whether that half may be in the client's buffer.
pub(crate) fn a_failed_transfer_fails_the_request(t: &Scene) {
    for scheme in strong_native().chain(weak_native()) {
        for error in [Some("the sum is wrong"), None] {
            let what = format!("{scheme}, {error:?}");
            let (buffer, mut expected) = filled(t);
            let half = pattern(fresh_seed(), expected.len() / 2);
            let pending = input(t, In::owned(scheme, buffer));
            begin_and_reply(t, pending.id());
            store(t, pending.id(), &half);
            match error {
                Some(_) => end(t, pending.id(), error),
                None => assert_eq!(t.holder().command(pending.id(), Command::Unpin), Answer::Done),
            }
            let mut failed = failed(pending);
            let reason = error.unwrap_or("a device dropped its transfer");
            assert!(failed.to_string().contains(reason), "{what}: {failed}");
            let is_weak = failed.buffers[0].elements[0].receipt.effective.integrity() == Integrity::Weak;
            let buffer = failed.take_buffer().expect("the buffer");
            if is_weak && buffer.starts_with(&half) {
                expected[..half.len()].copy_from_slice(&half);
            }
            same(&buffer, &expected, &what);
        }
    }
    for scheme in migrant() {
        let pending = input(t, In::migrant(scheme, buffer_len(t)));
        begin_and_reply(t, pending.id());
        end(t, pending.id(), Some("the sum is wrong"));
        assert!(failed(pending).take_migrant().is_none(), "{scheme}");
    }
}

/// The client gives up, by an abort or as its time is over, and uses its memory again; the device goes on storing all the time, and may
/// never end for all that the client knows.
pub(crate) fn a_device_goes_on_after_the_client_has_given_up(t: &Scene) {
    t.holder().set_obliging(false);
    for scheme in strong_native() {
        for timeout in [None, Some(Duration::from_millis(5))] {
            let what = format!("{scheme}, {timeout:?}");
            let (mut buffer, before) = filled(t);
            let request = t.interface().request(t.holder().handle(), HOLD);
            let request = timeout.into_iter().fold(request, Request::timeout);
            let pending = request.input(In::borrowed(scheme, &mut buffer)).submit().expect("a request");
            let id = t.holder().held()[0];
            begin_and_reply(t, id);
            store(t, id, &pattern(fresh_seed(), before.len() / 2));
            let given_up = match timeout {
                Some(_) => pending.sync(),
                None => pending.abort(),
            };
            assert_given_up(given_up, &what);
            same(&buffer, &before, &what);
            use_again(t, id, buffer, &what);
        }
    }
    for scheme in weak_native() {
        let (mut buffer, _) = filled(t);
        let id = thread::scope(|scope| {
            let request = t.interface().request(t.holder().handle(), HOLD).timeout(Duration::from_millis(50));
            let memory = &mut buffer[..];
            let sender = scope.spawn(move || request.input(In::borrowed(scheme, memory)).send());
            let id = t.holder().arrival();
            begin_and_reply(t, id);
            store(t, id, &pattern(fresh_seed(), buffer_len(t) / 2));
            assert_given_up(sender.join().expect("no panic"), scheme.name());
            id
        });
        use_again(t, id, buffer, scheme.name());
        let pending = input(t, In::owned(scheme, filled(t).0));
        let id = t.holder().held()[0];
        begin_and_reply(t, id);
        let mut failed = pending.abort().map(drop).expect_err("the device goes on");
        assert_eq!(failed.error, Error::Aborted, "{scheme}");
        // A carrier that has memory of its own between client and device may give the buffer back.
        let is_kept = failed.kept;
        let buffer = failed.take_buffer().filter(|_| !is_kept);
        assert!(is_kept || buffer.is_some(), "{scheme}: the buffer is nowhere");
        use_again(t, id, buffer.unwrap_or_else(|| filled(t).0), scheme.name());
    }
}

#[track_caller]
fn assert_given_up(result: Result<Reply, Failed>, what: &str) {
    let error = result.map(drop).expect_err("the device goes on").error;
    assert!(matches!(error, Error::Aborted | Error::TimedOut { .. }), "{what}: {error}");
}

/// Uses the client's memory while the device stores where the request's data was to go, and then has the transfer end.
#[track_caller]
fn use_again(t: &Scene, request: Name, mut buffer: Buffer, what: &str) {
    let data = || pattern(fresh_seed(), buffer_len(t));
    let own = data();
    buffer.copy_from_slice(&own);
    store(t, request, &data());
    same(&buffer, &own, format_args!("{what}: the client's own stores"));
    drop(buffer);
    let (again, content) = filled(t);
    store(t, request, &data());
    end(t, request, None);
    same(&again, &content, format_args!("{what}: another buffer"));
}
