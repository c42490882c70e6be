//! What fuzzers and random tests check: that no segments, calls or pauses whatever break a connection.
//!
//! How: input bytes are a program. Each step sends a segment to a connection, near what it expects or anywhere, or does what a client does,
//! or lets time pass. After each, all that must hold is checked: what was handed out is the peer's stream, what was given comes back once,
//! and nothing is sent beyond what fits into a packet.

use std::sync::Arc;
use std::time::Duration;

use crate::options::{Block, Timestamps};
use crate::payload::Shared;
use crate::segment::Segment;
use crate::sequence::Seq;
use crate::timers::Time;
use crate::{
    Algorithm, Backlog, Config, Flags, Header, Id, KeepAlive, Options, Path, Payload, Secret, Table,
};

/// The peer's initial sequence number, which wraps soon.
const PEER: Seq = Seq(u32::MAX - 300);

/// Reads the input from its front; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u32 {
        u32::from(self.byte()) << 8 | u32::from(self.byte())
    }

    /// A number near zero, or anywhere.
    fn near(&mut self) -> u32 {
        match self.byte() {
            255 => self.word() << 16 | self.word(),
            byte @ 200.. => (u32::from(byte - 200) * 40).wrapping_neg(),
            byte => u32::from(byte) * 7,
        }
    }
}

struct Checked {
    table: Table<Shared>,
    path: Path,
    id: Option<Id>,
    now: Time,
    /// What this side has sent and acknowledged last.
    seq: Seq,
    ack: Seq,
    timestamp: u32,
    given: usize,
    released: usize,
    received: usize,
    confirming: bool,
}

/// The byte that has this sequence number.
fn stream(Seq(at): Seq) -> u8 {
    (at ^ at >> 8) as u8
}

/// Runs the program that the bytes are.
///
/// # Panics
/// When something is wrong.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let flags = input.byte();
    let config = Config {
        sack: flags & 1 > 0,
        timestamps: flags & 2 > 0,
        window_scaling: flags & 4 > 0,
        nagle: flags & 8 > 0,
        algorithm: if flags & 16 > 0 { Algorithm::Reno } else { Algorithm::Cubic },
        acknowledge_on_confirmation: flags & 32 > 0,
        keep_alive: (flags & 64 > 0).then(KeepAlive::default),
        receive_capacity: 1 + input.word() * 20,
        pieces: 1 + usize::from(input.byte()),
        gather: usize::from(input.byte() % 8),
        mtu: 100 + input.word() as u16 % 1400,
        ..Config::default()
    };
    let mut it = Checked {
        table: Table::new(Secret::from_bytes([7; 16])),
        path: Path { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 4000).into() },
        id: None,
        now: Duration::from_secs(1),
        seq: Seq(0),
        ack: PEER,
        timestamp: 0,
        given: 0,
        released: 0,
        received: 0,
        confirming: config.acknowledge_on_confirmation,
    };
    let config = Arc::new(config);
    if flags & 128 > 0 {
        let half_open = usize::from(input.byte() % 3);
        it.table.listen(it.path.local, config, Backlog { half_open, ready: 2 }).expect("a listener");
    } else {
        it.id = it.table.connect(it.path, config, it.now).ok();
    }
    it.after();
    while !input.0.is_empty() {
        it.step(&mut input);
        it.after();
    }
}

