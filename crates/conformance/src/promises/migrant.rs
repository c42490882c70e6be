//! Migrant buffers: given away for good, given back when that fails, received without other data.

use std::time::Instant;

use genie_io::servers::memory;
use genie_io::{In, Out};
use genie_memory::Mark;
use genie_passing::Scheme;

use super::schemes::{buffer_len, failed, filled, is_strong, migrant, replied, submit_out};
use super::weak::filled_migrant;
use crate::bytes::{pattern, same};
use crate::holder::HOLD;
use crate::machine::{is_accessible, raw};
use crate::setup::{Buffering, fresh_seed};
use crate::{GRACE, Scene};

pub(crate) fn a_buffer_is_passed_on(t: &Scene) {
    for scheme in migrant() {
        let (region, bytes) = filled_migrant(t, scheme);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::migrant(scheme, region.truncated(bytes.len() - 9))).submit();
        let pending = pending.expect("a request");
        same(&t.holder().read(pending.id()), &bytes[..bytes.len() - 9], scheme);
        t.holder().reply(pending.id());
        let mut reply = replied(pending);
        assert!(
            reply.take_migrant().is_none() && reply.take_buffer().is_none(),
            "{scheme}: nothing comes back"
        );
        assert_eq!((reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective), (0, scheme));
    }
}

/// Whether so much time has passed that a client goes on without what a server still has that it has asked to let go: on a busy
/// machine, the server in the other process may be as slow.
fn is_late(asked: Instant) -> bool {
    asked.elapsed() >= GRACE
}

pub(crate) fn a_failed_output_gives_the_buffer_back(t: &Scene) {
    t.holder().set_obliging(true);
    for scheme in migrant() {
        for way in ["fail", "drop", "abort"] {
            let (region, bytes) = filled_migrant(t, scheme);
            let addr = region.as_ptr().addr();
            let request = t.interface().request(t.holder().handle(), HOLD);
            let pending = request.out(Out::migrant(scheme, region)).submit().expect("a request");
            let asked = Instant::now();
            let mut failed = match way {
                "fail" => {
                    t.holder().fail(pending.id(), "no");
                    failed(pending)
                }
                "drop" => {
                    t.holder().drop_request(pending.id());
                    failed(pending)
                }
                _ => {
                    // One that the server has not had yet is never served, and later ones would be taken for it.
                    t.holder().held();
                    pending.abort().expect_err("aborted")
                }
            };
            let Some(mut region) = failed.take_migrant() else {
                assert!(way == "abort" && is_late(asked), "{scheme}, {way}: nothing came back");
                continue;
            };
            assert_eq!(region.as_ptr().addr(), addr, "{scheme}, {way}");
            same(&region, &bytes, format_args!("{scheme}, {way}"));
            region.fill(1);
            assert_eq!(region.is_strong(), is_strong(scheme));
        }
    }
}

pub(crate) fn strong_output_takes_all_access(t: &Scene) {
    let granule = t.setup().granule();
    for scheme in migrant() {
        let (region, bytes) = filled_migrant(t, scheme);
        let start = region.as_ptr().addr();
        let visible =
            || (start..start + bytes.len()).step_by(granule).filter(|addr| is_accessible(*addr)).count();
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::migrant(scheme, region)).submit().expect("a request");
        let expected = if is_strong(scheme) { 0 } else { t.setup().granules() };
        assert_eq!(
            visible(),
            expected,
            "{scheme}: granules the client can touch while the request is pending"
        );
        same(&t.holder().read(pending.id()), &bytes, format_args!("{scheme}: the server reads on"));
        t.holder().reply(pending.id());
        replied(pending);
        assert_eq!(visible(), expected, "{scheme}: granules the client can touch after the reply");
    }
}

pub(crate) fn input_brings_a_buffer(t: &Scene) {
    for scheme in migrant() {
        for round in 0..3 {
            let what = format!("{scheme}, input {round}");
            let bytes = pattern(fresh_seed(), buffer_len(t) - 7);
            let request = t.interface().request(t.holder().handle(), HOLD);
            let pending = request.input(In::migrant(scheme, bytes.len())).submit().expect("a request");
            t.holder().deliver(pending.id(), &bytes);
            let mut reply = replied(pending);
            assert_eq!(reply.actual(), bytes.len(), "{what}");
            let mut region = reply.take_migrant().unwrap_or_else(|| panic!("{what}: no region arrived"));
            same(&region, &bytes, &what);
            let (_, mark) =
                t.interface().space().region_at(region.as_ptr().addr(), region.len()).expect("a region");
            assert_eq!(mark, Mark::Immigrant, "{what}");
            assert_eq!(region.is_strong(), is_strong(scheme), "{what}");
            let receipt = reply.buffers[0].elements[0].receipt;
            if t.setup().buffering == Buffering::Customized {
                assert_eq!((receipt.copied, receipt.effective), (0, scheme), "{what}");
            }
            region.fill(0);
        }
    }
}

