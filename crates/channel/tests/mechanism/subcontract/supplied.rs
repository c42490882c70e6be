//! Servers that overlay or link data of their own, and then forward the buffer: the later server's data is the newer.

use std::ops::Range;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::assert_idle;
use genie_io::{In, Incoming, Interface, Server, ServerError, ServerHandle};
use genie_passing::{Chain, Overlays, Scheme};

use super::{ASK, Contractor, Fixture, relay};
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};
use crate::support::holder::Device;

on_each_kind! {
    a_later_server_stores_over_what_a_subcontractor_has_supplied,
    a_later_server_stores_over_what_the_server_of_a_client_elsewhere_has_supplied,
}

/// What a server does that supplies data and then has another server store into the same buffer.
#[derive(Debug, Clone, Copy)]
struct Supplying {
    /// Outboard memory, not an overlay buffer.
    outboard: bool,
    /// From which byte on the other server gets the buffer; from 0 on, it gets the whole element.
    from: usize,
    /// How many bytes the other server stores; none if it fails.
    later: Option<usize>,
}

impl Supplying {
    /// The other server succeeds, brings less, or fails; with the whole element or a part of it.
    fn cases(len: usize) -> impl Iterator<Item = Self> {
        let laters = [Some(len - 3), Some(len / 2), None];
        let froms = laters.into_iter().flat_map(|later| [0, 3].map(|from| (from, later)));
        froms.flat_map(|(from, later)| [false, true].map(|outboard| Self { outboard, from, later }))
    }

    /// What the client is to get.
    fn expected(&self, older: &[u8], newer: &[u8]) -> Vec<u8> {
        let (mut all, later) = (older.to_vec(), self.later.unwrap_or(0));
        all[self.from..self.from + later].copy_from_slice(&newer[..later]);
        all
    }

    /// A server that supplies `older`, from `overlays` if it is no device's, and has another one store `newer`.
    fn server(
        self,
        interface: &Interface,
        overlays: &Overlays,
        older: &[u8],
        newer: &[u8],
    ) -> impl Server + use<> {
        let (interface, overlays) = (interface.clone(), overlays.clone());
        let (older, newer) = (older.to_vec(), newer[..self.later.unwrap_or(0)].to_vec());
        let later = ServerHandle::new(Contractor::seeing(move |request: &mut Incoming| {
            request.ready(0)?.part(0..newer.len()).copy_from(&newer);
            request.set_actual(0, newer.len())?;
            if self.later.is_none() { Err(ServerError::new("the disk is full")) } else { Ok(()) }
        }));
        Contractor::seeing(move |request: &mut Incoming| {
            if self.outboard {
                request.outboard(0, 0, Box::new(Device(older.clone())))?;
            } else {
                // In two parts, at a place that is no multiple of anything.
                let cut = older.len() / 2 + 77;
                let part = |part: Range<usize>| {
                    let overlay = overlays.allocate().expect("a buffer of the pool").part(part.clone());
                    overlay.data().copy_from(&older[part]);
                    overlay
                };
                let chain: Chain = [0..cut, cut..older.len()].map(part).into_iter().collect();
                request.overlay(0, 0, chain)?;
            }
            let fragment = request.fragment(0, self.from..request.len(0))?;
            let asked = interface.request(&later, ASK).input(In::fragment(fragment)).send();
            assert_eq!(asked.ok().map(|reply| reply.actual()), self.later);
            Ok(request.set_actual(0, request.len(0))?)
        })
    }
}

/// What a subcontractor had overlaid, or linked as outboard memory, was brought only with its reply, over what the server that it
/// had forwarded the element to had stored since.
fn a_later_server_stores_over_what_a_subcontractor_has_supplied(fixture: &Fixture) {
    let len = 2 * fixture.granule();
    let overlays = Overlays::reserve(fixture.interface.space(), 0, len, 2).expect("memory for the pool");
    let (older, newer) = (pattern(18, len), pattern(19, len));
    for case in Supplying::cases(len) {
        let relay =
            relay(fixture, &ServerHandle::new(case.server(&fixture.interface, &overlays, &older, &newer)));
        for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::EmulatedShare] {
            let request = fixture.interface.request(&relay, ASK);
            let request = request.input(In::owned(scheme, fixture.buffer(20)).part(0..len));
            let mut reply = request.send().unwrap_or_else(|failed| panic!("{scheme}, {case:?}: {failed}"));
            let buffer = reply.take_buffer().expect("the buffer");
            same(&buffer[..len], &case.expected(&older, &newer), format!("{scheme}, {case:?}"));
            assert_eq!(overlays.free(), 2, "{scheme}, {case:?}: the overlay buffers are the subcontractor's");
        }
    }
    drop(overlays);
    assert_idle(&fixture.interface, 0);
}

/// The same for a server whose client is in another process, which is shown the client's memory.
fn a_later_server_stores_over_what_the_server_of_a_client_elsewhere_has_supplied(fixture: &Fixture) {
    let len = 2 * fixture.granule();
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let overlays = Overlays::reserve(fixture.interface.space(), 0, len, 2).expect("memory for the pool");
    let (older, newer) = (pattern(21, len), pattern(22, len));
    for case in Supplying::cases(len) {
        let options =
            ServeOptions { pool: 4 * fixture.granule(), private_pool: 2 * len, ..ServeOptions::default() };
        let listener = Listener::claim_in(&directory, "supplier", options).expect("a name");
        let server = case.server(&fixture.interface, &overlays, &older, &newer);
        let running = listener.serve(server).and_then(|serving| serving.start()).expect("threads");
        let options = ConnectOptions::default();
        let server = fixture.interface.connect_with(&directory, "supplier", &options).expect("a connection");
        let mut buffer = fixture.buffer(23);
        let request = fixture.interface.request(&server, ASK).input(In::emulated_copy(&mut buffer[..len]));
        request.send().unwrap_or_else(|failed| panic!("{case:?}: {failed}"));
        same(&buffer[..len], &case.expected(&older, &newer), format!("{case:?}"));
        drop((server, running));
    }
}
