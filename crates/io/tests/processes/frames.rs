//! Page frames over channels: the server reads where the client's data was, and writes where it will be.

use genie_io::{In, Out, Pending, Reply};
use genie_memory::GranuleKind;
use genie_passing::{Reason, Receipt, Scheme};

use super::{Stage, shows_frames};
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{Answer, Command, HOLD};
use crate::support::machine::frames;
use crate::support::transport::{Place, Transport};

on_both_granules! {
    emulated_copy_output_is_read_in_the_clients_frames,
    a_store_meanwhile_moves_the_client_and_not_the_server,
    emulated_copy_input_gives_the_client_the_servers_frames,
    the_pool_adopts_the_clients_frames,
    copied_output_is_copied_once_into_the_servers_pool,
    copied_input_is_copied_once,
    shared_buffers_are_used_in_place_both_ways,
    migrant_buffers_come_and_go_in_their_frames,
    overlaid_input_is_copied_into_the_channel,
    a_device_elsewhere_fills_the_clients_input,
}

/// A stage on which page frames are shown.
fn stage(test: &str, kind: GranuleKind) -> Option<Stage> {
    let stage = Stage::open(test, kind, Place::Cached)?;
    let buffer = stage.buffer(0);
    shows_frames(test, &buffer).then_some(())?;
    drop(buffer);
    Some(stage)
}

/// The frames of this process's memory.
fn own(stage: &Stage, bytes: &[u8]) -> Vec<u64> {
    frames(bytes.as_ptr().addr(), bytes.len(), stage.granule()).expect("frames were shown before")
}

