//! Flights: a flight is one request, from the choice of its server to the judgement of its outcome.

use std::time::{Duration, Instant};

use genie_io::{Error, Failed, Reply, Request, ServiceId};
use genie_passing::Scheme;

use crate::client::Client;
use crate::door::{Door, Visit};
use crate::order::Order;
use crate::random::Random;
use crate::verdict::{Circumstances, Reason};

/// The longest that a request may take whose server is stopped at times.
const LONGEST: Duration = Duration::from_secs(20);

/// One request.
pub(crate) struct Flight<'c> {
    pub(crate) client: &'c Client,
    door: &'c Door,
    visit: Visit,
    pub(crate) order: Order,
    argument: Vec<u8>,
    timeout: Option<Duration>,
    began: Instant,
    pub(crate) is_aborted: bool,
    pub(crate) is_too_large: bool,
}

impl<'c> Flight<'c> {
    /// Chooses a server that is there, and what it is to do; none, while that server is not there.
    pub(crate) fn choose(client: &'c Client, random: &mut Random) -> Option<Self> {
        let Some((door, visit, route)) = client.visit(random) else {
            client.count("no server");
            return None;
        };
        let order = Order::random(random, route);
        let is_timed = order.is_kept() || random.once_in(2);
        let timeout = is_timed.then(|| Duration::from_millis(5 + random.below(200) as u64));
        let argument = order.encode();
        let (began, is_aborted, is_too_large) = (Instant::now(), false, false);
        Some(Self { client, door, visit, order, argument, timeout, began, is_aborted, is_too_large })
    }

    /// Begins the request.
    pub(crate) fn request<'f, 'i>(&'f self, service: ServiceId) -> Request<'f, 'f, 'i> {
        let request = self.client.interface.request(&self.visit.server, service);
        match self.timeout {
            Some(timeout) => request.timeout(timeout),
            None => request,
        }
    }

    /// The order, for the first buffer.
    pub(crate) fn argument(&self) -> &[u8] {
        &self.argument
    }

    /// Whether its server is in another process.
    pub(crate) fn is_remote(&self) -> bool {
        self.visit.server.is_remote()
    }

    /// Judges what came of it, and counts; returns the reply.
    ///
    /// # Panics
    /// When it failed for no reason.
    pub(crate) fn land(
        &self,
        kind: &str,
        scheme: Scheme,
        came: Result<Reply, Failed>,
    ) -> Result<Reply, Failed> {
        let took = self.began.elapsed();
        assert!(took < LONGEST, "{kind} by {scheme} took {took:?}: {:?}", self.order);
        match &came {
            Ok(_) => {
                self.client.count(&format!("done: {kind} by {scheme}{}", self.way()));
                if self.visit.is_served_again() {
                    self.client.count("channels that serve again after a timeout");
                }
            }
            Err(failed) => {
                let reason = Reason::of(&failed.error, &self.circumstances());
                if matches!(failed.error, Error::Gone { .. }) {
                    self.door.leave(self.visit.pid);
                }
                if reason == Reason::TimedOut {
                    self.visit.note_late();
                }
                self.client.count(&format!("failed{}: {}", self.way(), reason.name()));
            }
        }
        came
    }

    /// Asks for other limits.
    pub(crate) fn adjust(&self, bytes: usize, requests: u32) {
        if let Err(error) = self.visit.server.adjust(bytes, requests) {
            let reason = Reason::of(&error, &self.circumstances());
            assert!(matches!(reason, Reason::Gone | Reason::NoDescriptors), "{error}");
            self.door.leave(self.visit.pid);
        }
    }

    /// Waits until the server has completed what was asked before, but not for ever: it keeps some requests.
    pub(crate) fn flush(&self) {
        let is_flushed = self.client.interface.flush(&self.visit.server, Duration::from_millis(300));
        self.client.count(if is_flushed { "flushes" } else { "flushes in vain" });
        assert!(self.began.elapsed() < LONGEST, "a flush takes its time and no more");
    }

    fn way(&self) -> &'static str {
        if self.order.is_relayed() { ", relayed" } else { "" }
    }

    fn circumstances(&self) -> Circumstances {
        Circumstances {
            pid: self.visit.pid,
            manner: self.order.manner,
            is_relayed: self.order.is_relayed(),
            is_timed: self.timeout.is_some(),
            is_aborted: self.is_aborted,
            is_too_large: self.is_too_large,
            is_scarce: self.client.is_scarce(),
        }
    }
}
