//! A link, a sender of each kind at one end, and a receiver at the other.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use genie_net::namespaces::Pair;
use genie_net::packet::{Between, Hosts};
use genie_net::raw::{self, Flow, Piece};

use super::way::{Interface, Way};
use crate::datagrams::{self, Arrivals, Calls, beside};
use crate::error::{Error, Result};
use crate::probe::Probe;

const MTU: u32 = 9000;
const PORT: u16 = 7000;
/// How many buffers each of the paper's interfaces has.
const BUFFERS: usize = 64;
/// Where the application's data begins in its own memory: nowhere in particular.
const OFFSET: usize = 100;
/// Of how many datagrams all bytes are compared.
const VERIFIED: usize = 70;

/// What a turn took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The time from one datagram to the next at the receiver, in nanoseconds.
    pub(super) each: u64,
    /// Bytes of datagrams that did not arrive.
    pub(super) lost: u64,
    /// Bytes that Genie has copied.
    pub(super) copied: u64,
    /// Bytes that the kernel has copied on the way out.
    pub(super) copied_by_kernel: u64,
}

/// Both ends.
pub(super) struct Stage {
    pair: Pair,
    socket: UdpSocket,
    sender: raw::Sender,
    /// With a checksum, and without.
    flows: [Flow; 2],
    len: usize,
    /// The data for the socket and for copying, and that which is gathered.
    bytes: Vec<u8>,
    pieces: Vec<Vec<Piece>>,
    receiver: datagrams::Socket,
    turns: u64,
    probe: Probe,
}

impl Stage {
    /// For datagrams of one length.
    pub(super) fn open(len: usize) -> Result<Self> {
        let pair = Pair::new(MTU).map_err(failed)?;
        let [near, far] = &pair.ends;
        let options =
            raw::Options { buffers: BUFFERS, area: OFFSET + BUFFERS * len, ..raw::Options::default() };
        let (sender, mut area) =
            near.namespace.enter(|| raw::Sender::open(&near.interface.name, &options)).map_err(failed)?;
        let probe = Probe::pin()?;
        let receiving = far.namespace.enter(|| UdpSocket::bind((far.v4, 0))).map_err(failed)?;
        let to = receiving.local_addr().map_err(failed)?;
        let socket = near.namespace.enter(|| UdpSocket::bind((near.v4, PORT))).map_err(failed)?;
        socket.connect(to).map_err(failed)?;
        // The kernel asks for the other end's station first.
        receiving.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
        socket.send(&[]).and_then(|_| receiving.recv(&mut [])).map_err(failed)?;
        let flow = |has_checksum| {
            let stations = Between { from: near.interface.station, to: far.interface.station };
            let hosts = Hosts::V4(Between { from: near.v4, to: far.v4 });
            Flow::new(stations, hosts, Between { from: PORT, to: to.port() }, has_checksum).map_err(failed)
        };
        let flows = [flow(true)?, flow(false)?];
        let receiver = datagrams::Socket::new(receiving, Calls::Spinning, len, 0)?;
        let _ = area.split_to(OFFSET);
        let pieces = (0..BUFFERS).map(|_| vec![area.split_to(len)]).collect();
        let bytes = vec![0; len];
        Ok(Self { pair, socket, sender, flows, len, bytes, pieces, receiver, turns: 0, probe })
    }

    /// Sends some datagrams, of which the receiver compares all bytes.
    pub(super) fn verify(&mut self, way: Way) -> Result<()> {
        let byte = 1 + way.name().len() as u8;
        self.bytes.fill(byte);
        let mut buffers = Vec::new();
        while let Some(mut buffer) = self.sender.buffer().map_err(failed)? {
            buffer.fill(byte);
            buffers.push(buffer);
        }
        drop(buffers);
        while let Some(given) = self.sender.gathered().map_err(failed)? {
            self.pieces.push(given);
        }
        self.pieces.iter_mut().flatten().for_each(|piece| piece.fill(byte));
        self.turn(way, VERIFIED, Some(byte)).map(drop)
    }

