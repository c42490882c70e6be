//! A peer that stores anything anywhere: its own channel ends, and nothing else happens.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genie_ring::{
    Bells, Broken, Ends, Error, Layout, Mode, PushError, Record, Side, consumer_of_image, create, wait,
    wait_for_room,
};
use genie_sys::event::Event;
use genie_sys::{Arena, Object};
use proptest::prelude::*;

const LAYOUT: Layout = Layout { lines: 16, area: 1024 };
/// Where the parts of a direction are, as documented.
const LINES_AT: usize = 4096;
const HEADS_AT: usize = 128;

const FIRST: u8 = 1;
const SPILLED: u8 = 2;
const CONTINUATION: u8 = 3;

fn header(sequence: u32, len: u16, role: u8) -> u64 {
    u64::from(sequence) | u64::from(len) << 32 | 9 << 48 | u64::from(role) << 56
}

fn bells() -> Bells {
    Bells::end(Event::new().unwrap())
}

/// What a consumer makes of lines that hold these words.
fn pop_image(image: &[u64]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut consumer = consumer_of_image(LAYOUT, image, bells()).unwrap();
    let (mut record, mut taken) = (Record::new(), Vec::new());
    while consumer.pop(&mut record)? {
        taken.push(record.payload().to_vec());
    }
    Ok(taken)
}

fn image(lines: &[(u64, [u64; 7])]) -> Vec<u64> {
    lines.iter().flat_map(|(header, payload)| std::iter::once(*header).chain(*payload)).collect()
}

#[test]
fn each_breach_of_the_rules_is_named() {
    let cases = [
        (header(1, 449, FIRST), 0, Broken::Length { position: 0, len: 449, max: 448 }),
        (header(1, u16::MAX, FIRST), 0, Broken::Length { position: 0, len: 65535, max: 448 }),
        (header(1, 8, SPILLED), 513, Broken::Length { position: 0, len: 513, max: 512 }),
        (header(1, 8, SPILLED), u64::MAX, Broken::Length { position: 0, len: u64::MAX, max: 512 }),
        (header(1, 57, FIRST), 0, Broken::Continuation { position: 1 }),
        (header(1, 8, CONTINUATION), 0, Broken::Role { position: 0, role: CONTINUATION }),
        (header(1, 8, 0), 0, Broken::Role { position: 0, role: 0 }),
        (header(1, 8, 255), 0, Broken::Role { position: 0, role: 255 }),
    ];
    for (header, word, broken) in cases {
        assert_eq!(pop_image(&image(&[(header, [word; 7])])), Err(broken));
        assert!(broken.to_string().contains("broke the channel"), "{broken}");
    }
}

#[test]
fn what_an_earlier_lap_left_is_no_record() {
    assert_eq!(pop_image(&image(&[(0, [0; 7])])), Ok(vec![]));
    for sequence in [0, 2, 17, u32::MAX - 15] {
        assert_eq!(pop_image(&image(&[(header(sequence, 8, FIRST), [0; 7])])), Ok(vec![]));
    }
}

#[test]
fn a_broken_end_stays_broken_and_does_not_sleep() {
    let mut consumer = consumer_of_image(LAYOUT, &image(&[(header(1, 8, 77), [0; 7])]), bells()).unwrap();
    let mut record = Record::new();
    let broken = consumer.pop(&mut record).unwrap_err();
    assert_eq!(consumer.pop(&mut record), Err(broken));
    assert!(!consumer.arm(Mode::Futex));
    assert!(wait(&mut consumer, genie_ring::Spin::NONE, None).unwrap(), "there is an error to be told");
}

/// The memory of a channel as its other side may store into it.
struct Scribbler {
    arena: Arena,
    len: usize,
}

impl Scribbler {
    fn new(object: &Object) -> Self {
        let arena = Arena::reserve(object.len()).unwrap();
        arena.map(0, object, 0, object.len()).unwrap();
        Self { arena, len: object.len() }
    }

    #[allow(unsafe_code, reason = "a hostile peer stores where it likes")]
    fn store(&self, offset: usize, word: u64) {
        // SAFETY: mapped for as long as the scribbler lives; the ends' memory is another mapping.
        unsafe { self.arena.span(offset, 8).copy_from(&word.to_le_bytes()) };
    }
}

fn client_and_scribbler() -> (Ends, Scribbler) {
    let object = create(LAYOUT).unwrap();
    let client = Ends::attach(&object, LAYOUT, Side::Client, bells()).unwrap();
    (client, Scribbler::new(&object))
}

#[test]
fn a_peer_that_consumed_what_was_never_sent_is_found_out() {
    for (offset, unit) in [(0, "lines"), (8, "argument bytes")] {
        let (mut client, scribbler) = client_and_scribbler();
        scribbler.store(HEADS_AT + offset, 1000);
        let error = (0..17).find_map(|_| client.producer.push(1, b"x").err());
        let most = if offset == 0 { 16 } else { 0 };
        let broken = Broken::Head { unit, found: 1000, least: 0, most };
        assert_eq!(error, Some(PushError::Broken(broken)));
        assert_eq!(client.producer.want_room(), Err(broken));
        assert!(matches!(
            wait_for_room(&mut client.producer, &mut client.consumer, None),
            Err(Error::Broken(found)) if found == broken
        ));
    }
}

