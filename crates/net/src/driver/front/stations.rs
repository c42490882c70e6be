//! What a client's kernel asks the front: the station of a host, by ARP or neighbour discovery.
//!
//! Trust: frames are the client's. Nothing is read beyond what has come.
//! Source: RFC 826, RFC 4861.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;

/// What a question by ARP begins with, behind the stations.
const ARP: [u8; 10] = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
/// Where the message of ICMP over IPv6 begins.
const MESSAGE: usize = 14 + 40;

/// For whose station a frame asks.
pub(super) fn asked(frame: &[u8]) -> Option<IpAddr> {
    if frame.get(12..22)? == ARP {
        return Some(<[u8; 4]>::try_from(frame.get(38..42)?).ok()?.into());
    }
    let is_question = frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame.get(MESSAGE) == Some(&135);
    let host = frame.get(MESSAGE + 8..MESSAGE + 24).filter(|_| is_question)?;
    Some(<[u8; 16]>::try_from(host).ok()?.into())
}

/// The frame that answers a question, in which [`asked`] has found the host.
pub(super) fn answer(question: &[u8], host: IpAddr, station: [u8; 6]) -> Vec<u8> {
    let stations = [&question[6..12], &station].concat();
    match host {
        IpAddr::V4(host) => {
            [&stations, &ARP[..9], &[2], &station, &host.octets(), &question[22..32]].concat()
        }
        IpAddr::V6(host) => {
            let (host, asker) = (host.octets(), &question[22..38]);
            // Solicited, instead of what was known before; then the option that has the station.
            let mut message = [&[136, 0, 0, 0, 0x60, 0, 0, 0], &host[..], &[2, 1], &station].concat();
            let sum = Sum16BitWords::new().add_slice(&host).add_slice(asker).add_slice(&message);
            let sum = sum.add_slice(&[0, 32, 0, 58]).ones_complement();
            message[2..4].copy_from_slice(&sum.to_ne_bytes());
            let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
            [&stations, &header[..], &host, asker, &message].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use smoltcp::wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetFrame, HardwareAddress, Icmpv6Packet, Icmpv6Repr,
        Ipv6Packet, NdiscNeighborFlags, NdiscRepr,
    };

    use super::*;

    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// A question by ARP, from 10.0.0.1 for 10.0.0.9.
    fn by_arp() -> Vec<u8> {
        let asker = [&ASKER[..], &[10, 0, 0, 1]].concat();
        [&[0xff; 6], &ASKER, &ARP[..], &asker, &[0; 6], &[10, 0, 0, 9]].concat()
    }

    /// A question by neighbour discovery, from fd00::1 for fd00::9.
    fn by_discovery() -> Vec<u8> {
        let [mut asker, mut host] = [[0; 16]; 2];
        (asker[0], asker[15], host[0], host[15]) = (0xfd, 1, 0xfd, 9);
        let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
        let message = [&[135, 0, 0, 0, 0, 0, 0, 0], &host[..], &[1, 1], &ASKER].concat();
        [&[0x33; 6], &ASKER, &header[..], &asker, &host, &message].concat()
    }

    #[test]
    fn questions_are_answered_as_the_protocols_want() {
        let question = by_arp();
        let host = asked(&question).expect("a question");
        assert_eq!(host, IpAddr::from([10, 0, 0, 9]));
        let bytes = answer(&question, host, STATION);
        let frame = EthernetFrame::new_checked(&bytes).expect("a frame");
        assert_eq!((frame.dst_addr().0, frame.src_addr().0), (ASKER, STATION));
        let packet = ArpPacket::new_checked(frame.payload()).expect("ARP");
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_hardware_addr,
            target_protocol_addr,
        } = ArpRepr::parse(&packet).expect("an answer")
        else {
            panic!("of Ethernet")
        };
        assert_eq!(operation, ArpOperation::Reply);
        assert_eq!((source_hardware_addr.0, source_protocol_addr), (STATION, [10, 0, 0, 9].into()));
        assert_eq!((target_hardware_addr.0, target_protocol_addr), (ASKER, [10, 0, 0, 1].into()));

        let question = by_discovery();
        let host = asked(&question).expect("a question");
        let bytes = answer(&question, host, STATION);
        let frame = EthernetFrame::new_checked(&bytes).expect("a frame");
        assert_eq!((frame.dst_addr().0, frame.src_addr().0), (ASKER, STATION));
        let packet = Ipv6Packet::new_checked(frame.payload()).expect("IPv6");
        assert_eq!(packet.hop_limit(), 255);
        let (from, to) = (packet.src_addr(), packet.dst_addr());
        assert_eq!((IpAddr::from(from), to.octets()[15]), (host, 1));
        let message = Icmpv6Packet::new_checked(packet.payload()).expect("ICMP");
        // It verifies the checksum.
        let parsed = Icmpv6Repr::parse(&from, &to, &message, &smoltcp::phy::ChecksumCapabilities::default());
        let Ok(Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { flags, target_addr, lladdr })) = parsed else {
            panic!("{parsed:?}")
        };
        assert_eq!(flags, NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE);
        let Some(HardwareAddress::Ethernet(said)) =
            lladdr.and_then(|said| said.parse(smoltcp::phy::Medium::Ethernet).ok())
        else {
            panic!("a station")
        };
        assert_eq!((target_addr, said.0), (from, STATION));
    }

    #[test]
    fn what_is_cut_or_no_question_is_not_answered() {
        for question in [by_arp(), by_discovery()] {
            let needed = if question.len() == 42 { 42 } else { MESSAGE + 24 };
            for len in 0..question.len() {
                assert_eq!(asked(&question[..len]).is_some(), len >= needed, "{len} bytes");
            }
        }
        for (question, at, byte) in
            [(by_arp(), 21, 2), (by_arp(), 13, 0), (by_discovery(), 20, 17), (by_discovery(), MESSAGE, 136)]
        {
            let mut other = question;
            other[at] = byte;
            assert_eq!(asked(&other), None, "byte {at}");
        }
    }
}
