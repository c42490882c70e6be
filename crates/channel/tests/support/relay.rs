//! The relay: a server that forwards its requests' buffers to other servers, without touching them.
//!
//! How: for each request, the relay makes a request of its own to each of its servers, with the same service number, the
//! same argument and a fragment of each buffer. It may put an element of its own before the first output. It replies when
//! all its servers have, or at once. If a subcontractor gave a request up, the relay keeps its client's request until it is
//! asked to let it go, as servers may.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::{
    Failed, In, Incoming, Interface, Out, Pending, Reply, RequestId, Server, ServerError, ServerHandle,
    Service,
};
use genie_memory::Direction;
use genie_sys::Condvar;
use genie_sys::lock::Mutex;
use serde::{Deserialize, Serialize};

use super::log::Log;

/// What the relay puts before the first output.
pub(crate) const HEADER: &[u8] = b"forwarded: ";

/// A server that touches no data: its services have no mapping flags.
pub(crate) struct Relay {
    interface: Interface,
    to: Vec<ServerHandle>,
    manner: Manner,
    log: Option<Log>,
    aborted: Arc<Aborted>,
}

/// How it forwards requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    /// As they are.
    Plain,
    /// With a header before the first output.
    Heading,
    /// As they are; and it replies before it has the replies to its own requests.
    Hasty,
}

/// The requests that the relay was asked to let go.
#[derive(Default)]
struct Aborted {
    requests: Mutex<HashSet<RequestId>>,
    changed: Condvar,
}

static SERVICES: [Service; 7] = [const { Service::new("relay", false, false) }; 7];

impl Relay {
    pub(crate) fn new(interface: Interface, to: Vec<ServerHandle>, manner: Manner, log: Option<Log>) -> Self {
        Self { interface, to, manner, log, aborted: Arc::default() }
    }
}

impl Server for Relay {
    fn name(&self) -> &str {
        "relay"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut incoming: Incoming) {
        let asked: Result<Vec<_>, _> = self
            .to
            .iter()
            .map(|server| forward(&self.interface, server, &mut incoming, self.manner))
            .collect();
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return incoming.reply(Err(error)),
        };
        if self.manner == Manner::Hasty {
            return incoming.reply(Ok(()));
        }
        let aborted = Arc::clone(&self.aborted);
        let finish = move || {
            let result = finish(asked, &mut incoming);
            // An aborted request is let go, without a reply.
            if result.is_ok() || !aborted.wait_for(incoming.id()) {
                incoming.reply(result);
            }
        };
        std::thread::Builder::new().name("relay".into()).spawn(finish).expect("a thread");
    }

    fn abort(&self, request: RequestId) {
        self.log.iter().for_each(Log::note_abort);
        self.aborted.requests.lock().insert(request);
        self.aborted.changed.notify_all();
    }
}

impl Aborted {
    /// Waits until a request is to be let go; not for ever, since it may have failed of its own accord. Returns whether it
    /// is.
    fn wait_for(&self, request: RequestId) -> bool {
        let requests = self.requests.lock();
        let end = Instant::now() + Duration::from_secs(5);
        self.changed.wait_until(requests, Some(end), |requests| requests.contains(&request)).1
    }
}

/// Asks a server to do with the request's buffers what this one was asked to.
fn forward(
    interface: &Interface,
    server: &ServerHandle,
    incoming: &mut Incoming,
    manner: Manner,
) -> Result<Pending<'static>, ServerError> {
    let argument = incoming.argument().to_vec();
    let mut request = interface.request(server, incoming.service()).argument(&argument);
    for index in 0..incoming.buffers() {
        let fragment = incoming.fragment(index, 0..incoming.len(index))?;
        request = match fragment.direction() {
            Direction::Out if manner == Manner::Heading && index == 0 => {
                request.out(Out::copy(HEADER)).and_out(Out::fragment(fragment))
            }
            Direction::Out => request.out(Out::fragment(fragment)),
            Direction::In => request.input(In::fragment(fragment)),
        };
    }
    let asked = request.submit().map_err(|failed| ServerError::new(failed.to_string()))?;
    Ok(asked)
}

/// Waits for all replies; says what was passed, and, where there is room, how many bytes of the fragments were copied.
fn finish(asked: Vec<Pending<'static>>, incoming: &mut Incoming) -> Result<(), ServerError> {
    let replies: Vec<Result<Reply, Failed>> = asked.into_iter().map(Pending::sync).collect();
    for reply in replies {
        let reply = reply.map_err(|failed| ServerError::new(failed.to_string()))?;
        let mut copied = 0;
        for (index, buffer) in reply.buffers.iter().enumerate() {
            if incoming.direction(index)? == Direction::In {
                incoming.set_actual(index, buffer.actual)?;
            }
            copied += buffer.elements.last().map_or(0, |element| element.receipt.copied as u64);
        }
        if incoming.room() >= 8 {
            incoming.set_argument(&copied.to_le_bytes())?;
        }
    }
    Ok(())
}
