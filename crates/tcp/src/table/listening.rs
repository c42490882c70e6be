//! What a table does at its listeners.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::{Id, Refused, Row, Table};
use crate::config::Config;
use crate::connection::{Connection, Origin, State};
use crate::cookie;
use crate::listener::{Backlog, Listener};
use crate::options::{Options, Timestamps};
use crate::payload::Payload;
use crate::segment::{Flags, Header, Path, Segment};
use crate::sequence::Seq;
use crate::timers::Time;
use crate::timestamps;

impl<P: Payload> Table<P> {
    /// Listens at an address and a port; at the port of all addresses, where the address is unspecified (MUST-43). Connections that there
    /// are at the port, or that are opened from it, are not touched (MUST-41, MUST-42).
    ///
    /// # Errors
    /// When something listens there already.
    pub fn listen(&mut self, at: SocketAddr, config: Arc<Config>, backlog: Backlog) -> Result<(), Refused> {
        if at.port() == 0 {
            return Err(Refused::NoPath(at, at));
        } else if self.listeners.contains_key(&at) {
            return Err(Refused::PortInUse(at));
        }
        self.listeners.insert(at, Listener::new(config, backlog));
        Ok(())
    }

    /// Listens no more. Connections that were not accepted are aborted.
    pub fn unlisten(&mut self, at: SocketAddr, now: Time) {
        if self.listeners.remove(&at).is_none() {
            return;
        }
        let waiting: Vec<Id> =
            self.rows.iter().filter(|(_, row)| row.listener == Some(at)).map(|(id, _)| *id).collect();
        for id in waiting {
            if let Some(row) = self.rows.get_mut(&id) {
                row.listener = None;
            }
            self.release(id, now);
        }
    }

    /// A connection that was established at a listener, the earliest first.
    pub fn accept(&mut self, at: SocketAddr) -> Option<Id> {
        let id = self.listeners.get_mut(&at)?.ready.pop_front()?;
        if let Some(row) = self.rows.get_mut(&id) {
            row.listener = None;
        }
        self.refresh(id);
        Some(id)
    }

    /// The listener for a path: that of its very address before that of all addresses.
    pub(super) fn listener_of(&self, path: &Path) -> Option<SocketAddr> {
        let any: IpAddr =
            if path.is_v6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        [path.local, (any, path.local.port()).into()].into_iter().find(|at| self.listeners.contains_key(at))
    }

    /// Takes a segment for a listener (RFC 9293 §3.10.7.2). If it is not, a reset is to answer it.
    pub(super) fn on_segment_at_listener(
        &mut self,
        path: Path,
        segment: &Segment<P>,
        earliest: Option<Seq>,
        now: Time,
    ) -> bool {
        let Some(at) = self.listener_of(&path) else { return false };
        let Flags { syn, ack, rst, .. } = segment.header.flags;
        match (rst, ack, syn) {
            (true, ..) => true,
            (false, true, false) => self.taste(at, path, segment, now),
            (false, true, true) => false,
            (false, false, true) => {
                self.on_syn(at, path, segment, earliest, now);
                true
            }
            (false, false, false) => true,
        }
    }

    fn on_syn(&mut self, at: SocketAddr, path: Path, segment: &Segment<P>, earliest: Option<Seq>, now: Time) {
        let mut origin = self.origin(&path, now);
        let Some(listener) = self.listeners.get_mut(&at) else { return };
        if !listener.has_room() {
            self.counted.dropped += 1;
        } else if listener.half_open < listener.backlog.half_open {
            listener.half_open += 1;
            let config = listener.config.clone();
            origin.iss = earliest.map_or(origin.iss, |it| it.latest(origin.iss));
            self.add(path, Connection::accept(config, origin, segment, now), Some(at));
        } else {
            listener.baked = Some(now);
            self.counted.cookies += 1;
            let config = listener.config.clone();
            let answer = self.cookie_for(&path, &config, &segment.header, origin, now);
            self.answer(path, answer);
        }
    }

    /// The answer to a SYN of which nothing is kept.
    fn cookie_for(&self, path: &Path, config: &Config, syn: &Header, origin: Origin, now: Time) -> Header {
        let theirs = syn.options.timestamps.filter(|_| config.timestamps);
        // Without an echo, nothing tells later what the peer can do.
        let told = Options {
            window_scale: syn.options.window_scale.filter(|_| theirs.is_some() && config.window_scaling),
            sack_permitted: syn.options.sack_permitted && theirs.is_some() && config.sack,
            ..Options::default()
        };
        let options = Options {
            mss: Some(config.mss(path.is_v6())),
            window_scale: told.window_scale.map(|_| config.window_shift()),
            sack_permitted: told.sack_permitted,
            timestamps: theirs.map(|it| Timestamps {
                value: cookie::told_by(timestamps::value(origin.timestamp_offset, now), &told),
                echo: it.value,
            }),
            ..Options::default()
        };
        let mss = config.send_mss(path.is_v6(), syn.options.mss);
        let seq: Seq = cookie::bake(&self.secret, path, syn, mss, now);
        let flags = Flags { syn: true, ack: true, ..Flags::default() };
        let window = config.receive_capacity.min(u16::MAX.into()) as u16;
        Header { seq, ack: syn.seq + 1, flags, window, options }
    }

    /// Takes an acknowledgment that may be of a cookie. If it is not, a reset is to answer it.
    fn taste(&mut self, at: SocketAddr, path: Path, segment: &Segment<P>, now: Time) -> bool {
        let mut origin = self.origin(&path, now);
        let listener = &self.listeners[&at];
        if !listener.expects_cookies(now) {
            return false;
        }
        let Some(peer) = cookie::taste(&self.secret, &path, &segment.header, now) else { return false };
        if !listener.has_room() {
            self.counted.dropped += 1;
            return true; // The peer sends it again, with its data.
        }
        let config = listener.config.clone();
        self.counted.tasted += 1;
        origin.iss = segment.header.ack - 1;
        let connection = Connection::restore(config, origin, peer, &segment.header, now);
        if let Some(listener) = self.listeners.get_mut(&at) {
            listener.half_open += 1; // Until it is moved on, by the segment itself.
        }
        let id = self.add(path, connection, Some(at));
        self.with(id, |connection| connection.on_segment(segment, now));
        true
    }
}

impl<P: Payload> Row<P> {
    /// A connection at a listener may be established now, or over.
    pub(super) fn move_on(&mut self, id: Id, listeners: &mut HashMap<SocketAddr, Listener>) {
        let Some(listener) = self.listener.and_then(|at| listeners.get_mut(&at)) else { return };
        match self.connection.state() {
            State::SynReceived => (),
            State::Closed => {
                // Nobody was told of it (RFC 9293 §3.10.7.4, second), or it was lost before it was accepted.
                if let Some(at) = listener.ready.iter().position(|it| *it == id) {
                    listener.ready.remove(at);
                } else {
                    listener.half_open -= 1;
                }
                (self.listener, self.released) = (None, true);
            }
            _ if !listener.ready.contains(&id) => {
                listener.half_open -= 1;
                listener.ready.push_back(id);
            }
            _ => (),
        }
    }
}