pub(crate) fn short_input_brings_a_short_buffer(t: &Scene) {
    let granule = t.setup().granule();
    for scheme in migrant() {
        for actual in [0, 1, granule - 1, granule, granule + 1] {
            let what = format!("{scheme}: {actual} bytes");
            let bytes = pattern(fresh_seed(), actual);
            let request = t.interface().request(t.holder().handle(), HOLD);
            let pending = request.input(In::migrant(scheme, 2 * granule + 5)).submit().expect("a request");
            t.holder().deliver(pending.id(), &bytes);
            let region =
                replied(pending).take_migrant().unwrap_or_else(|| panic!("{what}: no region arrived"));
            same(&region, &bytes, &what);
        }
        // A server that has no data need not ask for memory.
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::migrant(scheme, granule)).submit().expect("a request");
        t.holder().reply(pending.id());
        let region = replied(pending).take_migrant();
        assert_eq!(region.map(|region| region.len()), Some(0), "{scheme}: no data, no memory");
    }
}

pub(crate) fn no_other_data_comes_along(t: &Scene) {
    let granule = t.setup().granule();
    // Leaves somebody's bytes in every kind of system buffer.
    let (mut buffer, _) = filled(t);
    buffer.fill(0xee);
    for _ in 0..2 {
        let pending = submit_out(t, Scheme::Copy, &buffer[..2 * granule]);
        t.holder().reply(pending.id());
        replied(pending);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::copy(&mut buffer)).submit().expect("a request");
        t.holder().deliver(pending.id(), &vec![0xee; buffer_len(t)]);
        replied(pending);
    }
    for actual in [0, 1, granule - 3, granule, granule + 1] {
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::moved(2 * granule - 1)).submit().expect("a request");
        t.holder().write(pending.id(), 0, &vec![0xdd; 2 * granule - 1]);
        t.holder().set_actual(pending.id(), actual);
        t.holder().reply(pending.id());
        let mut reply = replied(pending);
        let region = reply.take_migrant().expect("a region");
        // The region ends with the last granule that holds data, or later.
        let addr = region.as_ptr().addr();
        let reaches = |len: &usize| t.interface().space().region_at(addr, *len).is_some();
        let len = [2 * granule, granule].into_iter().find(reaches).expect("a region of whole granules");
        assert!(len >= actual, "{actual} bytes in a region of {len}");
        let lies_there = raw(addr, len);
        assert!(lies_there[..actual].iter().all(|byte| *byte == 0xdd), "{actual} bytes");
        let foreign = lies_there[actual..].iter().filter(|byte| **byte != 0).count();
        assert_eq!(foreign, 0, "{actual} bytes arrived, and {foreign} of somebody else's");
        assert!(reply.receipt().zeroed >= len - actual, "{}", reply.receipt());
    }
}

pub(crate) fn a_failed_input_brings_nothing(t: &Scene) {
    t.holder().set_obliging(true);
    for scheme in migrant() {
        for written in [false, true] {
            let request = t.interface().request(t.holder().handle(), HOLD);
            let pending = request.input(In::migrant(scheme, buffer_len(t))).submit().expect("a request");
            if written {
                t.holder().write(pending.id(), 0, &[1; 100]);
            }
            t.holder().fail(pending.id(), "no");
            let mut failed = pending.sync().expect_err("the server failed");
            assert!(failed.take_migrant().is_none(), "{scheme}");
        }
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::migrant(scheme, buffer_len(t))).submit().expect("a request");
        t.holder().held();
        pending.abort().expect_err("aborted");
        // The region waits for reuse.
        t.assert_idle();
    }
}

pub(crate) fn what_came_can_go(t: &Scene) {
    for came in migrant() {
        for goes in migrant().filter(|goes| is_strong(*goes) == is_strong(came)) {
            let bytes = pattern(fresh_seed(), buffer_len(t) - 1);
            let store = t.interface().request(t.memory(), memory::STORE);
            store.out(Out::copy(&bytes)).argument(b"first").send().expect("stored");
            let fetch = t.interface().request(t.memory(), memory::FETCH);
            let fetch = fetch.input(In::migrant(came, bytes.len())).argument(b"first").send();
            let mut region = fetch.expect("fetched").take_migrant().expect("a region");
            same(&region, &bytes, format_args!("{came}, then {goes}"));
            region[0] = !region[0];
            let changed = region.to_vec();
            let store = t.interface().request(t.memory(), memory::STORE);
            store.out(Out::migrant(goes, region)).argument(b"second").send().expect("stored");
            let check = t.interface().request(t.memory(), memory::CHECK);
            check.out(Out::copy(&changed)).argument(b"second").send().expect("the same bytes");
        }
    }
}
