//! What an honest pair of ends sees: every record, once, in order, whole; and the room that there is.

use std::time::Duration;

use genie_ring::{
    Bells, Ends, INLINE_MAX, Layout, Mode, PushError, Record, Side, Spin, create, wait, wait_for_room,
};
use genie_sys::event::Event;
use genie_sys::poll::Poller;
use proptest::prelude::*;

const SMALL: Layout = Layout { lines: 16, area: 4096 };
const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn bells() -> (Bells, Bells) {
    let (ours, theirs) = Event::pair().unwrap();
    (Bells::end(ours), Bells::end(theirs))
}

/// The client's and the server's ends of a channel in ordinary memory.
fn in_memory(layout: Layout) -> (Ends, Ends) {
    let (client, server) = bells();
    Ends::in_process(layout, client, server).unwrap()
}

/// The client's and the server's ends of a channel object that is mapped twice.
fn over_an_object(layout: Layout) -> (Ends, Ends) {
    let (client, server) = bells();
    let object = create(layout).unwrap();
    let attach = |side, bells| Ends::attach(&object, layout, side, bells).unwrap();
    (attach(Side::Client, client), attach(Side::Server, server))
}

/// Runs both sides at once.
fn between_threads(
    (client, server): (Ends, Ends),
    run_client: impl FnOnce(Ends) + Send,
    run_server: impl FnOnce(Ends),
) {
    std::thread::scope(|scope| {
        scope.spawn(move || run_client(client));
        run_server(server);
    });
}

/// Bytes that tell their record's number and their place.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

fn take(ends: &mut Ends, record: &mut Record) -> bool {
    ends.consumer.pop(record).expect("an honest peer breaks nothing")
}

#[test]
fn a_record_of_any_length_arrives_as_it_was_sent() {
    let layout = Layout::default();
    let (mut client, mut server) = over_an_object(layout);
    let mut record = Record::new();
    let ends = [0, 1, 7, 8, 55, 56, 57, 111, 112, 113, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 4096];
    for (number, len) in ends.into_iter().chain([layout.record_max()]).enumerate() {
        assert!(!take(&mut server, &mut record));
        client.producer.push(number as u8, &bytes(number, len)).unwrap();
        assert!(take(&mut server, &mut record));
        assert_eq!((record.kind(), record.payload()), (number as u8, &bytes(number, len)[..]), "{len} bytes");
    }
}

#[test]
fn a_record_longer_than_half_the_area_is_refused_and_nothing_is_sent() {
    let (mut client, mut server) = in_memory(SMALL);
    let max = SMALL.record_max();
    assert_eq!(client.producer.push(1, &vec![0; max + 1]), Err(PushError::TooLong { len: max + 1, max }));
    assert!(!take(&mut server, &mut Record::new()));
    client.producer.push(1, &vec![0; max]).unwrap();
}

#[test]
fn a_full_ring_refuses_until_the_peer_has_told_of_room() {
    let (mut client, mut server) = in_memory(SMALL);
    for number in 0..16 {
        client.producer.push(number, &[number]).unwrap();
    }
    assert_eq!(client.producer.push(16, &[16]), Err(PushError::Full));
    let mut record = Record::new();
    for number in 0..4 {
        assert!(take(&mut server, &mut record));
        assert_eq!(record.kind(), number);
    }
    client.producer.push(16, &[16]).unwrap();
    for number in 4..17 {
        assert!(take(&mut server, &mut record));
        assert_eq!((record.kind(), record.payload()), (number, &[number][..]));
    }
    assert!(!take(&mut server, &mut record));
}

#[test]
fn a_full_area_refuses_until_its_records_are_taken() {
    let (mut client, mut server) = in_memory(SMALL);
    let payload = bytes(1, 2048);
    client.producer.push(1, &payload).unwrap();
    client.producer.push(2, &payload).unwrap();
    assert_eq!(client.producer.push(3, &payload), Err(PushError::Full));
    client.producer.push(3, b"short").unwrap();
    assert!(take(&mut server, &mut Record::new()));
    client.producer.push(4, &payload).unwrap();
}

#[test]
fn an_emptied_ring_takes_the_longest_record_wherever_it_stands() {
    for layout in [SMALL, Layout { lines: 2, area: 128 }, Layout { lines: 4, area: 256 }] {
        let (mut client, mut server) = in_memory(layout);
        let mut record = Record::new();
        for turn in 0..200usize {
            for len in [turn * 37 % (layout.record_max() + 1), layout.record_max()] {
                client.producer.push(7, &bytes(turn, len)).unwrap();
                assert!(take(&mut server, &mut record));
                assert_eq!(record.payload(), bytes(turn, len), "turn {turn} of {layout:?}");
            }
        }
    }
}

