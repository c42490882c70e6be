//! Layouts of input buffers: when a server is asked for them, how it says that they have changed, and what comes of a layout that is
//! stale.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::wire::control::{
    Hello, LayoutWanted, Limits as Allowed, MAX_LAYOUT_ARGUMENT, MAX_MESSAGE, Message, Party, VERSION,
};
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_conformance::bytes::{pattern, same};
use genie_io::{
    Client, ClientId, Error, Incoming, Interface, Limits, Preference, Preferences, RequestId, Server,
    ServerError, ServerHandle, Service, ServiceId,
};
use genie_passing::{Overlays, Preferred};
use genie_series::intersperse;
use genie_sys::GranuleKind;
use genie_sys::lock::Mutex;
use genie_sys::socket::Socket;

use super::client;

/// Replies with a header, data and a trailer.
const PACKET: ServiceId = ServiceId(0);
const HEADER: usize = 20;
const LEN: usize = 2 * 4096;
/// How long a message may take to another thread.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose packets come in buffers of its own. Cloning makes another handle.
#[derive(Clone)]
struct Picky(Arc<Inner>);

struct Inner {
    /// The buffers that packets come in now.
    overlays: Mutex<Overlays>,
    preferences: Preferences,
    asked: Mutex<Vec<(ClientId, ServiceId, Vec<u8>)>>,
    departed: Mutex<Vec<ClientId>>,
}

static SERVICES: [Service; 2] = [Service::new("packet", false, true), Service::new("other", false, true)];

impl Picky {
    fn new(overlays: Overlays) -> Self {
        let preferences = Preferences::new();
        let (asked, departed) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { overlays: Mutex::new(overlays), preferences, asked, departed }))
    }

    fn change(&self, overlays: Overlays) {
        *self.0.overlays.lock() = overlays;
        self.0.preferences.changed();
    }

    /// A packet has a header of 20 bytes, and a trailer as long as the argument.
    fn packet(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let overlay = self.0.overlays.lock().allocate().expect("a buffer of the pool");
        overlay.data().copy_from(&pattern(7, LEN));
        request.overlay(0, 1, overlay)?;
        let trailer = request.argument().len();
        let packet = request.ready(0)?;
        packet.part(0..HEADER).fill(b'h');
        packet.part(HEADER + LEN..HEADER + LEN + trailer).fill(b't');
        Ok(request.set_actual(0, HEADER + LEN + trailer)?)
    }
}

impl Server for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.packet(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}

    fn departed(&self, client: ClientId) {
        self.0.departed.lock().push(client);
    }

    fn preferred(&self, client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        self.0.asked.lock().push((client.id, service, argument.to_vec()));
        let layout = self.0.overlays.lock().preferred();
        (service == PACKET).then_some(Preferred { header: HEADER, trailer: argument.len(), ..layout })
    }

    fn preferences(&self) -> Option<&Preferences> {
        Some(&self.0.preferences)
    }
}

/// A server that clients find by its name.
struct Place {
    directory: Directory,
    running: Running,
    _scratch: tempfile::TempDir,
}

impl Place {
    fn serve(server: Picky) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        let serving = Listener::bind_in(&directory, "picky", server, ServeOptions::default());
        let running = serving.and_then(|serving| serving.start()).expect("threads");
        Self { directory, running, _scratch: scratch }
    }

    fn connect(&self, interface: &Interface) -> ServerHandle {
        let options = ConnectOptions::default();
        interface.connect_with(&self.directory, "picky", &options).expect("a connection")
    }
}

