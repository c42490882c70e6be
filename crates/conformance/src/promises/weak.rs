//! Weak integrity: the server works in the client's buffer itself, and the weaknesses that the thesis names are there.
//! Each of these fails if a weak scheme copies in secret.

use genie_io::{In, Out, Returned};
use genie_memory::Migrant;
use genie_passing::model::Allocation;
use genie_passing::{Reason, Scheme};

use super::schemes::{buffer_len, filled, is_strong, migrant, replied, submit_out, weak_native};
use super::strong_input::submit_in;
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::HOLD;
use crate::machine::{frames, is_accessible, raw};
use crate::setup::{Buffering, fresh_seed};

/// The weak moves.
fn weak_moves() -> impl Iterator<Item = Scheme> {
    migrant().filter(|scheme| !is_strong(*scheme))
}

/// A migrant buffer with a pattern in it, and the pattern.
pub(crate) fn filled_migrant(t: &Scene, scheme: Scheme) -> (Migrant, Vec<u8>) {
    let bytes = pattern(fresh_seed(), buffer_len(t));
    let mut region = t.interface().allocate_migrant(bytes.len(), is_strong(scheme)).expect("a region");
    region.copy_from_slice(&bytes);
    (region, bytes)
}

pub(crate) fn a_failed_share_input_leaves_what_was_written(t: &Scene) {
    for scheme in weak_native() {
        let (buffer, before) = filled(t);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending =
            request.input(In::owned(scheme, buffer).part(1..before.len())).submit().expect("a request");
        t.holder().write(pending.id(), 6, &[0x99; 1000]);
        t.holder().fail(pending.id(), "no");
        let mut failed = pending.sync().expect_err("the server failed");
        let buffer = failed.take_buffer().expect("the buffer comes back");
        let mut expected = before;
        if t.setup().buffering == Buffering::Customized {
            expected[7..1007].fill(0x99);
        }
        same(&buffer, &expected, scheme);
    }
}

pub(crate) fn input_is_seen_before_the_reply(t: &Scene) {
    let data = pattern(fresh_seed(), buffer_len(t));
    for scheme in weak_native() {
        let (buffer, _) = filled(t);
        let addr = buffer.addresses().start;
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::owned(scheme, buffer)).submit().expect("a request");
        t.holder().write(pending.id(), 0, &data);
        same(&raw(addr, data.len()), &data, format_args!("{scheme}, before the reply"));
        t.holder().deliver(pending.id(), &data);
        let reply = replied(pending);
        assert_eq!((reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective), (0, scheme));
    }
    for scheme in weak_moves() {
        let (region, _) = filled_migrant(t, scheme);
        let addr = region.as_ptr().addr();
        drop(region);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::migrant(scheme, data.len())).submit().expect("a request");
        t.holder().write(pending.id(), 0, &data);
        same(&raw(addr, data.len()), &data, format_args!("{scheme}, before the reply"));
        t.holder().deliver(pending.id(), &data);
        let region = replied(pending).take_migrant().expect("a region");
        assert_eq!(region.as_ptr().addr(), addr, "{scheme}");
    }
}

pub(crate) fn output_is_read_where_it_lies(t: &Scene) {
    let granule = t.setup().granule();
    for scheme in weak_native().chain(migrant()) {
        let (addr, out) = if scheme.allocation() == Allocation::Native {
            let (buffer, _) = filled(t);
            (buffer.addresses().start, Out::owned(scheme, buffer))
        } else {
            let (region, _) = filled_migrant(t, scheme);
            (region.as_ptr().addr(), Out::migrant(scheme, region))
        };
        let len = buffer_len(t);
        let before = frames(addr, len, granule).expect("frames are visible");
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(out).submit().expect("a request");
        let seen = t.holder().frames(pending.id(), granule).expect("frames were visible before");
        assert_eq!(seen, before, "{scheme}: the server's frames are the client's");
        t.holder().reply(pending.id());
        let reply = replied(pending);
        assert_eq!((reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective), (0, scheme));
        assert_eq!(reply.receipt().referenced as usize, t.setup().granules(), "{scheme}");
    }
}

pub(crate) fn a_weakly_moved_region_stays_visible(t: &Scene) {
    for scheme in weak_moves() {
        let (region, bytes) = filled_migrant(t, scheme);
        let addr = region.as_ptr().addr();
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::migrant(scheme, region)).submit().expect("a request");
        same(&raw(addr, bytes.len()), &bytes, format_args!("{scheme}, pending"));
        t.holder().reply(pending.id());
        assert!(replied(pending).take_migrant().is_none(), "{scheme}: the region has been passed on");
        same(&raw(addr, bytes.len()), &bytes, format_args!("{scheme}, passed on"));
        assert!(is_accessible(addr));
    }
}

pub(crate) fn a_weakly_moved_region_comes_back(t: &Scene) {
    for scheme in weak_moves() {
        let (region, bytes) = filled_migrant(t, scheme);
        let addr = region.as_ptr().addr();
        let before = frames(addr, bytes.len(), t.setup().granule());
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::migrant(scheme, region)).submit().expect("a request");
        t.holder().reply(pending.id());
        replied(pending);

        // The server writes a few bytes; the others are those that lay there.
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::migrant(scheme, bytes.len())).submit().expect("a request");
        t.holder().write(pending.id(), 10, &[0x42; 10]);
        t.holder().set_actual(pending.id(), bytes.len());
        t.holder().reply(pending.id());
        let mut reply = replied(pending);
        let region = reply.take_migrant().expect("a region");
        assert_eq!(region.as_ptr().addr(), addr, "{scheme}: the same region");
        same(&region[10..20], &[0x42; 10], scheme);
        if t.setup().buffering == Buffering::Customized {
            let mut expected = bytes;
            expected[10..20].fill(0x42);
            same(&region, &expected, format_args!("{scheme}: nothing was copied"));
            assert_eq!(reply.receipt().copied, 0, "{scheme}");
            assert_eq!(frames(addr, region.len(), t.setup().granule()), before, "{scheme}");
        }
    }
}

pub(crate) fn borrowed_memory_is_copied_instead(t: &Scene) {
    for scheme in weak_native() {
        let (mut buffer, before) = filled(t);
        let pending = submit_out(t, scheme, &buffer);
        buffer.fill(1);
        same(&t.holder().read(pending.id()), &before, scheme);
        t.holder().reply(pending.id());
        let reply = replied(pending);
        let receipt = reply.buffers[0].elements[0].receipt;
        assert_eq!(
            (receipt.asked, receipt.effective, receipt.reason),
            (scheme, Scheme::Copy, Some(Reason::Borrowed))
        );
        assert_eq!(receipt.copied, before.len());
        assert!(matches!(reply.buffers[0].elements[0].returned, Returned::Nothing));

        let during = buffer.to_vec();
        let pending = submit_in(t, scheme, &mut buffer);
        t.holder().write(pending.id(), 0, &before);
        t.holder().fail(pending.id(), "no");
        pending.sync().expect_err("the server failed");
        same(&buffer, &during, format_args!("{scheme}, failed input"));
    }
}
