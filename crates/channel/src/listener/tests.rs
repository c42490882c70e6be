//! Which servers can be made reachable, and what their clients are told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use genie_io::{Incoming, Interface, RequestId, ServerHandle, Service, ServiceId};
use genie_memory::{Config, Granularity, GranuleKind};
use genie_passing::{Costs, Passing};
use genie_ring::Layout;

use super::*;
use crate::{Connect, ConnectOptions, Running};

/// A server that offers one service more each time that it is asked, until it offers all.
struct Growing {
    services: Vec<Service>,
    offered: AtomicUsize,
}

impl Growing {
    fn new(services: Vec<Service>, offered: usize) -> Self {
        Self { services, offered: AtomicUsize::new(offered) }
    }

    /// A server that always offers all these services.
    fn of(names: impl IntoIterator<Item = String>) -> Self {
        let service = |name: String| Service { name: name.into(), reads: true, writes: true };
        Self::new(names.into_iter().map(service).collect(), usize::MAX >> 1)
    }
}

impl Server for Growing {
    fn name(&self) -> &str {
        "growing"
    }

    fn services(&self) -> &[Service] {
        let offered = self.offered.fetch_add(1, Ordering::Relaxed);
        &self.services[..offered.min(self.services.len())]
    }

    fn request(&self, request: Incoming) {
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

struct Place {
    directory: Directory,
    interface: Interface,
    _scratch: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Directory::at(scratch.path().join("run")).unwrap();
        let granularity = Granularity::Only(GranuleKind::Base);
        let space = Space::new(&Config { granularity, limit: 32 << 20, ..Config::default() }).unwrap();
        let interface = Interface::new(Passing::new(space, Costs::default()), genie_io::Limits::default());
        Self { directory, interface, _scratch: scratch }
    }

    fn bind(&self, server: Growing, options: ServeOptions) -> Result<Serving, Error> {
        Listener::bind_in(&self.directory, "server", server, options)
    }

    fn start(&self, server: Growing, options: ServeOptions) -> Running {
        self.bind(server, options).and_then(Serving::start).unwrap()
    }

    fn connect(&self, options: &ConnectOptions) -> Result<ServerHandle, Error> {
        self.interface.connect_with(&self.directory, "server", options)
    }
}

/// Servers like these could be bound. Then each client was refused as if it had not taken its welcome, or itself refused the
/// server.
#[test]
fn bind_refuses_what_no_client_could_be_told() {
    let place = Place::new();
    let names = |count: usize, len: usize| (0..count).map(move |_| "n".repeat(len));
    let refused = |server, options, words: [&str; 2]| {
        let error = place.bind(server, options).expect_err(words[0]).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused(Growing::of(names(257, 1)), ServeOptions::default(), ["257 services", "256"]);
    refused(Growing::of(names(1, 65)), ServeOptions::default(), ["service \"nnn", "64"]);
    refused(
        Growing::of(["a\nb".to_owned()]),
        ServeOptions::default(),
        ["service \"a\\nb\"", "control characters"],
    );
    let rings = Layout { lines: 3, area: 256 };
    let options = ServeOptions { rings, ..ServeOptions::default() };
    refused(Growing::of(names(1, 1)), options, ["ServeOptions::rings", "3 lines"]);
    let default = ServeOptions::default;
    let long = Layout { area: 1 << 28, ..Layout::default() };
    for (options, words) in [
        (ServeOptions { pool: usize::MAX, ..default() }, ["ServeOptions::pool", "this machine has"]),
        (ServeOptions { rings: long, ..default() }, ["ServeOptions::rings", "268435456"]),
        (ServeOptions { clients: 0, ..default() }, ["ServeOptions::clients", "0"]),
        (ServeOptions { addresses: 0, ..default() }, ["ServeOptions::addresses", "0"]),
        (ServeOptions { mapped: 0, ..default() }, ["ServeOptions::mapped", "0"]),
        (ServeOptions { untrusted: true, hard_pool: 0, ..default() }, ["ServeOptions::hard_pool", "copy"]),
    ] {
        refused(Growing::of(names(1, 1)), options, words);
    }
    let running = place.start(Growing::of(names(256, 64)), ServeOptions::default());
    assert_eq!(place.connect(&ConnectOptions::default()).unwrap().services().len(), 256);
    assert_eq!(running.status().services.len(), 256);
}

/// A welcome has no room for so long an `abort_timeout`: each client was refused as if it had not taken its welcome.
#[test]
#[cfg_attr(sanitized, ignore = "reserves terabytes of addresses, of which ThreadSanitizer takes most")]
fn options_without_bounds_keep_no_client_out() {
    let place = Place::new();
    let options = ServeOptions {
        abort_timeout: Duration::MAX,
        hard_pool: usize::MAX,
        pending_bytes: usize::MAX,
        hard_bytes: usize::MAX,
        addresses: usize::MAX,
        mapped: usize::MAX,
        clients: usize::MAX,
        ..ServeOptions::default()
    };
    let _running = place.start(Growing::of(["one".to_owned()]), options);
    for untrusted in [false, true] {
        let server = place.connect(&ConnectOptions { untrusted, ..ConnectOptions::default() }).unwrap();
        place.interface.request(&server, ServiceId(0)).send().unwrap();
    }
}

/// A server was asked for its services again and again. If its answers differed, clients were offered services that they could not
/// use: in the server's process a request for one failed, and over a channel it ended the channel.
#[test]
fn a_server_is_asked_once_what_it_offers() {
    let place = Place::new();
    let growing = || Growing::new(vec![Service::new("one", true, true), Service::new("two", true, true)], 1);
    let running = place.start(growing(), ServeOptions::default());
    let there = place.connect(&ConnectOptions::default()).unwrap();
    for server in [ServerHandle::new(growing()), there] {
        assert_eq!(server.services().len(), 1);
        let unknown = server.service("two").unwrap_err().to_string();
        assert!(unknown.contains("has no service \"two\"; it has "), "{unknown}");
        place.interface.request(&server, ServiceId(0)).send().unwrap();
    }
    assert_eq!(running.status().services.len(), 1);
}
