//! The parties of the papers' experiments: a sender, a receiver, and what is between them ([`Route`]), in processes of their own.
//!
//! How, one operation: the sender stores new data into its buffer; the receiver posts its input, and says so; the sender
//! looks at the clock and requests its output, which the device or the wire copies to the receiver; the
//! receiver takes its reply, and looks at the clock. That is the *end-to-end latency*. Then the receiver compares every byte,
//! and reports the outcome, and the sender takes its own reply. The sender's reply-time operations overlap with the network
//! and are no part of the latency (thesis §8.2.2), though their CPU time counts.
//! CPU time is measured at the sender and the receiver, around their requests and the taking of their replies, in separate
//! operations, since reading the CPU clock disturbs an operation. It is I/O processing time without waiting (§8.1): the
//! device's copying, which stands for the wire, is not counted, nor is looking for replies. Instructions are counted around
//! the same work, again in separate operations: while a process has counters, each switch of its threads costs more (see
//! [`crate::counter`]).
//! Invariants: the other processes end with the sender, even one that is killed; they leave nothing behind.
//! Source: J. C. Brustoloni's thesis, §8.1, §8.2.2.

mod client;
mod device;
mod host;
mod meter;
mod order;
mod party;
pub(crate) mod pattern;
mod receiver;
mod seats;
mod stage;

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use genie::{Pending, Scheme};
use genie_net::namespaces::Pair;
use rustix::process::Pid;

use crate::clock::{CpuClock, now_ns};
use crate::error::{Error, Result};
use crate::interface::Granule;
use crate::medium::{self, Copied, Medium};
use crate::operations::OperationTime;
use crate::peer::Peer;
use client::Client;
pub use meter::Measure;
use meter::Meter;
pub(crate) use order::Order;
pub use order::{Effect, Network, Place, ROLE, Route};
use order::{End, Heard, Posting, Received};
pub use party::run;
pub use seats::Seats;
pub use stage::Stage;

/// One operation that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// How the sender passes its data.
    pub output: Scheme,
    /// How the receiver passes its data.
    pub input: Scheme,
    /// How many bytes.
    pub len: usize,
    /// What is measured.
    pub measure: Measure,
}

impl Transfer {
    /// An operation by one scheme at both ends, of which the latency is measured.
    pub fn of(scheme: Scheme, len: usize) -> Self {
        Self { output: scheme, input: scheme, len, measure: Measure::Latency }
    }
}

/// How an operation went.
#[derive(Debug, Clone)]
pub struct Transferred {
    /// From the sender's request to the receiver's having its data.
    pub latency: Duration,
    /// From the end of the sender's request until the receiver had the CPU, where they share one.
    pub hand_over: Duration,
    /// What both clients' processors did for passing the data, where that was measured.
    pub cpu: Option<Duration>,
    /// How often the event happened in both clients' processes, where it was counted and the counters were present all the
    /// time.
    pub count: Option<u64>,
    /// How long operations took at the sender and at the receiver, where that was measured.
    pub operations: [Vec<OperationTime>; 2],
    /// What was copied to bring the frames over a link of the kernel's, where the hosts' datagram servers are in the clients' processes.
    pub brought: Option<Copied>,
    /// What the sender's interface did.
    pub output: Effect,
    /// What the receiver's interface did.
    pub input: Effect,
}

/// The sender, which holds the other parties.
#[derive(Debug)]
pub struct Parties {
    // Declared in the order in which they are to go.
    client: Client,
    clock: CpuClock,
    receiver: Peer,
    /// Datagram servers in processes of their own.
    servers: Vec<Peer>,
    stage: Rc<Stage>,
    /// The kernel's link between the hosts, if that is their medium.
    _pair: Option<Pair>,
    route: Route,
    seed: u64,
}

impl Parties {
    /// Starts all parties, for data up to `longest`.
    ///
    /// # Errors
    /// A process does not start, or there is no memory.
    pub fn open(granule: Granule, longest: usize, route: Route) -> Result<Self> {
        let stage = Stage::open(granule, longest, &[route])?;
        let parties = Self::join(&stage, route)?;
        stage.close();
        Ok(parties)
    }

