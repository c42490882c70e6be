//! Many connections, and what strangers send.

use std::sync::Arc;
use std::time::Duration;

use genie_tcp::{
    Backlog, Config, Event, Flags, Header, Path, Payload, Refused, Secret, Segment, Seq, Shared, State, Table,
};

use crate::pair::{NOW, established, exchange};

fn path(local: &str, remote: &str) -> Path {
    Path { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn bare(flags: Flags, seq: u32, ack: u32) -> Segment<Shared> {
    let header = Header { seq: Seq(seq), ack: Seq(ack), flags, window: 1000, ..Header::default() };
    Segment { header, payload: Default::default() }
}

const SYN: Flags = Flags { syn: true, ack: false, fin: false, rst: false, psh: false };
const ACK: Flags = Flags { syn: false, ack: true, fin: false, rst: false, psh: false };

#[test]
fn a_path_that_is_none_is_refused() {
    let mut table = Table::<Shared>::new(Secret::random());
    for wrong in [
        path("10.0.0.1:1", "255.255.255.255:80"),
        path("10.0.0.1:1", "224.0.0.1:80"),
        path("10.0.0.1:1", "0.0.0.0:80"),
        path("10.0.0.1:1", "10.0.0.2:0"),
        path("10.0.0.1:1", "[fd00::1]:80"),
        path("[fd00::1]:1", "[ff02::1]:80"),
    ] {
        let refused = table.connect(wrong, Arc::default(), NOW).unwrap_err();
        assert_eq!(refused, Refused::NoPath(wrong.local, wrong.remote));
    }
    let good = path("10.0.0.1:1", "10.0.0.2:80");
    table.connect(good, Arc::default(), NOW).unwrap();
    assert_eq!(table.connect(good, Arc::default(), NOW), Err(Refused::PathInUse(good.local, good.remote)));
}

#[test]
fn segments_from_or_to_addresses_of_many_hosts_are_ignored() {
    let mut table = Table::new(Secret::random());
    table.listen("0.0.0.0:80".parse().unwrap(), Arc::default(), Backlog::default()).unwrap();
    for wrong in [
        path("255.255.255.255:80", "10.0.0.2:4000"),
        path("224.0.0.1:80", "10.0.0.2:4000"),
        path("10.0.0.1:80", "255.255.255.255:4000"),
        path("10.0.0.1:80", "0.0.0.0:4000"),
        path("10.0.0.1:80", "224.0.0.9:4000"),
    ] {
        table.on_segment(wrong, &bare(SYN, 0, 0), NOW);
        assert!(table.poll_transmit(NOW).is_none());
    }
    assert_eq!((table.len(), table.counted().ignored), (0, 5));
}

#[test]
fn one_may_listen_at_a_port_from_which_connections_were_opened() {
    let mut table = Table::<Shared>::new(Secret::random());
    let ours = path("10.0.0.1:80", "10.0.0.2:4000");
    let id = table.connect(ours, Arc::default(), NOW).unwrap();
    table.listen(ours.local, Arc::default(), Backlog::default()).unwrap();
    assert_eq!(
        table.listen(ours.local, Arc::default(), Backlog::default()),
        Err(Refused::PortInUse(ours.local))
    );
    assert_eq!(table.get(id).unwrap().state(), State::SynSent);
    // And where all addresses are listened at, one of them may have a listener of its own.
    table.listen("0.0.0.0:80".parse().unwrap(), Arc::default(), Backlog::default()).unwrap();
    table.on_segment(path("10.0.0.9:80", "10.0.0.2:5000"), &bare(SYN, 0, 0), NOW);
    table.on_segment(path("10.0.0.1:80", "10.0.0.2:5000"), &bare(SYN, 0, 0), NOW);
    assert_eq!(table.len(), 3);
    table.unlisten(ours.local, NOW);
    while table.poll_transmit(NOW).is_some() {}
    assert_eq!(table.len(), 2);
}

#[test]
fn a_flood_of_syns_costs_no_memory_and_honest_peers_are_served() {
    let mut table = Table::new(Secret::random());
    let at = "10.0.0.1:80".parse().unwrap();
    table.listen(at, Arc::default(), Backlog { half_open: 4, ready: 4 }).unwrap();
    for port in 1..=1000 {
        table.on_segment(Path { local: at, remote: ([10, 9, 9, 9], port).into() }, &bare(SYN, 7, 0), NOW);
        while table.poll_transmit(NOW).is_some() {}
    }
    assert_eq!((table.len(), table.counted().cookies), (4, 996));
    let honest = Path { local: at, remote: ([10, 0, 0, 2], 4000).into() };
    table.on_segment(honest, &bare(SYN, 500, 0), NOW);
    let answer = table.poll_transmit(NOW).unwrap().segment.header;
    assert!(answer.flags.syn && answer.flags.ack && answer.ack == Seq(501));
    table.on_segment(honest, &bare(ACK, 501, answer.seq.0 + 1), NOW);
    let id = table.accept(at).unwrap();
    assert_eq!(table.get(id).unwrap().state(), State::Established);
    assert_eq!(table.poll_event(), Some((id, Event::Connected)));
    assert_eq!(table.counted().tasted, 1);
}

#[test]
fn what_is_not_accepted_fills_the_backlog_and_no_more() {
    let mut table = Table::new(Secret::random());
    let at = "10.0.0.2:80".parse().unwrap();
    table.listen(at, Arc::default(), Backlog { half_open: 8, ready: 3 }).unwrap();
    for port in 1..=10 {
        let path = Path { local: ([10, 0, 0, 1], port).into(), remote: at };
        table.connect(path, Arc::default(), NOW).unwrap();
        exchange(&mut table);
    }
    assert_eq!(table.counted().dropped, 7);
    assert_eq!(std::iter::from_fn(|| table.accept(at)).count(), 3);
    // The others try again, and there is room.
    table.on_timeout(NOW + Duration::from_secs(2));
    exchange(&mut table);
    assert_eq!(std::iter::from_fn(|| table.accept(at)).count(), 7);
}

#[test]
fn answers_to_strangers_are_bounded() {
    let mut table = Table::new(Secret::random());
    for port in 1..=1000 {
        let path = Path { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], port).into() };
        table.on_segment(path, &bare(ACK, 1, 1), NOW);
    }
    assert_eq!(std::iter::from_fn(|| table.poll_transmit(NOW)).count(), 64);
}

