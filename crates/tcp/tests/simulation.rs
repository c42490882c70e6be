//! Two hosts and a network between them that loses, delays, reorders, repeats and damages packets, in virtual time.
//!
//! Packets go as bytes, with checksums: damage is found, or it is a failure. Each simulation prints its seed where it fails;
//! `GENIE_TCP_SEED` has all of them use one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use genie_tcp::wire::{self, Delivery};
use genie_tcp::{
    Algorithm, Backlog, Config, Ended, Event, Id, Path, Payload, Secret, Segment, Shared, Table, Time,
};

/// What the network does to packets. Chances are per thousand.
#[derive(Clone, Copy, Debug)]
struct Network {
    lost: u32,
    repeated: u32,
    damaged: u32,
    delay: Duration,
    /// Up to how much longer a packet may take than others.
    jitter: Duration,
    /// Bytes a second, each way; packets that would wait longer than `queue` are dropped.
    rate: u64,
    queue: Duration,
}

const QUIET: Network = Network {
    lost: 0,
    repeated: 0,
    damaged: 0,
    delay: Duration::from_millis(10),
    jitter: Duration::ZERO,
    rate: 12_500_000,
    queue: Duration::from_millis(50),
};

const WILD: Network =
    Network { lost: 20, repeated: 20, damaged: 10, jitter: Duration::from_millis(20), ..QUIET };

struct Host {
    table: Table<Shared>,
    connection: Option<Id>,
    /// What is still to be given to the connection, and how much was.
    to_send: usize,
    given: usize,
    received: usize,
    released: usize,
    ended: Option<Ended>,
    free_at: Time,
    cut: bool,
}

/// When it arrives, its number, where, and its bytes.
type Packet = (Time, u64, usize, Vec<u8>);

struct Simulation {
    rng: Rng,
    now: Time,
    hosts: [Host; 2],
    network: Network,
    under_way: BinaryHeap<Reverse<Packet>>,
    sent: u64,
    path: Path,
}

fn byte(at: usize, host: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8 ^ (host as u8 * 0x55)
}

impl Simulation {
    fn new(seed: u64, network: Network, config: Config, lens: [usize; 2]) -> Self {
        let path = Path { local: ([10, 0, 0, 1], 4000).into(), remote: ([10, 0, 0, 2], 80).into() };
        let config = Arc::new(config);
        let host = |key: u8, to_send| Host {
            table: Table::new(Secret::from_bytes([key; 16])),
            connection: None,
            to_send,
            given: 0,
            received: 0,
            released: 0,
            ended: None,
            free_at: Time::ZERO,
            cut: false,
        };
        let mut hosts = [host(1, lens[0]), host(2, lens[1])];
        let now = Duration::from_secs(1);
        hosts[1].table.listen(path.remote, config.clone(), Backlog::default()).unwrap();
        hosts[0].connection = Some(hosts[0].table.connect(path, config, now).unwrap());
        let rng = Rng::with_seed(seed);
        Self { rng, now, hosts, network, under_way: BinaryHeap::new(), sent: 0, path }
    }

