//! Page frames over channels: the server reads where the client's data was, and writes where it will be.

use genie_io::{In, Out, Pending, Reply};
use genie_memory::GranuleKind;
use genie_passing::{Reason, Receipt, Scheme};

use super::{Fixture, shows_frames};
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{Answer, Command, HOLD};
use crate::support::machine::frames;
use crate::support::transport::Place;

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

/// A fixture in which page frames are shown.
fn fixture(test: &str, kind: GranuleKind) -> Option<Fixture> {
    let fixture = Fixture::open(test, kind, Place::Cached)?;
    let buffer = fixture.buffer(0);
    shows_frames(test, &buffer).then_some(())?;
    drop(buffer);
    Some(fixture)
}

/// The frames of this process's memory.
fn own(fixture: &Fixture, bytes: &[u8]) -> Vec<u64> {
    frames(bytes.as_ptr().addr(), bytes.len(), fixture.granule()).expect("frames were shown before")
}

fn submit(fixture: &Fixture, out: Out<'_>) -> Pending<'static> {
    fixture.interface().request(fixture.holder().handle(), HOLD).out(out).submit().expect("a request")
}

/// The frames of the server's memory.
fn seen(fixture: &Fixture, pending: &Pending<'_>) -> Vec<u64> {
    fixture.holder().frames(pending.id(), fixture.granule()).expect("frames were shown before")
}

fn replied(fixture: &Fixture, pending: Pending<'_>) -> Reply {
    fixture.holder().reply(pending.id());
    pending.sync().expect("a reply")
}

fn emulated_copy_output_is_read_in_the_clients_frames(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    let buffer = fixture.buffer(1);
    let before = own(&fixture, &buffer);
    let pending = submit(&fixture, Out::emulated_copy(&buffer));
    assert_eq!(seen(&fixture, &pending), before, "the server reads where the client stored");
    let reply = replied(&fixture, pending);
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(own(&fixture, &buffer), before, "the client keeps its frames");
}

fn a_store_meanwhile_moves_the_client_and_not_the_server(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    let mut buffer = fixture.buffer(2);
    let before = own(&fixture, &buffer);
    let pending = submit(&fixture, Out::emulated_copy(&buffer));
    assert_eq!(seen(&fixture, &pending), before);
    buffer[fixture.granule() + 5] ^= 1;
    let after = own(&fixture, &buffer);
    let moved: Vec<usize> = (0..before.len()).filter(|index| before[*index] != after[*index]).collect();
    assert_eq!(moved, [1], "the granule stored into is the client's alone");
    assert_eq!(seen(&fixture, &pending), before, "the server keeps the old one");
    same(&fixture.holder().read(pending.id()), &pattern(2, fixture.len()), "the output");
    assert_eq!(replied(&fixture, pending).receipt().faults, 1);
}

/// Receives into `bytes` by emulated copy; returns the server's frames and the receipt.
fn receive(fixture: &Fixture, seed: u64, bytes: &mut [u8]) -> (Vec<u64>, Receipt) {
    let data = pattern(seed, bytes.len());
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.input(In::emulated_copy(bytes)).submit().expect("a request");
    let filled =
        fixture.holder().input_frames(pending.id(), fixture.granule()).expect("frames were shown before");
    fixture.holder().deliver(pending.id(), &data);
    let reply = pending.sync().expect("a reply");
    same(bytes, &data, "the input");
    (filled, reply.buffers[0].elements[0].receipt)
}

fn emulated_copy_input_gives_the_client_the_servers_frames(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    let mut buffer = fixture.buffer(3);
    let before = own(&fixture, &buffer);
    let (filled, receipt) = receive(&fixture, 4, &mut buffer);
    assert!(filled.iter().all(|frame| !before.contains(frame)), "the server filled other memory");
    assert_eq!(own(&fixture, &buffer), filled, "and that is the client's now");
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(receipt.swapped as usize, fixture.len() / fixture.granule());
}

fn the_pool_adopts_the_clients_frames(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    let mut buffer = fixture.buffer(5);
    let before = own(&fixture, &buffer);
    receive(&fixture, 6, &mut buffer);
    let (filled, _) = receive(&fixture, 7, &mut buffer);
    assert_eq!(filled, before, "the next system buffer is made of the client's former granules");
    assert_eq!(own(&fixture, &buffer), before, "which are the client's again");
    drop(buffer);
    fixture.channel.assert_idle();
}

fn copied_output_is_copied_once_into_the_servers_pool(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    let buffer = fixture.buffer(8);
    let pending = submit(&fixture, Out::copy(&buffer));
    let read = seen(&fixture, &pending);
    assert!(own(&fixture, &buffer).iter().all(|frame| !read.contains(frame)), "the server reads a copy");
    // The client finds the copy at its own address for it: there is no other one.
    let places = fixture.holder().places(pending.id());
    if fixture.has_one_address(test, &places) {
        let frames = |(addr, len): &(usize, usize)| frames(*addr, *len, fixture.granule());
        let here: Option<Vec<_>> = places.iter().map(frames).collect();
        assert_eq!(here.map(|here| here.concat()), Some(read), "client and server see one system buffer");
    }
    let reply = replied(&fixture, pending);
    assert_eq!(
        (reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective),
        (fixture.len(), Scheme::Copy)
    );
}

fn copied_input_is_copied_once(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    let mut buffer = fixture.buffer(9);
    let before = own(&fixture, &buffer);
    let data = pattern(10, fixture.len());
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.input(In::copy(&mut buffer)).submit().expect("a request");
    fixture.holder().deliver(pending.id(), &data);
    let reply = pending.sync().expect("a reply");
    assert_eq!((reply.receipt().copied, reply.receipt().swapped), (fixture.len(), 0));
    same(&buffer, &data, "the input");
    assert_eq!(own(&fixture, &buffer), before, "the client keeps its frames");
}

fn shared_buffers_are_used_in_place_both_ways(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        let buffer = fixture.buffer(11);
        let before = own(&fixture, &buffer);
        let pending = submit(&fixture, Out::owned(scheme, buffer));
        assert_eq!(seen(&fixture, &pending), before, "{scheme}: output");
        let buffer = replied(&fixture, pending).take_buffer().expect("the buffer comes back");
        let request = fixture.interface().request(fixture.holder().handle(), HOLD);
        let pending = request.input(In::owned(scheme, buffer)).submit().expect("a request");
        let filled = fixture.holder().input_frames(pending.id(), fixture.granule());
        assert_eq!(filled.as_deref(), Some(&before[..]), "{scheme}: input");
        fixture.holder().deliver(pending.id(), &pattern(12, fixture.len()));
        let mut reply = pending.sync().expect("a reply");
        assert_eq!(reply.receipt().copied, 0, "{scheme}");
        let buffer = reply.take_buffer().expect("the buffer comes back");
        same(&buffer, &pattern(12, fixture.len()), scheme);
        assert_eq!(own(&fixture, &buffer), before, "{scheme}: the frames are the client's still");
    }
}

