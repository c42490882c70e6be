//! Clients, as their servers know them: which client asks, and when it has left.

use std::sync::Arc;
use std::time::Instant;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions, Serving};
use genie_io::{
    Client, ClientId, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_sys::lock::{Mutex, MutexGuard};
use genie_sys::{Condvar, machine};

use genie_passing::Reason;

use crate::support::machine::skip;
use crate::waiting::fixture::{FOR_EVER, interface};

/// Replies.
const PASS: ServiceId = ServiceId(0);
/// Keeps the request until its client has left.
const KEEP: ServiceId = ServiceId(1);
/// Does not return until the test says so, and keeps the request, too.
const LINGER: ServiceId = ServiceId(2);

static SERVICES: [Service; 3] =
    [Service::new("pass", true, true), Service::new("keep", true, true), Service::new("linger", true, true)];

/// What the server hears.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    Request(Client),
    Abort,
    /// A client has left, and the kept requests of it hold this data.
    Departed(ClientId, Vec<Vec<u8>>),
}

/// Cloning makes another handle.
#[derive(Clone, Default)]
struct Attentive(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    heard: Vec<Heard>,
    kept: Vec<Incoming>,
    may_return: bool,
    panics: bool,
}

impl Attentive {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    fn hear(&self, what: Heard) {
        self.state().heard.push(what);
        self.0.changed.notify_all();
    }

    /// Waits until the server has heard this many events. A request that was aborted may be aborted again when its channel
    /// ends.
    #[track_caller]
    fn heard(&self, count: usize) -> Vec<Heard> {
        let start = Instant::now();
        let mut state = self.state();
        while {
            state.heard.dedup_by(|again, before| (&*again, &*before) == (&Heard::Abort, &Heard::Abort));
            state.heard.len() < count
        } {
            assert!(start.elapsed() < FOR_EVER, "the server has heard no more than {:?}", state.heard);
            state = self.0.changed.wait(state, Some(Instant::now() + FOR_EVER / 10));
        }
        state.heard.clone()
    }
}

impl Server for Attentive {
    fn name(&self) -> &str {
        "attentive"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.hear(Heard::Request(request.client().clone()));
        match request.service() {
            PASS => request.reply(Ok(())),
            service => {
                let mut state = self.state();
                while service == LINGER && !state.may_return {
                    state = self.0.changed.wait(state, None);
                }
                state.kept.push(request);
            }
        }
    }

    fn abort(&self, _request: RequestId) {
        self.hear(Heard::Abort);
    }

    fn departed(&self, client: ClientId) {
        let mut state = self.state();
        let gone: Vec<Incoming> =
            state.kept.extract_if(.., |request| request.client().id == client).collect();
        let panics = state.panics;
        drop(state);
        let data = gone.iter().map(|request| request.output(0).expect("an output").to_vec()).collect();
        self.hear(Heard::Departed(client, data));
        assert!(!panics, "this panic is part of the test");
    }
}

struct Place {
    directory: Directory,
    running: Running,
    _scratch: tempfile::TempDir,
}

fn serve(server: &Attentive) -> Place {
    serve_with(server, ServeOptions { pool: 1 << 20, threads: 2, ..ServeOptions::default() })
}

fn serve_with(server: &Attentive, options: ServeOptions) -> Place {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "attentive", server.clone(), options);
    let running = serving.and_then(Serving::start).expect("a server");
    Place { directory, running, _scratch: scratch }
}

fn connect(place: &Place, interface: &Interface, name: &str) -> ServerHandle {
    let options = ConnectOptions { name: name.to_owned(), ..ConnectOptions::default() };
    interface.connect_with(&place.directory, "attentive", &options).expect("a connection")
}

#[test]
fn each_client_has_a_name_of_its_own_in_all_its_requests() {
    let server = Attentive::default();
    let place = serve(&server);
    let here = ServerHandle::new(server.clone());
    let interfaces = [interface(), interface()];
    for interface in &interfaces {
        let channels = ["one", "two"].map(|name| connect(&place, interface, name));
        for handle in channels.iter().chain([&here]) {
            for _ in 0..2 {
                interface.request(handle, PASS).send().expect("a reply");
            }
        }
    }
    let mut asked = Vec::new();
    for heard in server.heard(12) {
        if let Heard::Request(client) = heard {
            assert_eq!((client.pid, client.uid), (std::process::id(), machine::effective_uid()));
            asked.push(client);
        }
    }
    let names: Vec<&str> = asked.iter().step_by(2).map(|client| client.name.as_str()).collect();
    let program = ConnectOptions::default().name;
    assert_eq!(names, ["one", "two", &program, "one", "two", &program]);
    assert!(asked.chunks(2).all(|both| both[0] == both[1]), "{asked:?}");
    let mut ids: Vec<ClientId> = asked.iter().step_by(2).map(|client| client.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6);
}

