//! Attacks by a client's records: garbage, replays, and whatever is out of range.

use genie_channel::wire::record::{Body, Kind, RequestWriter, Slot};
use genie_io::servers::memory::{NULL, SINK, SOURCE};
use genie_memory::Direction;

use crate::attacked::{KEEP, OWN};
use crate::attacker::Ground;
use crate::client::{LEN, Raw, at, in_arena, object};
use crate::scene::eventually;
use crate::{attack, roles};

const KEEP_IT: u16 = KEEP.0 as u16;

roles! { scribbles, sends_garbage, repeats_itself, names_what_it_has_not }

/// Bytes that look random, the same in each run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Stores anything anywhere in the memory of the rings.
fn scribbles(ground: &mut Ground) {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let mut raw = Raw::greet(ground);
        let len = raw.rings.metadata().expect("memory").len();
        raw.request((0, 0), KEEP_IT, Direction::Out, &[]);
        match seed % 3 {
            // All of it; of the first lines only; words here and there.
            0 => raw.scribble(0, &random.bytes(len as usize)),
            1 => raw.scribble(4096, &random.bytes(4096)),
            _ => (0..2000).for_each(|_| raw.scribble(random.next() % (len - 8), &random.bytes(8))),
        }
        raw.request((1, 0), NULL.0 as u16, Direction::Out, &[]);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    ground.say("done");
    ground.stay();
}

#[test]
fn garbage_in_the_rings_memory_harms_nobody_else() {
    let (scene, attacker) = attack!(scribbles);
    attacker.says_that("done");
    scene.goes_on();
    scene.survives(attacker);
}

/// Records that are well-formed as entries of a ring, and as nothing else.
fn sends_garbage(ground: &mut Ground) {
    let mut random = Random::new(5);
    for round in 0..48u64 {
        let mut raw = Raw::greet(ground);
        let len = random.next() as usize % if round % 4 == 0 { 100_000 } else { 200 };
        let mut bytes = random.bytes(len);
        if round % 2 == 0 && bytes.len() > 12 {
            // A head that is almost right.
            bytes[..4].copy_from_slice(&[0; 4]);
            bytes[8..12].copy_from_slice(&[(round % 8) as u8, 0, 1, 0]);
        }
        let kind = if round % 3 == 0 { Kind::Request as u8 } else { random.next() as u8 };
        raw.push(kind, &bytes).expect("room");
        raw.farewell();
    }
    // What only servers send.
    for kind in [Kind::Reply, Kind::Done, Kind::Progress] {
        let mut raw = Raw::greet(ground);
        raw.push(kind as u8, &[0; 20]).expect("room");
        ground.say(raw.farewell());
    }
    ground.stay();
}

#[test]
fn records_that_mean_nothing_end_their_channel() {
    let (scene, attacker) = attack!(sends_garbage);
    attacker.says_that("a client sends no replies");
    assert!(attacker.says().contains("end its channel"));
    scene.goes_on();
    scene.survives(attacker);
}

/// The same request once more, and a place that is taken.
fn repeats_itself(ground: &mut Ground) {
    for generation in [0, 1] {
        let mut raw = Raw::greet(ground);
        raw.request((0, 0), KEEP_IT, Direction::Out, &[]);
        raw.request((0, generation), KEEP_IT, Direction::Out, &[]);
        ground.say(raw.farewell());
    }
    // Once it was replied to, it is the same place, and another request.
    let mut raw = Raw::greet(ground);
    for _ in 0..100 {
        raw.request((0, 0), NULL.0 as u16, Direction::Out, &[]);
        assert_eq!(raw.reply().as_deref(), Some("ok"));
    }
    // An abort of what is long over, and of what never was.
    for slot in [(0, 0), (0, 77), (200, 0), (u32::MAX, u32::MAX)] {
        raw.abort(slot);
    }
    raw.request((0, 0), NULL.0 as u16, Direction::Out, &[]);
    ground.say(raw.reply().expect("a reply"));
    ground.stay();
}

#[test]
fn a_request_that_is_replayed_ends_its_channel() {
    let (scene, attacker) = attack!(repeats_itself);
    attacker.says_that("place 0 is taken by another request");
    attacker.says_that("place 0 is taken by another request");
    attacker.says_that("ok");
    assert_eq!(scene.attacked().aborts(), 2, "what the two channels had pending");
    scene.survives(attacker);
}

/// Places, services, arenas and lengths that there are not.
fn names_what_it_has_not(ground: &mut Ground) {
    let page = 4096;
    let announced = |ground: &Ground| {
        let raw = Raw::greet(ground);
        let memory = object(4 * page as usize).read_only().expect("a descriptor");
        raw.announce(1, 0, 4 * page, false, memory).expect("an object");
        raw
    };
    let sink = SINK.0 as u16;
    let out = Direction::Out;
    let wrong = [
        ("a place beyond those granted", (256, 0), sink, out, at(0, 1)),
        ("the last place that a number names", (u32::MAX, 0), sink, out, at(0, 1)),
        ("a service that there is not", (0, 0), OWN.0 as u16 + 1, out, at(0, 1)),
        ("the last service that a number names", (0, 0), u16::MAX, out, at(0, 1)),
        ("another arena", (0, 0), sink, out, in_arena(1, 0, 1)),
        ("the last arena", (0, 0), sink, out, in_arena(u16::MAX, 0, 1)),
        ("memory after the object", (0, 0), sink, out, at(4 * page, 1)),
        ("memory across the object's end", (0, 0), sink, out, at(4 * page - 1, 2)),
        ("the end of the arena", (0, 0), sink, out, at(LEN - 1, 1)),
        ("memory after the arena", (0, 0), sink, out, at(LEN, 1)),
        ("the last byte of all", (0, 0), sink, out, at((1 << 48) - 2, 1)),
        ("input in read-only memory", (0, 0), SOURCE.0 as u16, Direction::In, at(0, 1)),
    ];
    for (what, slot, service, direction, segment) in wrong {
        let mut raw = announced(ground);
        raw.request(slot, service, direction, &[segment]);
        let why = raw.farewell();
        assert!(
            why.contains("there is no service") || why.contains("announced") || why.contains("not granted"),
            "{what}: {why}"
        );
    }
    // Lengths that add up to too much, in a record that no honest writer would make: patched by hand.
    for len in [[255u8; 6], [0, 0, 0, 0, 0, 128]] {
        let mut raw = announced(ground);
        let mut body = Body::new();
        let slot = Slot { index: 0, generation: 0 };
        let mut writer = RequestWriter::begin(&mut body, slot, sink, b"", 0).expect("a request");
        writer.buffer(out, false).expect("a buffer");
        writer.element([at(0, 1), at(1, 1)]).expect("an element");
        let mut bytes = body.to_vec();
        let end = bytes.len();
        bytes[end - 6..].copy_from_slice(&len);
        raw.push(Kind::Request as u8, &bytes).expect("room");
        raw.farewell();
    }
    // More than was granted is refused, and no more.
    let mut raw = announced(ground);
    let many: Vec<_> = (0..70_000 / 16).map(|_| at(0, 4 * page)).collect();
    for index in 0..20 {
        raw.request((index, 0), KEEP_IT, out, &many);
    }
    ground.say(raw.reply().expect("a reply"));
    ground.stay();
}

#[test]
fn a_request_out_of_range_ends_its_channel() {
    let (scene, attacker) = attack!(names_what_it_has_not);
    attacker.says_that("refused");
    eventually("requests", || (scene.attacked().kept_count() > 10).then_some(()).ok_or("few".to_owned()));
    scene.goes_on();
    scene.survives(attacker);
}
