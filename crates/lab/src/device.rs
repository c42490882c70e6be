//! The loop device: a driver whose network leads from a sender's request to a receiver's posted input.
//!
//! Why: the papers measured between two hosts, through an adapter that demultiplexes early: when data arrives, its receiver
//! is known already, so the data goes straight into the system buffer of that receiver's input (customized buffers). Here
//! the adapter, the wire and both hosts are processes of one machine.
//! How: requests meet at ports. When sender and receiver are both there, the receiver's buffer is made ready, and the data
//! is copied once, from the sender's buffer to the receiver's: that copy stands for the wire, at the rate that was set. The
//! receiver gets its reply first, then the sender. The device waits by spinning, as hardware would.
//! A receiver that asks is told how long the longest datagram was that came to its port, and when that changes (MTU tracking).
//! Invariants: a request that waits is let go when it is aborted, or when its client has left.
//! Limits: 1024 requests wait, and 1024 ports are tracked; a datagram that is longer than the receiver's buffer is cut. There is one
//! wire, and a transfer takes it until it is over.
//! Source: J. C. Brustoloni's thesis, §6.4 (early demultiplexing, MTU tracking), §8.1.

mod ports;

use std::collections::HashMap;
use std::time::Instant;

use genie::mechanism::Preferred;
use genie::{
    Client, ClientId, Data, DataMut, Incoming, Preferences, RequestId, Server, ServerError, Service,
    ServiceId,
};
use genie_net::{Line, Rate};
use genie_sys::lock::Mutex;

use ports::{Met, Ports, Side};

/// Passes output buffer 0 to the client that receives at the port in the argument (see [`argument`]).
pub const TRANSMIT: ServiceId = ServiceId(0);
/// Fills input buffer 0 with what is sent to the port in the argument.
pub const RECEIVE: ServiceId = ServiceId(1);
/// Replies at once, and touches nothing.
pub const DISCARD: ServiceId = ServiceId(2);
/// Sets the rate from now on: the argument is bits a second, as 8 little-endian bytes, or 0 for no limit.
pub const PACE: ServiceId = ServiceId(3);

static SERVICES: [Service; 4] = [
    Service::new("transmit", true, false),
    Service::new("receive", false, true),
    Service::new("discard", false, false),
    Service::new("pace", false, false),
];

/// The argument that names a port.
pub fn argument(port: u32) -> [u8; 4] {
    port.to_le_bytes()
}

/// The port that an argument names.
fn port(argument: &[u8]) -> Option<u32> {
    argument.try_into().ok().map(u32::from_le_bytes)
}

/// How many bytes go at once at a rate of `bits` bits a second: as many as take 5 µs, within bounds.
fn chunk(bits: u64) -> usize {
    (bits / 8 / 200_000).clamp(4 << 10, 64 << 10) as usize
}

/// The device.
#[derive(Debug)]
pub struct Loop {
    ports: Mutex<Ports<Incoming>>,
    rate: Mutex<Rate>,
    /// For each port, how long the longest datagram was that came.
    longest: Mutex<HashMap<u32, usize>>,
    preferences: Preferences,
    opened: Instant,
}

impl Default for Loop {
    fn default() -> Self {
        Self {
            ports: Mutex::default(),
            rate: Mutex::new(Rate::Unlimited),
            longest: Mutex::default(),
            preferences: Preferences::new(),
            opened: Instant::now(),
        }
    }
}

impl Loop {
    /// A device with this rate.
    pub fn new(rate: Rate) -> Self {
        Self { rate: Mutex::new(rate), ..Self::default() }
    }

    fn meet(&self, request: Incoming, side: Side) {
        let Some(port) = port(request.argument()) else {
            let len = request.argument().len();
            request.reply(Err(ServerError::new(format!("a port is named by 4 bytes, not by {len}"))));
            return;
        };
        // The requests that met are served without the lock: no reply is ever given under it.
        let met = self.ports.lock().meet(port, side, request);
        match met {
            Met::Pair(sender, receiver) => self.pass(port, sender, receiver),
            Met::Waits => {}
            Met::Full(request) => {
                let reason = format!("{} requests wait at the device already", ports::WAITING_MAX);
                request.reply(Err(ServerError::new(reason)));
            }
        }
    }

    /// Notes the length of a datagram that came to a port.
    fn track(&self, port: u32, len: usize) {
        let mut longest = self.longest.lock();
        if longest.len() < ports::WAITING_MAX || longest.contains_key(&port) {
            let known = longest.entry(port).or_default();
            if *known < len {
                *known = len;
                drop(longest);
                self.preferences.changed();
            }
        }
    }

    /// Carries the data over and replies to both sides.
    fn pass(&self, port: u32, sender: Incoming, mut receiver: Incoming) {
        let result = self.carry(&sender, &mut receiver);
        if result.is_ok() {
            self.track(port, sender.len(0));
        }
        receiver.reply(result.clone());
        sender.reply(result);
    }

    fn carry(&self, sender: &Incoming, receiver: &mut Incoming) -> Result<(), ServerError> {
        let from = sender.output(0)?;
        let len = from.len().min(receiver.len(0));
        receiver.fill(0, |to| {
            let rate = self.rate.lock();
            match *rate {
                Rate::Unlimited => drop(to.copy_data(&from)),
                Rate::Bits(bits) => self.pace(Line::new(*rate), chunk(bits), &from.part(0..len), &to),
            }
            len
        })?;
        Ok(())
    }

    /// Copies chunk by chunk, each chunk at the time when it would have gone over the wire.
    fn pace(&self, mut line: Line, chunk: usize, from: &Data<'_>, to: &DataMut<'_>) {
        let (len, begun) = (from.len(), self.opened.elapsed());
        for start in (0..len).step_by(chunk) {
            let range = start..len.min(start + chunk);
            let sent = line.send(range.len() as u64, begun);
            while self.opened.elapsed() < sent {
                std::hint::spin_loop();
            }
            to.part(range.clone()).copy_data(&from.part(range));
        }
    }

    fn set_rate(&self, request: Incoming) {
        let result = match request.argument().try_into() {
            Ok(bits) => {
                *self.rate.lock() = Rate::of(u64::from_le_bytes(bits));
                Ok(())
            }
            Err(_) => Err(ServerError::new("a rate is 8 bytes long")),
        };
        request.reply(result);
    }
}

impl Server for Loop {
    fn name(&self) -> &str {
        "loop"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        match request.service() {
            TRANSMIT => self.meet(request, Side::Sender),
            RECEIVE => self.meet(request, Side::Receiver),
            DISCARD => request.reply(Ok(())),
            PACE => self.set_rate(request),
            ServiceId(other) => {
                request.reply(Err(ServerError::new(format!("the loop device has no service {other}"))));
            }
        }
    }

    fn preferred(&self, _client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        let port = port(argument).filter(|_| service == RECEIVE)?;
        let len = *self.longest.lock().get(&port)?;
        Some(Preferred { len, ..Preferred::default() })
    }

    fn preferences(&self) -> Option<&Preferences> {
        Some(&self.preferences)
    }

    fn abort(&self, request: RequestId) {
        // The requests are dropped without the lock, since dropping them replies.
        let gone = self.ports.lock().remove(|waiting| waiting.id() == request);
        drop(gone);
    }

    fn departed(&self, client: ClientId) {
        let gone = self.ports.lock().remove(|waiting| waiting.client().id == client);
        drop(gone);
    }
}
