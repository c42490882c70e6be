//! Chains: data that a server has in several buffers of its own reaches the client as one element.
//!
//! Source: thesis §6.1, figure 6.1; table 7.3.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use genie_conformance::{Guard, assert_idle};
use genie_io::{
    In, Incoming, Interface, Request, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::GranuleKind;
use genie_passing::model::Allocation;
use genie_passing::{Chain, Layout, Overlay, Overlays, Reason, Receipt, Scheme, Thresholds};
use genie_sys::lock::Mutex;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Fixture;
use crate::on_each_kind;
use crate::support::bytes::{self, same};
use crate::support::machine::proc::pages_moved;
use crate::support::machine::{frames, raw};
use crate::support::relay::{Manner, Relay};

on_each_kind! {
    packets_fill_a_buffer_as_figure_6_1_shows,
    a_part_at_another_offset_is_copied_and_the_receipt_says_so,
    parts_become_a_migrant_buffer_whatever_rights_the_client_has,
    a_chain_goes_up_through_contractors,
    random_chains_deliver_what_copying_would,
}

/// What packets hold besides their data.
const OTHERS: u8 = 0xee;

/// Bytes that are none of those.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = bytes::pattern(seed, len);
    bytes.iter_mut().filter(|byte| **byte == OTHERS).for_each(|byte| *byte = 0);
    bytes
}

/// The server's only service: it fills input 0 with the packets that the test has made ready.
const RECEIVE: ServiceId = ServiceId(0);

/// A packet: its data is in this part of a buffer of the pool.
#[derive(Clone)]
struct Packet {
    pool: Overlays,
    part: Range<usize>,
}

/// A server that has received the data of its requests before it is asked.
struct Receiver(Arc<Mutex<VecDeque<Chain>>>);

static SERVICES: [Service; 1] = [Service::new("receive", true, true)];

impl Server for Receiver {
    fn name(&self) -> &str {
        "receiver"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let chain = self.0.lock().pop_front().expect("data for a request");
        let actual = chain.len();
        let supplied = request.overlay(0, 0, chain).and_then(|()| request.set_actual(0, actual));
        request.reply(supplied.map_err(ServerError::from));
    }

    fn abort(&self, _request: RequestId) {}
}

/// A client and the server that has its data.
pub(super) struct Bench<'f> {
    pub(super) fixture: &'f Fixture,
    received: Arc<Mutex<VecDeque<Chain>>>,
    server: ServerHandle,
    /// The page frames of each packet's data.
    frames: RefCell<Vec<Vec<u64>>>,
}

impl<'f> Bench<'f> {
    pub(super) fn new(fixture: &'f Fixture) -> Self {
        let received = Arc::default();
        let server = ServerHandle::new(Receiver(Arc::clone(&received)));
        Self { fixture, server, received, frames: RefCell::default() }
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.fixture.interface
    }

    pub(super) fn pool(&self, offset: usize, len: usize, count: usize) -> Overlays {
        Overlays::reserve(self.interface().space(), offset, len, count).expect("memory for the pool")
    }

    /// The page frames of an overlay buffer's data.
    pub(super) fn frames_of(&self, overlay: &Overlay) -> Vec<u64> {
        let (data, granule) = (overlay.data(), self.fixture.granule());
        let pieces = data.segments().iter().map(|span| frames(span.addr(), span.len(), granule));
        pieces.collect::<Option<Vec<_>>>().expect("frames were visible before").concat()
    }

    /// Has data come.
    pub(super) fn receive(&self, chain: Chain) {
        self.received.lock().push_back(chain);
    }