#[test]
fn a_connection_shows_no_shorter_output_than_its_client_allows() {
    let place = serve(&Attentive::default());
    let interface = interface();
    let options = ConnectOptions { shown_from: 4096, ..ConnectOptions::default() };
    let wary = interface.connect_with(&place.directory, "attentive", &options).expect("a connection");
    let trusting = connect(&place, &interface, "trusting");
    let buffer = interface.allocate(4096).expect("a buffer");
    let copied = |server: &ServerHandle, len: usize| {
        let request = interface.request(server, PASS).out(Out::emulated_copy(&buffer[..len]));
        let receipt = request.send().expect("a reply").buffers[0].elements[0].receipt;
        (receipt.copied, receipt.reason)
    };
    assert_eq!(copied(&wary, 4095), (4095, Some(Reason::Hidden)));
    assert_eq!(copied(&wary, 4096), (0, None));
    let (_, reason) = copied(&trusting, 4095);
    assert_ne!(reason, Some(Reason::Hidden), "each connection has its own length");
}

/// The last events that a server heard of one client: its request came, the request was to be aborted, and the client left,
/// with the data that the server still had.
#[track_caller]
fn assert_left(heard: &[Heard], data: &[u8]) {
    let [Heard::Request(client), Heard::Abort, Heard::Departed(left, kept)] = heard else {
        panic!("{heard:?}");
    };
    assert_eq!((client.id, kept.as_slice()), (*left, [data.to_vec()].as_slice()));
}

#[test]
fn a_client_elsewhere_has_left_when_its_requests_are_to_be_aborted_and_its_memory_is_still_there() {
    let server = Attentive::default();
    let place = serve(&server);
    for round in 0..3u8 {
        let interface = interface();
        let mut buffer = interface.allocate(100_000).expect("memory");
        buffer.fill(round);
        let handle = connect(&place, &interface, "client");
        let request = interface.request(&handle, KEEP).out(Out::emulated_copy(&buffer));
        let pending = request.submit().expect("a request");
        server.heard(3 * usize::from(round) + 1);
        drop((pending, handle));
        let heard = server.heard(3 * usize::from(round) + 3);
        assert_left(&heard[3 * usize::from(round)..], &[round; 100_000]);
    }
    assert_eq!(server.heard(9).len(), 9, "each has left once");
}

/// When a client was gone, its timer still held the requests that it watched; they held their server, and the server held
/// the channel.
#[test]
fn a_client_elsewhere_leaves_though_a_request_that_it_forgot_had_a_timeout() {
    let server = Attentive::default();
    let place = serve(&server);
    let interface = interface();
    let handle = connect(&place, &interface, "client");
    let request = interface.request(&handle, KEEP).out(Out::copy(b"timed")).timeout(FOR_EVER * 2);
    let pending = request.submit().expect("a request");
    server.heard(1);
    drop((pending, handle, interface));
    assert_left(&server.heard(3), b"timed");
}

#[test]
fn no_client_has_left_whose_request_is_just_handed_over() {
    let server = Attentive::default();
    let place = serve(&server);
    let interface = interface();
    let handle = connect(&place, &interface, "client");
    let pending = interface.request(&handle, LINGER).out(Out::copy(b"late")).submit().expect("a request");
    server.heard(1);
    drop((pending, handle));
    assert_eq!(server.heard(2)[1], Heard::Abort);
    while place.running.status().clients_total > 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.heard(2).len(), 2, "the worker has not let go of the client");
    server.state().may_return = true;
    server.0.changed.notify_all();
    assert_left(&server.heard(3), b"late");
}

