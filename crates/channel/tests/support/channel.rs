//! The channel as a carrier: the client is here, both servers are in another process.

use std::sync::Arc;
use std::time::Duration;

use genie_channel::{Connect, ConnectOptions};
use genie_conformance::{Buffering, POOLED, Servers, Setup};
use genie_io::Interface;
use genie_memory::GranuleKind;

use super::holder::{Answer, Command, Elsewhere, Holder};
use super::peer::{Ask, Kind, Link, Opening, Peer, Pooled, Told, fresh_name};
use super::transport::Place;

/// Opens both servers in a peer, for requests of an interface. Where the machine cannot, says why.
pub(crate) fn connect(
    peer: &Peer,
    interface: &Interface,
    setup: &Setup,
    place: Place,
) -> Result<Servers, String> {
    let link = Arc::new(peer.link());
    let is_untrusted = place == Place::Untrusted;
    if is_untrusted && let Some(reason) = unreadable(&link) {
        return Err(reason);
    }
    // A server that maps nothing of its clients' works in buffers of its own anyway.
    let is_pooled = setup.buffering == Buffering::Pooled && !is_untrusted;
    let len = setup.granules() * setup.granule();
    let pooled = is_pooled.then_some(Pooled { len, count: POOLED });
    let open = |kind: &str, server: Kind| {
        let opening =
            Opening::new(&fresh_name(kind), server, if setup.mixed { 4 << 20 } else { pool(setup.kind) });
        let opening = Opening { transient: place == Place::Transient, ..opening };
        link.done(Ask::Open(opening.clone()));
        let options = ConnectOptions { untrusted: is_untrusted, ..ConnectOptions::default() };
        interface.connect_with(&peer.directory(), &opening.name, &options).expect("a connection")
    };
    // Of servers in one process, the first that a client connects to sees its memory at the client's addresses.
    let handle = open("holder", Kind::Holder { pooled, log: None });
    let memory = open("memory", Kind::Memory(pooled));
    let settle = {
        let (interface, servers) = (interface.clone(), [memory.clone(), handle.clone()]);
        let link = Arc::clone(&link);
        move || {
            for server in &servers {
                // Replies that nobody waits for are taken.
                let is_over = interface.flush(server, Duration::from_secs(10));
                assert!(is_over, "requests to {server:?} are outstanding");
            }
            link.done(Ask::Idle);
        }
    };
    let holder = Holder::elsewhere(interface, handle, link);
    Ok(Servers::carried(holder, memory).settling(settle))
}

/// Why the peer may not read this process's memory, if so.
fn unreadable(link: &Link) -> Option<String> {
    let byte = 1u8;
    let addr = std::ptr::from_ref(&byte).addr();
    match link.ask(Ask::Read { pid: std::process::id(), addr }) {
        Told::Failed(reason) => Some(reason),
        _ => None,
    }
}

impl Elsewhere for Link {
    fn held(&self, expected: usize) -> Vec<usize> {
        self.arrivals(Ask::Held { expected })
    }

    fn aborted(&self) -> Vec<usize> {
        self.arrivals(Ask::Aborted)
    }

    fn set_obliging(&self, obliging: bool) {
        self.done(Ask::SetObliging(obliging));
    }

    fn command(&self, arrival: usize, command: Command) -> Answer {
        match self.ask(Ask::Command { arrival, command }) {
            Told::Answer(answer) => answer,
            other => panic!("{other:?} answers no command"),
        }
    }
}

impl Link {
    fn arrivals(&self, ask: Ask) -> Vec<usize> {
        match self.ask(ask) {
            Told::Arrivals(arrivals) => arrivals,
            other => panic!("{other:?} names no requests"),
        }
    }
}

/// Bytes that each server lends: too few for some requests, so that other memory is used, too.
pub(crate) const fn pool(kind: GranuleKind) -> usize {
    match kind {
        GranuleKind::Huge | GranuleKind::Collapsed => 6 * kind.size(),
        GranuleKind::Base => 64 * kind.size(),
    }
}
