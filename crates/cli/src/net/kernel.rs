//! The kernel's own UDP socket as an end of the traffic.
//!
//! How: datagrams are sent in batches, one call for each, at the latest when one is received.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use genie_sys::Errno;
use genie_sys::udp::{MANY, send_many};

use super::end::{Arrival, Costs, End, LONGEST, Load};
use crate::failure::Failure;

/// A socket.
#[derive(Debug)]
pub(super) struct Kernel {
    socket: UdpSocket,
    batch: usize,
    /// What is still to be sent, and to whom.
    waiting: Vec<Load>,
    to: Option<SocketAddr>,
    idle: Vec<Box<[u8]>>,
    timeout: Option<Duration>,
}

impl Kernel {
    /// A socket at a port, for the addresses of either kind; for those of the kind of `to` alone, if that is known. At most `batch` datagrams wait
    /// to be sent.
    pub(super) fn bind(port: u16, to: Option<SocketAddr>, batch: usize) -> Result<Self, Failure> {
        let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let mut fitting = any.into_iter().filter(|ip| to.is_none_or(|to| to.is_ipv4() == ip.is_ipv4()));
        let bind = |ip| UdpSocket::bind((ip, port));
        let bound = fitting.next().map(bind);
        // A kernel without IPv6 has one kind.
        let bound = match (bound, fitting.next()) {
            (Some(Err(error)), Some(other)) if error.kind() != ErrorKind::AddrInUse => bind(other),
            (Some(bound), _) => bound,
            (None, _) => bind(any[1]),
        };
        let socket = bound.map_err(|error| {
            let what_to_do = match error.kind() {
                ErrorKind::AddrInUse => "; `ss -ulpn` says who has it",
                ErrorKind::PermissionDenied => "; it needs CAP_NET_BIND_SERVICE: use one from 1,024 on",
                _ => "",
            };
            Failure::could_not(format!("port {port} cannot be opened: {error}{what_to_do}"))
        })?;
        Ok(Self { socket, batch, waiting: Vec::with_capacity(batch), to, idle: Vec::new(), timeout: None })
    }

    fn memory(&mut self) -> Box<[u8]> {
        self.idle.pop().unwrap_or_else(|| vec![0; LONGEST].into())
    }
}

impl End for Kernel {
    fn name(&self) -> String {
        "a UDP socket of the kernel's".to_owned()
    }

    fn load(&mut self, len: usize) -> Result<Load, Failure> {
        Ok(Load::Plain(self.memory(), len))
    }

    fn send(&mut self, load: Load, to: SocketAddr) -> Result<(), Failure> {
        if self.to != Some(to) {
            self.flush()?;
            self.to = Some(to);
        }
        self.waiting.push(load);
        if self.waiting.len() >= self.batch { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let Some(to) = self.to else { return Ok(()) };
        while !self.waiting.is_empty() {
            let datagrams: Vec<&[u8]> = self.waiting.iter().take(MANY).map(|load| &**load).collect();
            let gone = match send_many(&self.socket, &datagrams, Some(to)) {
                Ok(count) => count,
                // There is no room at the moment, or the other side had said that nobody receives.
                Err(Errno::NOBUFS) => {
                    std::thread::yield_now();
                    0
                }
                Err(Errno::CONNREFUSED | Errno::INTR) => 0,
                Err(errno) => {
                    return Err(Failure::could_not(format!("nothing can be sent to {to}: {errno}")));
                }
            };
            let gone: Vec<_> = self.waiting.drain(..gone).collect();
            gone.into_iter().for_each(|load| self.recycle(load));
        }
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Option<Arrival>, Failure> {
        self.flush()?;
        if self.timeout != Some(timeout) {
            self.socket.set_read_timeout(Some(timeout)).map_err(Failure::could_not)?;
            self.timeout = Some(timeout);
        }
        let mut bytes = self.memory();
        match self.socket.recv_from(&mut bytes) {
            Ok((len, from)) => Ok(Some(Arrival { load: Load::Plain(bytes, len), from, len })),
            Err(error) => {
                self.idle.push(bytes);
                match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                    _ => Err(Failure::could_not(format!("nothing can be received: {error}"))),
                }
            }
        }
    }

    fn recycle(&mut self, load: Load) {
        if let Load::Plain(bytes, _) = load {
            self.idle.push(bytes);
        }
    }

    fn costs(&self) -> Option<Costs> {
        None
    }
}
