//! Sending: a header, and a fragment of the client's output, in one request to the wire.

use std::time::Duration;

use genie_io::{ClientId, Incoming, Out, Pending, ServerError};
use genie_memory::Buffer;
use genie_sys::Errno;
use smallvec::SmallVec;

use super::argument::{self, refusal};
use super::counters::Counters;
use super::options::Summing;
use super::ports::State;
use super::{Datagrams, Inner};
use crate::checksum::{Checksum, ones_complement};
use crate::driver::link::{Headed, Origin};
use crate::packet::{Between, Header, Hosts};

/// How long a reply takes at most.
const COST: Duration = Duration::from_micros(5);

/// One of the datagrams that a client may have on the wire.
struct Sending {
    /// None when the link has it, and says what becomes of it.
    server: Option<Datagrams>,
    client: ClientId,
    port: u16,
    is_sent: bool,
}

/// A datagram as it is sent: its headers, and data that is sent instead of the client's output.
struct Framed {
    head: SmallVec<[u8; 62]>,
    copy: Option<Buffer>,
    len: usize,
}

impl Datagrams {
    /// Sends a datagram, and replies when the wire has.
    pub(super) fn send(&self, mut request: Incoming) {
        let (framed, mut sending) = match self.framed(&request) {
            Ok(framed) => framed,
            Err(error) => return request.reply(Err(error)),
        };
        if let Some(link) = self.0.uplink.link()
            && let Some(Datagrams(origin)) = sending.server.take()
        {
            let port = sending.port;
            return link.send(request, Headed { head: framed.head, copy: framed.copy, origin, port });
        }
        match self.transmit(&mut request, framed, &sending) {
            Ok((pending, is_copied)) => {
                let request = if is_copied {
                    request.reply(Ok(()));
                    None
                } else {
                    Some(request)
                };
                pending.then(COST, move |came| {
                    // The client may send again in what follows the reply.
                    sending.is_sent = came.is_ok();
                    drop(sending);
                    if let Some(request) = request {
                        request.reply(came.map(drop).map_err(|failed| failed.error.into()));
                    }
                });
            }
            Err(error) => {
                drop(sending);
                request.reply(Err(error));
            }
        }
    }

    /// Makes the request to the wire; also returns whether the client's output was copied.
    fn transmit(
        &self,
        request: &mut Incoming,
        framed: Framed,
        sending: &Sending,
    ) -> Result<(Pending<'static>, bool), ServerError> {
        let (uplink, wire) = (&self.0.uplink, self.0.uplink.wire()?);
        let Framed { head, copy, len } = framed;
        if copy.is_none() && len > 0 {
            let (pending, copied) = uplink.forward(&wire, &head, (request, 0..len), &[])?;
            sending.count(|counters| counters.copied += copied as u64);
            return Ok((pending, copied > 0));
        }
        let is_copied = copy.is_some();
        let pending = uplink.send(&wire, &head, copy.map(Out::emulated_share), &[]);
        Ok((pending.map_err(|failed| failed.error)?, is_copied))
    }

    /// Makes the datagram of a request, but for its data.
    fn framed(&self, request: &Incoming) -> Result<(Framed, Sending), ServerError> {
        let (mut header, sending) = self.header(request)?;
        let is_v6 = matches!(header.hosts, Hosts::V6(_));
        let mut copy = None;
        match self.0.options.summing {
            Summing::None if !is_v6 => {}
            _ if header.len == 0 => header.checksum = header.udp_sum(0),
            Summing::None | Summing::Separate => {
                header.checksum =
                    header.udp_sum(ones_complement(Checksum::Internet.of_data(&request.output(0)?)));
                sending.count(|counters| counters.summed += u64::from(header.len));
            }
            Summing::Integrated => {
                let output = request.output(0)?;
                let mut buffer = self.0.uplink.genie.allocate(output.len())?;
                header.checksum =
                    header.udp_sum(ones_complement(Checksum::Internet.copy_data(&output, &mut buffer)));
                sending.count(|counters| {
                    counters.copied += u64::from(header.len);
                    counters.integrated += u64::from(header.len);
                });
                copy = Some(buffer);
            }
        }
        let head = header.build().map_err(|error| ServerError::new(error.to_string()))?;
        Ok((Framed { head, copy, len: header.len.into() }, sending))
    }

