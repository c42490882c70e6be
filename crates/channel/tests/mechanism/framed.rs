//! Frames: a server's own buffers that lie in one memory object, wherever their pages have been.
//!
//! Source: thesis table 7.3. Differs: clients' pages do not refill the pool.

use std::sync::Arc;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::assert_idle;
use genie_io::servers::memory::{Memory, SINK, SOURCE};
use genie_io::{In, Out, ServerHandle};
use genie_memory::{Buffer, Inode, Registrar, SharedObject};
use genie_passing::model::Allocation;
use genie_passing::{Layout, Overlay, Overlays, Reason, Receipt, Scheme};

use genie_sys::lock::Mutex;

use super::Fixture;
use super::chains::{Bench, around};
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};
use crate::support::relay::{Manner, Relay};

on_each_kind! {
    frames_are_swapped_until_too_many_are_away,
    a_frame_becomes_a_migrant_buffer_and_comes_home,
    frames_at_odd_places_are_copied,
    parts_of_a_frame_come_home_together,
    a_server_elsewhere_is_never_shown_the_object,
}

/// What frames hold besides their data; the patterns used have other bytes there.
const OTHERS: u8 = 0xee;
/// How far into its frame, and into its first granule, data begins.
const HEADROOM: usize = 100;
/// How many bytes of a frame lie behind it.
const BEHIND: usize = 50;

/// Frames of two granules.
fn pool(fixture: &Fixture, count: usize, away: usize) -> Overlays {
    let stride = 2 * fixture.granule();
    let frames = fixture.interface.space().make_frames(stride, count).expect("memory for the frames");
    Overlays::framed(frames, Layout { headroom: HEADROOM, len: stride - HEADROOM, away })
}

/// A frame of the pool with this data, and nothing of the client's around it.
fn filled(pool: &Overlays, data: &[u8]) -> Overlay {
    let overlay = pool.allocate().expect("a frame");
    let place = overlay.place().expect("a place in the object");
    let [span] = overlay.data().segments()[..] else { panic!("a frame is in pieces") };
    assert_eq!(span.addr(), pool.addresses().expect("an object").start + place);
    assert_eq!(overlay.headroom().fill(OTHERS), HEADROOM);
    overlay.data().fill(OTHERS);
    overlay.data().copy_from(data);
    overlay.part(0..data.len())
}

fn hidden(fixture: &Fixture, buffer: &[u8]) {
    assert!(!around(buffer, fixture.granule()).contains(&OTHERS), "bytes of the frame beside the data");
}

/// Has the data of a frame come into the client's buffer.
fn receive(bench: &Bench<'_>, overlay: Overlay, buffer: &mut Buffer) -> Receipt {
    bench.receive(overlay.into());
    let request = bench.request().input(In::emulated_copy(buffer));
    request.send().expect("a reply").buffers[0].elements[0].receipt
}

