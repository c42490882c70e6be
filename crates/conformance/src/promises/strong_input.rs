//! Strong input: nothing of it is seen before it has succeeded, and only its bytes change.

use std::time::Duration;

use genie_io::{Error, In, Pending};
use genie_memory::Buffer;
use genie_passing::Scheme;

use super::schemes::{buffer_len, failed, filled, replied, slices, strong_native};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::HOLD;
use crate::machine::raw;
use crate::setup::fresh_seed;

/// Submits an input into borrowed bytes to the holder.
pub(crate) fn submit_in<'b>(t: &Scene, scheme: Scheme, bytes: &'b mut [u8]) -> Pending<'b> {
    let request = t.interface().request(t.holder().handle(), HOLD);
    request.input(In::borrowed(scheme, bytes)).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
}

/// The bytes of a buffer as they lie in memory, while it is borrowed.
pub(crate) fn lies_there(addresses: &std::ops::Range<usize>) -> Vec<u8> {
    raw(addresses.start, addresses.len())
}

pub(crate) fn a_buffer_is_untouched_until_the_reply_is_taken(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} into {slice:?}");
            let (mut buffer, before) = filled(t);
            let after = pattern(fresh_seed(), slice.len());
            let addresses = buffer.addresses();
            let pending = submit_in(t, scheme, &mut buffer[slice.clone()]);
            t.holder().write(pending.id(), 0, &after[..after.len() / 2]);
            same(&lies_there(&addresses), &before, format_args!("{what}: half written"));
            t.holder().deliver(pending.id(), &after);
            same(&lies_there(&addresses), &before, format_args!("{what}: replied"));
            replied(pending);
            same(&buffer[slice], &after, &what);
        }
    }
}

pub(crate) fn a_failed_input_changes_nothing(t: &Scene) {
    type Failing = fn(&Scene, Pending<'_>) -> Error;
    let ways: [(&str, Failing); 4] = [
        ("the server failed", |t, pending| {
            t.holder().fail(pending.id(), "no");
            failed(pending).error
        }),
        ("the server dropped it", |t, pending| {
            t.holder().drop_request(pending.id());
            failed(pending).error
        }),
        ("the client aborted it, the server let go", |t, pending| {
            t.holder().set_obliging(true);
            pending.abort().expect_err("aborted").error
        }),
        ("the client aborted it, the server did not let go", |t, pending| {
            t.holder().set_obliging(false);
            let id = pending.id();
            let error = pending.abort().expect_err("aborted").error;
            t.holder().write(id, 0, &[0xee; 4]);
            t.holder().set_actual(id, 4);
            t.holder().reply(id);
            error
        }),
    ];
    for scheme in strong_native() {
        for (way, fail) in ways {
            let (mut buffer, before) = filled(t);
            let last = buffer.len() - 1;
            let pending = submit_in(t, scheme, &mut buffer[1..last]);
            t.holder().write(pending.id(), 0, &pattern(fresh_seed(), last - 1));
            t.holder().set_actual(pending.id(), last - 1);
            let error = fail(t, pending);
            same(&buffer, &before, format_args!("{scheme}, {way}"));
            let expected = matches!(error, Error::Server(_) | Error::Dropped | Error::Aborted);
            assert!(expected, "{scheme}, {way}: {error}");
            is_usable(&mut buffer);
        }
        by_timeout(t, scheme);
    }
}

fn by_timeout(t: &Scene, scheme: Scheme) {
    let timeout = Duration::from_millis(5);
    for obliging in [true, false] {
        t.holder().set_obliging(obliging);
        let (mut buffer, before) = filled(t);
        let request = t.interface().request(t.holder().handle(), HOLD).timeout(timeout);
        let error = request.input(In::borrowed(scheme, &mut buffer)).send().expect_err("no reply").error;
        assert_eq!(error, Error::TimedOut { timeout }, "{scheme}");
        // An obliging server lets the request go, perhaps just now.
        for late in t.holder().held().into_iter().filter(|_| !obliging) {
            t.holder().deliver(late, &[0xdd; 100]);
        }
        same(&buffer, &before, format_args!("{scheme}, timed out"));
        is_usable(&mut buffer);
    }
}

fn is_usable(buffer: &mut Buffer) {
    buffer.fill(0x11);
    assert!(buffer.iter().all(|byte| *byte == 0x11));
}

pub(crate) fn every_byte_arrives_and_no_other_changes(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} into {slice:?}");
            let (mut buffer, before) = filled(t);
            let after = pattern(fresh_seed(), slice.len());
            let pending = submit_in(t, scheme, &mut buffer[slice.clone()]);
            t.holder().deliver(pending.id(), &after);
            let reply = replied(pending);
            assert_eq!(reply.actual(), after.len(), "{what}");
            let mut expected = before;
            expected[slice.clone()].copy_from_slice(&after);
            same(&buffer, &expected, &what);
            is_usable(&mut buffer);
        }
    }
}

