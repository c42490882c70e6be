//! Pins: a server holds parts of a request's buffers beyond the request, and the client gets them back with the last pin.
//!
//! Source: thesis §3.2.

use std::time::Duration;

use genie_io::{In, Out, Pending};
use genie_passing::Scheme;
use genie_passing::model::Allocation;

use super::schemes::{failed, filled, is_strong, replied, strong_native, submit_out};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::{Answer, Command, HOLD};
use crate::setup::fresh_seed;

/// Has the server pin buffer 0 and reply, which the client does not see yet.
#[track_caller]
fn pin_and_reply(t: &Scene, pending: &Pending<'_>) {
    assert_eq!(t.holder().command(pending.id(), Command::Pin { buffer: 0 }), Answer::Done);
    t.holder().reply(pending.id());
    assert!(!pending.wait(Duration::from_millis(2)), "the reply came before the pin was let go");
}

#[track_caller]
fn pinned(t: &Scene, pending: &Pending<'_>) -> Vec<u8> {
    match t.holder().command(pending.id(), Command::ReadPinned) {
        Answer::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unpin(t: &Scene, pending: &Pending<'_>) {
    assert_eq!(t.holder().command(pending.id(), Command::Unpin), Answer::Done);
}

pub(crate) fn output_is_read_until_it_is_let_go(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let pending = submit_out(t, scheme, &buffer);
        pin_and_reply(t, &pending);
        buffer.fill(0xee);
        same(&pinned(t, &pending), &before, scheme);
        drop(buffer);
        same(&pinned(t, &pending), &before, format_args!("{scheme}, without the client's buffer"));
        unpin(t, &pending);
        replied(pending);
    }
}

pub(crate) fn input_is_filled_until_it_is_let_go(t: &Scene) {
    for scheme in Scheme::ALL {
        let (buffer, before) = filled(t);
        let data = pattern(fresh_seed(), before.len());
        let request = t.interface().request(t.holder().handle(), HOLD);
        let is_migrant = scheme.allocation() == Allocation::Migrant;
        let element = match is_migrant {
            true => In::migrant(scheme, data.len()),
            false => In::owned(scheme, buffer),
        };
        let pending = request.input(element).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        t.holder().set_actual(pending.id(), data.len());
        pin_and_reply(t, &pending);
        let write = Command::WritePinned { bytes: data.clone() };
        assert_eq!(t.holder().command(pending.id(), write), Answer::Done, "{scheme}");
        unpin(t, &pending);
        let mut reply = replied(pending);
        match is_migrant {
            true => same(&reply.take_migrant().expect("a region"), &data, scheme),
            false => same(&reply.take_buffer().expect("the buffer"), &data, scheme),
        }
    }
}

/// A pin is all that is left of a request that its server has dropped: for the client, too, which gets its buffer back later.
pub(crate) fn a_dropped_request_leaves_its_pins(t: &Scene) {
    for scheme in Scheme::ALL {
        let (buffer, before) = filled(t);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let element = match scheme.allocation() {
            Allocation::Migrant => {
                let migrant = t.interface().allocate_migrant(before.len(), is_strong(scheme));
                let mut migrant = migrant.expect("a region");
                migrant.copy_from_slice(&before);
                Out::migrant(scheme, migrant)
            }
            Allocation::Native => Out::owned(scheme, buffer),
        };
        let pending = request.out(element).submit().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        assert_eq!(t.holder().command(pending.id(), Command::Pin { buffer: 0 }), Answer::Done);
        assert_eq!(t.holder().command(pending.id(), Command::Drop), Answer::Done);
        assert!(!pending.wait(Duration::from_millis(2)), "{scheme}: the buffer came back under a pin");
        same(&pinned(t, &pending), &before, scheme);
        unpin(t, &pending);
        failed(pending);
    }
}
