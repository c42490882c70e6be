use std::net::{Ipv4Addr, Ipv6Addr};

use genie_conformance::machine::skip;
use genie_sys::Errno;

use super::*;
use crate::packet::{Between, Header, Hosts};

const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xfedc, 1);
const OTHER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const STATION: [u8; 6] = [2, 0x81, 0x82, 0x83, 0x84, 0x85];
const CLIENT: u8 = 200;
const PORT: u16 = 0x8001;

struct Trial {
    inward: Program,
    outward: Program,
    table: Table,
    refused: Bytes,
    _exits: Exits,
}

impl Trial {
    fn new(test: &str) -> Option<Self> {
        let make = || {
            let (table, exits, refused) = (Table::empty()?, Exits::create(256)?, Bytes::create(8)?);
            // The loopback interface: without an interface there, nothing is redirected.
            [EXIT, CLIENT.into()].into_iter().try_for_each(|place| exits.set(place, 1))?;
            let hosts: Vec<IpAddr> = vec![V4.into(), V6.into()];
            let (name, kind) = ("eth0".to_owned(), None);
            let interface =
                Interface { index: 1, name, station: STATION, mtu: 1500, kind, is_up: true, hosts };
            let inward = inward(&interface.hosts, &table, &exits)?;
            let outward = outward(&interface, CLIENT, &table, &exits, &refused)?;
            Ok(Self { inward, outward, table, refused, _exits: exits })
        };
        let made: Result<_> = make();
        match made {
            Err(error) if matches!(error.errno, Errno::PERM | Errno::ACCESS) => {
                skip(test, &error.to_string());
                None
            }
            made => Some(made.expect("the kernel accepts the programs")),
        }
    }

    /// What becomes of a frame that a client sends, and whether that is counted.
    fn sent(&self, frame: &[u8]) -> (i32, bool) {
        let count = || self.refused.numbers()[0].load(Ordering::Relaxed);
        let before = count();
        (self.outward.run(frame).expect("a verdict").0, count() > before)
    }
}

fn datagram(hosts: Hosts, ports: Between<u16>) -> Vec<u8> {
    let stations = Between { from: STATION, to: [2, 0, 0, 0, 0, 2] };
    let header = Header { stations, hosts, ports, len: 30, checksum: 1 };
    [&header.build().expect("headers")[..], &[0x55; 30]].concat()
}

fn v4(from: Ipv4Addr, to: Ipv4Addr, ports: Between<u16>) -> Vec<u8> {
    datagram(Hosts::V4(Between { from, to }), ports)
}

fn v6(from: Ipv6Addr, to: Ipv6Addr, ports: Between<u16>) -> Vec<u8> {
    datagram(Hosts::V6(Between { from, to }), ports)
}

fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn a_datagram_goes_to_the_client_that_has_its_port_and_else_to_the_kernel() {
    let test = "a_datagram_goes_to_the_client_that_has_its_port_and_else_to_the_kernel";
    let Some(trial) = Trial::new(test) else { return };
    let here = Between { from: 9, to: PORT };
    let all = [v4(OTHER_V4, V4, here), v6(Ipv6Addr::LOCALHOST, V6, here)];
    for (client, verdict) in [
        (0, Verdict::Pass),
        (CLIENT, Verdict::Redirect),
        // It has no exit: it has just gone.
        (CLIENT + 1, Verdict::Pass),
    ] {
        trial.table.set(PORT, client);
        for frame in &all {
            assert_eq!(
                trial.inward.run(frame).map(|(verdict, _)| verdict),
                Ok(verdict as i32),
                "client {client}"
            );
        }
    }
    trial.table.set(PORT, CLIENT);
    for frame in [
        v4(OTHER_V4, V4, Between { from: PORT, to: 9 }),
        v4(V4, OTHER_V4, here),
        with(v4(OTHER_V4, V4, here), 23, &[6]),
    ] {
        assert_eq!(trial.inward.run(&frame).map(|(verdict, _)| verdict), Ok(Verdict::Pass as i32));
    }
}

#[test]
fn nothing_leaves_but_datagrams_from_a_clients_own_ports() {
    let test = "nothing_leaves_but_datagrams_from_a_clients_own_ports";
    let Some(trial) = Trial::new(test) else { return };
    trial.table.set(PORT, CLIENT);
    trial.table.set(PORT + 1, CLIENT + 1);
    let own = Between { from: PORT, to: 9 };
    let [by_v4, by_v6] = [v4(V4, OTHER_V4, own), v6(V6, Ipv6Addr::LOCALHOST, own)];
    for frame in [&by_v4, &by_v6] {
        assert_eq!(trial.sent(frame), (Verdict::Redirect as i32, false));
    }
    for (name, frame) in [
        ("another client's port", v4(V4, OTHER_V4, Between { from: PORT + 1, to: 9 })),
        ("the same over IPv6", v6(V6, Ipv6Addr::LOCALHOST, Between { from: PORT + 1, to: 9 })),
        ("nobody's port", v4(V4, OTHER_V4, Between { from: PORT + 2, to: PORT })),
        ("another host", v4(OTHER_V4, V4, own)),
        ("another host over IPv6", v6(Ipv6Addr::LOCALHOST, V6, own)),
        ("a station whose beginning differs", with(by_v4.clone(), 6, &[4])),
        ("a station whose end differs", with(by_v6.clone(), 11, &[4])),
        ("a fragment", with(by_v4.clone(), 20, &[0x20, 0])),
        ("TCP", with(by_v4.clone(), 23, &[6])),
        ("IP options", with(by_v4.clone(), 14, &[0x46])),
        ("a tag", with(by_v4.clone(), 12, &[0x81, 0])),
        ("headers that are cut", by_v4[..41].to_vec()),
        ("IPv6 headers that are cut", by_v6[..61].to_vec()),
    ] {
        assert_eq!(trial.sent(&frame), (Verdict::Drop as i32, true), "{name}");
    }
    let icmp = with(by_v6.clone(), 20, &[58]);
    for (name, frame, verdict) in [
        ("ARP", with(by_v4.clone(), 12, &[8, 6]), Verdict::Pass),
        ("a neighbour solicitation", with(icmp.clone(), 54, &[135]), Verdict::Pass),
        ("a neighbour advertisement", with(icmp.clone(), 54, &[136]), Verdict::Drop),
        ("a router solicitation", with(icmp, 54, &[133]), Verdict::Drop),
        ("a hop-by-hop header", with(by_v6, 20, &[0]), Verdict::Drop),
        ("a header of Ethernet alone", with(by_v4, 12, &[0x86, 0xdd])[..14].to_vec(), Verdict::Drop),
    ] {
        assert_eq!(trial.sent(&frame), (verdict as i32, false), "{name}");
    }
}