fn migrant_buffers_come_and_go_in_their_frames(test: &str, kind: GranuleKind) {
    let Some(fixture) = fixture(test, kind) else { return };
    for scheme in Scheme::ALL.into_iter().skip(4) {
        let is_strong = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
        let mut region = fixture.interface().allocate_migrant(fixture.len(), is_strong).expect("a region");
        region.copy_from_slice(&pattern(13, fixture.len()));
        let before = own(&fixture, &region);
        let pending = submit(&fixture, Out::migrant(scheme, region));
        assert_eq!(seen(&fixture, &pending), before, "{scheme}: output");
        assert_eq!(replied(&fixture, pending).receipt().copied, 0, "{scheme}: output");

        let request = fixture.interface().request(fixture.holder().handle(), HOLD);
        let pending = request.input(In::migrant(scheme, fixture.len())).submit().expect("a request");
        let filled = fixture.holder().input_frames(pending.id(), fixture.granule());
        fixture.holder().deliver(pending.id(), &pattern(14, fixture.len()));
        let mut reply = pending.sync().expect("a reply");
        let region = reply.take_migrant().expect("a region");
        assert_eq!(Some(own(&fixture, &region)), filled, "{scheme}: input");
        assert_eq!(
            (reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective),
            (0, scheme),
            "input"
        );
        same(&region, &pattern(14, fixture.len()), scheme);
    }
}