    /// Asks for the data that came first.
    pub(super) fn request<'o, 'i>(&self) -> Request<'_, 'o, 'i> {
        self.interface().request(&self.server, RECEIVE)
    }

    /// Makes the request with an input by this scheme, which has to bring the data.
    pub(super) fn take(&self, request: Request<'_, '_, '_>, scheme: Scheme, data: &[u8]) -> Receipt {
        let request = match scheme.allocation() {
            Allocation::Native => {
                let buffer = self.interface().allocate(data.len()).expect("a buffer");
                request.input(In::owned(scheme, buffer))
            }
            Allocation::Migrant => request.input(In::migrant(scheme, data.len())),
        };
        let mut reply = request.send().expect("a reply");
        match scheme.allocation() {
            Allocation::Native => same(&reply.take_buffer().expect("the buffer"), data, scheme),
            Allocation::Migrant => same(&reply.take_migrant().expect("a region"), data, scheme),
        }
        reply.buffers[0].elements[0].receipt
    }

    /// Has packets with this data come, and asks for them.
    fn request_of<'o, 'i>(&self, packets: &[Packet], data: &[u8]) -> Request<'_, 'o, 'i> {
        let (mut frames, mut at) = (Vec::new(), 0);
        let filled = |Packet { pool, part }: &Packet| {
            let overlay = pool.allocate().expect("a buffer of the pool");
            overlay.data().fill(OTHERS);
            let overlay = overlay.part(part.clone());
            at += overlay.data().copy_from(&data[at..]);
            frames.push(self.frames_of(&overlay));
            overlay
        };
        self.receive(packets.iter().map(filled).collect());
        self.frames.replace(frames);
        self.request()
    }

    /// The page frames of the packets that came last.
    fn frames(&self) -> Vec<Vec<u64>> {
        self.frames.borrow().clone()
    }

    /// Verifies that the client finds nothing of the packets' other bytes in the granules of its `bytes`, around them.
    fn assert_hidden(&self, bytes: &[u8]) {
        let granule = self.fixture.granule();
        let shown = around(bytes, granule);
        assert!(!shown.contains(&OTHERS), "bytes of the server's beside the client's");
    }
}

/// What lies in the granules of `bytes` around them.
pub(super) fn around(bytes: &[u8], granule: usize) -> Vec<u8> {
    let (start, end) = (bytes.as_ptr().addr(), bytes.as_ptr().addr() + bytes.len());
    let around = [start / granule * granule..start, end..end.next_multiple_of(granule)];
    around.map(|range| raw(range.start, range.len())).concat()
}

/// Packets whose data lies in their buffers as it is to lie in a client's buffer that begins `offset` bytes into a granule.
fn aligned(pool: &Overlays, granule: usize, offset: usize, lens: &[usize]) -> Vec<Packet> {
    let mut at = offset;
    let packet = |len: &usize| {
        let from = at % granule;
        at += len;
        Packet { pool: pool.clone(), part: from..from + len }
    };
    lens.iter().map(packet).collect()
}

/// Five granules in packets of two, behind headers that go to the server alone: three segments hold each packet's two granules.
/// What the third segment has is copied, into the granule that the next packet brings.
fn packets_fill_a_buffer_as_figure_6_1_shows(fixture: &Fixture) {
    let (bench, granule, header) = (Bench::new(fixture), fixture.granule(), 100);
    let pool = bench.pool(0, header + 2 * granule, 3);
    let packet = |granules: usize| Packet { pool: pool.clone(), part: header..header + granules * granule };
    let packets = [packet(2), packet(2), packet(1)];
    let data = pattern(1, 5 * granule);
    let mut buffer = fixture.interface.allocate_at(header, data.len()).expect("a buffer");
    buffer.fill(1);
    let before = fixture.frames(&buffer);
    let request = bench.request_of(&packets, &data).input(In::emulated_copy(&mut buffer));
    let receipt = request.send().expect("a reply").buffers[0].elements[0].receipt;
    same(&buffer, &data, "the data");
    let came = bench.frames();
    let expected = [&came[0][..2], &came[1][..2], &came[2][..2]].concat();
    assert_eq!(fixture.frames(&buffer), expected, "the packets' frames are the client's now");
    assert_eq!((receipt.swapped, receipt.copied), (6, 2 * header), "{receipt}");
    assert_eq!(receipt.zeroed, granule, "what lies before the buffer and behind it: {receipt}");
    assert_eq!((receipt.effective, receipt.reason), (Scheme::EmulatedCopy, Some(Reason::Edges)));
    bench.assert_hidden(&buffer);
    // The pool has got as many granules as it gave: those that were the client's.
    let request = bench.request_of(&packets, &data).input(In::emulated_copy(&mut buffer));
    request.send().expect("a reply");
    let pooled = bench.frames().concat();
    assert!(before.iter().all(|frame| pooled.contains(frame)), "the client's frames are the pool's");
    assert_eq!(pool.free(), 3);
    drop((pool, packets, buffer));
    assert_idle(&fixture.interface, 0);
}