#[test]
fn ports_are_found_that_lead_to_no_connection() {
    let mut table = Table::<Shared>::new(Secret::random());
    let (local, remote) = ([10, 0, 0, 1].into(), "10.0.0.2:80".parse().unwrap());
    let mut found = std::collections::HashSet::new();
    for _ in 0..200 {
        let port = table.free_port(local, remote).unwrap();
        assert!(port >= 49152 && found.insert(port));
        table.connect(Path { local: (local, port).into(), remote }, Arc::default(), NOW).unwrap();
    }
}

#[test]
fn ten_thousand_connections_are_served_and_forgotten() {
    let mut table = Table::<Shared>::new(Secret::random());
    let at = "10.0.0.2:80".parse().unwrap();
    let config = Arc::new(Config::default());
    table.listen(at, config.clone(), Backlog::default()).unwrap();
    let mut ends = Vec::new();
    for number in 0..5000u16 {
        let path = Path { local: ([10, 0, 1, 1], 1024 + number).into(), remote: at };
        let ours = table.connect(path, config.clone(), NOW).unwrap();
        exchange(&mut table);
        ends.push((ours, table.accept(at).unwrap()));
    }
    assert_eq!(table.len(), 10_000);
    for (number, (ours, _)) in ends.iter().enumerate() {
        table.with(*ours, |it| it.send(Shared::new(vec![number as u8; 100]))).unwrap().unwrap();
    }
    exchange(&mut table);
    for (number, (_, theirs)) in ends.iter().enumerate() {
        let piece = table.with(*theirs, |it| it.receive(usize::MAX)).unwrap().unwrap();
        assert_eq!(piece.bytes(), [number as u8; 100]);
    }
    for (ours, theirs) in ends {
        table.with(ours, |it| it.close(NOW)).unwrap();
        exchange(&mut table);
        table.with(theirs, |it| it.close(NOW)).unwrap();
        exchange(&mut table);
        table.release(ours, NOW);
        table.release(theirs, NOW);
    }
    exchange(&mut table);
    assert_eq!(table.len(), 5000); // Those that closed first linger.
    table.on_timeout(NOW + Duration::from_secs(61));
    exchange(&mut table);
    assert_eq!((table.len(), table.next_timeout()), (0, None));
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<genie_tcp::Connection<Shared>>() <= 1024);
}

#[test]
fn a_connection_that_is_let_go_of_is_reset() {
    let mut table = Table::new(Secret::random());
    let (ours, theirs) = established(&mut table, Config::default());
    table.release(ours, NOW);
    exchange(&mut table);
    assert!(table.get(ours).is_none());
    assert_eq!(table.get(theirs).unwrap().ended(), Some(genie_tcp::Ended::Reset));
}