    /// Goes on until both have ended, or for so long.
    fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        while self.now < end && self.hosts.iter().any(|host| host.ended.is_none()) {
            for at in 0..2 {
                self.work(at);
            }
            let arrival = self.under_way.peek().map(|Reverse((at, ..))| *at);
            let timers = self.hosts.iter().filter_map(|host| host.table.next_timeout());
            let Some(next) = timers.chain(arrival).min() else { break };
            self.now = self.now.max(next);
            while let Some(Reverse((at, number, to, bytes))) = self.under_way.pop() {
                if at > self.now {
                    self.under_way.push(Reverse((at, number, to, bytes)));
                    break;
                }
                self.arrive(to, &bytes);
            }
            for host in &mut self.hosts {
                host.table.on_timeout(self.now);
            }
        }
        for at in 0..2 {
            self.work(at);
        }
    }

    fn arrive(&mut self, to: usize, bytes: &[u8]) {
        let Ok(read) = wire::read(bytes, bytes.len()) else { return };
        let data = &bytes[read.data.clone()];
        if !read.is_intact(wire::sum(data)) {
            return;
        }
        let mut segment = Segment { header: read.header, payload: Default::default() };
        if !data.is_empty() {
            segment.payload.push(Shared::new(data));
        }
        self.hosts[to].table.on_segment(read.path, &segment, self.now);
    }

    /// What the client of a host does, and what the host then sends.
    fn work(&mut self, at: usize) {
        let now = self.now;
        let host = &mut self.hosts[at];
        if host.connection.is_none() {
            host.connection = host.table.accept(self.path.remote);
        }
        while let Some((_, event)) = host.table.poll_event() {
            if let Event::Ended(how) = event {
                host.ended = Some(how);
            }
        }
        if let Some(id) = host.connection {
            let rng = &mut self.rng;
            host.table.with(id, |it| {
                it.check();
                while host.given < host.to_send && it.queued() < 400_000 && host.ended.is_none() {
                    let len = rng.usize(1..20_000).min(host.to_send - host.given);
                    let bytes: Vec<u8> = (host.given..host.given + len).map(|it| byte(it, at)).collect();
                    if it.send(Shared::new(bytes)).is_err() {
                        break;
                    }
                    host.given += len;
                }
                if host.given == host.to_send {
                    it.finish();
                }
                while let Some(piece) = it.receive(rng.usize(1..20_000)) {
                    for (offset, found) in piece.bytes().iter().enumerate() {
                        assert_eq!(
                            *found,
                            byte(host.received + offset, 1 - at),
                            "at {}",
                            host.received + offset
                        );
                    }
                    host.received += piece.len();
                }
                while let Some(piece) = it.poll_released() {
                    host.released += piece.len();
                }
            });
        }
        while let Some(out) = self.hosts[at].table.poll_transmit(now) {
            let data: Vec<u8> = out.segment.payload.iter().flat_map(|it| it.bytes().to_vec()).collect();
            let delivery = Delivery { hop_limit: out.hop_limit, dscp: out.dscp };
            let header = wire::write(&out.path, &out.segment.header, delivery, data.len(), wire::sum(&data));
            assert!(header.len() + data.len() <= 1500, "a packet that is too long");
            self.carry(at, [&header[..], &data].concat());
        }
    }

    fn carry(&mut self, from: usize, mut bytes: Vec<u8>) {
        self.sent += 1;
        let network = self.network;
        let chance = |rng: &mut Rng, of: u32| rng.u32(0..1000) < of;
        let host = &mut self.hosts[from];
        let wire_free = host.free_at.max(self.now);
        if host.cut || wire_free - self.now > network.queue || chance(&mut self.rng, network.lost) {
            return;
        }
        host.free_at = wire_free + Duration::from_nanos(bytes.len() as u64 * 1_000_000_000 / network.rate);
        if chance(&mut self.rng, network.damaged) {
            let bit = self.rng.usize(0..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + u32::from(chance(&mut self.rng, network.repeated));
        for _ in 0..copies {
            let jitter = network.jitter.mul_f64(self.rng.f64());
            let at = host.free_at + network.delay + jitter;
            self.under_way.push(Reverse((at, self.sent, 1 - from, bytes.clone())));
        }
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("GENIE_TCP_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..count).map(|_| fastrand::u64(..)).collect(),
    }
}

/// Says the seed if the test fails.
struct Said(u64);

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("GENIE_TCP_SEED={} repeats this", self.0);
        }
    }
}

/// Both send so much, and all arrives, and both end well. Returns the simulation.
fn transfer(seed: u64, network: Network, config: Config, lens: [usize; 2], limit: Duration) -> Simulation {
    let _said = Said(seed);
    let mut it = Simulation::new(seed, network, config, lens);
    it.run(limit);
    for at in 0..2 {
        assert_eq!(it.hosts[at].ended, Some(Ended::Closed), "host {at} after {:?}, {network:?}", it.now);
        assert_eq!(it.hosts[at].received, lens[1 - at]);
        assert_eq!((it.hosts[at].given, it.hosts[at].released), (lens[at], lens[at]));
    }
    it
}

