//! What goes by datagrams is passed as the promises of data passing say, by every adapter.
//!
//! How: a server keeps bytes. It has its clients' buffers as fragments alone: what it is to keep it sends from there to itself, and what it
//! gives back it receives there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use genie_channel::ConnectOptions;
use genie_conformance::{Buffering, Granules, Guard, Servers, Setup, Store, Subject};
use genie_io::{
    Error, In, Incoming, Interface, Out, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::GranuleKind;
use genie_net::datagram::{Datagrams, Open, Socket};
use genie_net::{Wire, wire};
use genie_sys::lock::Mutex;

use crate::hosts::{Level, host, options};
use crate::peer::{Peer, connect_with};

/// How long the data of a datagram is at most.
const MOST: usize = 60_000;

/// The server. The socket of each request of its clients is the one to which it sends.
struct Keeper {
    genie: Interface,
    datagrams: ServerHandle,
    kept: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl Keeper {
    fn socket(&self) -> Result<(Socket, SocketAddr), Error> {
        let socket = Socket::open(&self.genie, &self.datagrams, &Open::default())?;
        let address = (host(0, false), socket.port()).into();
        Ok((socket, address))
    }

    fn put(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let (name, mut bytes) = (request.argument().to_vec(), vec![0; request.len(0)]);
        let (socket, to) = self.socket()?;
        for part in parts(bytes.len()) {
            let data = request.fragment(0, part.clone())?;
            socket.send_to(Out::fragment(data), to).map_err(|failed| failed.error)?;
            socket.receive(In::copy(&mut bytes[part])).map_err(|failed| failed.error)?;
        }
        self.kept.lock().insert(name, bytes);
        Ok(())
    }

    fn get(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let kept = self.kept.lock().get(request.argument()).cloned().ok_or("nothing of that name is kept")?;
        let len = kept.len().min(request.len(0));
        let (socket, to) = self.socket()?;
        for part in parts(len) {
            let room = request.fragment(0, part.clone())?;
            let pending = socket.submit(In::fragment(room)).map_err(|failed| failed.error)?;
            socket.send_to(Out::copy(&kept[part]), to).map_err(|failed| failed.error)?;
            pending.sync().map_err(|failed| failed.error)?;
        }
        Ok(request.set_actual(0, len)?)
    }
}

/// The parts of so many bytes that go in a datagram each.
fn parts(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(MOST).map(move |start| start..len.min(start + MOST))
}

static SERVICES: [Service; 2] = [Service::new("put", true, false), Service::new("get", false, true)];

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result =
            if request.service() == ServiceId(0) { self.put(&mut request) } else { self.get(&mut request) };
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

/// The server, over a datagram server that keeps so many granules of its clients' space.
fn servers(genie: &Interface, datagrams: ServerHandle, reserved: usize) -> Servers {
    let keeper = Keeper { genie: genie.clone(), datagrams, kept: Mutex::default() };
    let name_to_argument = |name: &str| name.as_bytes().to_vec();
    let store = Store::new(ServerHandle::new(keeper), ServiceId(0), ServiceId(1), name_to_argument);
    Servers::storing(store).reserving(reserved)
}

fn setups() -> [Setup; 5] {
    let plain = |granules| Setup::new(granules, Guard::Never, Buffering::Customized);
    let [base, collapsed, mixed] = [Granules::Base, Granules::Collapsed, Granules::Mixed].map(plain);
    [base, Setup::allowed(GranuleKind::Base), collapsed, Setup::allowed(GranuleKind::Huge), mixed]
}

/// Those of a level: all for one of each kind of buffering, in which the client's memory makes a difference.
fn of(level: Level, setups: &[Setup]) -> &[Setup] {
    match level {
        Level::Pooled | Level::SnapOff | Level::Outboard => setups,
        _ => &setups[..1],
    }
}

#[test]
fn data_that_goes_by_datagrams_is_passed_as_promised() {
    // How many granules are with the interface changes with the frames in use.
    for level in Level::ALL.into_iter().filter(|level| *level != Level::Framed) {
        let open = |genie: &Interface, _: &Setup| {
            let server = Datagrams::new(genie.clone(), level.adapter(genie.space()), options(0));
            let wire = Wire::new(wire::Options::default(), wire::Clock::default(), server.station());
            server.attach(ServerHandle::new(wire.expect("a wire"))).expect("it is one");
            // What the adapter has laid out for packets, before the first comes.
            let reserved = genie.space().check().expect("clean books").system as usize;
            Ok(servers(genie, ServerHandle::new(server), reserved))
        };
        Subject::new(&format!("datagrams, {level:?}"), open).report(of(level, &setups())).assert_kept();
    }
}

#[test]
fn data_that_goes_by_datagrams_of_another_process_is_passed_as_promised() {
    for level in Level::ALL {
        let setups = setups();
        // Which memory the client has is the same to each adapter of another process.
        elsewhere(level, false, if level == Level::SnapOff { &setups[..] } else { &setups[..1] });
    }
}

#[test]
fn data_that_goes_by_datagrams_of_a_process_that_is_not_trusted_is_passed_as_promised() {
    for level in [Level::Pooled, Level::SnapOff, Level::Outboard] {
        elsewhere(level, true, &setups()[..2]);
    }
}

fn elsewhere(level: Level, untrusted: bool, setups: &[Setup]) {
    let place = tempfile::tempdir().expect("a directory");
    let index = Level::ALL.into_iter().position(|other| other == level).expect("a level");
    let mut peer = Peer::start(place.path(), &format!("host 0 0 {index}"));
    peer.says("ready");
    let open = |genie: &Interface, _: &Setup| {
        let options = ConnectOptions { untrusted, ..ConnectOptions::default() };
        let datagrams = connect_with(genie, place.path(), "host0", options);
        let (client, server) = (genie.clone(), datagrams.clone());
        let settle =
            move || assert!(client.flush(&server, Duration::from_secs(10)), "requests are outstanding");
        Ok(servers(genie, datagrams, 0).settling(settle))
    };
    let name = format!("datagrams elsewhere, {level:?}, untrusted {untrusted}");
    Subject::new(&name, open).report(setups).assert_kept();
}
