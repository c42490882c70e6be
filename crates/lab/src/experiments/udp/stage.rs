//! A link, a sender of each kind at one end, and a receiver at the other.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use genie_net::namespaces::Pair;
use genie_net::packet::{Between, Hosts};
use genie_net::raw::{self, Flow, Piece};
use genie_sys::machine;
use rustix::net::sockopt;

use super::super::partners::each;
use super::way::{Interface, Way};
use crate::error::{Error, Result};
use crate::probe::Probe;

const MTU: u32 = 9000;
const PORT: u16 = 7000;
/// How many buffers each of the paper's interfaces has.
const BUFFERS: usize = 64;
/// Where the application's data begins in its own memory: nowhere in particular.
const OFFSET: usize = 100;
/// How much the receiver's socket holds.
const HELD: usize = 64 << 20;
/// For how long nothing must have come when all was sent, for the rest to be lost.
const SILENCE: Duration = Duration::from_millis(50);
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

/// What the receiver is to do: so many datagrams of a length will come.
struct Order {
    /// The upper half of the datagrams' numbers. What is late from another turn does not count.
    turn: u64,
    count: usize,
    len: usize,
    /// What all bytes behind the number are to be.
    byte: Option<u8>,
    all_sent: Arc<AtomicBool>,
}

/// What has come.
struct Came {
    datagrams: usize,
    /// From the first to the last.
    time: Duration,
    /// Whether one had another length, number or byte than it should.
    is_wrong: bool,
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
    orders: Sender<Order>,
    came: Receiver<Came>,
    turns: u64,
    _probe: Probe,
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
        sockopt::set_socket_recv_buffer_size_force(&receiving, HELD).map_err(failed)?;
        let to = receiving.local_addr().map_err(failed)?;
        let socket = near.namespace.enter(|| UdpSocket::bind((near.v4, PORT))).map_err(failed)?;
        socket.connect(to).map_err(failed)?;
        // The kernel asks for the other end's station first.
        receiving.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
        socket.send(&[]).and_then(|_| receiving.recv(&mut [])).map_err(failed)?;
        receiving.set_nonblocking(true).map_err(failed)?;
        let flow = |has_checksum| {
            let stations = Between { from: near.interface.station, to: far.interface.station };
            let hosts = Hosts::V4(Between { from: near.v4, to: far.v4 });
            Flow::new(stations, hosts, Between { from: PORT, to: to.port() }, has_checksum).map_err(failed)
        };
        let flows = [flow(true)?, flow(false)?];
        let (orders, taken) = channel();
        let (told, came) = channel();
        let cpu = probe.other().unwrap_or(probe.here());
        std::thread::spawn(move || receive(&receiving, cpu, &taken, &told));
        let _ = area.split_to(OFFSET);
        let pieces = (0..BUFFERS).map(|_| vec![area.split_to(len)]).collect();
        let bytes = vec![0; len];
        Ok(Self { pair, socket, sender, flows, len, bytes, pieces, orders, came, turns: 0, _probe: probe })
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
        let all_sent = Arc::new(AtomicBool::new(false));
        let gone = || Error::Peer("the receiver has ended".to_owned());
        self.turns += 1;
        let turn = self.turns << 32;
        let order = Order { turn, count, len, byte, all_sent: Arc::clone(&all_sent) };
        self.orders.send(order).map_err(|_| gone())?;
        let before = self.sender.counters();
        for number in 0..count {
            self.send(way, turn | number as u64)?;
        }
        self.sender.flush().map_err(failed)?;
        all_sent.store(true, Ordering::Release);
        let came = self.came.recv().map_err(|_| gone())?;
        if came.is_wrong || byte.is_some() && came.datagrams < count {
            let found = format!(
                "{} of {count} datagrams of {len} bytes have come by {}, or not as they were sent",
                came.datagrams,
                way.name()
            );
            return Err(Error::Peer(found));
        }
        let after = self.sender.counters();
        let by_socket = if way.interface == Interface::Socket { (count * len) as u64 } else { 0 };
        Ok(Turn {
            each: each(came.time, came.datagrams.saturating_sub(1)),
            lost: ((count - came.datagrams) * len) as u64,
            copied: after.copied - before.copied,
            copied_by_kernel: after.copied_by_kernel - before.copied_by_kernel + by_socket,
        })
    }

    fn send(&mut self, way: Way, number: u64) -> Result<()> {
        let Self { socket, sender, flows, len, pieces, bytes, .. } = self;
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
                sender.send(flow, buffer, *len).map_err(failed)?;
            }
            Interface::MmapEach => {
                let mut buffer = sender.buffer_after(BUFFERS / 2).map_err(failed)?.ok_or_else(none)?;
                buffer.write(0, &number);
                sender.send(flow, buffer, *len).map_err(failed)?;
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

/// Receives what was ordered, until the sender is gone.
fn receive(socket: &UdpSocket, cpu: usize, orders: &Receiver<Order>, told: &Sender<Came>) {
    let _pinned = machine::pin_thread(cpu);
    let mut bytes = vec![0; MTU as usize];
    while let Ok(Order { turn, count, len, byte, all_sent }) = orders.recv() {
        let mut came = Came { datagrams: 0, time: Duration::ZERO, is_wrong: false };
        let (mut first, mut last, mut least) = (None, Instant::now(), 0);
        while came.datagrams < count {
            match socket.recv(&mut bytes) {
                Ok(found) => {
                    let (number, data) = bytes[..found].split_first_chunk().unwrap_or((&[0xff; 8], &[]));
                    let number = u64::from_le_bytes(*number).wrapping_sub(turn);
                    if number >= count as u64 {
                        continue;
                    }
                    last = Instant::now();
                    first.get_or_insert(last);
                    came.datagrams += 1;
                    came.is_wrong |= found != len || number < least;
                    came.is_wrong |= byte.is_some_and(|byte| data.iter().any(|one| *one != byte));
                    least = number + 1;
                }
                Err(_) if all_sent.load(Ordering::Acquire) && last.elapsed() > SILENCE => break,
                // Where there is one CPU, the sender needs it.
                Err(_) => std::thread::yield_now(),
            }
        }
        came.time = first.map_or(Duration::ZERO, |first| last - first);
        if told.send(came).is_err() {
            break;
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
}