fn overlaid_input_is_copied_into_the_channel(test: &str, kind: GranuleKind) {
    // A server's own buffers hold other clients' data, too; only bytes leave them, and only when the request succeeds.
    let setup = genie_conformance::Setup {
        buffering: genie_conformance::Buffering::Pooled,
        ..super::Setup::allowed(kind)
    };
    let peer = super::Peer::own();
    let (limits, thresholds) = (genie_io::Limits::default(), genie_passing::Thresholds::ALWAYS);
    let channel = super::open_at(&peer, test, setup, Place::Cached, limits, thresholds);
    let Some(fixture) = channel.map(|channel| Fixture { channel, peer }) else { return };
    let mut buffer = fixture.buffer(15);
    if !shows_frames(test, &buffer) {
        return;
    }
    let (filled, receipt) = receive(&fixture, 16, &mut buffer);
    let after = own(&fixture, &buffer);
    assert!(filled.iter().all(|frame| !after.contains(frame)), "the server's own frames stay its own");
    assert_eq!(receipt.copied, 0, "the client itself copies nothing");
    assert_eq!(receipt.swapped as usize, fixture.len() / fixture.granule());
}

fn a_device_elsewhere_fills_the_clients_input(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let data = pattern(17, fixture.len());
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::Share] {
        for (said, is_success) in [(data.len(), true), (100, true), (data.len(), false)] {
            let buffer = fixture.buffer(18);
            let request = fixture.interface().request(fixture.holder().handle(), HOLD);
            let pending = request.input(In::owned(scheme, buffer)).submit().expect("a request");
            let link = Command::Outboard { buffer: 0, bytes: data.clone() };
            assert_eq!(fixture.holder().command(pending.id(), link), Answer::Done);
            fixture.holder().set_actual(pending.id(), said);
            let mut expected = pattern(18, fixture.len());
            let buffer = if is_success {
                expected[..said].copy_from_slice(&data[..said]);
                replied(&fixture, pending).take_buffer()
            } else {
                fixture.holder().fail(pending.id(), "the device failed");
                pending.sync().expect_err("the device failed").take_buffer()
            };
            let buffer = buffer.expect("the buffer comes back");
            same(&buffer, &expected, format_args!("{scheme}, {said} bytes, success: {is_success}"));
        }
    }
    // A device that says more than it has is not believed.
    let mut buffer = fixture.buffer(19);
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.input(In::copy(&mut buffer)).submit().expect("a request");
    let link = Command::Outboard { buffer: 0, bytes: vec![7; 100] };
    assert_eq!(fixture.holder().command(pending.id(), link), Answer::Done);
    fixture.holder().set_actual(pending.id(), 101);
    fixture.holder().reply(pending.id());
    pending.sync().expect_err("too much was said");
    same(&buffer, &pattern(19, fixture.len()), "the buffer");
}

/// What a receipt says of data that no pool had room for.
#[test]
fn without_room_in_the_pool_the_client_adds_memory_to_it() {
    let test = "without_room_in_the_pool";
    let Some(fixture) = Fixture::open(test, GranuleKind::Base, Place::Cached) else { return };
    let len = super::pool(GranuleKind::Base) + fixture.granule();
    let bytes = pattern(20, len);
    let pending = submit(&fixture, Out::copy(&bytes));
    same(&fixture.holder().read(pending.id()), &bytes, "an output longer than the pool");
    let reply = replied(&fixture, pending);
    assert_eq!((reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective), (len, Scheme::Copy));
    assert_ne!(reply.buffers[0].elements[0].receipt.reason, Some(Reason::Untrusted));
    fixture.channel.assert_idle();
}
