//! What fuzzers and random tests check of frames that arrive at a datagram server: every frame that is stored is received or dropped and
//! counted, over every adapter, whatever its bytes are.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use genie_io::{Error, In, Interface, Pending, ServerHandle};
use genie_memory::Space;

use super::argument::{Arrived, Open};
use super::counters::Counters;
use super::options::{Options, Verifying};
use super::{Datagrams, Socket};
use crate::adapter::{Approximation, EarlyDemultiplexing, Layout, Outboard, Pool, Pooled, Program, SnapOff};
use crate::checksum::{Checksum, ones_complement};
use crate::packet::{Between, Header, Hosts};
use crate::wire::Station;
use crate::{Adapter, Frame};

const PORT: u16 = 7;

/// Has frames arrive, and requests wait and end, as `input` says: an adapter, whether the port has a program, and steps.
///
/// # Panics
/// When a frame is neither received nor counted, more comes than there is room for, or it makes a difference to what is received whether
/// the adapter sums or the host.
pub fn check(genie: &Interface, input: &[u8]) {
    run(genie, input, Verifying::Integrated);
    let [read, by_adapter] = [Verifying::Separate, Verifying::Adapter].map(|by| run(genie, input, by));
    assert_eq!(by_adapter, Counters { summed: 0, by_adapter: read.summed, ..read });
}

fn run(genie: &Interface, input: &[u8], verifying: Verifying) -> Counters {
    let mut input = input.iter().copied();
    let Some(level) = input.next() else { return Counters::default() };
    let (adapter, has_program) = (adapter(genie.space(), level), level >= 128);
    let station = [2, 0, 0, 0, 0, 1];
    let options = Options { verifying, ..Options::new(station, [IpAddr::from(Ipv4Addr::LOCALHOST)]) };
    let server = Datagrams::new(genie.clone(), adapter, options);
    let (handle, station) = (ServerHandle::new(server.clone()), server.station());
    let apart = has_program.then(|| Program::lengths(3, 2));
    let socket =
        Socket::open(genie, &handle, &Open { port: PORT, apart, ..Open::default() }).expect("a port");
    let (mut waiting, mut received) = (VecDeque::new(), 0);
    while let Some(step) = input.next() {
        let len = usize::from(step >> 2) * usize::from(input.next().unwrap_or(0));
        match step % 4 {
            0 if waiting.len() < 16 => waiting.push_back((ask(&socket, len + 1), len + 1)),
            0 | 1 => received += waiting.pop_front().map_or(0, end),
            2 => station.arrive(&Frame::new(input.by_ref().take(len).collect::<Vec<_>>()[..].into())),
            _ => {
                let mut frame = datagram(&input.by_ref().take(len).collect::<Vec<_>>());
                let (at, bits) = (input.next().unwrap_or(0), input.next().unwrap_or(0));
                frame.extend(vec![at; usize::from(at % 20)]);
                frame[usize::from(at) % 64 % len.max(42)] ^= bits;
                station.arrive(&Frame::new(frame[..].into()));
            }
        }
    }
    received += waiting.into_iter().map(end).sum::<u64>();
    // What waits is received now.
    received +=
        std::iter::repeat_with(|| end((ask(&socket, 1), 1))).take_while(|count| *count > 0).sum::<u64>();
    let counters = server.counters();
    let Counters { received: told, damaged, strange, rejected, full, unclaimed, misled, malformed, .. } =
        counters;
    assert_eq!(told, received, "datagrams are received");
    let dropped = damaged + strange + rejected + full + unclaimed + misled + malformed;
    assert_eq!(server.adapter().packets, received + dropped, "packets are received or dropped");
    counters
}

fn adapter(space: &Space, level: u8) -> Box<dyn Adapter> {
    let pool = || Pool::reserve(space, 2048, 16).expect("memory for the pool");
    let udp = || Layout::Program(Program::udp());
    match level % 7 {
        0 => Box::new(Pooled::new(pool())),
        1 => Box::new(Pooled::splitting(pool(), 42)),
        2 => Box::new(EarlyDemultiplexing::new(udp(), pool())),
        3 => Box::new(EarlyDemultiplexing::splitting(udp(), pool())),
        4 => Box::new(SnapOff::new(udp(), pool())),
        5 => Box::new(Approximation::new(udp(), pool())),
        _ => Box::new(Outboard::new(1 << 16)),
    }
}

