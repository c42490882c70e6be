//! Input by page swapping: the server's frames become the client's.

use genie_conformance::Guard;
use genie_io::servers::memory;
use genie_io::{In, Pending};
use genie_passing::{Reason, Receipt, Scheme, Thresholds};

use super::{Fixture, LEN, changed};
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};
use crate::support::holder::HOLD;

on_each_kind! {
    emulated_copy_input_swaps_frames,
    a_partly_filled_granule_is_completed_and_swapped,
    overlay_buffers_of_the_same_offset_are_swapped,
    overlay_buffers_of_another_offset_are_copied_out,
    thresholds_that_never_avoid_copying_copy_out,
    moved_input_arrives_in_the_servers_frames,
    the_system_gets_the_clients_frames,
}

fn submit<'b>(fixture: &Fixture, bytes: &'b mut [u8]) -> Pending<'b> {
    let request = fixture.interface.request(fixture.holder.handle(), HOLD);
    request.input(In::emulated_copy(bytes)).submit().expect("a request")
}

/// Receives into `bytes`; returns the server's frames and the receipt.
fn receive(fixture: &Fixture, bytes: &mut [u8]) -> (Vec<u64>, Receipt) {
    let data = pattern(99, bytes.len());
    let pending = submit(fixture, bytes);
    let frames =
        fixture.holder.input_frames(pending.id(), fixture.granule()).expect("frames were visible before");
    fixture.holder.deliver(pending.id(), &data);
    let reply = pending.sync().expect("a reply");
    same(bytes, &data, "the data");
    (frames, reply.buffers[0].elements[0].receipt)
}

fn emulated_copy_input_swaps_frames(fixture: &Fixture) {
    let mut buffer = fixture.buffer(1);
    let before = fixture.frames(&buffer);
    let (system, receipt) = receive(fixture, &mut buffer);
    assert!(system.iter().all(|frame| !before.contains(frame)), "the server filled other memory");
    assert_eq!(fixture.frames(&buffer), system, "and that is the client's now");
    assert_eq!((receipt.copied, receipt.effective, receipt.reason), (0, Scheme::EmulatedCopy, None));
    assert_eq!(receipt.swapped as usize, fixture.granules());
}

fn the_system_gets_the_clients_frames(fixture: &Fixture) {
    let mut buffer = fixture.buffer(2);
    let before = fixture.frames(&buffer);
    let (_, _) = receive(fixture, &mut buffer);
    let (system, _) = receive(fixture, &mut buffer);
    assert_eq!(system, before, "the next system buffer is made of the client's former granules");
    assert_eq!(fixture.frames(&buffer), before, "which are the client's again");
}

fn a_partly_filled_granule_is_completed_and_swapped(fixture: &Fixture) {
    let mut buffer = fixture.buffer(3);
    let before = fixture.frames(&buffer);
    let (_, receipt) = receive(fixture, &mut buffer[5..LEN - 7]);
    assert_eq!(changed(&before, &fixture.frames(&buffer)).len(), fixture.granules(), "all are swapped");
    assert_eq!((receipt.copied, receipt.reason), (5 + 7, Some(Reason::Beside)), "the program's own bytes");
    assert_eq!(receipt.swapped as usize, fixture.granules());
    let expected = pattern(3, LEN);
    same(&buffer[..5], &expected[..5], "bytes before the data");
    same(&buffer[LEN - 7..], &expected[LEN - 7..], "bytes after the data");
}

fn overlay_buffers_of_the_same_offset_are_swapped(fixture: &Fixture) {
    let Some(fixture) = Fixture::open(fixture.name, fixture.kind, Guard::Full, Thresholds::ALWAYS) else {
        return;
    };
    let len = 2 * fixture.granule();
    let fixture = fixture.pooled(100, len);
    let preferred = fixture.interface.preferred(fixture.holder.handle(), HOLD, &[]).expect("an answer");
    let preferred = preferred.preferred().expect("a preference");
    assert_eq!((preferred.offset, preferred.len), (100, len));
    let mut buffer = fixture.interface.allocate_at(preferred.offset, preferred.len).expect("a buffer");
    buffer.fill(1);
    let (system, receipt) = receive(&fixture, &mut buffer);
    assert_eq!(fixture.frames(&buffer), system, "the overlay buffer's frames are the client's now");
    assert_eq!(receipt.swapped, 3);
    assert_eq!(receipt.copied, 0, "nobody's bytes lie beside the data, on the first granule and the last");
}

fn overlay_buffers_of_another_offset_are_copied_out(fixture: &Fixture) {
    let Some(fixture) = Fixture::open(fixture.name, fixture.kind, Guard::Full, Thresholds::ALWAYS) else {
        return;
    };
    let len = 2 * fixture.granule();
    let fixture = fixture.pooled(100, len);
    let mut buffer = fixture.interface.allocate(len).expect("a buffer");
    buffer.fill(1);
    let before = fixture.frames(&buffer);
    let (_, receipt) = receive(&fixture, &mut buffer);
    assert_eq!(fixture.frames(&buffer), before);
    assert_eq!((receipt.copied, receipt.swapped), (len, 0));
    assert_eq!((receipt.effective, receipt.reason), (Scheme::Copy, Some(Reason::Unaligned)));
}

fn thresholds_that_never_avoid_copying_copy_out(fixture: &Fixture) {
    let Some(fixture) = Fixture::open(fixture.name, fixture.kind, Guard::Full, Thresholds::NEVER) else {
        return;
    };
    let mut buffer = fixture.buffer(4);
    let before = fixture.frames(&buffer);
    let (_, receipt) = receive(&fixture, &mut buffer);
    assert_eq!(fixture.frames(&buffer), before);
    assert_eq!((receipt.copied, receipt.swapped), (LEN, 0));
    assert_eq!((receipt.asked, receipt.effective), (Scheme::EmulatedCopy, Scheme::Copy));
    assert_eq!(receipt.reason, Some(Reason::Short));
}

fn moved_input_arrives_in_the_servers_frames(fixture: &Fixture) {
    for scheme in Scheme::ALL.into_iter().skip(4) {
        let request = fixture.interface.request(fixture.holder.handle(), HOLD);
        let pending = request.input(In::migrant(scheme, LEN)).submit().expect("a request");
        let system = fixture.holder.input_frames(pending.id(), fixture.granule());
        fixture.holder.deliver(pending.id(), &pattern(5, LEN));
        let mut reply = pending.sync().expect("a reply");
        let region = reply.take_migrant().expect("a region");
        assert_eq!(Some(fixture.frames(&region)), system, "{scheme}");
        assert_eq!((reply.receipt().copied, reply.buffers[0].elements[0].receipt.effective), (0, scheme));
    }
    // The memory server leaves what lies in a cached region where it lies.
    let request = fixture.interface.request(&fixture.memory, memory::NULL);
    let mut reply = request.input(In::emulated_weak_move(LEN)).send().expect("a reply");
    assert_eq!(reply.take_migrant().map(|region| region.len()), Some(LEN));
}
