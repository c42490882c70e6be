//! The ways in which datagrams are sent and taken.

use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::Duration;

use genie::net::datagram::Summing;
use genie::net::driver::{Driver, Host, Queue, Rings, Xdp};
use genie::net::raw::{self, Flow};
use genie::{Interface, Scheme, ServerHandle};
use genie_baselines::BareRings;
use genie_lab::datagrams::{Arrivals, Calls, End, Socket, rest};
use genie_lab::error::{Error, Result};
use genie_memory::Data;

use super::site::Site;
use crate::failure::Failure;
use crate::net::end::{End as _, Load};
use crate::net::port::{Port, Use};

/// How many datagrams go together.
const BATCH: usize = 32;
/// How many buffers `net::raw` has: few, so that they stay in the CPU's cache.
const BUFFERS: usize = 2 * BATCH;
/// How long one look for a datagram takes at most: longer than a link spins.
const LOOK: Duration = Duration::from_millis(20);
const NUMBER: usize = size_of::<u64>();

/// How datagrams are sent and taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A loop over AF_XDP's rings.
    Bare,
    /// Sent by `net::raw`, which takes nothing.
    Raw,
    /// By the driver's rings.
    Rings,
    /// By datagram servers in their clients' processes.
    Datagrams,
    /// By the kernel's sockets.
    Socket(Calls),
}

impl Way {
    /// The name in documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare-rings",
            Self::Raw | Self::Rings => "raw",
            Self::Datagrams => "datagram-server",
            Self::Socket(Calls::Blocking) => "socket-blocking",
            Self::Socket(Calls::Spinning) => "socket-spinning",
            Self::Socket(Calls::Many) => "socket-sendmmsg",
            Self::Socket(Calls::Segments) => "socket-gso",
        }
    }

    /// How the end sends that takes nothing.
    pub(super) fn sending(self) -> Self {
        if self == Self::Rings { Self::Raw } else { self }
    }

    /// Opens an end at a site, for datagrams of `len` bytes, those behind the number `byte`.
    pub(super) fn open(
        self,
        here: &Site,
        there: &Site,
        genie: &Interface,
        len: usize,
        byte: u8,
    ) -> Result<Box<dyn End>> {
        let Site { interface, host, port, .. } = here;
        let open = || -> Result<Box<dyn End>> {
            Ok(match self {
                Self::Bare => {
                    let headers = here.header(there, len).build().map_err(failed)?;
                    Box::new(BareRings::open(interface.index, interface.mtu, &headers, len, byte)?)
                }
                Self::Raw => {
                    let options = raw::Options { buffers: BUFFERS, ..raw::Options::default() };
                    let (mut sender, _) = raw::Sender::open(&interface.name, &options).map_err(failed)?;
                    let mut buffers = Vec::new();
                    while let Some(mut buffer) = sender.buffer().map_err(failed)? {
                        buffer[..len].fill(byte);
                        buffers.push(buffer);
                    }
                    let header = here.header(there, len);
                    let flow =
                        Flow::new(header.stations, header.hosts, header.ports, false).map_err(failed)?;
                    Box::new(Raw { sender, flow, len })
                }
                Self::Rings => {
                    let hosts = [(*host).into()];
                    let mut xdp = Xdp::open(genie.space(), &interface.name, &hosts, &Queue::default())
                        .map_err(failed)?;
                    xdp.claim(*port, true).map_err(failed)?;
                    let mut frame = here.header(there, len).build().map_err(failed)?.into_vec();
                    let headers = frame.len();
                    frame.resize(headers + len, byte);
                    Box::new(OverRings { xdp, came: vec![0; frame.len()], frame, headers })
                }
                Self::Datagrams => Box::new(Server::open(genie, here, there, len, byte)?),
                Self::Socket(calls) => {
                    let socket = UdpSocket::bind((*host, *port)).map_err(failed)?;
                    socket.connect((there.host, there.port)).map_err(failed)?;
                    Box::new(Socket::new(socket, calls, len, byte)?)
                }
            })
        };
        here.namespace.enter(open)
    }
}

