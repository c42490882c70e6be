//! The arguments of the datagram server's services, and of its replies.
//!
//! How: numbers, all little-endian, and addresses: a byte that is 4 or 6, or 0 if there is none, the host's 16 bytes, of which IPv4 uses
//! the first 4, and the port.
//! Trust: the bytes come from a client. What is too short or too long is refused, and the names of flows and zones in an address are dropped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use genie_io::ServerError;
use genie_sys::Errno;
use smallvec::SmallVec;

use crate::adapter::Program;
use crate::adapter::program::HEAD;

/// How long an address is.
const ADDRESS: usize = 19;
/// How long the argument is that comes back from [`OPEN`](super::OPEN).
pub const OPENED: usize = 2;
/// How long the argument is that comes back from [`RECEIVE`](super::RECEIVE), without what was taken off the datagram ([`Open::room`]).
pub const ARRIVED: usize = ADDRESS + 6 + 4 * WORK;
/// How many numbers tell of what was done for a datagram.
const WORK: usize = 4;
/// How long header and trailer of the application's may be together.
pub const APART: usize = HEAD;

/// What a port is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number; 0 for any that is free.
    pub port: u16,
    /// To whom it is connected: its datagrams go there, and it receives none from elsewhere.
    pub peer: Option<SocketAddr>,
    /// How many datagrams wait there for requests to receive them, if that is less than the server allows.
    pub queued: u32,
    /// How many bytes these have, in the same way.
    pub queued_bytes: u32,
    /// How long the application's own header and trailer of each datagram are, which come [apart](Arrived) from the data. The program sees
    /// the datagram alone, and what port it returns is ignored. A datagram that it rejects, or of which it takes more than [`APART`] bytes off,
    /// is dropped and counted ([`Counters::rejected`](super::Counters::rejected)).
    pub apart: Option<Program>,
}

/// A datagram that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The address of its sender.
    pub from: SocketAddr,
    /// How long its data was: if that is more than came, the rest was dropped.
    pub len: usize,
    /// What was done for it, beside what the reply's receipt tells.
    pub work: Work,
    /// The application's header, if its port has a program that says how long it is ([`Open::apart`]).
    pub header: SmallVec<[u8; 64]>,
    /// The application's trailer, likewise.
    pub trailer: SmallVec<[u8; 16]>,
}

/// How many of a datagram's bytes the server and its adapter have read and copied, which receipts do not tell of: these are of the client's
/// interface alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of data that the server has read for the checksum alone.
    pub summed: usize,
    /// Bytes that were summed while they were copied, or transferred from the adapter's own memory.
    pub integrated: usize,
    /// Bytes that the adapter has summed as it stored them.
    pub by_adapter: usize,
    /// Bytes that the server has copied to where they belong.
    pub copied: usize,
}

impl Default for Open {
    fn default() -> Self {
        Self { port: 0, peer: None, queued: u32::MAX, queued_bytes: u32::MAX, apart: None }
    }
}

impl Open {
    /// How many bytes of room the argument of a reply needs that comes back from [`RECEIVE`](super::RECEIVE) at such a port.
    pub fn room(&self) -> usize {
        let (header, trailer) = self.apart.as_ref().map_or((0, 0), Program::longest);
        ARRIVED + header.saturating_add(trailer).min(APART as u64) as usize
    }
}

/// The argument of [`OPEN`](super::OPEN).
pub fn open_argument(open: &Open) -> Vec<u8> {
    let limits = [open.queued.to_le_bytes(), open.queued_bytes.to_le_bytes()].concat();
    let apart = open.apart.as_ref().map(Program::to_bytes).unwrap_or_default();
    [&open.port.to_le_bytes(), &address(open.peer)[..], &limits, &apart].concat()
}

/// The number of the port that was opened, from the reply's argument.
pub fn opened(reply: &[u8]) -> Option<u16> {
    reply.try_into().ok().map(u16::from_le_bytes)
}

/// The argument of [`SEND`](super::SEND), from a port to `to`; to its peer, if that is none.
pub fn send_argument(port: u16, to: Option<SocketAddr>) -> [u8; 2 + ADDRESS] {
    let mut argument = [0; 2 + ADDRESS];
    argument[..2].copy_from_slice(&port.to_le_bytes());
    argument[2..].copy_from_slice(&address(to));
    argument
}

/// The argument of [`RECEIVE`](super::RECEIVE), [`CLOSE`](super::CLOSE) and [`STATISTICS`](super::STATISTICS).
pub fn port_argument(port: u16) -> [u8; 2] {
    port.to_le_bytes()
}

impl Arrived {
    /// What a reply's argument says.
    pub fn from_reply(argument: &[u8]) -> Option<Self> {
        let mut fields = Fields(argument);
        let (from, len) = (fields.address().ok()??, fields.number().ok()?);
        let mut number = || fields.number().ok().map(|number| number as usize);
        let work =
            Work { summed: number()?, integrated: number()?, by_adapter: number()?, copied: number()? };
        let header = u16::from_le_bytes(fields.take().ok()?);
        let (header, trailer) = fields.0.split_at_checked(header.into())?;
        Some(Self { from, len: len as usize, work, header: header.into(), trailer: trailer.into() })
    }

