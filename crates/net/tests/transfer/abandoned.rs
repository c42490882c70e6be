//! Requests that are given up while frames are lost, late, cut and doubled: what comes is the stream, and what does not come changes nothing.

use std::collections::VecDeque;

use genie_conformance::checked;
use genie_io::{In, Out, Pending, Reply};
use genie_net::transfer::{Limits, Receiving, Shape, in_parts, port};
use genie_net::wire::Options;
use genie_passing::{Overlays, Scheme};

use crate::link::{Kind, Link, PORT, RECEIVE, SEGMENT, SEND, receiving};

/// How many rounds each kind of adapter is tried for.
const ROUNDS: usize = 2_000;
/// What is in a buffer before it is filled.
const EMPTY: u8 = 0xee;

/// Numbers that look random, and are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// A client that sends words, each the number of its place in the stream, and asks for them.
struct Rounds {
    kind: Kind,
    link: Link,
    random: Random,
    sent: u64,
    /// The word that no reply has had yet.
    next: u64,
    waiting: VecDeque<Pending<'static>>,
    /// How many requests were filled, and how many were given up.
    ends: (usize, usize),
    /// How many of those that were filled were so in part.
    parts: usize,
}

impl Rounds {
    fn send(&mut self) {
        let words = 1 + self.random.below(600) as u64;
        let bytes: Vec<u8> = (self.sent..self.sent + words).flat_map(u64::to_le_bytes).collect();
        self.sent += words;
        let shape = Shape { data: vec![8 * (16 + self.random.below(400)), 1024], ..Shape::of(1) };
        self.link.sending.set_shape(shape);
        let port = port(PORT);
        let sending = self.link.genie.request(&self.link.sender, SEND).argument(&port).out(Out::copy(&bytes));
        sending.send().expect("the wire takes frames");
    }

    fn ask(&mut self) {
        let len = 8 * (1 + self.random.below(700));
        let mut buffer = self.link.genie.allocate_at(8 * self.random.below(600), len).expect("memory");
        buffer.fill(EMPTY);
        let scheme = [Scheme::EmulatedCopy, Scheme::Copy][self.random.below(2)];
        let (whole, parts) = (port(PORT), in_parts(PORT));
        let argument: &[u8] = if self.random.below(2) == 0 { &whole } else { &parts };
        let asked = self.link.genie.request(&self.link.receiver, RECEIVE).argument(argument);
        self.waiting.push_back(asked.input(In::owned(scheme, buffer)).submit().expect("a request"));
    }

    fn take(&mut self) {
        while self.waiting.front().is_some_and(Pending::is_replied) {
            self.take_first();
        }
    }

    fn take_first(&mut self) {
        if let Some(pending) = self.waiting.pop_front() {
            match pending.sync() {
                Ok(reply) => self.check(reply),
                // The server says so when it has dropped what a client has not asked for.
                Err(mut failed) => self.untouched(&failed.take_buffer().expect("the buffer")),
            }
        }
    }

    fn check(&mut self, mut reply: Reply) {
        let (come, buffer) = (reply.actual(), reply.take_buffer().expect("the buffer"));
        self.parts += usize::from(come < buffer.len());
        // A packet that was cut ends anywhere.
        let (words, _) = buffer[..come].as_chunks();
        for (index, word) in words.iter().map(|word| u64::from_le_bytes(*word)).enumerate() {
            let is_first = index == 0 && word >= self.next;
            assert!(is_first || word == self.next, "{:?}: word {word}, not {}", self.kind, self.next);
            self.next = word + 1;
        }
        self.ends.0 += 1;
    }

    fn untouched(&mut self, bytes: &[u8]) {
        assert!(bytes.iter().all(|byte| *byte == EMPTY), "{:?}: a buffer has changed", self.kind);
        self.ends.1 += 1;
    }

    /// Gives up one of the requests, half of the time the first.
    fn give_up(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = self.random.below(2) * self.random.below(self.waiting.len());
        let Some(pending) = self.waiting.remove(index) else { return };
        match pending.abort() {
            // It was filled after all, in part at least, and others that were asked for earlier before it.
            Ok(reply) => {
                (0..index).for_each(|_| self.take_first());
                self.check(reply);
            }
            Err(mut failed) => self.untouched(&failed.take_buffer().expect("the buffer")),
        }
    }

    fn run(&mut self) {
        for _ in 0..ROUNDS {
            match self.random.below(8) {
                0..3 => self.send(),
                3..6 if self.waiting.len() < 12 => self.ask(),
                6 => self.give_up(),
                _ => self.link.receiving.interrupt(),
            }
            self.take();
        }
        while !self.waiting.is_empty() {
            self.give_up();
        }
    }
}

#[test]
fn what_is_given_up_changes_nothing_and_what_comes_is_the_stream() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let options = Options {
            loss: 0.01,
            duplication: 0.02,
            reordering: 0.05,
            displacement: 3,
            truncation: 0.01,
            seed: number as u64 + 1,
            ..Options::default()
        };
        let limits = Limits { queued: 64 << 10, ..Limits::default() };
        let how = Receiving { coalesced: 1 + number % 3, tracks: true, limits, ..receiving(1024) };
        let link = Link::over(options, kind, how);
        let pool = Overlays::reserve(link.genie.space(), 0, SEGMENT, 4).expect("memory");
        link.receiving.set_speculation(Some(pool));
        let random = Random(0x9e37_79b9_7f4a_7c15 + number as u64);
        let mut rounds =
            Rounds { kind, link, random, sent: 0, next: 0, waiting: VecDeque::new(), ends: (0, 0), parts: 0 };
        rounds.run();
        let (filled, given_up) = rounds.ends;
        assert!(filled > 50 && given_up > 50, "{kind:?}: {filled} filled, {given_up} given up");
        // Others find few packets cut, or processed, as they need it.
        assert!(kind != Kind::SnapOff || rounds.parts > 10, "{} in part", rounds.parts);
        checked(rounds.link.genie.space());
    }
}