/// Sends from where the data was written.
struct Raw {
    sender: raw::Sender,
    flow: Flow,
    len: usize,
}

impl End for Raw {
    fn send(&mut self, numbers: Range<u64>) -> Result<()> {
        for number in numbers {
            let mut buffer = loop {
                match self.sender.buffer().map_err(failed)? {
                    Some(buffer) => break buffer,
                    None => rest(),
                }
            };
            buffer[..NUMBER].copy_from_slice(&number.to_le_bytes());
            self.sender.send(&self.flow, buffer, self.len).map_err(failed)?;
        }
        self.sender.flush().map_err(failed)
    }

    fn take(&mut self, _: &mut Arrivals) -> Result<()> {
        Ok(())
    }
}

/// The driver's rings, without the link and the server above them.
struct OverRings {
    xdp: Xdp,
    /// A frame that is sent, whose number changes, and one that has come.
    frame: Vec<u8>,
    came: Vec<u8>,
    headers: usize,
}

impl End for OverRings {
    fn send(&mut self, numbers: Range<u64>) -> Result<()> {
        let Self { xdp, frame, headers, .. } = self;
        for number in numbers.clone() {
            frame[*headers..*headers + NUMBER].copy_from_slice(&number.to_le_bytes());
            while !xdp.put(&Data::from(&frame[..])).map_err(failed)? {
                xdp.send().map_err(failed)?;
            }
            if (number + 1 - numbers.start).is_multiple_of(BATCH as u64) {
                xdp.send().map_err(failed)?;
            }
        }
        xdp.send().map_err(failed)
    }

    fn take(&mut self, arrivals: &mut Arrivals) -> Result<()> {
        let Self { xdp, came, headers, .. } = self;
        let taken = xdp.take(BATCH, &mut |frame| {
            let asked = if arrivals.are_compared() { came.len() } else { *headers + NUMBER };
            let read = frame.read(*headers, &mut came[*headers..asked]);
            arrivals.note(&came[*headers..*headers + read], frame.len() - *headers);
        });
        taken.map(drop).map_err(failed)
    }
}

/// A port of a datagram server.
struct Server {
    port: Port,
    to: SocketAddr,
    len: usize,
}

impl Server {
    fn open(genie: &Interface, here: &Site, there: &Site, len: usize, byte: u8) -> Result<Self> {
        let host = Host::open(genie, &here.interface.name, Some(Driver::Xdp), |options| {
            options.summing = Summing::None;
        });
        let Host { datagrams, link, .. } = host.map_err(failed)?;
        let how = Use { number: here.port, scheme: Scheme::EmulatedCopy, batch: BATCH, longest: len };
        let server = ServerHandle::new(datagrams);
        let mut port = Port::open(genie.clone(), server, Some(link), String::new(), how).map_err(unable)?;
        let loads: Vec<Load> =
            (0..2 * BATCH).map(|_| port.load(len)).collect::<std::result::Result<_, _>>().map_err(unable)?;
        for mut load in loads {
            load.fill(byte);
            port.recycle(load);
        }
        Ok(Self { port, to: (there.host, there.port).into(), len })
    }
}

impl End for Server {
    fn send(&mut self, numbers: Range<u64>) -> Result<()> {
        for number in numbers {
            let mut load = self.port.load(self.len).map_err(unable)?;
            load[..NUMBER].copy_from_slice(&number.to_le_bytes());
            self.port.send(load, self.to).map_err(unable)?;
        }
        self.port.flush().map_err(unable)
    }

    fn take(&mut self, arrivals: &mut Arrivals) -> Result<()> {
        if let Some(arrival) = self.port.receive(LOOK).map_err(unable)? {
            arrivals.note(&arrival.load, arrival.len);
            self.port.recycle(arrival.load);
        }
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
}

fn unable(failure: Failure) -> Error {
    Error::Peer(failure.message)
}
