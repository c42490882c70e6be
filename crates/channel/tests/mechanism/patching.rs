//! Header patching: data behind headers of any length is swapped to the beginning of a page, from a server with pooled buffers.
//!
//! Source: thesis §6.3, figure 6.4.

use std::cell::Cell;
use std::collections::VecDeque;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::assert_idle;
use genie_io::{
    Incoming, Interface, Reply, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::GranuleKind;
use genie_passing::{Overlays, Scheme};
use genie_series::HeaderPatching;
use genie_sys::lock::Mutex;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Fixture;
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};
use crate::support::machine::frames;

on_each_kind! {
    pages_behind_headers_of_any_length_are_swapped_in,
    random_messages_arrive_as_by_copying,
    messages_of_a_network_elsewhere_are_patched_alike,
}

/// The lengths of the headers that networks leave in front of messages.
const OFFSETS: [usize; 4] = [0, 8, 42, 100];
const HEADER: usize = 200;

const SEND: ServiceId = ServiceId(0);
const RECEIVE: ServiceId = ServiceId(1);

static SERVICES: [Service; 2] = [Service::new("send", true, false), Service::new("receive", false, true)];

/// A network: each message comes to the next buffer of one pool, behind the beginning of a granule.
struct Network {
    pool: Overlays,
    messages: Mutex<VecDeque<Vec<u8>>>,
}

impl Network {
    fn send(&self, request: &Incoming) -> Result<(), ServerError> {
        self.messages.lock().push_back(request.output(0)?.to_vec());
        Ok(())
    }

    fn receive(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let message = self.messages.lock().pop_front().expect("a message");
        let packet = self.pool.allocate().expect("a buffer of the pool").part(0..message.len());
        packet.data().copy_from(&message);
        let mut rest = packet;
        for element in 0..request.elements(0) {
            let len = request.element_len(0, element).min(rest.len());
            let (mine, others) = rest.cut(len);
            request.overlay(0, element, mine)?;
            rest = others;
        }
        Ok(request.set_actual(0, message.len())?)
    }
}

impl Server for Network {
    fn name(&self) -> &str {
        "network"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = if request.service() == SEND { self.send(&request) } else { self.receive(&mut request) };
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

/// Two clients of a network, which agree on header patching.
struct Link<'f> {
    interface: &'f Interface,
    network: ServerHandle,
    patching: HeaderPatching,
    pool: Overlays,
}

impl<'f> Link<'f> {
    fn new(fixture: &'f Fixture, offset: usize, header: usize, data: usize) -> Self {
        Self::through(fixture, [offset, header, data], ServerHandle::new)
    }

    fn through(
        fixture: &'f Fixture,
        [offset, header, data]: [usize; 3],
        reach: impl FnOnce(Network) -> ServerHandle,
    ) -> Self {
        let interface = &fixture.interface;
        let pool =
            Overlays::reserve(interface.space(), offset, header + data, 1).expect("memory for the pool");
        let network = reach(Network { pool: pool.clone(), messages: Mutex::default() });
        let patching = HeaderPatching::new(offset, header, data).expect("there is room for data");
        Self { interface, network, patching, pool }
    }

    fn send(&self, header: &[u8], data: &[u8]) {
        let mut buffer = self.interface.allocate(data.len() + 1).expect("a buffer");
        buffer[..data.len()].copy_from_slice(data);
        let pieces = self.patching.gather(header, &buffer[..data.len()]).expect("it is as agreed");
        let sent = self.patching.out(self.interface.request(&self.network, SEND), pieces).send();
        // The header lies in memory of the test's.
        assert!(sent.expect("a reply").receipt().copied <= header.len(), "the data was copied");
    }

