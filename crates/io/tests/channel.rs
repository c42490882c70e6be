//! Channels: a server reached over shared memory.

use genie_io::channel::directory::Directory;
use genie_io::channel::{ConnectOptions, Listener, Running, ServeOptions};
use genie_io::servers::memory::{ECHO, FETCH, Memory, NULL, SINK, SOURCE, STORE};
use genie_io::{In, Interface, Limits, Out, ServerHandle};
use genie_memory::{Config, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Scheme, Thresholds};

struct Pair {
    interface: Interface,
    server: ServerHandle,
    _running: Running,
    _directory: tempfile::TempDir,
}

fn pair(kind: GranuleKind) -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let at = Directory::at(directory.path().join("run")).unwrap();
    let options = ServeOptions { pool: 16 << 20, ..ServeOptions::default() };
    let running = Listener::bind_in(&at, "memory", Memory::customized(), options).unwrap().start().unwrap();
    let config = Config { granularity: Granularity::Only(kind), limit: 64 << 20, ..Config::default() };
    let passing =
        Passing::new(Space::new(&config).unwrap(), Costs::default()).with_thresholds(Thresholds::ALWAYS);
    let interface = Interface::new(passing, Limits::default());
    let server = interface.connect_with(&at, "memory", &ConnectOptions::default()).unwrap();
    Pair { interface, server, _running: running, _directory: directory }
}

#[test]
fn a_request_without_data_is_replied_to() {
    let pair = pair(GranuleKind::Base);
    for _ in 0..10_000 {
        pair.interface.request(&pair.server, NULL).send().unwrap();
    }
}

#[test]
fn data_goes_out_and_comes_in_by_native_schemes() {
    for kind in [GranuleKind::Base, GranuleKind::Huge] {
        let pair = pair(kind);
        for scheme in [Scheme::Copy, Scheme::EmulatedCopy] {
            for len in [1usize, 100, 4096, 10_000, 3 << 20] {
                let mut buffer = pair.interface.allocate(len).unwrap();
                buffer.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + len) as u8);
                let copy = buffer.to_vec();
                let out = pair
                    .interface
                    .request(&pair.server, STORE)
                    .out(Out::borrowed(scheme, &buffer))
                    .argument(b"x")
                    .send()
                    .unwrap();
                println!("{kind:?} {len} {}", out.receipt());
                let mut into = pair.interface.allocate(len).unwrap();
                let reply = pair
                    .interface
                    .request(&pair.server, FETCH)
                    .input(In::borrowed(scheme, &mut into))
                    .argument(b"x")
                    .send()
                    .unwrap();
                println!("{kind:?} {len} {}", reply.receipt());
                assert_eq!(reply.actual(), len);
                assert!(into[..] == copy[..], "{kind:?} {scheme} {len}");
                pair.interface.space().check().unwrap();
            }
        }
        let _ = (SINK, SOURCE, ECHO);
    }
}