fn frames_are_swapped_until_too_many_are_away(fixture: &Fixture) {
    let (bench, len) = (Bench::new(fixture), 2 * fixture.granule() - HEADROOM - BEHIND);
    let pool = pool(fixture, 4, 2);
    let mut clients: Vec<_> =
        (0..3).map(|_| fixture.interface.allocate_at(HEADROOM, len).expect("a buffer")).collect();
    for (round, buffer) in clients.iter_mut().enumerate() {
        let data = pattern(round as u64, len);
        let overlay = filled(&pool, &data);
        let came = bench.frames_of(&overlay);
        let receipt = receive(&bench, overlay, buffer);
        same(buffer, &data, "the data");
        hidden(fixture, buffer);
        if round < 2 {
            assert_eq!((receipt.swapped, receipt.copied, receipt.reason), (2, 0, None), "{receipt}");
            assert_eq!(fixture.frames(buffer), came);
        } else {
            assert_eq!((receipt.swapped, receipt.copied), (0, len), "{receipt}");
            assert_eq!(receipt.reason, Some(Reason::Irreplaceable), "{receipt}");
        }
    }
    assert_eq!(pool.free(), 2, "two are away");
    let all: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
    let mut places: Vec<_> = all.iter().map(|overlay| overlay.place().expect("a place")).collect();
    assert_eq!(places.len(), 2);
    drop(all);
    // The client has the data that came after, in the page that it had before.
    clients.remove(0);
    let mut last = clients.pop().expect("a buffer");
    let data = pattern(9, len);
    let receipt = receive(&bench, filled(&pool, &data), &mut last);
    assert_eq!((receipt.swapped, receipt.copied), (2, 0), "one has come home: {receipt}");
    same(&last, &data, "the data");
    same(&clients[0], &pattern(1, len), "what came before");
    drop((clients, last));
    assert_eq!(pool.free(), 4, "all are home");
    let all: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
    places = all.iter().map(|overlay| overlay.place().expect("a place")).collect();
    places.sort_unstable();
    let stride = 2 * fixture.granule();
    assert_eq!(places, [0, 1, 2, 3].map(|index| index * stride + HEADROOM));
    drop((all, pool));
    assert_idle(&fixture.interface, 0);
}

/// Of move, too, which takes other buffers' granules for good.
fn a_frame_becomes_a_migrant_buffer_and_comes_home(fixture: &Fixture) {
    let (bench, len) = (Bench::new(fixture), 2 * fixture.granule() - HEADROOM - BEHIND);
    let pool = pool(fixture, 1, 1);
    for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.allocation() == Allocation::Migrant) {
        for _ in 0..2 {
            let data = pattern(3, len);
            let overlay = filled(&pool, &data);
            let came = bench.frames_of(&overlay);
            bench.receive(overlay.into());
            let mut reply = bench.request().input(In::migrant(scheme, len)).send().expect("a reply");
            let region = reply.take_migrant().expect("a region");
            same(&region, &data, scheme);
            hidden(fixture, &region);
            let receipt = reply.buffers[0].elements[0].receipt;
            assert_eq!((receipt.swapped, receipt.copied, receipt.reason), (2, 0, None), "{receipt}");
            assert_eq!(fixture.frames(&region), came, "{scheme}");
            assert_eq!(pool.free(), 0, "{scheme}");
            drop(region);
            assert_eq!(pool.free(), 1, "{scheme}: the region was kept for reuse");
        }
    }
    drop(pool);
    assert_idle(&fixture.interface, 0);
}

fn frames_at_odd_places_are_copied(fixture: &Fixture) {
    let (bench, len) = (Bench::new(fixture), fixture.granule() + 13);
    let frames = fixture.interface.space().make_frames(len + 331, 3).expect("memory for the frames");
    let pool = Overlays::framed(frames, Layout { headroom: 207, len, away: 3 });
    let first = filled_all(&pool, OTHERS);
    for scheme in Scheme::ALL {
        let data = pattern(4, len);
        let overlay = pool.allocate().expect("a frame");
        overlay.data().copy_from(&data);
        bench.receive(overlay.into());
        let receipt = bench.take(bench.request(), scheme, &data);
        assert_eq!((receipt.swapped, receipt.copied), (0, len), "{scheme}: {receipt}");
        let reason = if scheme == Scheme::Copy { None } else { Some(Reason::Unaligned) };
        assert_eq!(receipt.reason, reason, "{scheme}");
    }
    assert_eq!(pool.free(), 2);
    assert!(first.data().to_vec().iter().all(|byte| *byte == OTHERS), "a neighbour's bytes");
    drop((first, pool));
    assert_idle(&fixture.interface, 0);
}

/// A frame that holds this byte.
fn filled_all(pool: &Overlays, byte: u8) -> Overlay {
    let overlay = pool.allocate().expect("a frame");
    overlay.data().fill(byte);
    overlay
}