    /// The header of a request's datagram, without a checksum, if it can be sent.
    fn header(&self, request: &Incoming) -> Result<(Header, Sending), ServerError> {
        let (port, to) = argument::parse_send(request.argument())?;
        if !request.is_empty() {
            request.output(0)?;
        }
        let (client, len, options) = (request.client().id, request.len(0), &self.0.options);
        let most = options.limits.sending;
        let is_full = |state: &State| state.clients.get(&client).is_some_and(|usage| usage.sending >= most);
        let mut state = self.0.state.lock();
        if is_full(&state) {
            // A wire in another process may have replied long ago, where nobody waits for that.
            drop(state);
            self.0.uplink.genie.collect();
            state = self.0.state.lock();
        }
        let to = match (state.own(client, port)?.peer, to) {
            (Some(peer), None) => peer,
            (Some(peer), Some(to)) if peer != to => {
                return Err(refusal(
                    Errno::ISCONN,
                    format!("port {port} is connected to {peer}, not to {to}"),
                ));
            }
            (_, Some(to)) => to,
            (None, None) => {
                let message = format!("port {port} is not connected; say where the datagram is to go");
                return Err(refusal(Errno::DESTADDRREQ, message));
            }
        };
        if to.port() == 0 {
            return Err(refusal(
                Errno::ADDRNOTAVAIL,
                "port 0 is nobody's: a datagram goes to another one".to_owned(),
            ));
        }
        let way = match options.known_way(to.ip())? {
            Some(way) => way,
            None => {
                drop(state);
                let way = options.find_way(to.ip())?;
                state = self.0.state.lock();
                // Meanwhile the client may have closed the port, and another one opened it.
                state.own(client, port)?;
                way
            }
        };
        let stations = Between { from: options.station, to: way.station };
        let hosts = options.hosts(to.ip(), way.from)?;
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let mtu = options.mtu.min(way.mtu);
        if len + headers > mtu {
            let message = format!(
                "a datagram of {len} bytes, with its headers of {headers}, is longer than the MTU, {mtu}"
            );
            return Err(refusal(Errno::MSGSIZE, message));
        }
        let is_full = is_full(&state);
        let usage = state.clients.entry(client).or_default();
        if is_full {
            return Err(refusal(
                Errno::NOBUFS,
                format!("a client may have {most} datagrams on the wire (`Limits::sending`)"),
            ));
        }
        usage.sending += 1;
        let ports = Between { from: port, to: to.port() };
        let header = Header { stations, hosts, ports, len: len as u16, checksum: 0 };
        Ok((header, Sending { server: Some(self.clone()), client, port, is_sent: false }))
    }
}

impl Sending {
    fn count(&self, count: impl Fn(&mut Counters)) {
        if let Some(Datagrams(server)) = &self.server {
            server.state.lock().count(self.port, count);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(Datagrams(server)) = &self.server {
            server.state.lock().has_sent(self.client, self.port, self.is_sent);
        }
    }
}

impl State {
    /// What has become of one of the datagrams that a client may have on the wire.
    fn has_sent(&mut self, client: ClientId, port: u16, is_sent: bool) {
        // The port may be closed, or another client's, by now.
        let port = self.own(client, port).map_or(0, |_| port);
        self.count(port, |counters| {
            counters.sent += u64::from(is_sent);
            counters.unsent += u64::from(!is_sent);
        });
        if let Some(usage) = self.clients.get_mut(&client) {
            usage.sending -= 1;
        }
    }
}

impl Origin for Inner {
    fn sent(&self, request: Incoming, port: u16, result: Result<(), ServerError>) {
        // The client may send again in what follows the reply.
        self.state.lock().has_sent(request.client().id, port, result.is_ok());
        request.reply(result);
    }
}
