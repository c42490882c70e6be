//! Output in place: TCOW replaces the granules that are stored into, and no others.

use genie_conformance::Guard;
use genie_io::{Out, Pending};
use genie_memory::GranuleKind;
use genie_passing::{Reason, Scheme, Thresholds};

use super::{Fixture, LEN, changed};
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};
use crate::support::holder::HOLD;
use crate::support::machine::{locks_memory, proc, skip};

on_each_kind! {
    emulated_copy_output_is_read_in_the_clients_frames,
    a_store_replaces_the_granule_it_hits_and_no_other,
    stores_into_a_replaced_granule_cost_nothing_more,
    a_store_after_the_reply_replaces_nothing,
    output_at_rest_is_protected_once,
    data_too_short_to_protect_is_copied_no_more_while_it_stays_unchanged,
    thresholds_that_never_avoid_copying_copy,
    copied_edges_are_short_and_say_so,
    an_edge_beside_a_longer_one_is_copied_if_it_is_short,
    shared_output_is_never_protected,
}

fn submit(fixture: &Fixture, bytes: &[u8]) -> Pending<'static> {
    let request = fixture.interface.request(fixture.holder.handle(), HOLD);
    request.out(Out::emulated_copy(bytes)).submit().expect("a request")
}

fn emulated_copy_output_is_read_in_the_clients_frames(fixture: &Fixture) {
    let buffer = fixture.buffer(1);
    let before = fixture.frames(&buffer);
    let pending = submit(fixture, &buffer);
    assert_eq!(fixture.server_frames(&pending), before, "the server reads where the client stored");
    assert_eq!(fixture.frames(&buffer), before, "the client keeps its frames");
    fixture.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    assert_eq!(fixture.frames(&buffer), before);
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(receipt.referenced as usize, fixture.granules());
    assert_eq!(receipt.protected as usize, fixture.granules());
    assert_eq!(receipt.faults, 0);
}

fn a_store_replaces_the_granule_it_hits_and_no_other(fixture: &Fixture) {
    let mut buffer = fixture.buffer(2);
    let before = fixture.frames(&buffer);
    let pending = submit(fixture, &buffer);
    let hit = fixture.granules() / 2 + 1;
    buffer[hit * fixture.granule() + 77] ^= 1;
    assert_eq!(changed(&before, &fixture.frames(&buffer)), [hit]);
    let mut expected = pattern(2, LEN);
    same(&fixture.holder.read(pending.id()), &expected, "what the server sees");
    expected[hit * fixture.granule() + 77] ^= 1;
    same(&buffer, &expected, "the new granule holds what the old one held, and the store");
    assert_eq!(fixture.server_frames(&pending), before, "the server keeps all the old ones");
    assert_eq!(fixture.interface.space().statistics().replacements, 1);
    fixture.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    assert_eq!((reply.receipt().faults, reply.receipt().copied), (1, 0));
}

fn stores_into_a_replaced_granule_cost_nothing_more(fixture: &Fixture) {
    let mut buffer = fixture.buffer(3);
    let pending = submit(fixture, &buffer);
    for index in 0..1000 {
        buffer[index] ^= 1;
    }
    let statistics = fixture.interface.space().statistics();
    assert_eq!((statistics.faults, statistics.replacements), (1, 1));
    fixture.holder.reply(pending.id());
    pending.sync().expect("a reply");
}

fn a_store_after_the_reply_replaces_nothing(fixture: &Fixture) {
    let mut buffer = fixture.buffer(4);
    let before = fixture.frames(&buffer);
    for _ in 0..40 {
        let pending = submit(fixture, &buffer);
        fixture.holder.reply(pending.id());
        pending.sync().expect("a reply");
        buffer[5] ^= 1;
        buffer[LEN - 1] ^= 1;
    }
    assert_eq!(fixture.frames(&buffer), before);
    assert_eq!(fixture.interface.space().statistics().replacements, 0);
}

fn output_at_rest_is_protected_once(fixture: &Fixture) {
    let buffer = fixture.buffer(5);
    let mut protected = Vec::new();
    for _ in 0..40 {
        let pending = submit(fixture, &buffer);
        fixture.holder.reply(pending.id());
        protected.push(pending.sync().expect("a reply").receipt().protected);
    }
    assert_eq!(protected[0] as usize, fixture.granules());
    assert_eq!(protected[39], 0, "a region that nobody stores into stays protected: {protected:?}");
}

