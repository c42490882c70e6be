//! What a stack is made of, measured here: calls, packets, copies and checksums.

use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use crate::checksum::Checksum;
use crate::error::Result;
use crate::experiment::{Options, Sitting, Step};
use crate::experiments::single_copy_tcp::ID;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::model::single_copy::Costs;
use crate::probe::Probe;
use crate::samples::nanoseconds;

/// Bytes of a packet.
pub(super) const PACKET: usize = 4096;
/// How many packets' memory one goes through before it comes back to the first: more than caches hold.
const PACKETS: usize = (64 << 20) / PACKET;
/// How often something short is done for one sample.
const REPEATED: usize = 256;

const CALL: &str = "system call";
const DATAGRAM: &str = "datagram of one byte";
const OUT: &str = "copy from the cache to memory";
const IN: &str = "copy from memory to the cache";
const CHECKSUM: &str = "checksum in the cache";

/// The way that data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From a program to the network.
    Transmission,
    /// From the network to a program.
    Reception,
}

impl Direction {
    /// The name in the paper's tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Transmission => "transmission",
            Self::Reception => "reception",
        }
    }
}

pub(super) fn steps(options: &Options) -> Vec<Step> {
    let seconds = if options.smoke { 0.1 } else { 0.5 };
    vec![Step { name: "calls, packets, copies and checksums".to_owned(), seconds }]
}

/// A sitting: this thread on one CPU, memory for many packets, and a socket connected to itself where there is a network.
#[derive(Debug)]
pub(super) struct Bench {
    samples: usize,
    memory: Vec<u8>,
    packet: [u8; PACKET],
    next: usize,
    socket: Option<UdpSocket>,
    _probe: Probe,
}

impl Bench {
    pub(super) fn open(options: &Options) -> Result<Self> {
        let packets = if options.smoke { REPEATED } else { PACKETS };
        Ok(Self {
            samples: if options.smoke { 5 } else { 100 },
            memory: vec![1; packets * PACKET],
            packet: [2; PACKET],
            next: 0,
            socket: loopback().ok(),
            _probe: Probe::pin()?,
        })
    }

    /// Times what `once` does with the packet and with memory that has not been used for long, after one sample that does not
    /// count.
    fn time(
        &mut self,
        series: &str,
        length: usize,
        mut once: impl FnMut(&mut [u8; PACKET], &mut [u8]),
    ) -> Measured {
        let samples = (0..=self.samples).map(|_| self.sample(&mut once)).skip(1).collect();
        Measured::new(series, length, Quantity::OperationTime, samples)
    }

    /// Nanoseconds for all repetitions of a sample together: one alone may be shorter than the clock's tick.
    fn sample(&mut self, once: &mut impl FnMut(&mut [u8; PACKET], &mut [u8])) -> u64 {
        let begin = Instant::now();
        for _ in 0..REPEATED {
            let at = self.next * PACKET;
            self.next = (self.next + 1) % (self.memory.len() / PACKET);
            once(&mut self.packet, &mut self.memory[at..at + PACKET]);
        }
        nanoseconds(begin.elapsed())
    }
}

impl Sitting for Bench {
    fn measure(&mut self, _step: &Step) -> Result<Vec<Measured>> {
        let mut measured = vec![
            self.time(CALL, 0, |_, _| {
                black_box(std::os::unix::process::parent_id());
            }),
            self.time(OUT, PACKET, |packet, memory| memory.copy_from_slice(black_box(packet))),
            self.time(IN, PACKET, |packet, memory| packet.copy_from_slice(black_box(memory))),
            self.time(CHECKSUM, PACKET, |packet, _| {
                black_box(Checksum::Internet.of(black_box(packet)));
            }),
        ];
        if let Some(socket) = self.socket.take() {
            let mut lost = false;
            measured.push(self.time(DATAGRAM, 1, |_, _| lost |= round(&socket).is_err()));
            if lost {
                // Without a round there is no time of one.
                measured.pop();
            }
            self.socket = Some(socket);
        }
        Ok(measured)
    }
}

/// A socket that sends to itself, and does not wait for ever for what it sent.
fn loopback() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(socket.local_addr()?)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// Sends one byte and receives it.
fn round(socket: &UdpSocket) -> std::io::Result<()> {
    socket.send(&[1])?;
    socket.recv(&mut [0])?;
    Ok(())
}

/// The costs of this machine in microseconds; none where they were not measured, or there was no network.
pub(super) fn costs(measurements: &Measurements, direction: Direction) -> Option<Costs> {
    let one = |series| {
        let medians = measurements.medians(ID, "", series, Quantity::OperationTime);
        medians.last().map(|(_, time)| time / REPEATED as f64)
    };
    let byte = |series| one(series).map(|time| time / PACKET as f64);
    let call = one(CALL)?;
    let interface_copy = match direction {
        Direction::Transmission => byte(OUT)?,
        Direction::Reception => byte(IN)?,
    };
    Some(Costs {
        call,
        packet: ((one(DATAGRAM)? - 2.0 * call) / 2.0).max(0.0),
        client_copy: byte(OUT)?,
        interface_copy,
        checksum: byte(CHECKSUM)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic;
    use crate::interface::Granule;

    #[test]
    fn a_sitting_measures_every_cost_there_is() {
        let options = Options { smoke: true, granule: Granule::Base, seed: 1 };
        let step = &steps(&options)[0];
        let mut bench = Bench::open(&options).unwrap();
        let measured = bench.measure(step).unwrap();
        assert!(measured.iter().all(|one| one.samples.len() == 5), "{measured:?}");
        let run = Measurements { steps: vec![synthetic::step(ID, measured)], ..Measurements::default() };
        let costs = costs(&run, Direction::Reception);
        assert_eq!(costs.is_some(), loopback().is_ok_and(|socket| round(&socket).is_ok()));
        if let Some(costs) = costs {
            let all = [costs.call, costs.packet, costs.client_copy, costs.interface_copy, costs.checksum];
            assert!(all.iter().all(|cost| *cost > 0.0), "{costs:?}");
        }
    }
}