fn submit(stage: &Stage, out: Out<'_>) -> Pending<'static> {
    stage.interface().request(stage.holder().handle(), HOLD).out(out).submit().expect("a request")
}

/// The frames of the server's memory.
fn seen(stage: &Stage, pending: &Pending<'_>) -> Vec<u64> {
    stage.holder().frames(pending.id(), stage.granule()).expect("frames were shown before")
}

fn replied(stage: &Stage, pending: Pending<'_>) -> Reply {
    stage.holder().reply(pending.id());
    pending.sync().expect("a reply")
}

fn emulated_copy_output_is_read_in_the_clients_frames(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    let buffer = stage.buffer(1);
    let before = own(&stage, &buffer);
    let pending = submit(&stage, Out::emulated_copy(&buffer));
    assert_eq!(seen(&stage, &pending), before, "the server reads where the client stored");
    let reply = replied(&stage, pending);
    let receipt = reply.receipt();
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(own(&stage, &buffer), before, "the client keeps its frames");
}

fn a_store_meanwhile_moves_the_client_and_not_the_server(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    let mut buffer = stage.buffer(2);
    let before = own(&stage, &buffer);
    let pending = submit(&stage, Out::emulated_copy(&buffer));
    assert_eq!(seen(&stage, &pending), before);
    buffer[stage.granule() + 5] ^= 1;
    let after = own(&stage, &buffer);
    let moved: Vec<usize> = (0..before.len()).filter(|index| before[*index] != after[*index]).collect();
    assert_eq!(moved, [1], "the granule stored into is the client's alone");
    assert_eq!(seen(&stage, &pending), before, "the server keeps the old one");
    same(&stage.holder().read(pending.id()), &pattern(2, stage.len()), "the output");
    assert_eq!(replied(&stage, pending).receipt().faults, 1);
}

/// Receives into `bytes` by emulated copy; returns the server's frames and the receipt.
fn receive(stage: &Stage, seed: u64, bytes: &mut [u8]) -> (Vec<u64>, Receipt) {
    let data = pattern(seed, bytes.len());
    let request = stage.interface().request(stage.holder().handle(), HOLD);
    let pending = request.input(In::emulated_copy(bytes)).submit().expect("a request");
    let filled =
        stage.holder().input_frames(pending.id(), stage.granule()).expect("frames were shown before");
    stage.holder().deliver(pending.id(), &data);
    let reply = pending.sync().expect("a reply");
    same(bytes, &data, "the input");
    (filled, *reply.receipt())
}

fn emulated_copy_input_gives_the_client_the_servers_frames(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    let mut buffer = stage.buffer(3);
    let before = own(&stage, &buffer);
    let (filled, receipt) = receive(&stage, 4, &mut buffer);
    assert!(filled.iter().all(|frame| !before.contains(frame)), "the server filled other memory");
    assert_eq!(own(&stage, &buffer), filled, "and that is the client's now");
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(receipt.swapped as usize, stage.len() / stage.granule());
}

fn the_pool_adopts_the_clients_frames(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    let mut buffer = stage.buffer(5);
    let before = own(&stage, &buffer);
    receive(&stage, 6, &mut buffer);
    let (filled, _) = receive(&stage, 7, &mut buffer);
    assert_eq!(filled, before, "the next system buffer is made of the client's former granules");
    assert_eq!(own(&stage, &buffer), before, "which are the client's again");
    drop(buffer);
    stage.channel.assert_idle();
}

fn copied_output_is_copied_once_into_the_servers_pool(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    let buffer = stage.buffer(8);
    let pending = submit(&stage, Out::copy(&buffer));
    let read = seen(&stage, &pending);
    assert!(own(&stage, &buffer).iter().all(|frame| !read.contains(frame)), "the server reads a copy");
    // The client finds the copy at its own address for it: there is no other one.
    let places = stage.holder().places(pending.id());
    if stage.has_one_address(test, &places) {
        let frames = |(addr, len): &(usize, usize)| frames(*addr, *len, stage.granule());
        let here: Option<Vec<_>> = places.iter().map(frames).collect();
        assert_eq!(here.map(|here| here.concat()), Some(read), "client and server see one system buffer");
    }
    let reply = replied(&stage, pending);
    assert_eq!((reply.receipt().copied, reply.receipt().effective), (stage.len(), Scheme::Copy));
}

fn copied_input_is_copied_once(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    let mut buffer = stage.buffer(9);
    let before = own(&stage, &buffer);
    let data = pattern(10, stage.len());
    let request = stage.interface().request(stage.holder().handle(), HOLD);
    let pending = request.input(In::copy(&mut buffer)).submit().expect("a request");
    stage.holder().deliver(pending.id(), &data);
    let reply = pending.sync().expect("a reply");
    assert_eq!((reply.receipt().copied, reply.receipt().swapped), (stage.len(), 0));
    same(&buffer, &data, "the input");
    assert_eq!(own(&stage, &buffer), before, "the client keeps its frames");
}

fn shared_buffers_are_used_in_place_both_ways(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        let buffer = stage.buffer(11);
        let before = own(&stage, &buffer);
        let pending = submit(&stage, Out::owned(scheme, buffer));
        assert_eq!(seen(&stage, &pending), before, "{scheme}: output");
        let buffer = replied(&stage, pending).take_buffer().expect("the buffer comes back");
        let request = stage.interface().request(stage.holder().handle(), HOLD);
        let pending = request.input(In::owned(scheme, buffer)).submit().expect("a request");
        let filled = stage.holder().input_frames(pending.id(), stage.granule());
        assert_eq!(filled.as_deref(), Some(&before[..]), "{scheme}: input");
        stage.holder().deliver(pending.id(), &pattern(12, stage.len()));
        let mut reply = pending.sync().expect("a reply");
        assert_eq!(reply.receipt().copied, 0, "{scheme}");
        let buffer = reply.take_buffer().expect("the buffer comes back");
        same(&buffer, &pattern(12, stage.len()), scheme);
        assert_eq!(own(&stage, &buffer), before, "{scheme}: the frames are the client's still");
    }
}

fn migrant_buffers_come_and_go_in_their_frames(test: &str, kind: GranuleKind) {
    let Some(stage) = stage(test, kind) else { return };
    for scheme in Scheme::ALL.into_iter().skip(4) {
        let is_strong = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
        let mut region = stage.interface().allocate_migrant(stage.len(), is_strong).expect("a region");
        region.copy_from_slice(&pattern(13, stage.len()));
        let before = own(&stage, &region);
        let pending = submit(&stage, Out::migrant(scheme, region));
        assert_eq!(seen(&stage, &pending), before, "{scheme}: output");
        assert_eq!(replied(&stage, pending).receipt().copied, 0, "{scheme}: output");

        let request = stage.interface().request(stage.holder().handle(), HOLD);
        let pending = request.input(In::migrant(scheme, stage.len())).submit().expect("a request");
        let filled = stage.holder().input_frames(pending.id(), stage.granule());
        stage.holder().deliver(pending.id(), &pattern(14, stage.len()));
        let mut reply = pending.sync().expect("a reply");
        let region = reply.take_migrant().expect("a region");
        assert_eq!(Some(own(&stage, &region)), filled, "{scheme}: input");
        assert_eq!((reply.receipt().copied, reply.receipt().effective), (0, scheme), "input");
        same(&region, &pattern(14, stage.len()), scheme);
    }
}

