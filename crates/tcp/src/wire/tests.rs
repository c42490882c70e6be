use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::options::Timestamps;

const DELIVERY: Delivery = Delivery { hop_limit: 17, dscp: 0b101_110 };

fn path(v6: bool) -> Path {
    let (local, remote): (SocketAddr, SocketAddr) = if v6 {
        ("[fd00::1]:80".parse().unwrap(), "[fd00::2]:4000".parse().unwrap())
    } else {
        ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4000".parse().unwrap())
    };
    Path { local, remote }
}

fn header() -> Header {
    let options = Options { timestamps: Some(Timestamps { value: 1, echo: 2 }), ..Options::default() };
    let flags = Flags { ack: true, psh: true, ..Flags::default() };
    Header { seq: Seq(0xfedc_ba98), ack: Seq(7), flags, window: 0xffff, options }
}

fn packet(v6: bool, data: &[u8]) -> Vec<u8> {
    let mut bytes = write(&path(v6), &header(), DELIVERY, data.len(), sum(data)).to_vec();
    bytes.extend_from_slice(data);
    bytes
}

#[test]
fn a_packet_reads_as_it_was_written_and_etherparse_finds_its_checksums_right() {
    for (v6, data) in [(false, &b""[..]), (false, b"odd"), (true, b"even"), (true, b"")] {
        let bytes = packet(v6, data);
        let found = read(&bytes, bytes.len()).expect("a segment");
        assert_eq!((found.path, found.header), (path(v6).reversed(), header()));
        assert_eq!(&bytes[found.data.clone()], data);
        assert!(found.is_intact(sum(data)));
        let sliced = etherparse::SlicedPacket::from_ip(&bytes).expect("a packet");
        let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
        let expected = match sliced.net.expect("IP") {
            etherparse::NetSlice::Ipv4(ip) => {
                let ip = ip.header();
                assert_eq!((ip.ttl(), ip.dcp().value()), (17, 0b101_110));
                assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
                tcp.calc_checksum_ipv4(ip.source(), ip.destination())
            }
            etherparse::NetSlice::Ipv6(ip) => {
                let ip = ip.header();
                assert_eq!((ip.hop_limit(), ip.dscp().value()), (17, 0b101_110));
                tcp.calc_checksum_ipv6(ip.source(), ip.destination())
            }
            _ => panic!("neither"),
        };
        assert_eq!(tcp.checksum(), expected.expect("short enough"));
        // What fills the frame up is no data.
        let padded = [&bytes[..], &[9; 6]].concat();
        assert_eq!(read(&padded, padded.len()), Ok(found));
    }
}

#[test]
fn damage_is_found_wherever_it_is() {
    for v6 in [false, true] {
        let whole = packet(v6, b"data");
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = read(&bytes, bytes.len()) {
                let intact = found.is_intact(sum(&bytes[found.data.clone()]));
                // Version, class, flow and hops of IPv6 are summed by nobody.
                assert!(!intact || (v6 && bit < 8 * 8), "bit {bit} of v6: {v6}");
            }
        }
    }
}

#[test]
fn what_is_no_segment_is_refused() {
    let whole = packet(false, b"data");
    let changed = |at: usize, byte: u8, right_sum: bool| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        if right_sum {
            bytes[10..12].fill(0);
            let checksum = !sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        read(&bytes, bytes.len()).expect_err("no segment")
    };
    assert_eq!(changed(9, 17, true), NoSegment::NotTcp);
    assert_eq!(changed(6, 0x20, true), NoSegment::Fragment);
    assert_eq!(changed(8, 99, false), NoSegment::HeaderChecksum);
    assert_eq!(changed(3, 200, true), NoSegment::Malformed); // longer than the packet
    assert_eq!(changed(3, 40, true), NoSegment::Malformed); // shorter than the headers
    assert_eq!(changed(32, 0x40, false), NoSegment::Malformed); // a data offset below five
    assert_eq!(changed(41, 30, false), NoSegment::Options(0)); // longer than the header
    assert_eq!(read(&[], 0), Err(NoSegment::NotTcp));
    assert_eq!(read(&whole[..30], whole.len()), Err(NoSegment::Malformed));
}

#[test]
fn ip_options_are_ignored() {
    let plain = packet(false, b"data");
    let mut bytes = [&plain[..20], &[7, 4, 4, 0], &plain[20..]].concat();
    (bytes[0], bytes[3]) = (0x46, bytes[3] + 4);
    bytes[10..12].fill(0);
    let checksum = !sum(&bytes[..24]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let found = read(&bytes, bytes.len()).expect("a segment");
    assert_eq!((found.header, &bytes[found.data.clone()]), (header(), &b"data"[..]));
    assert!(found.is_intact(sum(b"data")));
}

proptest! {
    #[test]
    fn no_bytes_whatever_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), v6: bool, cut: usize) {
        let _ = read(&bytes, bytes.len());
        // And what begins as a packet does.
        let mut bytes = [packet(v6, b"data"), bytes].concat();
        bytes.truncate(cut % (bytes.len() + 1));
        let _ = read(&bytes, bytes.len());
    }
}