#[test]
fn ipv6_has_its_own_lengths() {
    let mut table = Table::<Shared>::new(Secret::random());
    let path = path("[fd00::1]:4000", "[fd00::2]:80");
    let id = table.connect(path, Arc::default(), NOW).unwrap();
    let syn = table.poll_transmit(NOW).unwrap().segment.header;
    assert_eq!(syn.options.mss, Some(1440));
    let answer = Flags { syn: true, ..ACK };
    table.on_segment(path, &bare(answer, 0, syn.seq.0 + 1), NOW);
    table.with(id, |it| it.send(Shared::new(vec![1; 5000]))).unwrap().unwrap();
    let lens: Vec<_> =
        std::iter::from_fn(|| table.poll_transmit(NOW)).map(|out| out.segment.data_len()).collect();
    assert_eq!(lens, [1000]); // as much as the window takes
    let header = Header { window: 60_000, ..bare(ACK, 1, syn.seq.0 + 1001).header };
    table.on_segment(path, &Segment::bare(header), NOW);
    let lens: Vec<_> =
        std::iter::from_fn(|| table.poll_transmit(NOW)).map(|out| out.segment.data_len()).collect();
    assert_eq!(lens[..3], [1220, 1220, 1220]);
}

#[test]
fn what_a_packet_says_to_routers_is_the_connections() {
    let mut table = Table::<Shared>::new(Secret::random());
    let config = Config { hop_limit: 3, dscp: 46, ..Config::default() };
    table.connect(path("10.0.0.1:1", "10.0.0.2:80"), Arc::new(config), NOW).unwrap();
    let out = table.poll_transmit(NOW).unwrap();
    assert_eq!((out.hop_limit, out.dscp), (3, 46));
}

/// A reference to so many bytes that are nowhere.
#[derive(Clone)]
struct Length(usize);

impl Payload for Length {
    fn len(&self) -> usize {
        self.0
    }

    fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self(range.len())
    }
}

/// The counter of bytes, and fast retransmit without SACK, stopped after 2 GiB: they compared with where the connection had begun.
#[test]
fn sequence_numbers_may_wrap_more_than_once() {
    let mut table = Table::<Length>::new(Secret::random());
    let path = path("10.0.0.1:4000", "10.0.0.2:80");
    let config =
        Arc::new(Config { mtu: 65_535, receive_capacity: 4 << 20, sack: false, ..Config::default() });
    table.listen(path.remote, config.clone(), Backlog::default()).unwrap();
    let ours = table.connect(path, config, NOW).unwrap();
    let (mut theirs, mut given, mut received, mut now, mut dropped) = (None, 0, 0, NOW, 0);
    const ALL: u64 = 5 << 30;
    while received < ALL {
        table.with(ours, |it| {
            while it.queued() < 4 << 20 && given < ALL {
                it.send(Length(1 << 20)).ok().unwrap();
                given += 1 << 20;
            }
            while it.poll_released().is_some() {}
            it.check();
        });
        let out: Vec<_> = std::iter::from_fn(|| table.poll_transmit(now)).collect();
        now += Duration::from_millis(1);
        for out in out {
            // One segment of each gigabyte is lost.
            if received >> 30 > dropped && !out.segment.payload.is_empty() {
                dropped += 1;
            } else {
                table.on_segment(out.path.reversed(), &out.segment, now);
            }
        }
        table.on_timeout(now);
        theirs = theirs.or_else(|| table.accept(path.remote));
        if let Some(id) = theirs {
            let more = table.with(id, |it| {
                it.check();
                std::iter::from_fn(|| it.receive(usize::MAX)).map(|it| it.len() as u64).sum::<u64>()
            });
            received += more.unwrap();
        }
    }
    let counters = table.get(ours).unwrap().counters();
    assert_eq!((counters.losses, counters.timeouts), (4, 0));
    assert!(counters.acknowledged > ALL - (8 << 20));
}

#[test]
fn a_client_that_lets_go_after_its_half_is_closed_hears_no_more() {
    let mut table = Table::new(Secret::random());
    let (ours, theirs) = established(&mut table, Config::default());
    table.with(ours, |it| it.finish()).unwrap();
    exchange(&mut table);
    table.release(ours, NOW);
    table.with(theirs, |it| it.send(Shared::new(*b"late"))).unwrap().unwrap();
    exchange(&mut table);
    assert!(table.get(ours).is_none());
    assert_eq!(table.get(theirs).unwrap().ended(), Some(genie_tcp::Ended::Reset));
}

#[test]
fn a_connection_has_one_timer_however_often_it_is_set() {
    let mut table = Table::new(Secret::random());
    let config = Config { keep_alive: Some(genie_tcp::KeepAlive::default()), ..Config::default() };
    let (ours, theirs) = established(&mut table, config);
    let mut now = NOW;
    for _ in 0..1000 {
        table.with(ours, |it| it.send(Shared::new(*b"a"))).unwrap().unwrap();
        while let Some(out) = table.poll_transmit(now) {
            table.on_segment(out.path.reversed(), &out.segment, now);
        }
        table.with(theirs, |it| it.receive(1)).unwrap().unwrap();
        now = table.next_timeout().unwrap();
        table.on_timeout(now); // the delayed acknowledgment
    }
    assert_eq!(table.timers(), 2);
}