    /// Receives a message into the page: as it comes, or when its header was peeked at.
    fn receive(&self, page: &mut [u8], over: &mut [u8], peeked: Option<(&[u8], usize)>) -> Reply {
        let request = self.interface.request(&self.network, RECEIVE);
        let Some((header, data)) = peeked else {
            return self.patching.input(request, page, over).send().expect("a reply");
        };
        let mut elsewhere = self.interface.allocate(page.len()).expect("a buffer");
        let (mut elsewhere_over, mut peek) = (vec![0; over.len()], vec![0; header.len()]);
        let pending = self.patching.input(request, &mut elsewhere, &mut elsewhere_over).submit();
        let pending = pending.expect("a request");
        pending.peek(&mut [&mut peek]).expect("a header");
        same(&peek, header, "the header");
        assert_eq!(self.patching.check(pending.progress(0), header.len(), data), Ok(()));
        assert!(self.patching.check(pending.progress(0), header.len(), data + 1).is_err());
        let reply = pending.redirect(self.patching.places(page, over)).expect("a reply");
        assert!(elsewhere.iter().chain(&elsewhere_over).all(|byte| *byte == 0), "it came elsewhere, too");
        reply
    }
}

fn pages_behind_headers_of_any_length_are_swapped_in(fixture: &Fixture) {
    let granule = fixture.granule();
    for (offset, granules) in OFFSETS.into_iter().flat_map(|offset| [(offset, 1), (offset, 3)]) {
        let data = pattern(offset as u64, granules * granule);
        let link = Link::new(fixture, offset, HEADER, data.len());
        let mut buffer = link.interface.allocate(data.len() + 2 * granule).expect("a buffer");
        for (length, is_peeked) in [(0, false), (1, false), (57, true), (HEADER, true), (HEADER, false)] {
            let what = format!("{granules} granules behind {offset} + {length} bytes, peeked: {is_peeked}");
            let (header, own) = (pattern(7, length), pattern(8, buffer.len()));
            buffer.copy_from_slice(&own);
            link.send(&header, &data);
            let packet = link.pool.allocate().expect("the buffer");
            let first = packet.data().segments()[0];
            let came = frames(first.addr(), 1, granule).expect("frames were visible before")[0];
            drop(packet);
            let mut over = [0; HEADER];
            let page = &mut buffer[granule..granule + data.len()];
            let peeked = is_peeked.then_some((&header[..], data.len()));
            let reply = link.receive(page, &mut over, peeked);
            let message = &reply.buffers[0];
            let swapped = &message.elements[0].receipt;
            assert_eq!(swapped.swapped as usize, granules, "{what}: {swapped}");
            assert_eq!(fixture.frames(page)[0], came, "{what}: the server's page frame is the client's now");
            // By reverse copyout what lies before the message, and by copyout what is sent last.
            let receipt = reply.receipt();
            assert_eq!(receipt.copied, offset + (offset + length), "{what}: {receipt}");
            assert_eq!(swapped.effective, Scheme::EmulatedCopy, "{what}");
            same(&link.patching.header(page, message.actual)[..length], &header, &what);
            let patched = link.patching.patch(page, &over, message.actual, length, data.len());
            same(patched.expect("a message as agreed"), &data, &what);
            same(&buffer[..granule], &own[..granule], format!("before the page, {what}"));
            let behind = granule + data.len();
            same(&buffer[behind..], &own[behind..], format!("behind the page, {what}"));
        }
    }
    assert_idle(&fixture.interface, 0);
}

/// A server elsewhere cuts its buffers as one in this process does, though all of them are copied, and short ones carried.
fn messages_of_a_network_elsewhere_are_patched_alike(fixture: &Fixture) {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    for (offset, longest) in [(42, 2 * fixture.granule()), (42, 250), (0, 250)] {
        let mut running = None;
        let link = Link::through(fixture, [offset, HEADER, longest], |network| {
            let serving = Listener::bind_in(&directory, "network", network, ServeOptions::default());
            running = Some(serving.and_then(|serving| serving.start()).expect("threads"));
            let options = ConnectOptions::default();
            fixture.interface.connect_with(&directory, "network", &options).expect("a connection")
        });
        for (length, len, is_peeked) in [(57, longest, false), (HEADER, 7, true), (0, longest - 1, true)] {
            let what = format!("{len} bytes behind {offset} + {length}");
            let (header, data) = (pattern(1, length), pattern(2, len));
            link.send(&header, &data);
            let mut page = link.interface.allocate(longest).expect("a buffer");
            let mut over = [0; HEADER];
            let peeked = is_peeked.then_some((&header[..], len));
            let actual = link.receive(&mut page, &mut over, peeked).actual();
            same(&link.patching.header(&page, actual)[..length], &header, &what);
            let patched = link.patching.patch(&mut page, &over, actual, length, len);
            same(patched.expect("a message as agreed"), &data, &what);
        }
    }
}

/// Lengths are parts of the longest, in 65,536ths.
#[derive(Debug, Clone)]
struct Case {
    offset: usize,
    longest_header: usize,
    header: u16,
    granules: usize,
    /// How much shorter than these granules the longest data is.
    less: u16,
    /// None: the longest.
    data: Option<u16>,
    is_peeked: bool,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let less = prop_oneof![Just(0), any::<u16>()];
    let data = prop_oneof![Just(None), any::<u16>().prop_map(Some), (0..40u16).prop_map(Some)];
    let header = (0..=HEADER, any::<u16>());
    (prop::sample::select(OFFSETS.to_vec()), header, 1..=3usize, less, data, any::<bool>(), any::<u64>())
        .prop_map(|(offset, (longest_header, header), granules, less, data, is_peeked, seed)| Case {
            offset,
            longest_header,
            header,
            granules,
            less,
            data,
            is_peeked,
            seed,
        })
}

fn random_messages_arrive_as_by_copying(fixture: &Fixture) {
    let cases = if fixture.kind == GranuleKind::Base { 256 } else { 24 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let swapped = Cell::new(0);
    let run = |case: Case| {
        swapped.set(swapped.get() + run(fixture, &case));
        Ok(())
    };
    TestRunner::new(config).run(&case(), run).unwrap_or_else(|failed| panic!("{failed}"));
    assert!(swapped.get() > 0, "nothing was swapped");
    assert_idle(&fixture.interface, 0);
}

fn run(fixture: &Fixture, case: &Case) -> u32 {
    let (granule, offset) = (fixture.granule(), case.offset);
    let scaled = |share: u16, of: usize| usize::from(share) * of / 65_536;
    let longest = case.granules * granule - scaled(case.less, granule);
    let longest = longest.max(offset + case.longest_header + 1);
    let data = pattern(case.seed, case.data.map_or(longest, |share| scaled(share, longest + 1)));
    let header = pattern(case.seed.wrapping_add(1), scaled(case.header, case.longest_header + 1));
    let link = Link::new(fixture, offset, case.longest_header, longest);
    link.send(&header, &data);

    let mut buffer = link.interface.allocate((case.granules + 2) * granule).expect("a buffer");
    let mut expected = pattern(case.seed.wrapping_add(2), buffer.len());
    buffer.copy_from_slice(&expected);
    let (page, mut over) = (&mut buffer[granule..granule + longest], vec![0; case.longest_header]);
    let reply = link.receive(page, &mut over, case.is_peeked.then_some((&header[..], data.len())));
    let actual = reply.actual();
    assert_eq!(actual, header.len() + data.len());
    same(&link.patching.header(page, actual)[..header.len()], &header, format!("{case:?}"));
    let patched = link.patching.patch(page, &over, actual, header.len(), data.len());
    same(patched.expect("a message as agreed"), &data, format!("{case:?}"));

    let (behind, end) = (granule + data.len(), granule + longest);
    expected[granule..behind].copy_from_slice(&data);
    expected[behind..end].copy_from_slice(&buffer[behind..end]);
    same(&buffer, &expected, format!("beside the page, {case:?}"));

    // What came behind the headers is swapped but for its edges; the granule in which it ends may have been copied.
    let (receipt, came) = (&reply.buffers[0].elements[0].receipt, actual.min(longest - offset));
    assert!(receipt.swapped as usize >= (offset + came) / granule, "{receipt}, {case:?}");
    let edge = if (offset + came).is_multiple_of(granule) { 0 } else { granule };
    assert!(reply.receipt().copied <= offset + edge + actual - came, "{}, {case:?}", reply.receipt());
    receipt.swapped
}