#[test]
fn a_peer_that_goes_back_is_found_out() {
    let (mut client, scribbler) = client_and_scribbler();
    let push = |client: &mut Ends, times| (0..times).try_for_each(|_| client.producer.push(1, b"x"));
    push(&mut client, 16).unwrap();
    scribbler.store(HEADS_AT, 8);
    push(&mut client, 8).unwrap();
    scribbler.store(HEADS_AT, 7);
    let broken = Broken::Head { unit: "lines", found: 7, least: 8, most: 24 };
    assert_eq!(push(&mut client, 1), Err(PushError::Broken(broken)));
}

#[test]
fn an_object_of_another_size_is_refused() {
    let object = create(LAYOUT).unwrap();
    let larger = Layout { area: 1 << 16, ..LAYOUT };
    let refused = Ends::attach(&object, larger, Side::Client, bells());
    assert!(matches!(refused, Err(Error::Size { found, needed }) if found == object.len() && needed > found));
    assert!(object.as_fd().try_clone_to_owned().is_ok());
    let odd = Layout { lines: 3, area: 0 };
    assert!(matches!(create(odd), Err(Error::Layout { lines: 3, area: 0 })));
}

/// Uses both ends in every way, and begins anew with the next position whenever the peer broke one: for a while, and until
/// that has happened `at_least` so often.
fn use_until_broken(at_least: usize, object: &Object) {
    let (begun, mut broken) = (Instant::now(), 0);
    while broken < at_least || begun.elapsed() < Duration::from_millis(1500) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the scribbler was noticed {broken} times only");
        let mut ends = Ends::attach(object, LAYOUT, Side::Client, bells()).unwrap();
        let mut record = Record::new();
        let result: Result<(), Broken> = (0..10_000).try_for_each(|turn| {
            ends.consumer.pop(&mut record)?;
            assert!(record.payload().len() <= LAYOUT.record_max());
            if let Err(PushError::Broken(broken)) = ends.producer.push(3, &[5; 512][..turn % 513]) {
                return Err(broken);
            }
            if ends.consumer.arm(Mode::Futex) {
                ends.consumer.sleep(Some(Duration::ZERO)).unwrap();
            }
            ends.consumer.disarm();
            Ok(())
        });
        broken += usize::from(result.is_err());
    }
}

#[test]
fn a_peer_that_scribbles_all_the_time_breaks_its_channel_and_nothing_else() {
    let object = create(LAYOUT).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let scribbler = Scribbler::new(&object);
            let mut random = 0x9E37_79B9_7F4A_7C15u64;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    scribble(&scribbler, random);
                }
            }
        });
        let _over = Finally(|| is_over.store(true, Ordering::Relaxed));
        use_until_broken(11, &object);
    });
}

/// Something to be done in the end, also where a test fails, so that other threads end, too.
struct Finally<F: Fn()>(F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Stores a word somewhere: half of the time one that looks like a header or a head.
fn scribble(scribbler: &Scribbler, random: u64) {
    let direction = scribbler.len / 2 * (random as usize & 1);
    let small = random >> 32 & 0xF;
    match random >> 8 & 3 {
        0 => {
            let roles = header(small as u32 + 1, (random >> 40) as u16 % 500, (random >> 60) as u8 % 4);
            scribbler.store(direction + LINES_AT + 64 * small as usize, roles);
        }
        1 => scribbler.store(direction + HEADS_AT + 8 * (random as usize >> 16 & 1), small),
        _ => scribbler.store(((random >> 16) as usize % scribbler.len) & !7, random),
    }
}

/// A line's words: what an honest peer could write at this position, or anything.
fn line(position: u32) -> impl Strategy<Value = [u64; 8]> {
    let plausible = (0u16..500, 0u8..5, 0u64..600).prop_map(move |(len, role, word)| {
        let mut words = [word; 8];
        words[0] = header(position + 1, len, role);
        words
    });
    let continuation =
        Just([(u64::from(position) + 1) | (u64::from(CONTINUATION) << 56), 1, 2, 3, 4, 5, 6, 7]);
    prop_oneof![6 => plausible, 2 => continuation, 1 => any::<[u64; 8]>()]
}

proptest! {
    #[test]
    fn any_memory_image_is_records_or_an_error(
        lines in (0..LAYOUT.lines).map(line).collect::<Vec<_>>(),
        area in proptest::collection::vec(any::<u64>(), 0..128),
    ) {
        let words: Vec<u64> = lines.into_iter().flatten().chain(area).collect();
        if let Ok(taken) = pop_image(&words) {
            prop_assert!(taken.len() <= LAYOUT.lines as usize, "no line is taken twice");
            prop_assert!(taken.iter().all(|payload| payload.len() <= LAYOUT.record_max()));
        }
    }
}