/// Once, nothing was passed, and the client was told of a success.
pub(crate) fn a_success_without_a_length_is_a_failure(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} into {slice:?}");
            let (mut buffer, before) = filled(t);
            let pending = submit_in(t, scheme, &mut buffer[slice.clone()]);
            t.holder().write(pending.id(), 0, &pattern(fresh_seed(), slice.len()));
            t.holder().reply(pending.id());
            let error = failed(pending).error;
            assert!(matches!(error, Error::Untold { buffer: 0 } | Error::Server(_)), "{what}: {error}");
            same(&buffer, &before, format_args!("{what}: filled, and no length said"));
            // A server that has nothing leaves the input alone.
            let pending = submit_in(t, scheme, &mut buffer[slice]);
            t.holder().reply(pending.id());
            assert_eq!(replied(pending).actual(), 0, "{what}: left alone");
            same(&buffer, &before, format_args!("{what}: left alone"));
            is_usable(&mut buffer);
        }
    }
}

pub(crate) fn less_may_arrive_than_was_asked_for(t: &Scene) {
    let granule = t.setup().granule();
    for scheme in strong_native() {
        for slice in slices(t) {
            let lengths = [0, 1, granule - 1, granule, granule + 3, slice.len() - 1];
            for actual in lengths.into_iter().filter(|actual| *actual < slice.len()) {
                let what = format!("{scheme}: {actual} bytes into {slice:?}");
                let (mut buffer, before) = filled(t);
                let after = pattern(fresh_seed(), slice.len());
                let pending = submit_in(t, scheme, &mut buffer[slice.clone()]);
                // The server writes more than it says it passes.
                t.holder().write(pending.id(), 0, &after);
                t.holder().set_actual(pending.id(), actual);
                t.holder().reply(pending.id());
                assert_eq!(replied(pending).actual(), actual, "{what}");
                let mut expected = before;
                expected[slice.start..slice.start + actual].copy_from_slice(&after[..actual]);
                same(&buffer, &expected, &what);
            }
        }
    }
}

pub(crate) fn neighbouring_elements_meet_in_one_granule(t: &Scene) {
    let middle = t.setup().granule() + 33;
    for first in strong_native() {
        for second in strong_native() {
            let what = format!("{first} beside {second}");
            let (mut buffer, before) = filled(t);
            let after = pattern(fresh_seed(), buffer_len(t));
            let (low, high) = buffer[5..].split_at_mut(middle);
            let high = &mut high[3..after.len() / 2];
            let (one, two) = (low.len(), high.len());
            let request = t.interface().request(t.holder().handle(), HOLD);
            let request = request.input(In::borrowed(first, low)).and_input(In::borrowed(second, high));
            let pending = request.submit().expect("a request");
            t.holder().deliver(pending.id(), &after[..one + two - 1]);
            replied(pending);
            let mut expected = before;
            expected[5..5 + one].copy_from_slice(&after[..one]);
            expected[5 + one + 3..][..two - 1].copy_from_slice(&after[one..one + two - 1]);
            same(&buffer, &expected, &what);
        }
    }
}