#[test]
fn every_byte_arrives_once_and_in_order_over_a_wild_network() {
    for seed in seeds(12) {
        let mut rng = Rng::with_seed(seed);
        let config = Config {
            algorithm: if rng.bool() { Algorithm::Reno } else { Algorithm::Cubic },
            sack: rng.bool(),
            timestamps: rng.bool(),
            window_scaling: rng.bool(),
            nagle: rng.bool(),
            receive_capacity: rng.u32(2000..2_000_000),
            pieces: rng.usize(4..500),
            gather: rng.usize(1..20),
            mtu: rng.u16(100..1500),
            ..Config::default()
        };
        let lens = [rng.usize(0..300_000), rng.usize(0..300_000)];
        transfer(seed, WILD, config, lens, Duration::from_secs(3600));
    }
}

#[test]
fn a_quiet_network_is_filled() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let config = Config { algorithm, receive_capacity: 4 << 20, ..Config::default() };
        let it = transfer(1, QUIET, config, [8_000_000, 0], Duration::from_secs(60));
        // 8 MB at 12.5 MB/s take 0.64 s and, of headers, 3 % more; slow start and the last round trip some 0.1 s.
        let took = it.now - Duration::from_secs(1);
        assert!(took < Duration::from_millis(1000), "{algorithm:?} took {took:?}");
    }
}

/// What a connection reaches while one packet in a hundred is lost, in bytes a second.
fn rate_at_one_percent(config: Config) -> f64 {
    let network = Network { lost: 10, rate: 125_000_000, ..QUIET };
    let len = 4_000_000;
    let rates = (0..3).map(|seed| {
        let it = transfer(seed, network, config.clone(), [len, 0], Duration::from_secs(600));
        len as f64 / (it.now - Duration::from_secs(1)).as_secs_f64()
    });
    rates.sum::<f64>() / 3.0
}

#[test]
fn losses_of_one_percent_leave_what_the_formula_says() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        // Mathis: MSS / RTT * sqrt(3/2) / sqrt(p) = 1448 / 0.02 * 12.2 = 887 kB/s.
        let rate = rate_at_one_percent(Config { algorithm, ..Config::default() });
        assert!(rate > 600_000.0, "{algorithm:?}: {rate:.0} bytes a second");
    }
}

#[test]
fn selective_acknowledgments_pay_where_many_packets_of_a_window_are_lost() {
    // Slow start overruns the queue of a slow line.
    let network = Network { rate: 1_250_000, queue: Duration::from_millis(40), ..QUIET };
    let took = |sack| {
        let config = Config { sack, ..Config::default() };
        transfer(1, network, config, [1_000_000, 0], Duration::from_secs(600)).now - Duration::from_secs(1)
    };
    let (with, without) = (took(true), took(false));
    assert!(with < without.mul_f64(0.9), "with SACK {with:?}, without {without:?}");
}

#[test]
fn a_peer_that_dies_is_given_up() {
    for seed in seeds(3) {
        let _said = Said(seed);
        let config = Config { user_timeout: Duration::from_secs(30), ..Config::default() };
        let mut it = Simulation::new(seed, WILD, config, [50_000_000, 0]);
        it.run(Duration::from_secs(2));
        it.hosts[1].cut = true;
        let cut = it.now;
        while it.hosts[0].ended.is_none() && it.now < cut + Duration::from_secs(120) {
            it.run(Duration::from_secs(1));
        }
        assert_eq!(it.hosts[0].ended, Some(Ended::TimedOut));
        assert!(it.now - cut <= Duration::from_secs(32), "after {:?}", it.now - cut);
        assert_eq!(it.hosts[0].released, it.hosts[0].given);
    }
}

#[test]
fn a_network_that_comes_back_is_used_again() {
    for seed in seeds(3) {
        let _said = Said(seed);
        let mut it = Simulation::new(seed, QUIET, Config::default(), [4_000_000, 0]);
        it.run(Duration::from_millis(150));
        it.hosts[0].cut = true;
        it.run(Duration::from_secs(20));
        it.hosts[0].cut = false;
        it.run(Duration::from_secs(60));
        assert_eq!(it.hosts[1].received, 4_000_000);
        assert_eq!(it.hosts[0].ended, Some(Ended::Closed));
    }
}