fn a_part_at_another_offset_is_copied_and_the_receipt_says_so(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    let pool = bench.pool(0, 2 * granule + 13, 2);
    let packets = [0..2 * granule, 13..granule + 13].map(|part| Packet { pool: pool.clone(), part });
    let data = pattern(2, 3 * granule);
    for scheme in [Scheme::EmulatedCopy, Scheme::EmulatedShare, Scheme::EmulatedMove] {
        let request = bench.request_of(&packets, &data);
        let Receipt { swapped, copied, effective, reason, .. } = bench.take(request, scheme, &data);
        assert_eq!((swapped, copied, effective), (2, granule, scheme), "{scheme}");
        assert_eq!(reason, Some(Reason::Unaligned), "{scheme}");
    }
    drop((pool, packets));
    assert_idle(&fixture.interface, 0);
}

/// All granules become the client's, but the one that two parts share has one part's data copied to it.
fn parts_become_a_migrant_buffer_whatever_rights_the_client_has(fixture: &Fixture) {
    for guard in [Guard::Full, Guard::Never] {
        let Some(fixture) = Fixture::open(fixture.name, fixture.kind, guard, Thresholds::ALWAYS) else {
            return;
        };
        let (bench, granule) = (Bench::new(&fixture), fixture.granule());
        let pool = bench.pool(0, 3 * granule, 2);
        let (offset, first, second) = (77, 2 * granule - 500, granule + 900);
        let packets = aligned(&pool, granule, offset, &[first, second]);
        let data = pattern(3, first + second);
        // By each scheme twice: the second time, the region that the first one left is found again.
        for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.allocation() == Allocation::Migrant) {
            for _ in 0..2 {
                let request = bench.request_of(&packets, &data).input(In::migrant(scheme, data.len()));
                let mut reply = request.send().expect("a reply");
                let region = reply.take_migrant().expect("a region");
                same(&region, &data, scheme);
                assert_eq!(region.as_ptr().addr() % granule, offset, "{scheme}");
                bench.assert_hidden(&region);
                let receipt = reply.buffers[0].elements[0].receipt;
                let came = bench.frames();
                assert_eq!(fixture.frames(&region), [&came[0][..2], &came[1][1..]].concat(), "{scheme}");
                assert_eq!((receipt.swapped, receipt.effective), (4, scheme), "{receipt}");
                let is_mapped = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
                assert_eq!(receipt.mapped, if is_mapped { 4 } else { 0 }, "{receipt}");
                // The second part has 423 bytes of the second granule.
                assert_eq!(receipt.copied, 423, "{receipt}");
            }
        }
        fixture.interface.space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// A subcontractor's chain is the client's data as if the client had asked that server.
fn a_chain_goes_up_through_contractors(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    let pool = bench.pool(0, 2 * granule, 3);
    let packets = aligned(&pool, granule, 0, &[granule + 60, granule, granule - 60]);
    let data = pattern(4, 3 * granule);
    let relay = |to: &ServerHandle| {
        ServerHandle::new(Relay::new(bench.interface().clone(), vec![to.clone()], Manner::Plain, None))
    };
    let above = relay(&relay(&bench.server));
    let mut buffer = fixture.buffer(5);
    let rest = bytes::pattern(5, buffer.len());
    // The request that the test makes is the relay's; the receiver's has been made ready for it.
    drop(bench.request_of(&packets, &data));
    let request = bench.interface().request(&above, RECEIVE);
    let request = request.input(In::emulated_copy(&mut buffer[..data.len()])).room(8);
    let receipt = request.send().expect("a reply").buffers[0].elements[0].receipt;
    same(&buffer[..data.len()], &data, "the data");
    same(&buffer[data.len()..], &rest[data.len()..], "the client's own");
    let came = bench.frames();
    assert_eq!(fixture.frames(&buffer[..data.len()]), [came[0][0], came[1][0], came[2][0]]);
    assert_eq!((receipt.swapped, receipt.copied), (3, 60 + 60), "{receipt}");
    assert_eq!(pool.free(), 3);
    drop((pool, packets, buffer));
    assert_idle(&fixture.interface, 0);
}

/// One input by a chain. Numbers are fractions of a granule, in 65,536ths, unless they are short lengths.
#[derive(Debug, Clone)]
struct Case {
    scheme: Scheme,
    offset: u16,
    /// The client's own bytes before and behind the data.
    beside: (u16, u16),
    parts: Vec<Piece>,
    seed: u64,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// In halves of a granule, or bytes if it is short.
    len: (bool, u16),
    /// Whether it lies in its buffer as it is to lie in the client's; else how far from the buffer's beginning.
    aligned: bool,
    from: u16,
}

fn case() -> impl Strategy<Value = Case> {
    let some = || prop_oneof![Just(0), any::<u16>()];
    let len = (prop::bool::weighted(0.3), any::<u16>());
    let piece = (len, prop::bool::weighted(0.7), some());
    let piece = piece.prop_map(|(len, aligned, from)| Piece { len, aligned, from });
    let scheme = prop::sample::select(Scheme::ALL.to_vec());
    let parts = prop::collection::vec(piece, 1..=4);
    (scheme, some(), (some(), some()), parts, any::<u64>())
        .prop_map(|(scheme, offset, beside, parts, seed)| Case { scheme, offset, beside, parts, seed })
}

/// How far into a granule the buffers of the two pools begin.
const OFFSETS: [usize; 2] = [0, 1235];

/// What one part is in its buffer and in the client's: (pool, from, at, length).
type Laid = (usize, usize, usize, usize);

impl Case {
    /// The parts of data that begins `offset` bytes into a granule.
    fn laid(&self, granule: usize, offset: usize) -> Vec<Laid> {
        let mut at = 0;
        let lay = |(index, piece): (usize, &Piece)| {
            let pool = index % 2;
            let len = match piece.len {
                (true, short) => 1 + usize::from(short) % 200,
                (false, long) => 1 + usize::from(long) * (3 * granule / 2) / 65_536,
            };
            let from = match piece.aligned {
                true => (offset + at + granule - OFFSETS[pool]) % granule,
                false => usize::from(piece.from) * granule / 65_536,
            };
            let laid = (pool, from, at, len);
            at += len;
            laid
        };
        self.parts.iter().enumerate().map(lay).collect()
    }
}

/// Of each of the client's granules, counted from the first: the part that is to be swapped there, if any, and how much data of
/// other parts is to be copied there.
fn expected(laid: &[Laid], granule: usize, offset: usize) -> Vec<(Option<usize>, usize)> {
    let end = laid.last().map_or(0, |(_, _, at, len)| offset + at + len);
    let in_granule = |number: usize, (_, _, at, len): &Laid| {
        let (start, end) = (offset + at, offset + at + len);
        end.min((number + 1) * granule).saturating_sub(start.max(number * granule))
    };
    let of = |number: usize| {
        let fits = |(pool, from, at, _): &Laid| (OFFSETS[*pool] + from) % granule == (offset + at) % granule;
        let here = |index: usize| in_granule(number, &laid[index]);
        let all: usize = (0..laid.len()).map(here).sum();
        let swapped = (0..laid.len()).filter(|index| fits(&laid[*index]) && here(*index) > 0);
        // The first one where several have as much.
        let most = swapped.rev().max_by_key(|index| here(*index));
        (most, all - most.map_or(0, here))
    };
    (0..end.div_ceil(granule)).map(of).collect()
}

fn random_chains_deliver_what_copying_would(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    // The second pool is one of frames.
    let frames = bench.interface().space().make_frames(3 * granule, 2).expect("memory for the frames");
    let layout = Layout { headroom: OFFSETS[1], len: 3 * granule - OFFSETS[1], away: 2 };
    let pools = [bench.pool(OFFSETS[0], 3 * granule, 2), Overlays::framed(frames, layout)];
    let cases = if fixture.kind == GranuleKind::Base { 96 } else { 24 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let (swapped, copied) = (Cell::new(0), Cell::new(0));
    let run = |case: Case| {
        let receipt = run(&bench, &pools, &case);
        swapped.set(swapped.get() + receipt.swapped);
        copied.set(copied.get() + receipt.copied);
        Ok(())
    };
    TestRunner::new(config).run(&case(), run).unwrap_or_else(|failed| panic!("{failed}"));
    assert!(swapped.get() > 0 && copied.get() > 0, "nothing was tried");
    drop(pools);
    assert_idle(&fixture.interface, 0);
}

fn run(bench: &Bench<'_>, pools: &[Overlays; 2], case: &Case) -> Receipt {
    let (granule, scheme) = (bench.fixture.granule(), case.scheme);
    let scaled = |share: u16| usize::from(share) * granule / 65_536;
    let (before, behind) = (scaled(case.beside.0), scaled(case.beside.1));
    let is_native = scheme.allocation() == Allocation::Native;
    let start = scaled(case.offset);
    // A migrant buffer is laid out by the longest part, the last one of several.
    let laid = case.laid(granule, if is_native { start + before } else { start });
    let packets: Vec<_> = laid
        .iter()
        .map(|(pool, from, _, len)| Packet { pool: pools[*pool].clone(), part: *from..from + len })
        .collect();
    let len = laid.iter().map(|(_, _, _, len)| len).sum();
    let data = pattern(case.seed, len);
    let request = bench.request_of(&packets, &data);
    let (receipt, offset, kept) = if is_native {
        let mut buffer = bench.interface().allocate_at(start, before + len + behind).expect("a buffer");
        let own = pattern(case.seed.wrapping_add(1), buffer.len());
        buffer.copy_from_slice(&own);
        let (moved, first) = (pages_moved(), bench.fixture.frames(&buffer));
        let mut reply =
            request.input(In::owned(scheme, buffer).part(before..before + len)).send().expect("a reply");
        let buffer = reply.take_buffer().expect("the buffer");
        same(&buffer[before..before + len], &data, format!("{case:?}"));
        same(&buffer[..before], &own[..before], format!("before the data, {case:?}"));
        same(&buffer[before + len..], &own[before + len..], format!("behind the data, {case:?}"));
        bench.assert_hidden(&buffer);
        let offset = (start + before) % granule;
        let skipped = (start + before) / granule;
        let after = bench.fixture.frames(&buffer);
        let untouched = |number: &usize| first[*number] == after[*number];
        let plan = expected(&laid, granule, offset);
        let is_copied = scheme == Scheme::Copy;
        for (number, (most, _)) in plan.iter().enumerate() {
            let number = skipped + number;
            // The kernel moves pages, too.
            if pages_moved() == moved {
                assert_eq!(untouched(&number), is_copied || most.is_none(), "granule {number}, {case:?}");
            }
        }
        // The client's own bytes on the first granule and on the last are saved if these are swapped.
        let end = start + before + len;
        let (head, tail) = ((start + before) % granule, end.next_multiple_of(granule) - end);
        let head = if plan[0].0.is_some() { head.min(before) } else { 0 };
        let tail = if plan[plan.len() - 1].0.is_some() { tail.min(behind) } else { 0 };
        (reply.buffers[0].elements[0].receipt, offset, head + tail)
    } else {
        let mut reply = request.input(In::migrant(scheme, len)).send().expect("a reply");
        let region = reply.take_migrant().expect("a region");
        same(&region, &data, format!("{case:?}"));
        bench.assert_hidden(&region);
        (reply.buffers[0].elements[0].receipt, region.as_ptr().addr() % granule, 0)
    };
    bench.interface().space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(pools.iter().all(|pool| pool.free() == 2), "all buffers are back: {case:?}");
    let plan = expected(&laid, granule, offset);
    let (swapped, copied) = match (scheme, &laid[..]) {
        (Scheme::Copy, _) => (0, len),
        // Its granules become a new region, and others take their places.
        (Scheme::Move, [(_, 0, ..)]) => (0, 0),
        _ => {
            let swapped = plan.iter().filter(|(most, _)| most.is_some()).count();
            (swapped, plan.iter().map(|(_, copied)| copied).sum::<usize>() + kept)
        }
    };
    assert_eq!((receipt.swapped as usize, receipt.copied), (swapped, copied), "{receipt}, {case:?}");
    if scheme == Scheme::Move {
        assert_eq!(receipt.mapped as usize, plan.len(), "{receipt}, {case:?}");
    }
    receipt
}