#[test]
fn what_is_published_in_a_batch_is_seen_without_a_bell() {
    let (mut client, mut server) = in_memory(SMALL);
    assert!(server.consumer.arm(Mode::Futex));
    client.producer.publish(1, b"one").unwrap();
    client.producer.publish(2, b"two").unwrap();
    let (word, armed) = server.consumer.word();
    assert_eq!(word.load(std::sync::atomic::Ordering::SeqCst), armed, "nobody has rung");
    client.producer.ring_bell();
    assert_eq!(server.consumer.word().0.load(std::sync::atomic::Ordering::SeqCst), 0);
    server.consumer.disarm();
    let mut record = Record::new();
    assert!(take(&mut server, &mut record) && take(&mut server, &mut record));
}

#[test]
fn the_descriptor_is_readable_from_the_bell_to_the_disarming() {
    let (mut client, mut server) = in_memory(SMALL);
    let poller = Poller::new().unwrap();
    poller.add(&server.consumer, 7).unwrap();
    let mut events = Vec::new();
    let mut is_readable = || {
        poller.wait(Some(Duration::ZERO), &mut events).unwrap();
        !events.is_empty()
    };
    client.producer.push(1, b"awake").unwrap();
    assert!(!is_readable(), "no bell for a consumer that is awake");
    assert!(!server.consumer.arm(Mode::Descriptor), "a record is there");
    assert!(take(&mut server, &mut Record::new()));
    assert!(server.consumer.arm(Mode::Descriptor));
    client.producer.push(2, b"asleep").unwrap();
    assert!(is_readable());
    server.consumer.disarm();
    assert!(!is_readable());
    assert!(take(&mut server, &mut Record::new()));
}

#[test]
fn waiting_ends_when_the_time_is_over() {
    let (mut client, mut server) = in_memory(SMALL);
    let soon = Some(Duration::from_millis(5));
    assert!(!wait(&mut server.consumer, Spin::NONE, soon).unwrap());
    assert!(!wait(&mut server.consumer, Spin::new(Duration::from_micros(50)), soon).unwrap());
    client.producer.push(1, b"").unwrap();
    assert!(wait(&mut server.consumer, Spin::NONE, soon).unwrap());
    while client.producer.push(1, b"").is_ok() {}
    assert!(!wait_for_room(&mut client.producer, &mut client.consumer, soon).unwrap());
}

/// Pushes, waiting for room where there is none.
fn push_patiently(ends: &mut Ends, number: usize, payload: &[u8]) {
    while let Err(error) = ends.producer.push(number as u8, payload) {
        assert_eq!(error, PushError::Full);
        assert!(wait_for_room(&mut ends.producer, &mut ends.consumer, LONG).unwrap(), "no room was made");
    }
}

fn transfer(layout: Layout, spin: Spin, lens: impl Iterator<Item = usize> + Clone + Send) {
    let mut sent = lens.clone().enumerate();
    between_threads(
        over_an_object(layout),
        |mut client| {
            sent.by_ref().for_each(|(number, len)| push_patiently(&mut client, number, &bytes(number, len)))
        },
        |mut server| {
            let mut record = Record::new();
            for (number, len) in lens.enumerate() {
                while !take(&mut server, &mut record) {
                    assert!(wait(&mut server.consumer, spin, LONG).unwrap(), "record {number} never came");
                }
                assert_eq!(record.payload(), bytes(number, len), "record {number}");
                assert_eq!(record.kind(), number as u8);
            }
        },
    );
}

#[test]
fn records_of_all_lengths_cross_small_rings_between_sleeping_threads() {
    let lens = (0..3000usize).map(|number| number * number * 31 % 2049);
    transfer(SMALL, Spin::NONE, lens);
    transfer(Layout { lines: 2, area: 128 }, Spin::NONE, (0..3000).map(|number| number % 65));
}

#[test]
fn a_hundred_thousand_records_cross_between_spinning_threads() {
    transfer(
        Layout::default(),
        Spin::new(Duration::from_micros(20)),
        (0..100_000).map(|number| number % 120),
    );
}

proptest! {
    #[test]
    fn any_sequence_of_pushes_and_pops_is_a_queue(
        shape in (1u32..6, 7u32..12),
        steps in proptest::collection::vec(proptest::option::of(0usize..3000), 1..300),
    ) {
        let layout = Layout { lines: 1 << shape.0, area: 1 << shape.1 };
        let (mut client, mut server) = in_memory(layout);
        let (mut queue, mut record) = (std::collections::VecDeque::new(), Record::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Some(len) => match client.producer.push(number as u8, &bytes(number, len)) {
                    Ok(()) => queue.push_back((number, len)),
                    Err(PushError::Full) => prop_assert!(!queue.is_empty(), "an empty ring is not full"),
                    Err(error) => {
                        prop_assert_eq!(error, PushError::TooLong { len, max: layout.record_max() });
                        prop_assert!(len > layout.record_max());
                    }
                },
                None => match queue.pop_front() {
                    Some((number, len)) => {
                        prop_assert!(take(&mut server, &mut record));
                        prop_assert_eq!(record.kind(), number as u8);
                        prop_assert_eq!(record.payload(), bytes(number, len));
                    }
                    None => prop_assert!(!take(&mut server, &mut record)),
                },
            }
        }
    }
}