fn overlays(interface: &Interface, offset: usize) -> Overlays {
    Overlays::reserve(interface.space(), offset, LEN, 2).expect("memory for the pool")
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_is_asked_by_each_client_and_for_each_argument_and_tells_of_changes() {
    let Some(t) = client("a_server_is_asked_by_each_client", Limits::default()) else { return };
    let picky = Picky::new(overlays(t.interface(), 100));
    let place = Place::serve(picky.clone());
    let here = ServerHandle::new(picky.clone());
    let there = place.connect(t.interface());
    let mut clients = Vec::new();
    for server in [here, there] {
        let ask = |argument: &[u8]| t.interface().preferred(&server, PACKET, argument).expect("an answer");
        let answers = [ask(b"ab"), ask(b"abc")];
        for (answer, trailer) in answers.iter().zip([2, 3]) {
            let expected = Preferred { offset: 100, len: LEN, header: HEADER, trailer };
            assert_eq!((answer.preferred(), answer.is_stale()), (Some(expected), false));
        }
        let other = t.interface().preferred(&server, ServiceId(1), &[]).expect("an answer");
        assert_eq!(other.preferred(), None);
        let asked = std::mem::take(&mut *picky.0.asked.lock());
        let questions: Vec<_> =
            asked.iter().map(|(_, service, argument)| (*service, &argument[..])).collect();
        assert_eq!(questions, [(PACKET, &b"ab"[..]), (PACKET, &b"abc"[..]), (ServiceId(1), &[][..])]);
        assert!(asked.iter().all(|(client, ..)| *client == asked[0].0), "one client has asked");
        clients.push(asked[0].0);

        // Whatever was changed, all answers may be wrong.
        for _ in 0..3 {
            picky.0.preferences.changed();
        }
        eventually("the answers are stale", || answers.iter().chain([&other]).all(Preference::is_stale));
        let again = ask(b"ab");
        assert!(!again.is_stale(), "it was given after the changes");
        assert!(answers[0].is_stale(), "it stays so");

        let none = t.interface().preferred(&server, ServiceId(2), &[]);
        assert!(matches!(none, Err(Error::NoSuchService { service: 2, .. })), "{none:?}");
        let long = t.interface().preferred(&server, PACKET, &vec![0; MAX_LAYOUT_ARGUMENT + 1]);
        match server.is_remote() {
            true => assert!(matches!(long, Err(Error::Uncarriable { .. })), "{long:?}"),
            false => drop(long.expect("an answer")),
        }
        assert!(!again.is_stale() && !ask(b"abcd").is_stale(), "errors change nothing");
        picky.0.asked.lock().clear();
    }
    assert_ne!(clients[0], clients[1], "a channel is a client of its own");
}

#[test]
fn an_answer_of_a_server_that_is_gone_is_stale_and_a_client_that_only_asked_has_left() {
    let Some(t) = client("an_answer_of_a_server_that_is_gone", Limits::default()) else { return };
    let picky = Picky::new(overlays(t.interface(), 0));
    let place = Place::serve(picky.clone());
    let (here, there) = (ServerHandle::new(picky.clone()), place.connect(t.interface()));
    let other = Interface::new(t.interface().passing().clone(), Limits::default());
    other.preferred(&here, PACKET, &[]).expect("an answer");
    let asked = picky.0.asked.lock()[0].0;
    assert!(picky.0.departed.lock().is_empty());
    drop(other);
    assert_eq!(*picky.0.departed.lock(), [asked]);
    let answer = t.interface().preferred(&there, PACKET, &[]).expect("an answer");
    assert!(!answer.is_stale());
    place.running.stopper().stop();
    eventually("the answer is stale", || answer.is_stale());
    let gone = t.interface().preferred(&there, PACKET, &[]);
    assert!(matches!(gone, Err(Error::Gone { .. })), "{gone:?}");
}

/// Has a packet come to buffers of this layout; returns how many bytes of its data were copied, and how many granules were swapped.
fn receive(interface: &Interface, server: &ServerHandle, answer: &Preference) -> (usize, usize) {
    let layout = answer.preferred().expect("a layout");
    let (mut header, mut trailer) = (vec![0x5a; layout.header], vec![0x5a; layout.trailer]);
    let mut data = interface.allocate_at(layout.offset, layout.len).expect("a buffer");
    data.fill(0x5a);
    let argument = vec![0; layout.trailer];
    let request = interface.request(server, PACKET).argument(&argument);
    let request = intersperse(request, layout, [&mut header, &mut data, &mut trailer]);
    let reply = request.send().expect("a packet");
    assert_eq!(reply.actual(), HEADER + LEN + argument.len());
    let receipt = reply.buffers[0].elements[1].receipt;
    same(&header, &[b'h'; HEADER], "the header");
    same(&data, &pattern(7, LEN), "the data");
    same(&trailer, &vec![b't'; argument.len()], "the trailer");
    (receipt.copied, receipt.swapped as usize)
}

/// Thesis §6.1: data changes places with a buffer of the preferred layout, and is copied to any other one.
#[test]
fn data_of_a_layout_that_is_stale_is_copied() {
    let Some(t) = client("data_of_a_layout_that_is_stale", Limits::default()) else { return };
    let picky = Picky::new(overlays(t.interface(), 100));
    let server = ServerHandle::new(picky.clone());
    let ask = || t.interface().preferred(&server, PACKET, b"argument").expect("an answer");
    let answer = ask();
    assert_eq!(receive(t.interface(), &server, &answer), (0, 3));
    picky.change(overlays(t.interface(), 200));
    assert!(answer.is_stale());
    assert_eq!(receive(t.interface(), &server, &answer), (LEN, 0));
    assert_eq!(receive(t.interface(), &server, &ask()), (0, 3));
}

/// What a client's server says next; none if it says nothing yet.
fn heard(socket: &Socket, patience: Duration) -> Option<Message> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let received = socket.receive_timeout(&mut bytes, patience).expect("a server")?;
    assert!(received.len > 0, "the server hung up");
    let message = Message::decode(&bytes[..received.len], received.descriptors.len(), Party::Server);
    Some(message.expect("an honest message"))
}

