//! Relays: servers in the middle, which forward requests without touching their data, as a server between a client and a
//! file server does.

use std::sync::Arc;
use std::time::Duration;

use genie_channel::ConnectOptions;
use genie_conformance::checked;
use genie_io::{
    Error, Failed, In, Incoming, Interface, Limits, Out, Reply, RequestId, Server, ServerError, Service,
};
use genie_memory::Direction;
use genie_passing::{Costs, Passing, Thresholds};

use crate::cast::{ConductorLink, Cue, Word};
use crate::door::{Door, Visit};
use crate::leaf::{PATIENCE, claim, eventually, options, small_space};
use crate::order::{HEADER, Order};
use crate::traces::Traces;
use crate::verdict::{Circumstances, Reason};

struct Relay {
    interface: Interface,
    directory: genie_channel::directory::Directory,
    doors: Vec<Door>,
}

/// The server's face.
struct Face(Arc<Relay>);

/// Neither reads nor writes what it forwards.
static RELAYED: [Service; 3] = [const { Service::new("relay", false, false) }; 3];

impl Server for Face {
    fn name(&self) -> &str {
        "relay"
    }

    fn services(&self) -> &[Service] {
        &RELAYED
    }

    fn request(&self, mut incoming: Incoming) {
        let relay = Arc::clone(&self.0);
        let run = move || {
            let result = relay.forward(&mut incoming);
            incoming.reply(result);
        };
        std::thread::Builder::new().name("relaying".into()).spawn(run).expect("a thread");
    }

    fn abort(&self, _request: RequestId) {
        // The requests that it has forwarded are aborted before, and that takes time.
    }
}

impl Relay {
    /// Asks the next server on the way to do what this server was asked to do.
    fn forward(&self, incoming: &mut Incoming) -> Result<(), ServerError> {
        let mut order = Order::decode(incoming.argument());
        let door = &self.doors[order.hop()];
        let Some(visit) = door.enter(&self.interface, &self.directory, |_| false) else {
            return Err(Reason::Gone.encode());
        };
        let is_out = incoming.direction(0)? == Direction::Out;
        let puts_header = is_out && !order.is_headed && order.seed.is_multiple_of(3);
        order.is_headed |= puts_header;
        let about = Circumstances {
            pid: visit.pid,
            manner: order.manner,
            is_relayed: order.is_relayed(),
            is_timed: true,
            // This relay's own client may have aborted the request.
            is_aborted: true,
            is_too_large: false,
            is_scarce: false,
        };
        let reply = self.send(incoming, &visit, &order, puts_header).map_err(|failed| {
            let reason = Reason::of(&failed.error, &about);
            if matches!(failed.error, Error::Gone { .. }) {
                door.leave(visit.pid);
            }
            match reason {
                // The client gets the error that was ordered from the leaf.
                Reason::Ordered => ServerError { code: crate::order::ORDERED, message: failed.to_string() },
                reason => reason.encode(),
            }
        })?;
        for (index, buffer) in reply.buffers.iter().enumerate() {
            if incoming.direction(index)? == Direction::In {
                incoming.set_actual(index, buffer.actual)?;
            }
        }
        Ok(())
    }

    fn send(
        &self,
        incoming: &mut Incoming,
        visit: &Visit,
        order: &Order,
        puts_header: bool,
    ) -> Result<Reply, Failed> {
        let argument = order.encode();
        let mut request = self.interface.request(&visit.server, incoming.service()).argument(&argument);
        for index in 0..incoming.buffers() {
            let fragment = incoming.fragment(index, 0..incoming.len(index))?;
            request = match fragment.direction() {
                Direction::Out if puts_header => {
                    request.out(Out::copy(HEADER)).and_out(Out::fragment(fragment))
                }
                Direction::Out => request.out(Out::fragment(fragment)),
                Direction::In => request.input(In::fragment(fragment)),
            };
        }
        request.timeout(Duration::from_millis(50 + order.seed % 300)).send()
    }
}

/// Serves until the conductor has it end.
pub(crate) fn play(mut link: ConductorLink, to: &[String]) {
    let before = Traces::now();
    let passing = Passing::new(small_space(16 << 20), Costs::default()).with_thresholds(Thresholds::ALWAYS);
    let limits =
        Limits { pending_requests: 24, abort_timeout: Duration::from_millis(30), ..Limits::default() };
    let interface = Interface::new(passing, limits);
    let doors = to.iter().map(|name| Door::new(name, ConnectOptions::default())).collect();
    let relay = Arc::new(Relay { interface, directory: link.directory(), doors });
    let (listener, private) = claim(&link, options());
    let serving = listener.serve(Face(Arc::clone(&relay))).expect("a server");
    let spaces = [relay.interface.space().clone(), private];
    let objects = || spaces.iter().map(|space| checked(space).objects).sum::<u32>() as usize;
    let (base, base_objects) = (Traces::now().serving(2, 1), objects());
    let running = serving.start().expect("threads");
    link.tell(&Word::Ready);
    loop {
        let Some(Cue::Rest) = link.wait(Duration::from_secs(1)) else { continue };
        eventually("memory is held that no thread waits for", || held(&relay.interface));
        relay.doors.iter().for_each(Door::close);
        let left = Traces::settle(&base, PATIENCE, || objects() - base_objects);
        left.unwrap_or_else(|left| panic!("all clients are gone, but not {left}: {:?}", running.status()));
        assert_eq!(running.status().clients_total, 0, "all clients are gone");
        eventually("lent memory is kept", || lent(&relay.interface));
        if !link.rest() {
            break;
        }
    }
    drop((running, spaces, relay));
    Traces::settle(&before, PATIENCE, || 0)
        .unwrap_or_else(|left| panic!("the relay is closed, but not {left}"));
}

/// Bytes that are pending, or still held for requests that were.
pub(crate) fn held(interface: &Interface) -> Option<String> {
    let (usage, bytes) = (checked(interface.space()), interface.pending_bytes());
    let is_idle = (bytes, usage.references, usage.deferred, usage.system) == (0, 0, 0, 0);
    (!is_idle).then(|| format!("{bytes} bytes pending, {usage:?}"))
}

/// How much of its servers' memory a space still has.
pub(crate) fn lent(interface: &Interface) -> Option<String> {
    let usage = checked(interface.space());
    let is_own = (usage.lent, usage.retired) == (0, 0);
    (!is_own).then(|| format!("{usage:?}"))
}
