//! What a server knows of its clients' traffic: requests, and bytes that were copied or passed.

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Counts, Listener, ServeOptions};
use genie_io::servers::memory::{CHECK, FETCH, Memory, NULL, SOURCE, STORE};
use genie_io::{In, Interface, Limits, Out, Request, ServerHandle, ServiceId};
use genie_memory::GranuleKind;
use genie_passing::Thresholds;

use super::eventually;
use genie_conformance::Setup;

const LEN: usize = 100_000;

struct Client {
    interface: Interface,
    server: ServerHandle,
}

impl Client {
    fn interface(name: &str) -> Option<Interface> {
        let setup = Setup::allowed(GranuleKind::Base);
        setup.interface(name, setup.memory_limit(), Limits::default(), Thresholds::ALWAYS)
    }

    fn open(directory: &Directory, untrusted: bool) -> Option<Self> {
        let interface = Self::interface("traffic")?;
        let options = ConnectOptions { untrusted, ..ConnectOptions::default() };
        let server = interface.connect_with(directory, "memory", &options).expect("a connection");
        Some(Self { interface, server })
    }

    fn request(&self, service: ServiceId) -> Request<'_, '_, '_> {
        self.interface.request(&self.server, service)
    }
}

#[test]
fn a_server_counts_the_requests_and_the_bytes_of_each_client() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "memory", Memory::customized(), ServeOptions::default());
    let running = serving.and_then(|serving| serving.start()).expect("threads");
    let Some(first) = Client::open(&directory, false) else { return };
    let Some(second) = Client::open(&directory, false) else { return };
    let mut buffer = first.interface.allocate(LEN).expect("memory");

    (0..3).for_each(|_| drop(first.request(NULL).send().expect("a reply")));
    first.request(STORE).out(Out::emulated_copy(&buffer)).argument(b"a").send().expect("a reply");
    first.request(STORE).out(Out::copy(&buffer[..70])).argument(b"b").send().expect("a reply");
    first.request(STORE).out(Out::emulated_copy(&vec![1; 5000])).send().expect("foreign memory is copied");
    first.request(SOURCE).input(In::emulated_copy(&mut buffer)).send().expect("a reply");
    first
        .request(FETCH)
        .input(In::copy(&mut buffer))
        .argument(b"b")
        .send()
        .expect("70 bytes of as many as fit");
    first.request(CHECK).out(Out::emulated_copy(&buffer)).argument(b"c").send().expect_err("nothing is kept");
    second.request(SOURCE).input(In::copy(&mut [0; 300])).send().expect("a reply");

    let of_first = Counts {
        requests: 9,
        failures: 1,
        out_copied: 5070,
        out_passed: LEN as u64,
        in_copied: 70,
        in_passed: LEN as u64,
    };
    let of_second = Counts { requests: 1, in_copied: 300, ..Counts::default() };
    let traffic = running.traffic();
    assert_eq!(traffic.clients.iter().map(|client| client.counts).collect::<Vec<_>>(), [of_first, of_second]);
    assert_ne!(traffic.clients[0].client, traffic.clients[1].client);
    assert_eq!(traffic.departed, Counts::default());

    drop((first, buffer));
    eventually("a client that has left is listed", || running.traffic().clients.len() == 1);
    let traffic = running.traffic();
    assert_eq!((traffic.departed, traffic.clients[0].counts), (of_first, of_second));
}

#[test]
fn without_trust_all_output_counts_as_copied() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "memory", Memory::customized(), ServeOptions::default());
    let running = serving.and_then(|serving| serving.start()).expect("threads");
    let Some(client) = Client::open(&directory, true) else { return };
    let buffer = client.interface.allocate(LEN).expect("memory");
    client.request(STORE).out(Out::emulated_copy(&buffer)).send().expect("a reply");
    let expected = Counts { requests: 1, out_copied: LEN as u64, ..Counts::default() };
    assert_eq!(running.traffic().clients[0].counts, expected);
}

/// Once, it counted as passed: most of the client's room was not copied.
#[test]
fn a_short_input_that_the_server_had_in_a_buffer_of_its_own_counts_as_copied() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let Some(inside) = Client::interface("inside") else { return };
    let server = Memory::pooled(inside.space(), 0, LEN, 1).expect("memory for the server's buffer");
    let serving = Listener::bind_in(&directory, "memory", server, ServeOptions::default());
    let running = serving.and_then(|serving| serving.start()).expect("threads");
    let Some(client) = Client::open(&directory, false) else { return };
    let mut buffer = client.interface.allocate(LEN).expect("memory");
    client.request(STORE).out(Out::copy(&[1; LEN / 4])).send().expect("a reply");
    client.request(FETCH).input(In::emulated_copy(&mut buffer)).send().expect("a quarter of as much as fits");
    let quarter = LEN as u64 / 4;
    let expected = Counts { requests: 2, out_copied: quarter, in_copied: quarter, ..Counts::default() };
    assert_eq!(running.traffic().clients[0].counts, expected);
}