    /// Starts a sender and a receiver that take turns with others of the same stage.
    ///
    /// # Errors
    /// A process does not start, or there is no memory.
    pub fn join(stage: &Rc<Stage>, route: Route) -> Result<Self> {
        let number = stage.number();
        let pair = (route.medium() == Medium::Xdp).then(|| Pair::new(medium::MTU)).transpose();
        let pair = pair.map_err(|error| Error::Peer(error.to_string()))?;
        let namespace = |end: End| pair.as_ref().map(|pair| &pair.ends[end as usize].namespace);
        // The wire is there before the sender looks for it.
        let (theirs, their_server) =
            stage.attending(route, number, End::Receiver, namespace(End::Receiver))?;
        let receiver = Peer::start(ROLE, Some(stage.seat(route, End::Receiver)))?;
        let descriptors: Vec<_> = namespace(End::Receiver).into_iter().map(AsFd::as_fd).collect();
        receiver.order(&Order::Attend(theirs), &descriptors, "it connected to its server")?;
        let (ours, our_server) = stage.attending(route, number, End::Sender, namespace(End::Sender))?;
        Ok(Self {
            client: Client::open(&ours, namespace(End::Sender))?,
            clock: CpuClock::of_process(),
            receiver,
            servers: our_server.into_iter().chain(their_server).collect(),
            stage: Rc::clone(stage),
            _pair: pair,
            route,
            seed: 0,
        })
    }

    /// The other processes: the device, the receiver, and their servers.
    pub fn processes(&self) -> Vec<Pid> {
        self.stage.device.iter().chain([&self.receiver]).chain(&self.servers).map(Peer::pid).collect()
    }

    /// What is between the clients.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Which party runs on which CPU.
    pub fn seats(&self) -> Seats {
        self.stage.seats
    }

    /// The size of the sender's granules.
    pub fn granule(&self) -> usize {
        self.client.genie.space().granule_kind().size()
    }

    /// Makes one operation.
    ///
    /// # Errors
    /// [`Error::Unwired`] where a scheme wires memory and this process may not; [`Error::Counter`] where the event cannot be
    /// counted. After these the parties go on; any other error ends them.
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<Transferred> {
        self.seed += 1;
        let mut meter = Meter::of(transfer.measure, self.clock)?;
        let prepared = self.client.prepare(transfer.output, transfer.len, self.seed)?;
        self.post(transfer)?;
        let records = transfer.measure == Measure::Operations;
        if records {
            self.client.record();
        }
        let client = &mut self.client;
        let before = client.driver.brought();
        let sent_ns = now_ns();
        let sent = meter.around(|| client.transmit(transfer.output, prepared));
        let waiting_ns = now_ns();
        let pending = match sent {
            Ok(pending) => pending,
            Err(failed) => return Err(self.client.failed(failed)),
        };
        let received = self.received();
        let output = self.take_reply(pending, &mut meter)?;
        let sent = self.client.driver.brought_since(before);
        let operations = if records { self.client.recorded() } else { Vec::new() };
        let received = received?;
        let metered = meter.finish()?.with(received.metered);
        if let Some(offset) = received.damaged_at {
            return Err(damaged(transfer, offset));
        }
        for (effect, scheme) in [(&output, transfer.output), (&received.effect, transfer.input)] {
            if effect.is_unwired {
                return Err(Error::Unwired(scheme));
            }
        }
        Ok(Transferred {
            latency: Duration::from_nanos(received.delivered_ns.saturating_sub(sent_ns)),
            hand_over: Duration::from_nanos(received.resumed_ns.saturating_sub(waiting_ns)),
            cpu: metered.cpu,
            count: metered.count,
            operations: [operations, received.operations],
            brought: sent.zip(received.brought).map(|(sent, taken)| sent + taken),
            output,
            input: received.effect,
        })
    }

    /// Has the receiver post its input.
    fn post(&self, transfer: &Transfer) -> Result<()> {
        let posting = Posting {
            scheme: transfer.input.name().to_owned(),
            len: transfer.len,
            seed: self.seed,
            measure: transfer.measure,
        };
        self.receiver.tell(&Order::Receive(posting), &[], "it was to post an input")?;
        match self.receiver.hear("it posted an input")? {
            Heard::Posted => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn received(&self) -> Result<Received> {
        match self.receiver.hear("it received data")? {
            Heard::Received(received) => Ok(received),
            other => Err(unexpected(other)),
        }
    }

    fn take_reply(&mut self, pending: Pending<'_>, meter: &mut Meter) -> Result<Effect> {
        while !pending.is_replied() {
            self.client.driver.attend()?;
            std::thread::yield_now();
        }
        let replied = meter.around(|| pending.sync());
        Ok(Effect::of(&self.client.settle(replied)?.buffers[0].elements[0].receipt))
    }
}

fn unexpected(heard: Heard) -> Error {
    match heard {
        Heard::Failed { reason } => Error::Peer(format!("the receiver failed: {reason}")),
        Heard::Posted | Heard::Received(_) => Error::Peer("the receiver is out of step".to_owned()),
    }
}

fn damaged(transfer: &Transfer, offset: usize) -> Error {
    Error::Peer(format!(
        "data that was sent by {} and received by {} arrived damaged: of {} bytes those from {offset} on are not what was \
         sent; this is an error of Genie's, please report it",
        transfer.output, transfer.input, transfer.len
    ))
}