/// Nothing costs anything here, so the eighth output is the first trial.
fn data_too_short_to_protect_is_copied_no_more_while_it_stays_unchanged(fixture: &Fixture) {
    let thresholds = Thresholds { output: usize::MAX, ..Thresholds::ALWAYS };
    let Some(short) = Fixture::open(fixture.name, fixture.kind, Guard::Full, thresholds) else { return };
    let mut buffer = short.buffer(6);
    let frames = short.frames(&buffer);
    let pass = |buffer: &[u8]| {
        let pending = submit(&short, buffer);
        short.holder.reply(pending.id());
        pending.sync().expect("a reply").buffers[0].elements[0].receipt
    };
    for _ in 1..8 {
        let receipt = pass(&buffer);
        assert_eq!((receipt.copied, receipt.reason), (LEN, Some(Reason::Short)));
    }
    for protected in [short.granules() as u32, 0, 0] {
        let receipt = pass(&buffer);
        assert_eq!((receipt.copied, receipt.reason, receipt.protected), (0, None, protected));
    }
    // At rest or not, a store leaves the data of a pending output alone.
    let pending = submit(&short, &buffer);
    assert_eq!(short.server_frames(&pending), frames, "the server reads where the client stored");
    buffer[7] ^= 1;
    same(&short.holder.read(pending.id()), &pattern(6, LEN), "what the server sees");
    short.holder.reply(pending.id());
    assert_eq!(pending.sync().expect("a reply").receipt().faults, 1);
}

fn thresholds_that_never_avoid_copying_copy(fixture: &Fixture) {
    let Some(never) = Fixture::open(fixture.name, fixture.kind, Guard::Full, Thresholds::NEVER) else {
        return;
    };
    let buffer = never.buffer(6);
    let pending = submit(&never, &buffer);
    let common: Vec<u64> = never.server_frames(&pending);
    let own = never.frames(&buffer);
    assert!(common.iter().all(|frame| !own.contains(frame)), "the server reads a copy");
    never.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.asked, receipt.effective), (Scheme::EmulatedCopy, Scheme::Copy));
    assert_eq!((receipt.copied, receipt.reason), (LEN, Some(Reason::Short)));
    assert_eq!((receipt.referenced, receipt.protected), (0, 0));
}

fn copied_edges_are_short_and_say_so(fixture: &Fixture) {
    let thresholds = Thresholds { output: 1000, ..Thresholds::ALWAYS };
    let Some(edges) = Fixture::open(fixture.name, fixture.kind, Guard::Full, thresholds) else { return };
    let buffer = edges.buffer(7);
    let granule = edges.granule();
    let pending = submit(&edges, &buffer[granule - 999..3 * granule + 10]);
    edges.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.effective, receipt.reason), (Scheme::EmulatedCopy, Some(Reason::Edges)));
    assert_eq!((receipt.copied, receipt.referenced), (999 + 10, 2));
}

/// Where no whole granule lay between, the shorter edge was protected with the longer one, and stores beside it faulted.
fn an_edge_beside_a_longer_one_is_copied_if_it_is_short(fixture: &Fixture) {
    let thresholds = Thresholds { output: 1000, ..Thresholds::ALWAYS };
    let Some(edges) = Fixture::open(fixture.name, fixture.kind, Guard::Full, thresholds) else { return };
    let mut buffer = edges.buffer(7);
    let granule = edges.granule();
    for (head, tail, copied) in
        [(999, 1000, 999), (1000, 999, 999), (1000, 1000, 0), (999, 999, 0), (10, granule, 10)]
    {
        let data = granule - head..granule + tail;
        let pending = submit(&edges, &buffer[data.clone()]);
        let expected = buffer[data.clone()].to_vec();
        buffer[data].fill(1);
        same(&edges.holder.read(pending.id()), &expected, "the server's view");
        edges.holder.reply(pending.id());
        let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
        let what = format!("{head} and {tail} bytes");
        assert_eq!((receipt.effective, receipt.copied), (Scheme::EmulatedCopy, copied), "{what}");
        assert_eq!(
            (receipt.referenced, receipt.protected),
            if copied > 0 { (1, 1) } else { (2, 2) },
            "{what}"
        );
    }
}

fn shared_output_is_never_protected(fixture: &Fixture) {
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        let buffer = fixture.buffer(8);
        let (before, addr) = (fixture.frames(&buffer), buffer.addresses().start);
        let request = fixture.interface.request(fixture.holder.handle(), HOLD);
        let pending = request.out(Out::owned(scheme, buffer)).submit().expect("a request");
        assert_eq!(fixture.server_frames(&pending), before, "{scheme}");
        let locked = || proc::mapping_at(addr).expect("a mapping").kib("Locked:");
        let during = locked();
        fixture.holder.reply(pending.id());
        let mut reply = pending.sync().expect("a reply");
        if fixture.kind == GranuleKind::Base && !locks_memory() {
            skip(fixture.name, "mlock does nothing under a sanitizer");
        } else if fixture.kind == GranuleKind::Base {
            // Huge pages that are locked are not counted: they cannot be swapped anyway.
            assert_eq!(during > 0, scheme == Scheme::Share, "{scheme}: only the plain scheme wires");
            assert_eq!(locked(), 0, "{scheme}: unwired with the reply");
        }
        assert_eq!(reply.take_buffer().map(|buffer| fixture.frames(&buffer)), Some(before), "{scheme}");
        assert_eq!(fixture.interface.space().statistics().protected, 0, "{scheme}");
    }
}
