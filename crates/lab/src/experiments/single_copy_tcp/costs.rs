//! Measures the costs that make up a stack: calls, packets, copies and checksums.

use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::experiment::{Options, Sitting, Step};
use crate::experiments::alone::{Alone, timed};
use crate::experiments::single_copy_tcp::ID;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::model::single_copy::Costs;
use genie_net::checksum::Checksum;

/// Bytes of a packet.
pub(super) const PACKET: usize = 4096;
/// How many packets' memory is used before the first packet's memory is used again: more than caches hold.
const PACKETS: usize = (64 << 20) / PACKET;
/// How often a short operation is repeated for one sample.
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

pub(super) fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    let (samples, packets) = if options.smoke { (5, REPEATED) } else { (100, PACKETS) };
    Alone::sit(move || measure(samples, packets))
}

/// Measures everything, except that datagrams are measured only where there is a network.
fn measure(samples: usize, packets: usize) -> Vec<Measured> {
    let mut memory = Memory { packets: vec![1; packets * PACKET], next: 0 };
    let mut packet = [2; PACKET];
    let mut measured = vec![
        timed(CALL, 0, samples, || {
            repeated(|| {
                black_box(std::os::unix::process::parent_id());
            })
        }),
        timed(OUT, PACKET, samples, || repeated(|| memory.unused().copy_from_slice(black_box(&packet)))),
        timed(IN, PACKET, samples, || repeated(|| packet.copy_from_slice(black_box(memory.unused())))),
        timed(CHECKSUM, PACKET, samples, || {
            repeated(|| {
                black_box(Checksum::Internet.of(black_box(&packet)));
            })
        }),
    ];
    if let Ok(socket) = loopback() {
        let mut lost = false;
        let datagrams = timed(DATAGRAM, 1, samples, || repeated(|| lost |= round(&socket).is_err()));
        // If a round trip was lost, there is no time to report.
        measured.extend((!lost).then_some(datagrams));
    }
    measured
}

/// How long all repetitions of a sample take together: a single one may be shorter than the clock's tick.
fn repeated(mut once: impl FnMut()) -> Duration {
    let begin = Instant::now();
    (0..REPEATED).for_each(|_| once());
    begin.elapsed()
}

/// Memory for many packets.
struct Memory {
    packets: Vec<u8>,
    next: usize,
}

impl Memory {
    /// A packet's memory that has not been used for long.
    fn unused(&mut self) -> &mut [u8] {
        let at = self.next * PACKET;
        self.next = (self.next + 1) % (self.packets.len() / PACKET);
        &mut self.packets[at..at + PACKET]
    }
}

/// A socket that sends to itself, and waits for a datagram only a limited time.
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
        let measured = sit(&options).unwrap().measure(step).unwrap();
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
