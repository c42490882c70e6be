//! Strong output under a borrow: the client's thread waits, and the server sees the data as of the request, whatever the client
//! does once it has an answer, and whatever other threads do beside the data meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use genie_io::{Error, Failed, Out, Reply};
use genie_passing::Scheme;

use super::schemes::{filled, slices, strong_native};
use crate::Need;
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::{HOLD, Name};
use crate::setup::{Guard, fresh_seed};

/// Sends an output of borrowed bytes to the holder, with this timeout.
fn send(t: &Scene, scheme: Scheme, bytes: &[u8], timeout: Duration) -> Result<Reply, Failed> {
    let request = t.interface().request(t.holder().handle(), HOLD);
    request.timeout(timeout).out(Out::borrowed(scheme, bytes)).send()
}

/// Sends an output that the server keeps although the client has given it up; returns the server's name for it.
fn send_in_vain(t: &Scene, scheme: Scheme, bytes: &[u8]) -> Name {
    t.holder().set_obliging(false);
    let before = t.holder().held();
    let failed = send(t, scheme, bytes, Duration::from_millis(1)).expect_err("the server keeps the request");
    assert!(matches!(failed.error, Error::TimedOut { .. }), "{failed}");
    t.holder().held().into_iter().find(|id| !before.contains(id)).expect("the server has it")
}

pub(crate) fn stores_after_a_timeout_are_not_seen(t: &Scene) {
    // A server that keeps an aborted request is waited for: few slices.
    for scheme in [Scheme::EmulatedCopy, Scheme::EmulatedShare] {
        for slice in slices(t).into_iter().take(2) {
            let what = format!("{scheme} of {slice:?}");
            let (mut buffer, before) = filled(t);
            let id = send_in_vain(t, scheme, &buffer[slice.clone()]);
            let after = pattern(fresh_seed(), before.len());
            buffer.copy_from_slice(&after);
            same(&t.holder().read(id), &before[slice.clone()], &what);
            same(&buffer, &after, format_args!("{what}: the client's buffer"));
            t.holder().drop_request(id);
            same(&buffer, &after, format_args!("{what}: the client's buffer after the output"));
        }
    }
}

pub(crate) fn a_buffer_dropped_after_a_timeout_is_still_read(t: &Scene) {
    let (buffer, before) = filled(t);
    let id = send_in_vain(t, Scheme::EmulatedCopy, &buffer);
    drop(buffer);
    let (other, content) = filled(t);
    same(&other, &content, "another buffer");
    same(&t.holder().read(id), &before, "the output");
    t.holder().drop_request(id);
}

pub(crate) fn stores_after_an_anticipated_reply_are_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} of {slice:?}");
            let (mut buffer, before) = filled(t);
            let (id, reply) = thread::scope(|scope| {
                let (interface, handle) = (t.interface(), t.holder().handle());
                let bytes = &buffer[slice.clone()];
                let sender = scope
                    .spawn(move || interface.request(handle, HOLD).out(Out::borrowed(scheme, bytes)).send());
                let id = t.holder().arrival();
                t.holder().anticipate(id);
                (id, sender.join().expect("no panic").unwrap_or_else(|failed| panic!("{what}: {failed}")))
            });
            assert!(reply.anticipated, "{what}");
            let receipt = reply.buffers[0].elements[0].receipt;
            // A carrier that has copied the data lets go of the client's with the reply, and nothing need be protected.
            if receipt.referenced > 0 && t.lacks(Need::InPlace).is_none() {
                assert_eq!(receipt.protected + receipt.replaced, receipt.referenced, "{what}: {receipt}");
                assert_eq!(receipt.replaced > 0, t.setup().guard == Guard::Never, "{what}: {receipt}");
            }
            let after = pattern(fresh_seed(), before.len());
            buffer.copy_from_slice(&after);
            same(&t.holder().read(id), &before[slice], &what);
            same(&buffer, &after, format_args!("{what}: the client's buffer"));
            t.holder().drop_request(id);
        }
    }
}

/// Another thread has the bytes beside the borrowed ones, on the same granules.
pub(crate) fn stores_beside_the_data_are_not_lost(t: &Scene) {
    for scheme in strong_native() {
        let granule = t.setup().granule();
        let (mut buffer, before) = filled(t);
        let (head, rest) = buffer.split_at_mut(granule / 2);
        let (data, tail) = rest.split_at_mut(granule);
        let (is_over, is_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let (id, [head_round, tail_round]) = thread::scope(|scope| {
            let stores = [head, tail].map(|bytes| {
                let (is_over, is_begun) = (&is_over, &is_begun);
                scope.spawn(move || {
                    let mut round = 0u8;
                    while round == 0 || !is_over.load(Ordering::Relaxed) {
                        round = round.wrapping_add(1);
                        bytes[..64].fill(round);
                        let last = bytes.len() - 64;
                        bytes[last..].fill(round);
                        is_begun.store(true, Ordering::Relaxed);
                    }
                    round
                })
            });
            while !is_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let id = send_in_vain(t, scheme, data);
            data.fill(7);
            is_over.store(true, Ordering::Relaxed);
            let rounds = stores.map(|thread| thread.join().expect("no panic"));
            (id, rounds)
        });
        same(&t.holder().read(id), &before[granule / 2..][..granule], scheme);
        let mut expected = before.clone();
        expected[granule / 2..][..granule].fill(7);
        let end = expected.len();
        for (range, round) in [
            (0..64, head_round),
            (granule / 2 - 64..granule / 2, head_round),
            (granule + granule / 2..granule + granule / 2 + 64, tail_round),
            (end - 64..end, tail_round),
        ] {
            expected[range].fill(round);
        }
        same(&buffer, &expected, format_args!("{scheme}: the client's buffer"));
        t.holder().drop_request(id);
    }
}