    pub(super) fn to_reply(&self) -> SmallVec<[u8; 64]> {
        let Self { from, len, work, header, trailer } = self;
        let mut argument = SmallVec::from_slice(&address(Some(*from)));
        for number in [*len, work.summed, work.integrated, work.by_adapter, work.copied] {
            argument.extend_from_slice(&(number as u32).to_le_bytes());
        }
        argument.extend_from_slice(&(header.len() as u16).to_le_bytes());
        argument.extend_from_slice(header);
        argument.extend_from_slice(trailer);
        argument
    }
}

/// What the argument of [`OPEN`](super::OPEN) says.
pub(super) fn parse_open(argument: &[u8]) -> Result<Open, ServerError> {
    let mut fields = Fields(argument);
    let (port, peer) = (u16::from_le_bytes(fields.take()?), fields.address()?);
    let (queued, queued_bytes) = (fields.number()?, fields.number()?);
    let refused = |refused| ServerError::misuse(format!("the program of the port is refused: {refused}"));
    let apart = (!fields.0.is_empty()).then(|| Program::from_bytes(fields.0).map_err(refused)).transpose()?;
    Ok(Open { port, peer, queued, queued_bytes, apart })
}

/// What the argument of [`SEND`](super::SEND) says.
pub(super) fn parse_send(argument: &[u8]) -> Result<(u16, Option<SocketAddr>), ServerError> {
    let mut fields = Fields(argument);
    let parsed = (u16::from_le_bytes(fields.take()?), fields.address()?);
    fields.end(parsed)
}

/// The port that an argument names.
pub(super) fn parse_port(argument: &[u8]) -> Result<u16, ServerError> {
    let mut fields = Fields(argument);
    let port = u16::from_le_bytes(fields.take()?);
    fields.end(port)
}

fn address(of: Option<SocketAddr>) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    let Some(of) = of else { return bytes };
    match of.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&ip.octets());
        }
    }
    bytes[17..].copy_from_slice(&of.port().to_le_bytes());
    bytes
}

/// The part of an argument that is still to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ServerError> {
        let (field, left) = self.0.split_first_chunk().ok_or_else(wrong)?;
        self.0 = left;
        Ok(*field)
    }

    fn number(&mut self) -> Result<u32, ServerError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn address(&mut self) -> Result<Option<SocketAddr>, ServerError> {
        let ([kind], ip) = (self.take()?, self.take::<16>()?);
        let port = u16::from_le_bytes(self.take()?);
        let ip: IpAddr = match kind {
            0 => return Ok(None),
            4 => Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]).into(),
            6 => Ipv6Addr::from(ip).into(),
            _ => return Err(wrong()),
        };
        Ok(Some(SocketAddr::new(ip, port)))
    }

    /// What was parsed, if nothing follows.
    fn end<T>(self, parsed: T) -> Result<T, ServerError> {
        if self.0.is_empty() { Ok(parsed) } else { Err(wrong()) }
    }
}

fn wrong() -> ServerError {
    ServerError::misuse(
        "this is no argument of the datagram server: `open_argument`, `send_argument` and `port_argument` make them",
    )
}

/// An error with a code of the kernel's.
pub(super) fn refusal(why: Errno, message: String) -> ServerError {
    ServerError { code: why.raw_os_error(), message }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_parsed_and_nothing_else_is(
            port: u16, peer: Option<SocketAddr>, queued: u32, queued_bytes: u32, apart: bool,
            header in prop::collection::vec(any::<u8>(), 0..100), cut in 0usize..100,
        ) {
            // Flows and zones are not encoded.
            let peer = peer.map(|peer| SocketAddr::new(peer.ip(), peer.port()));
            let open = Open { port, peer, queued, queued_bytes, apart: apart.then(|| Program::lengths(port, 4)) };
            let bytes = open_argument(&open);
            prop_assert_eq!(parse_open(&bytes).expect("an argument"), open);
            let is_whole = cut >= bytes.len() || apart && cut == open_argument(&Open::default()).len();
            prop_assert_eq!(parse_open(&bytes[..cut.min(bytes.len())]).is_ok(), is_whole);
            prop_assert_eq!(parse_send(&send_argument(port, peer)).expect("an argument"), (port, peer));
            prop_assert_eq!(parse_port(&port_argument(port)).expect("an argument"), port);
            prop_assert!(parse_port(&[0; 3]).is_err());
            if let Some(from) = peer {
                let trailer = header.iter().copied().take(cut).collect();
                let work = Work { summed: 1, integrated: queued as usize, by_adapter: 3, copied: 4 };
                let arrived = Arrived { from, len: queued as usize, work, header: header.into(), trailer };
                prop_assert_eq!(Arrived::from_reply(&arrived.to_reply()), Some(arrived));
            }
        }
    }
}