fn overlaid_input_is_copied_into_the_channel(test: &str, kind: GranuleKind) {
    // A server's own buffers hold other clients' data, too; only bytes leave them, and only when the request succeeds.
    let setup = crate::support::setup::Setup {
        buffering: crate::support::setup::Buffering::Pooled,
        ..super::Setup::allowed(kind)
    };
    let peer = super::Peer::own();
    let (limits, thresholds) = (genie_io::Limits::default(), genie_passing::Thresholds::ALWAYS);
    let channel = super::Channel::open_at(&peer, test, setup, Place::Cached, limits, thresholds);
    let Some(stage) = channel.map(|channel| Stage { channel, peer }) else { return };
    let mut buffer = stage.buffer(15);
    if !shows_frames(test, &buffer) {
        return;
    }
    let (filled, receipt) = receive(&stage, 16, &mut buffer);
    let after = own(&stage, &buffer);
    assert!(filled.iter().all(|frame| !after.contains(frame)), "the server's own frames stay its own");
    assert_eq!(receipt.copied, 0, "the client itself copies nothing");
    assert_eq!(receipt.swapped as usize, stage.len() / stage.granule());
}

fn a_device_elsewhere_fills_the_clients_input(test: &str, kind: GranuleKind) {
    let Some(stage) = Stage::open(test, kind, Place::Cached) else { return };
    let data = pattern(17, stage.len());
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::Share] {
        for (said, is_success) in [(data.len(), true), (100, true), (data.len(), false)] {
            let buffer = stage.buffer(18);
            let request = stage.interface().request(stage.holder().handle(), HOLD);
            let pending = request.input(In::owned(scheme, buffer)).submit().expect("a request");
            let link = Command::Outboard { buffer: 0, bytes: data.clone() };
            assert_eq!(stage.holder().command(pending.id(), link), Answer::Done);
            stage.holder().set_actual(pending.id(), said);
            let mut expected = pattern(18, stage.len());
            let buffer = if is_success {
                expected[..said].copy_from_slice(&data[..said]);
                replied(&stage, pending).take_buffer()
            } else {
                stage.holder().fail(pending.id(), "the device failed");
                pending.sync().expect_err("the device failed").take_buffer()
            };
            let buffer = buffer.expect("the buffer comes back");
            same(&buffer, &expected, format_args!("{scheme}, {said} bytes, success: {is_success}"));
        }
    }
    // A device that says more than it has is not believed.
    let mut buffer = stage.buffer(19);
    let request = stage.interface().request(stage.holder().handle(), HOLD);
    let pending = request.input(In::copy(&mut buffer)).submit().expect("a request");
    let link = Command::Outboard { buffer: 0, bytes: vec![7; 100] };
    assert_eq!(stage.holder().command(pending.id(), link), Answer::Done);
    stage.holder().set_actual(pending.id(), 101);
    stage.holder().reply(pending.id());
    pending.sync().expect_err("too much was said");
    same(&buffer, &pattern(19, stage.len()), "the buffer");
}

/// What a receipt says of data that no pool had room for.
#[test]
fn without_room_in_the_pool_the_clients_own_memory_is_lent() {
    let test = "without_room_in_the_pool";
    let Some(stage) = Stage::open(test, GranuleKind::Base, Place::Cached) else { return };
    let len = super::pool(GranuleKind::Base) + stage.granule();
    let bytes = pattern(20, len);
    let pending = submit(&stage, Out::copy(&bytes));
    same(&stage.holder().read(pending.id()), &bytes, "an output longer than the pool");
    let reply = replied(&stage, pending);
    assert_eq!((reply.receipt().copied, reply.receipt().effective), (len, Scheme::Copy));
    assert_ne!(reply.receipt().reason, Some(Reason::Untrusted));
    stage.channel.assert_idle();
}