/// A frame with a datagram for the port.
fn datagram(data: &[u8]) -> Vec<u8> {
    let host = Ipv4Addr::LOCALHOST;
    let mut header = Header {
        stations: Between { from: [2, 0, 0, 0, 0, 2], to: [2, 0, 0, 0, 0, 1] },
        hosts: Hosts::V4(Between { from: host, to: host }),
        ports: Between { from: 1, to: PORT },
        len: data.len() as u16,
        checksum: 0,
    };
    header.checksum = header.udp_sum(ones_complement(Checksum::Internet.of(data)));
    [&header.build().expect("a header"), data].concat()
}

fn ask(socket: &Socket, room: usize) -> Pending<'static> {
    socket.submit(In::moved(room)).expect("a request")
}

/// How many datagrams a request has received.
fn end((pending, room): (Pending<'static>, usize)) -> u64 {
    match pending.abort() {
        Ok(reply) => {
            let arrived = Arrived::from_reply(reply.argument()).expect("a sender");
            assert_eq!(reply.actual(), arrived.len.min(room), "what came of {arrived:?}");
            1
        }
        Err(failed) => {
            assert_eq!(failed.error, Error::Aborted);
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use genie_conformance::{Buffering, Granules, Guard, Setup, checked, interface};
    use genie_io::Limits;
    use genie_passing::Thresholds;
    use proptest::prelude::*;

    use super::*;
    use crate::adapter::program::tests::program;
    use crate::adapter::{Parsed, Port};
    use crate::datagram::APART;

    fn open() -> Interface {
        let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
        interface(setup.space("frames", 16 << 20).expect("memory"), Limits::default(), Thresholds::ALWAYS)
    }

    proptest! {
        #[test]
        fn what_any_program_takes_off_is_of_its_ports_datagram_alone(
            level in 0u8..7,
            program in program().prop_filter_map("accepted", |program| Program::new(program).ok()),
            bytes in prop::collection::vec(prop_oneof![0..40_u8, any::<u8>()], 0..200),
            (padding, waits) in (prop::collection::vec(any::<u8>(), 0..18), any::<bool>()),
        ) {
            let genie = open();
            let options = Options::new([2, 0, 0, 0, 0, 1], [IpAddr::from(Ipv4Addr::LOCALHOST)]);
            let server = Datagrams::new(genie.clone(), adapter(genie.space(), level), options);
            let (handle, station) = (ServerHandle::new(server.clone()), server.station());
            let apart = Some(program.clone());
            let socket = Socket::open(&genie, &handle, &Open { port: PORT, apart, ..Open::default() }).expect("a port");
            let before = waits.then(|| ask(&socket, 200));
            station.arrive(&Frame::new([datagram(&bytes), padding].concat()[..].into()));
            let expected = program.parse(&bytes, bytes.len(), Port(PORT.into()));
            let result = before.unwrap_or_else(|| ask(&socket, 200)).abort();
            match expected.filter(|found| found.header + found.trailer <= APART) {
                Some(Parsed { header, trailer, .. }) => {
                    let mut reply = result.expect("a datagram");
                    let arrived = Arrived::from_reply(reply.argument()).expect("a sender");
                    let (first, rest) = bytes.split_at(header);
                    let (data, last) = rest.split_at(rest.len() - trailer);
                    prop_assert_eq!((&arrived.header[..], &arrived.trailer[..], arrived.len), (first, last, data.len()));
                    prop_assert_eq!(&reply.take_migrant().expect("data")[..data.len()], data);
                }
                None => {
                    prop_assert!(result.is_err());
                    prop_assert_eq!(server.counters().rejected, 1);
                }
            }
            drop(socket);
            checked(genie.space());
        }

        #[test]
        fn every_frame_is_received_or_counted(
            level: u8,
            steps in prop::collection::vec((any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..200)), 0..40),
        ) {
            let genie = open();
            let steps = steps.into_iter().flat_map(|(step, len, bytes)| [vec![step, len], bytes].concat());
            check(&genie, &[level].into_iter().chain(steps).collect::<Vec<_>>());
            checked(genie.space());
        }
    }
}
