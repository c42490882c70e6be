//! Output in place: TCOW replaces the granules that are stored into, and no others.

use genie_io::{Out, Pending};
use genie_memory::GranuleKind;
use genie_passing::{Reason, Scheme, Thresholds};

use super::{LEN, Stage, changed};
use crate::on_both_kinds;
use crate::support::bytes::{pattern, same};
use crate::support::holder::HOLD;
use crate::support::machine::{locks_memory, proc, skip};
use crate::support::setup::Guard;

on_both_kinds! {
    emulated_copy_output_is_read_in_the_clients_frames,
    a_store_replaces_the_granule_it_hits_and_no_other,
    stores_into_a_replaced_granule_cost_nothing_more,
    a_store_after_the_reply_replaces_nothing,
    output_at_rest_is_protected_once,
    thresholds_that_never_avoid_copying_copy,
    copied_edges_are_short_and_say_so,
    shared_output_is_never_protected,
}

fn submit(stage: &Stage, bytes: &[u8]) -> Pending<'static> {
    let request = stage.interface.request(stage.holder.handle(), HOLD);
    request.out(Out::emulated_copy(bytes)).submit().expect("a request")
}

fn emulated_copy_output_is_read_in_the_clients_frames(stage: &Stage) {
    let buffer = stage.buffer(1);
    let before = stage.frames(&buffer);
    let pending = submit(stage, &buffer);
    assert_eq!(stage.server_frames(&pending), before, "the server reads where the client stored");
    assert_eq!(stage.frames(&buffer), before, "the client keeps its frames");
    stage.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    assert_eq!(stage.frames(&buffer), before);
    let receipt = reply.receipt();
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(receipt.referenced as usize, stage.granules());
    assert_eq!(receipt.protected as usize, stage.granules());
    assert_eq!(receipt.faults, 0);
}

fn a_store_replaces_the_granule_it_hits_and_no_other(stage: &Stage) {
    let mut buffer = stage.buffer(2);
    let before = stage.frames(&buffer);
    let pending = submit(stage, &buffer);
    let hit = stage.granules() / 2 + 1;
    buffer[hit * stage.granule() + 77] ^= 1;
    assert_eq!(changed(&before, &stage.frames(&buffer)), [hit]);
    let mut expected = pattern(2, LEN);
    same(&stage.holder.read(pending.id()), &expected, "what the server sees");
    expected[hit * stage.granule() + 77] ^= 1;
    same(&buffer, &expected, "the new granule holds what the old one held, and the store");
    assert_eq!(stage.server_frames(&pending), before, "the server keeps all the old ones");
    assert_eq!(stage.interface.space().statistics().replacements, 1);
    stage.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    assert_eq!((reply.receipt().faults, reply.receipt().copied), (1, 0));
}

fn stores_into_a_replaced_granule_cost_nothing_more(stage: &Stage) {
    let mut buffer = stage.buffer(3);
    let pending = submit(stage, &buffer);
    for index in 0..1000 {
        buffer[index] ^= 1;
    }
    let statistics = stage.interface.space().statistics();
    assert_eq!((statistics.faults, statistics.replacements), (1, 1));
    stage.holder.reply(pending.id());
    pending.sync().expect("a reply");
}

fn a_store_after_the_reply_replaces_nothing(stage: &Stage) {
    let mut buffer = stage.buffer(4);
    let before = stage.frames(&buffer);
    for _ in 0..40 {
        let pending = submit(stage, &buffer);
        stage.holder.reply(pending.id());
        pending.sync().expect("a reply");
        buffer[5] ^= 1;
        buffer[LEN - 1] ^= 1;
    }
    assert_eq!(stage.frames(&buffer), before);
    assert_eq!(stage.interface.space().statistics().replacements, 0);
}

fn output_at_rest_is_protected_once(stage: &Stage) {
    let buffer = stage.buffer(5);
    let mut protected = Vec::new();
    for _ in 0..40 {
        let pending = submit(stage, &buffer);
        stage.holder.reply(pending.id());
        protected.push(pending.sync().expect("a reply").receipt().protected);
    }
    assert_eq!(protected[0] as usize, stage.granules());
    assert_eq!(protected[39], 0, "a region that nobody stores into stays protected: {protected:?}");
}

fn thresholds_that_never_avoid_copying_copy(stage: &Stage) {
    let Some(never) = Stage::open(stage.name, stage.kind, Guard::Full, Thresholds::NEVER) else { return };
    let buffer = never.buffer(6);
    let pending = submit(&never, &buffer);
    let common: Vec<u64> = never.server_frames(&pending);
    let own = never.frames(&buffer);
    assert!(common.iter().all(|frame| !own.contains(frame)), "the server reads a copy");
    never.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    let receipt = reply.receipt();
    assert_eq!((receipt.asked, receipt.effective), (Scheme::EmulatedCopy, Scheme::Copy));
    assert_eq!((receipt.copied, receipt.reason), (LEN, Some(Reason::Short)));
    assert_eq!((receipt.referenced, receipt.protected), (0, 0));
}

fn copied_edges_are_short_and_say_so(stage: &Stage) {
    let thresholds = Thresholds { output: 1000, ..Thresholds::ALWAYS };
    let Some(edges) = Stage::open(stage.name, stage.kind, Guard::Full, thresholds) else { return };
    let buffer = edges.buffer(7);
    let granule = edges.granule();
    let pending = submit(&edges, &buffer[granule - 999..3 * granule + 10]);
    edges.holder.reply(pending.id());
    let reply = pending.sync().expect("a reply");
    let receipt = reply.receipt();
    assert_eq!((receipt.effective, receipt.reason), (Scheme::EmulatedCopy, Some(Reason::Edges)));
    assert_eq!((receipt.copied, receipt.referenced), (999 + 10, 2));
}

fn shared_output_is_never_protected(stage: &Stage) {
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        let buffer = stage.buffer(8);
        let (before, addr) = (stage.frames(&buffer), buffer.addresses().start);
        let request = stage.interface.request(stage.holder.handle(), HOLD);
        let pending = request.out(Out::owned(scheme, buffer)).submit().expect("a request");
        assert_eq!(stage.server_frames(&pending), before, "{scheme}");
        let locked = || proc::mapping_at(addr).expect("a mapping").kib("Locked:");
        let during = locked();
        stage.holder.reply(pending.id());
        let mut reply = pending.sync().expect("a reply");
        if stage.kind == GranuleKind::Base && !locks_memory() {
            skip(stage.name, "mlock does nothing under a sanitizer");
        } else if stage.kind == GranuleKind::Base {
            // Huge pages that are locked are not counted: they cannot be swapped anyway.
            assert_eq!(during > 0, scheme == Scheme::Share, "{scheme}: only the plain scheme wires");
            assert_eq!(locked(), 0, "{scheme}: unwired with the reply");
        }
        assert_eq!(reply.take_buffer().map(|buffer| stage.frames(&buffer)), Some(before), "{scheme}");
        assert_eq!(stage.interface.space().statistics().protected, 0, "{scheme}");
    }
}