    /// Sends datagrams, and tells how fast they arrived.
    pub(super) fn run(&mut self, way: Way, count: usize) -> Result<Turn> {
        self.turn(way, count, None)
    }

    fn turn(&mut self, way: Way, count: usize, byte: Option<u8>) -> Result<Turn> {
        let len = self.len;
        // A socket's checksum is the kernel's, which otherwise leaves it to the link.
        self.pair.ends[0].offload_checksums(!way.has_checksum)?;
        self.turns += 1;
        let numbers = self.turns << 32..(self.turns << 32) + count as u64;
        let mut arrivals = Arrivals::of(numbers.clone(), len, byte);
        let before = self.sender.counters();
        let cpu = self.probe.other().unwrap_or(self.probe.here());
        let Self { sender, socket, flows, pieces, bytes, receiver, .. } = self;
        let mut sending = Sending { sender, socket, flows, pieces, bytes };
        let receiving = |all_sent: &AtomicBool| datagrams::receive(receiver, &mut arrivals, all_sent);
        beside(cpu, receiving, || {
            numbers.into_iter().try_for_each(|number| sending.send(way, number))?;
            sending.sender.flush().map_err(failed)
        })?;
        let came = arrivals.count() as usize;
        if arrivals.is_wrong() || byte.is_some() && came < count {
            let found = format!(
                "{came} of {count} datagrams of {len} bytes have come by {}, or not as they were sent",
                way.name()
            );
            return Err(Error::Peer(found));
        }
        let after = self.sender.counters();
        let by_socket = if way.interface == Interface::Socket { (count * len) as u64 } else { 0 };
        Ok(Turn {
            each: crate::samples::nanoseconds(arrivals.each().unwrap_or_default()),
            lost: ((count - came) * len) as u64,
            copied: after.copied - before.copied,
            copied_by_kernel: after.copied_by_kernel - before.copied_by_kernel + by_socket,
        })
    }
}

/// What one thread sends with, while another one receives.
struct Sending<'s> {
    sender: &'s mut raw::Sender,
    socket: &'s UdpSocket,
    flows: &'s [Flow; 2],
    pieces: &'s mut Vec<Vec<Piece>>,
    bytes: &'s mut [u8],
}

impl Sending<'_> {
    fn send(&mut self, way: Way, number: u64) -> Result<()> {
        let Self { socket, sender, flows, pieces, bytes } = self;
        let flow = &flows[usize::from(!way.has_checksum)];
        let number = number.to_le_bytes();
        let none = || Error::Peer("the link takes no more datagrams".to_owned());
        match way.interface {
            Interface::Socket => {
                bytes[..number.len()].copy_from_slice(&number);
                socket.send(bytes).map_err(failed)?;
            }
            Interface::Copying => {
                bytes[..number.len()].copy_from_slice(&number);
                let is_sent = sender.copy(flow, bytes).map_err(failed)?;
                is_sent.then_some(()).ok_or_else(none)?;
            }
            Interface::Mmap => {
                let mut buffer = sender.buffer().map_err(failed)?.ok_or_else(none)?;
                buffer[..number.len()].copy_from_slice(&number);
                sender.send(flow, buffer, bytes.len()).map_err(failed)?;
            }
            Interface::MmapEach => {
                let mut buffer = sender.buffer_after(BUFFERS / 2).map_err(failed)?.ok_or_else(none)?;
                buffer.write(0, &number);
                sender.send(flow, buffer, bytes.len()).map_err(failed)?;
                sender.flush().map_err(failed)?;
            }
            Interface::Gather => {
                let mut given = match pieces.pop() {
                    Some(pieces) => pieces,
                    None => sender.gathered().map_err(failed)?.ok_or_else(none)?,
                };
                given[0][..number.len()].copy_from_slice(&number);
                sender.gather(flow, given).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
}
