//! Transports: where the servers are that the tests know, and how they get at their clients' memory.

use genie_conformance::{Scene, Servers, Setup, Subject};
use genie_io::Limits;
use genie_passing::Thresholds;

use super::channel;
use super::machine::skip;
use super::peer::Peer;

/// Where the servers are, and how they get at their clients' memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the client's process.
    InProcess,
    /// In another process, which keeps clients' memory mapped.
    Cached,
    /// In another process, which maps clients' memory while a request needs it.
    Transient,
    /// In another process, which maps nothing; the kernel copies.
    Untrusted,
}

/// What is held to the promises: `genie-io`, in one process or over a channel.
pub(crate) fn subject(place: Place) -> Subject<'static> {
    Subject::new(&format!("{place:?}"), move |interface, setup| match place {
        Place::InProcess => Ok(Servers::in_process(interface, setup)),
        _ => channel::connect(Peer::shared(), interface, setup, place),
    })
}

/// Opens a client and its servers. Where the machine cannot, says so and returns `None`.
pub(crate) fn open(
    test: &str,
    setup: Setup,
    place: Place,
    limits: Limits,
    thresholds: Thresholds,
) -> Option<Scene> {
    match place {
        Place::InProcess => Scene::in_process(test, setup, limits, thresholds),
        _ => open_at(Peer::shared(), test, setup, place, limits, thresholds),
    }
}

/// The same, with servers in this peer.
pub(crate) fn open_at(
    peer: &Peer,
    test: &str,
    setup: Setup,
    place: Place,
    limits: Limits,
    thresholds: Thresholds,
) -> Option<Scene> {
    let interface = setup.interface(test, setup.memory_limit(), limits, thresholds)?;
    let servers = channel::connect(peer, &interface, &setup, place);
    let servers = servers.map_err(|reason| skip(test, &reason)).ok()?;
    Some(Scene::new(setup, interface, servers))
}
