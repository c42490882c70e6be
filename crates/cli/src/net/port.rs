//! A port of a datagram server as an end of the traffic.
//!
//! How: requests to send and to receive go in batches. While the oldest request is waited for, the others of the batch are under way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use genie::mechanism::model::{Allocation, Integrity};
use genie::net::datagram::{ARRIVED, Arrived, Open, RECEIVE, SEND, Socket, port_argument, send_argument};
use genie::net::driver::Link;
use genie::{Buffer, Error, Failed, In, Interface, Out, Pending, Reply, Scheme, ServerHandle};

use super::end::{Arrival, Costs, End, Load};
use crate::failure::Failure;

/// A port.
pub(crate) struct Port {
    genie: Interface,
    server: ServerHandle,
    socket: Socket,
    scheme: Scheme,
    batch: usize,
    /// How long the buffers are into which datagrams come.
    longest: usize,
    name: String,
    /// The driver, if it is in this process.
    link: Option<Link>,
    idle: Vec<Buffer>,
    sending: VecDeque<Pending<'static>>,
    receiving: VecDeque<Pending<'static>>,
    copied: u64,
}

/// How a port is used.
pub(crate) struct Use {
    pub(crate) number: u16,
    pub(crate) scheme: Scheme,
    pub(crate) batch: usize,
    pub(crate) longest: usize,
}

impl Port {
    pub(crate) fn open(
        genie: Interface,
        server: ServerHandle,
        link: Option<Link>,
        name: String,
        how: Use,
    ) -> Result<Self, Failure> {
        let Use { number, scheme, batch, longest } = how;
        let open = Open { port: number, ..Open::default() };
        let socket = Socket::open(&genie, &server, &open).map_err(failure)?;
        let (sending, receiving) = (VecDeque::with_capacity(batch), VecDeque::with_capacity(batch));
        let idle = Vec::new();
        Ok(Self {
            genie,
            server,
            socket,
            scheme,
            batch,
            longest,
            name,
            link,
            idle,
            sending,
            receiving,
            copied: 0,
        })
    }

    /// Makes as many requests to receive as belong to a batch.
    fn ask(&mut self) -> Result<(), Failure> {
        let mut batch = self.genie.batch();
        while self.receiving.len() < self.batch {
            let room = match self.scheme.allocation() {
                Allocation::Native => In::owned(self.scheme, self.buffer()?),
                Allocation::Migrant => In::migrant(self.scheme, self.longest),
            };
            let argument = port_argument(self.socket.port());
            let request =
                self.genie.request(&self.server, RECEIVE).input(room).argument(&argument).room(ARRIVED);
            self.receiving.push_back(request.batched(&mut batch).submit().map_err(failed)?);
        }
        Ok(())
    }

    fn buffer(&mut self) -> Result<Buffer, Failure> {
        self.idle.pop().map_or_else(|| self.genie.allocate(self.longest).map_err(Failure::could_not), Ok)
    }

    /// Waits for the oldest datagram to leave.
    fn depart(&mut self) -> Result<(), Failure> {
        if let Some(oldest) = self.sending.pop_front() {
            let mut reply = oldest.sync().map_err(failed)?;
            self.count(&reply);
            self.idle.extend(reply.take_buffer());
        }
        Ok(())
    }

    fn count(&mut self, reply: &Reply) {
        self.copied += reply.receipt().copied as u64;
    }
}

impl End for Port {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn load(&mut self, len: usize) -> Result<Load, Failure> {
        if len > self.longest {
            return Err(Failure::could_not(format!(
                "a datagram of {len} bytes is longer than the interface's MTU allows: {}",
                self.longest
            )));
        }
        Ok(match self.scheme.allocation() {
            Allocation::Native => Load::Native(self.buffer()?, len),
            Allocation::Migrant => {
                let is_strong = self.scheme.integrity() == Integrity::Strong;
                Load::Migrant(self.genie.allocate_migrant(len, is_strong).map_err(Failure::could_not)?)
            }
        })
    }

    fn send(&mut self, load: Load, to: SocketAddr) -> Result<(), Failure> {
        while self.sending.len() >= self.batch {
            self.depart()?;
        }
        let out = match load {
            Load::Native(buffer, len) => Out::owned(self.scheme, buffer).part(0..len),
            Load::Migrant(migrant) => Out::migrant(self.scheme, migrant),
            Load::Plain(bytes, len) => {
                let mut buffer = self.buffer()?;
                buffer[..len].copy_from_slice(&bytes[..len]);
                Out::owned(self.scheme, buffer).part(0..len)
            }
        };
        let argument = send_argument(self.socket.port(), Some(to));
        let request = self.genie.request(&self.server, SEND).out(out).argument(&argument);
        self.sending.push_back(request.submit().map_err(failed)?);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        while !self.sending.is_empty() {
            self.depart()?;
        }
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Option<Arrival>, Failure> {
        if self.receiving.len() <= self.batch / 2 {
            self.ask()?;
        }
        let Some(oldest) = self.receiving.pop_front() else { return Ok(None) };
        if !oldest.wait(timeout) {
            self.receiving.push_front(oldest);
            return Ok(None);
        }
        let mut reply = oldest.sync().map_err(failed)?;
        self.count(&reply);
        let Some(Arrived { from, len, .. }) = Arrived::from_reply(reply.argument()) else {
            return Err(Failure::could_not("the server is no datagram server: its reply makes no sense"));
        };
        let load = match (reply.take_buffer(), reply.take_migrant()) {
            (Some(buffer), _) => {
                let room = buffer.len();
                Load::Native(buffer, len.min(room))
            }
            (None, Some(migrant)) => Load::Migrant(migrant),
            (None, None) => Load::Plain(Box::default(), 0),
        };
        Ok(Some(Arrival { load, from, len }))
    }

    fn recycle(&mut self, load: Load) {
        if let Load::Native(buffer, _) = load {
            self.idle.push(buffer);
        }
    }

    fn costs(&self) -> Option<Costs> {
        let counters = self.link.as_ref().map(Link::counters);
        Some(Costs {
            copied_by_passing: self.copied,
            // A server that is gone says nothing.
            dropped_by_server: self.socket.statistics().map_or(0, |counters| counters.full),
            copied_by_driver: counters.map(|counters| counters.sent_bytes + counters.copied_by_kernel),
            dropped_by_kernel: counters.map(|counters| counters.dropped),
        })
    }
}

fn failed(failed: Failed) -> Failure {
    failure(failed.error)
}

/// The failure of a request, in the server's words if the server gave the reason.
fn failure(error: Error) -> Failure {
    match error {
        Error::Server(error) => Failure::could_not(error.message),
        error => Failure::could_not(error),
    }
}