/// A client that does not read its socket keeps its channel, however often layouts change.
#[test]
#[cfg_attr(sanitized, ignore = "the client names addresses, which ThreadSanitizer has for itself")]
fn a_client_is_told_of_one_change_until_it_asks_again() {
    let Some(t) = client("a_client_is_told_of_one_change", Limits::default()) else { return };
    let picky = Picky::new(overlays(t.interface(), 0));
    let place = Place::serve(picky.clone());
    let there = place.connect(t.interface());
    let socket = Socket::connect(&place.directory.socket_path("picky").expect("a name")).expect("a server");
    let (_lifeline, held) = Socket::pair().expect("sockets");
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        name: "raw".to_owned(),
        pid: std::process::id(),
        granule: GranuleKind::Base,
        mixed: false,
        alias_base: 0x2000_0000_0000,
        alias_len: 1 << 20,
        untrusted: false,
        limits: Allowed { pending_bytes: 1, pending_requests: 1 },
    };
    socket.send(&Message::Hello(hello).encode().expect("a hello"), &[held.as_fd()]).expect("a server");
    let welcome = heard(&socket, PATIENCE);
    assert!(matches!(welcome, Some(Message::Welcome(_))), "{welcome:?}");
    // When the server has answered a question that came after a change, it has told all clients of earlier changes.
    let settle = || {
        for _ in 0..100 {
            picky.0.preferences.changed();
            t.interface().preferred(&there, PACKET, &[]).expect("an answer");
        }
    };
    settle();
    assert_eq!(heard(&socket, Duration::ZERO), None, "it has no answer that could change");
    for _ in 0..2 {
        let wanted = LayoutWanted { service: 1, argument: Vec::new() };
        socket.send(&Message::LayoutWanted(wanted).encode().expect("a question"), &[]).expect("a server");
        assert_eq!(heard(&socket, PATIENCE), Some(Message::Layout(None)));
        settle();
        assert_eq!(heard(&socket, PATIENCE), Some(Message::LayoutsChanged(())));
        assert_eq!(heard(&socket, Duration::ZERO), None, "it was told already");
    }
}