fn parts_of_a_frame_come_home_together(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    let pool = pool(fixture, 1, 1);
    let len = 2 * granule - HEADROOM - BEHIND;
    let data = pattern(5, len);
    let at = granule - HEADROOM;
    let (first, second) = filled(&pool, &data).cut(at);
    assert!(first.headroom().is_empty(), "another part is in use");
    assert_eq!(second.place(), Some(granule));
    let mut buffers = [(HEADROOM, at), (0, len - at)]
        .map(|(offset, len)| fixture.interface.allocate_at(offset, len).expect("a buffer"));
    let [one, other] = &mut buffers;
    let receipt = receive(&bench, first, one);
    assert_eq!((receipt.swapped, receipt.copied), (1, 0), "{receipt}");
    assert_eq!(pool.free(), 0);
    let receipt = receive(&bench, second, other);
    assert_eq!((receipt.swapped, receipt.copied), (1, 0), "no other frame is away: {receipt}");
    same(one, &data[..at], "the first part");
    same(other, &data[at..], "the second part");
    hidden(fixture, one);
    hidden(fixture, other);
    let [one, other] = buffers;
    drop(other);
    assert_eq!(pool.free(), 0, "a part is away");
    drop(one);
    assert_eq!(pool.free(), 1);
    drop(pool);
    assert_idle(&fixture.interface, 0);
}

/// Notes which objects a server in another process is shown.
#[derive(Default)]
struct Shown(Mutex<Vec<Inode>>);

impl Registrar for Shown {
    fn added(&self, _: &SharedObject) {}

    fn shown(&self, object: &SharedObject) {
        self.0.lock().push(object.inode);
    }

    fn removed(&self, _: &SharedObject) {}
}

/// Not when a client passes a frame's memory on, nor when it has that filled, directly or through a contractor.
fn a_server_elsewhere_is_never_shown_the_object(fixture: &Fixture) {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "other", Memory::customized(), ServeOptions::default());
    let running = serving.expect("a name").start().expect("threads");
    let interface = &fixture.interface;
    let options = ConnectOptions::default();
    let direct = interface.connect_with(&directory, "other", &options).expect("a connection");
    let relay = ServerHandle::new(Relay::new(interface.clone(), vec![direct.clone()], Manner::Plain, None));
    let shown = Arc::new(Shown::default());
    let registration = interface.space().register(shown.clone());
    let bench = Bench::new(fixture);
    let (pool, len) = (pool(fixture, 1, 1), 2 * fixture.granule() - HEADROOM - BEHIND);
    let overlay = filled(&pool, &pattern(6, len));
    let backing = overlay.data().backings().next().and_then(|backing| backing.object());
    let (inode, _) = backing.expect("an object");
    let mut buffer = interface.allocate_at(HEADROOM, len).expect("a buffer");
    assert_eq!(receive(&bench, overlay, &mut buffer).swapped, 2);
    for (to, is_direct) in [(&direct, true), (&relay, false)] {
        for scheme in [Scheme::EmulatedCopy, Scheme::EmulatedShare] {
            let out = Out::borrowed(scheme, &buffer);
            let reply = interface.request(to, SINK).out(out).send().expect("a reply");
            let receipt = reply.buffers[0].elements[0].receipt;
            assert!(!is_direct || receipt.reason == Some(Reason::Unshown), "{scheme}: {receipt}");
        }
        // By emulated copy, the frame would go home.
        let input = In::borrowed(Scheme::EmulatedShare, &mut buffer[..]);
        interface.request(to, SOURCE).input(input).argument(&[9]).send().expect("a reply");
        assert!(buffer.iter().all(|byte| *byte == 9));
        assert_eq!(pool.free(), 0, "the client has it all the time");
        let found = shown.0.lock();
        assert!(!found.is_empty() && !found.contains(&inode), "{found:?}");
    }
    drop((buffer, pool, relay, direct, registration, running));
}