impl Checked {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..=8 => {
                let segment = self.segment(input);
                self.table.on_segment(self.path, &segment, self.now);
            }
            9 => {
                let segment = self.segment(input);
                self.table.on_unverified(self.path, &segment, self.now);
            }
            10 => self.pass(input),
            kind => self.act(kind, input),
        }
    }

    fn segment(&mut self, input: &mut Input<'_>) -> Segment<Shared> {
        let bits = input.byte();
        let flags = Flags {
            syn: bits & 3 == 3,
            ack: bits & 4 == 0,
            fin: bits & 24 == 24,
            rst: bits & 96 == 96,
            psh: false,
        };
        let seq = if flags.syn && input.byte() & 1 == 0 { PEER } else { self.ack + input.near() };
        let mut header = Header {
            seq,
            ack: if flags.ack { self.seq + input.near() } else { Seq(0) },
            flags,
            window: input.word() as u16,
            options: Options::default(),
        };
        let options = input.byte();
        if options & 1 > 0 {
            let value = (self.now.as_millis() as u32).wrapping_add(input.near());
            header.options.timestamps =
                Some(Timestamps { value, echo: self.timestamp.wrapping_add(input.near()) });
        }
        for block in header.options.sack.iter_mut().take(usize::from(options >> 1 & 3)) {
            let start = self.seq + input.near();
            *block = Some(Block { start, end: start + input.near() });
        }
        if flags.syn {
            header.options.mss = (options & 8 > 0).then(|| input.word() as u16);
            header.options.window_scale = (options & 16 > 0).then(|| input.byte());
            header.options.sack_permitted = options & 32 > 0;
        }
        let mut segment = Segment::bare(header);
        let mut at = seq + u32::from(flags.syn);
        for _ in 0..options >> 6 {
            let len = input.near() % 3000;
            let bytes: Vec<u8> = (0..len).map(|offset| stream(at + offset)).collect();
            at = at + len;
            segment.payload.push(Shared::new(bytes));
        }
        segment
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        self.now += Duration::from_millis(u64::from(input.word()) << (input.byte() % 8));
        self.table.on_timeout(self.now);
    }

    fn act(&mut self, kind: u8, input: &mut Input<'_>) {
        self.id = self.id.or_else(|| self.table.accept(self.path.local));
        let (Some(id), now, confirming) = (self.id, self.now, self.confirming) else { return };
        let most = input.near() as usize & 0xffff;
        let (mut given, mut received, mut rejected) = (0, 0, 0);
        let seen = self.received;
        self.table.with(id, |it| match kind {
            11 if it.send(Shared::new(vec![1; most])).is_ok() => given = most,
            12 => {
                while let Some(piece) = it.receive(most.max(1)) {
                    for (at, found) in piece.bytes().iter().enumerate() {
                        let place = it.peers_first() + (seen + received + at) as u32;
                        assert_eq!(*found, stream(place), "a byte of another place");
                    }
                    received += piece.len();
                }
            }
            13 if confirming => it.confirm((it.unconfirmed() as usize).min(most), now),
            14 if most == 7 => {
                rejected = it.unconfirmed() as usize;
                it.reject();
            }
            14 if most > 600 => it.finish(),
            15 if most > 1200 => it.close(now),
            15 if most == 7 => it.on_packet_too_big(300, self.seq),
            _ => (),
        });
        self.given += given;
        self.received += received;
        self.received -= rejected;
    }

    /// Takes what is sent, and looks whether all is well.
    fn after(&mut self) {
        let mut sent = 0;
        while let Some(out) = self.table.poll_transmit(self.now) {
            let header = out.segment.header;
            let len = 40 + header.options.write().len() + out.segment.data_len();
            assert!(len <= 1500, "a packet of {len} bytes");
            assert!(!header.flags.syn || out.segment.payload.is_empty());
            self.seq = self.seq.latest_of(header.seq + out.segment.len(), header.flags.syn);
            self.ack = if header.flags.ack { header.ack } else { self.ack };
            self.timestamp = header.options.timestamps.map_or(self.timestamp, |it| it.value);
            sent += 1;
            assert!(sent < 100_000, "segments without end");
        }
        while self.table.poll_event().is_some() {}
        if let Some(id) = self.id {
            let released = self.table.with(id, |it| {
                it.check();
                std::iter::from_fn(|| it.poll_released()).map(|it| it.len()).sum::<usize>()
            });
            self.released += released.unwrap_or(0);
            assert!(self.released <= self.given, "more came back than was given");
            let over = self.table.get(id).is_none_or(|it| it.ended().is_some());
            assert!(!over || self.released == self.given, "what was given did not come back");
        }
    }
}

impl Seq {
    fn latest_of(self, other: Self, anew: bool) -> Self {
        if anew { other } else { self.latest(other) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_segments_whatever_break_a_connection(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            super::check(&bytes);
        }
    }
}
