//! Share under a borrow: the server works in bytes that the client has borrowed until its call returns, and not a moment longer.

use std::thread;
use std::time::Duration;

use genie_io::{Error, In, Out};
use genie_memory::GranuleKind;
use genie_passing::Reason;

use super::schemes::{filled, weak_native};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::{HOLD, Name};
use crate::setup::{Buffering, fresh_seed};

pub(crate) fn input_fills_the_borrowed_bytes(t: &Scene) {
    for scheme in weak_native() {
        let (mut buffer, _) = filled(t);
        let bytes = pattern(fresh_seed(), buffer.len());
        let reply = thread::scope(|scope| {
            let (interface, handle) = (t.interface(), t.holder().handle());
            let memory = &mut buffer[..];
            let sender = scope
                .spawn(move || interface.request(handle, HOLD).input(In::borrowed(scheme, memory)).send());
            t.holder().deliver(t.holder().arrival(), &bytes);
            sender.join().expect("no panic").unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
        });
        same(&buffer, &bytes, scheme);
        let receipt = reply.buffers[0].elements[0].receipt;
        // Of data in several buffers of the server's own, what lies on a granule with another part's is copied.
        let most = if t.setup().buffering != Buffering::Customized { t.setup().granule() - 1 } else { 0 };
        assert!(receipt.copied <= most, "{scheme}: {receipt}");
        assert_eq!(receipt.referenced as usize, t.setup().granules(), "{scheme}: {receipt}");
    }
}

/// Sends an input that the server keeps although the client has given it up; returns the server's name for it.
fn send_in_vain(t: &Scene, element: In<'_>) -> Name {
    t.holder().set_obliging(false);
    let before = t.holder().held();
    let request = t.interface().request(t.holder().handle(), HOLD).timeout(Duration::from_millis(1));
    let failed = request.input(element).send().expect_err("the server keeps the request");
    assert!(matches!(failed.error, Error::TimedOut { .. }), "{failed}");
    t.holder().held().into_iter().find(|id| !before.contains(id)).expect("the server has it")
}

pub(crate) fn a_server_that_goes_on_after_a_timeout_stores_elsewhere(t: &Scene) {
    for scheme in weak_native() {
        let (mut buffer, _) = filled(t);
        let id = send_in_vain(t, In::borrowed(scheme, &mut buffer));
        let now = buffer.to_vec();
        t.holder().write(id, 0, &pattern(fresh_seed(), buffer.len()));
        same(&buffer, &now, format_args!("{scheme}: after the call"));
        buffer.fill(5);
        t.holder().write(id, 0, &pattern(fresh_seed(), buffer.len()));
        t.holder().drop_request(id);
        assert!(buffer.iter().all(|byte| *byte == 5), "{scheme}: the client's own stores");
        let addr = buffer.as_ptr().addr();
        drop(buffer);
        let (again, content) = filled(t);
        same(&again, &content, format_args!("{scheme}: another buffer, at {addr:#x}"));
    }
}

pub(crate) fn a_part_of_a_buffer_leaves_the_rest_alone(t: &Scene) {
    for scheme in weak_native() {
        let granule = t.setup().granule();
        let (mut buffer, before) = filled(t);
        let part = granule / 2..granule + granule / 2;
        let bytes = pattern(fresh_seed(), part.len());
        let reply = thread::scope(|scope| {
            let (interface, handle) = (t.interface(), t.holder().handle());
            let memory = &mut buffer[part.clone()];
            let sender = scope
                .spawn(move || interface.request(handle, HOLD).input(In::borrowed(scheme, memory)).send());
            t.holder().deliver(t.holder().arrival(), &bytes);
            sender.join().expect("no panic").unwrap_or_else(|failed| panic!("{scheme}: {failed}"))
        });
        let receipt = reply.buffers[0].elements[0].receipt;
        assert_eq!((receipt.asked, receipt.reason), (scheme, Some(Reason::Neighbours)), "{receipt}");
        let mut expected = before.clone();
        expected[part].copy_from_slice(&bytes);
        same(&buffer, &expected, scheme);
    }
}

pub(crate) fn output_is_read_where_it_is_borrowed(t: &Scene) {
    let (buffer, before) = filled(t);
    let granules = u32::from(t.setup().kind == GranuleKind::Huge);
    for element in [Out::emulated_share(&buffer), Out::share(&before)] {
        let reply = thread::scope(|scope| {
            let (interface, handle) = (t.interface(), t.holder().handle());
            let sender = scope.spawn(move || interface.request(handle, HOLD).out(element).send());
            let id = t.holder().arrival();
            same(&t.holder().read(id), &before, "the output");
            t.holder().reply(id);
            sender.join().expect("no panic").unwrap_or_else(|failed| panic!("{failed}"))
        });
        let receipt = reply.buffers[0].elements[0].receipt;
        match receipt.reason {
            None => {
                assert!(receipt.held && receipt.copied == 0 && receipt.referenced > granules, "{receipt}")
            }
            reason => assert_eq!(reason, Some(Reason::Foreign), "{receipt}"),
        }
    }
}
