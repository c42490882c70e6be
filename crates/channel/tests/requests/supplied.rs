//! Servers that overlay an element of an input, or link a device's data to it, where that is not possible.

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::holder::Device;
use genie_io::{
    Error, In, Incoming, Limits, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_passing::Overlays;

use super::client;

const DATA: &[u8] = b"data";
/// What a refused overlay buffer or device has: no client may find it.
const OTHER: &[u8] = b"evil";
/// What lies in the client's buffer before.
const CANARY: u8 = 0x5a;
/// One that the records carry, one that is copied, and one that may change places.
const LENS: [usize; 3] = [100, 5000, 64 << 10];

/// Supplies these bytes for an element of input 0: by a device or by an overlay buffer.
type Supply = fn(&mut Incoming, usize, &Overlays, &[u8]) -> Result<(), Error>;

const SUPPLIES: [Supply; 2] = [
    |request, element, _, bytes| request.outboard(0, element, Box::new(Device(bytes.to_vec()))),
    |request, element, overlays, bytes| {
        let overlay = overlays.allocate().expect("a buffer of the pool");
        overlay.data().copy_from(bytes);
        request.overlay(0, element, overlay)
    },
];

/// What a server does before it supplies other bytes.
type Before = fn(&mut Incoming, &Overlays) -> Result<(), Error>;

const BEFORE: &[Before] = &[
    |request, _| {
        request.ready(0)?.copy_from(DATA);
        request.set_actual(0, DATA.len())
    },
    |request, _| request.fill(0, |room| room.copy_from(DATA)).map(drop),
    |request, _| {
        request.pin_input(0, 0..DATA.len())?.data().copy_from(DATA);
        request.set_actual(0, DATA.len())
    },
    |request, overlays| {
        SUPPLIES[0](request, 0, overlays, DATA)?;
        request.set_actual(0, DATA.len())
    },
    |request, overlays| {
        SUPPLIES[1](request, 0, overlays, DATA)?;
        request.set_actual(0, DATA.len())
    },
    |request, _| {
        drop(request.fragment(0, 0..request.len(0))?);
        request.set_actual(0, 0)
    },
    |request, _| {
        drop(request.fragment(0, 1..3)?);
        request.set_actual(0, 0)
    },
];

struct Supplier {
    overlays: Overlays,
}

static SERVICES: [Service; 1] = [Service::new("supply", true, true)];

impl Supplier {
    /// Does what the argument says, and replies with the error that came of it.
    fn serve(&self, request: &mut Incoming) -> Result<(), Error> {
        let [before, supply] = [0, 1].map(|at| usize::from(request.argument()[at]));
        let supply = SUPPLIES[supply];
        BEFORE[before](request, &self.overlays)?;
        let refused = supply(request, 0, &self.overlays, OTHER);
        assert_eq!(refused, Err(Error::ReadyAlready { buffer: 0, element: 0 }));
        let missing = supply(request, 1, &self.overlays, OTHER);
        assert_eq!(missing, Err(Error::NoSuchElement { buffer: 0, element: 1, count: 1 }));
        Ok(())
    }
}

impl Server for Supplier {
    fn name(&self) -> &str {
        "supplier"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.serve(&mut request).map_err(ServerError::from);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

/// Over a channel, data that was supplied for an element that was ready took the place of what the server had stored; in the client's
/// process that was a panic, to which a client that forwarded the right parts could bring a server. A missing element was said to be a
/// missing buffer.
#[test]
fn an_element_is_supplied_once_and_before_it_is_ready() {
    let Some(t) = client("an_element_is_supplied_once", Limits::default()) else { return };
    let space = t.interface().space();
    // Two for each server: a refused one is taken while another one is in place.
    let overlays = Overlays::reserve(space, 0, 64 << 10, 2).expect("memory for the pool");
    let supplier = || Supplier { overlays: overlays.clone() };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "supplier", supplier(), ServeOptions::default());
    let running = serving.and_then(|serving| serving.start()).expect("threads");
    let options = ConnectOptions::default();
    let there = t.interface().connect_with(&directory, "supplier", &options).expect("a connection");
    for server in [ServerHandle::new(supplier()), there] {
        let orders =
            (0..BEFORE.len()).flat_map(|before| (0..SUPPLIES.len()).map(move |supply| (before, supply)));
        for ((before, supply), len) in orders.flat_map(|order| LENS.map(|len| (order, len))) {
            let case =
                format!("remote: {}, before {before}, supply {supply}, {len} bytes", server.is_remote());
            let mut buffer = t.interface().allocate(len).expect("a buffer");
            buffer.fill(CANARY);
            let argument = [before as u8, supply as u8];
            let request = t.interface().request(&server, ServiceId(0)).argument(&argument);
            let sent = request.input(In::emulated_copy(&mut buffer)).send();
            let actual = sent.unwrap_or_else(|failed| panic!("{case}: {failed}")).actual();
            assert!(actual == 0 || buffer[..actual] == *DATA, "{case}: {actual} bytes came, and are others");
            assert!(buffer[actual..].iter().all(|byte| *byte == CANARY), "{case}: the rest");
            assert_eq!(overlays.free(), 2, "{case}");
        }
    }
    drop((running, overlays));
    t.assert_idle();
}
