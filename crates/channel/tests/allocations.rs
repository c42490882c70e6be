//! Allocations: a short request allocates nothing, once its thread has made a request like it; nor do several in flight.
//!
//! Why: calls of the allocator are a noticeable part of a short request's cost.

use allocation_counter::measure;
use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions, Serving};
use genie_io::servers::memory::{ECHO, FETCH, Memory, NULL, SINK, STORE};
use genie_io::{In, Interface, Limits, Out, ServerHandle};
use genie_memory::{Buffer, Config, Data, Granularity, Space};
use genie_passing::{Costs, Passing, Scheme};
use genie_sys::GranuleKind;
use tempfile::TempDir;

const LEN: usize = 64;
const NAME: &[u8] = b"kept";

fn interface() -> Interface {
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { granularity, limit: 64 << 20, ..Config::default() };
    let space = Space::new(&config).expect("a space");
    Interface::new(Passing::new(space, Costs::default()), Limits::default())
}

/// A memory server behind a channel, in threads of this process: only what the client's thread allocates is counted.
fn connected(interface: &Interface) -> (ServerHandle, Running, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = Directory::at(folder.path()).expect("a directory");
    let listener = Listener::claim_in(&directory, "memory", ServeOptions::default()).expect("the name");
    let running = listener.serve(Memory::customized()).and_then(Serving::start).expect("a server");
    let server = interface.connect_with(&directory, "memory", &ConnectOptions::default());
    (server.expect("a channel"), running, folder)
}

/// Makes a request of each kind twice, and says which kinds allocate the second time.
fn assert_allocates_nothing(interface: &Interface, server: &ServerHandle) {
    let store = interface.request(server, STORE).out(Out::copy(&[1; LEN])).argument(NAME);
    store.send().expect("bytes to fetch");
    let mut held = Some(interface.allocate(LEN).expect("a buffer"));
    let mut borrowed = interface.allocate(LEN).expect("a buffer");
    assert_none("an empty request", || {
        interface.request(server, NULL).send().expect("a reply");
    });
    assert_none("an argument of 1 KiB", || {
        interface.request(server, NULL).argument(&[1; 1024]).send().expect("a reply");
    });
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        assert_none(&format!("{scheme} out"), || share_out(interface, server, scheme, &mut held));
        assert_none(&format!("{scheme} in"), || share_in(interface, server, scheme, &mut held));
    }
    for scheme in [Scheme::WeakMove, Scheme::EmulatedWeakMove] {
        assert_none(&format!("{scheme} out"), || {
            let migrant = interface.allocate_migrant(LEN, false).expect("a buffer");
            interface
                .request(server, SINK)
                .out(Out::migrant(scheme, migrant))
                .room(8)
                .send()
                .expect("a reply");
        });
        assert_none(&format!("{scheme} in"), || {
            let request = interface.request(server, FETCH).input(In::migrant(scheme, LEN)).argument(NAME);
            request.send().expect("a reply");
        });
    }
    assert_none("copy out", || {
        interface.request(server, SINK).out(Out::copy(&borrowed)).room(8).send().expect("a reply");
    });
    assert_none("copy in", || {
        let request = interface.request(server, FETCH).input(In::copy(&mut borrowed)).argument(NAME);
        request.send().expect("a reply");
    });
    assert_none("copy out and in", || {
        let request =
            interface.request(server, ECHO).out(Out::copy(&[1; LEN])).input(In::copy(&mut borrowed));
        request.send().expect("a reply");
    });
}

/// Keeps several requests of a kind in flight, and says which kinds allocate.
fn assert_several_allocate_nothing(interface: &Interface, server: &ServerHandle) {
    let bytes = interface.allocate(LEN).expect("a buffer");
    for what in ["nothing", "copy", "emulated copy"] {
        assert_none(&format!("several requests with {what}"), || {
            let mut batch = interface.batch();
            let pending = [(); 8].map(|()| {
                let request = match what {
                    "nothing" => interface.request(server, NULL),
                    "copy" => interface.request(server, SINK).out(Out::copy(&bytes)).room(8),
                    _ => interface.request(server, SINK).out(Out::emulated_copy(&bytes)).room(8),
                };
                request.batched(&mut batch).submit().expect("a request")
            });
            drop(batch);
            for pending in pending {
                pending.sync().expect("a reply");
            }
        });
    }
}

fn share_out(interface: &Interface, server: &ServerHandle, scheme: Scheme, held: &mut Option<Buffer>) {
    let element = Out::owned(scheme, held.take().expect("the buffer"));
    let mut reply = interface.request(server, SINK).out(element).room(8).send().expect("a reply");
    *held = reply.take_buffer();
}

fn share_in(interface: &Interface, server: &ServerHandle, scheme: Scheme, held: &mut Option<Buffer>) {
    let element = In::owned(scheme, held.take().expect("the buffer"));
    let request = interface.request(server, FETCH).input(element).argument(NAME);
    *held = request.send().expect("a reply").take_buffer();
}

/// The first few requests fill what is kept for later ones.
fn assert_none(what: &str, mut request: impl FnMut()) {
    (0..4).for_each(|_| request());
    let allocations = measure(request);
    assert_eq!(allocations.count_total, 0, "{what}: {allocations:?}");
}

#[test]
fn a_short_request_in_process_allocates_nothing() {
    let (interface, server) = (interface(), ServerHandle::new(Memory::customized()));
    assert_allocates_nothing(&interface, &server);
    assert_several_allocate_nothing(&interface, &server);
}

#[test]
fn a_short_request_between_processes_makes_its_client_allocate_nothing() {
    let interface = interface();
    let (server, _running, _folder) = connected(&interface);
    assert_allocates_nothing(&interface, &server);
    assert_several_allocate_nothing(&interface, &server);
}

#[test]
fn a_look_at_short_data_allocates_nothing() {
    let (bytes, mut sum) = ([1; 512], 0);
    let allocated = measure(|| Data::from(&bytes[..]).for_each_chunk(|chunk| sum += chunk.len()));
    assert_eq!((allocated.count_total, sum), (0, 512));
}