#[test]
fn a_client_here_has_left_with_its_interface_and_whatever_it_awaits() {
    let [asked, other] = [Attentive::default(), Attentive::default()];
    let handles = [&asked, &other].map(|server| ServerHandle::new(server.clone()));
    let interface = interface();
    let request = || interface.request(&handles[0], KEEP).out(Out::copy(b"kept"));
    let (forgotten, awaited) =
        (request().submit().expect("a request"), request().submit().expect("a request"));
    let timed = request().timeout(FOR_EVER).submit().expect("a request");
    drop((forgotten, interface.clone()));
    drop(interface);
    drop(timed);
    assert_eq!(asked.heard(3).len(), 3, "it still awaits a reply");
    drop(awaited);
    let heard = asked.heard(4);
    let Heard::Request(client) = &heard[0] else { panic!("{heard:?}") };
    assert_eq!(heard[3], Heard::Departed(client.id, vec![b"kept".to_vec(); 3]));
    assert_eq!(other.heard(0), [], "a server that was not asked has no clients");
}

#[test]
fn only_requests_that_were_not_replied_to_at_once_keep_a_client_here() {
    let server = Attentive::default();
    let handle = ServerHandle::new(server.clone());
    let submit = |service| interface().request(&handle, service).submit().expect("a request");
    let at_once = submit(PASS);
    assert!(matches!(server.heard(2)[1], Heard::Departed(..)));
    let later = submit(KEEP);
    let kept = server.state().kept.pop().expect("a request");
    kept.reply(Ok(()));
    assert!(later.is_replied());
    assert_eq!(server.heard(3).len(), 3, "its client is still there");
    drop(later);
    assert!(matches!(server.heard(4)[3], Heard::Departed(..)));
    drop(at_once);
}

#[test]
fn a_panic_of_a_server_that_hears_of_a_departure_ends_nothing_else() {
    let server = Attentive::default();
    server.state().panics = true;
    let place = serve(&server);
    let here = ServerHandle::new(server.clone());
    for round in 1..=3 {
        let interface = interface();
        let handle = connect(&place, &interface, "client");
        for server in [&here, &handle] {
            interface.request(server, PASS).send().expect("a reply");
        }
        drop((handle, interface));
        server.heard(4 * round);
    }
    drop(place.running);
}

/// What 127 clients may be lent, 256 MiB each, is more than most machines have.
#[test]
fn what_one_client_was_lent_another_gets_when_it_has_left() {
    let options = ServeOptions { pool: 1 << 20, pools: 3 << 19, ..ServeOptions::default() };
    let place = serve_with(&Attentive::default(), options);
    let (first, second) = (interface(), interface());
    let one = connect(&place, &first, "one");
    let _two = connect(&place, &second, "two");
    assert_eq!((lent(&first), lent(&second)), (1 << 20, 1 << 19), "the second gets what the first leaves");
    drop((one, first));
    let start = Instant::now();
    loop {
        let third = interface();
        let _three = connect(&place, &third, "three");
        if lent(&third) == 1 << 20 {
            break;
        }
        assert!(start.elapsed() < FOR_EVER, "{} bytes are lent", lent(&third));
    }
}

/// Addresses are reserved for what is copied and kept; more than the machine's memory needs none.
#[test]
fn untrusted_clients_are_served_however_much_the_options_let_them_take() {
    if machine::total_memory() > 256 << 30 {
        return skip("untrusted_clients_are_served", "even this machine's memory takes all addresses");
    }
    let most = usize::MAX;
    let options =
        ServeOptions { untrusted: true, hard_pool: most, kept: most, pools: most, ..ServeOptions::default() };
    let place = serve_with(&Attentive::default(), options);
    let interface = interface();
    let servers: Vec<ServerHandle> = (0..16).map(|_| connect(&place, &interface, "untrusted")).collect();
    for server in &servers {
        assert!(server.is_untrusted());
        interface.request(server, PASS).out(Out::copy(&[1; 10_000])).send().expect("a reply");
    }
}

/// How many bytes servers have lent to the interface.
fn lent(interface: &Interface) -> usize {
    let (space, mut at, mut sum) = (interface.space(), 0, 0);
    while at < space.aliases_len() {
        at = match space.object_at(at) {
            Some(object) => {
                sum += object.lender.map_or(0, |_| object.len);
                object.start + object.len
            }
            None => at + 4096,
        };
    }
    sum
}
