//! Every interleaving of the two sides, as far as loom can tell them apart, in rings so small that they wrap and fill.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p genie-ring --release --test loom`
//!
//! A lost wake-up shows as a deadlock, which loom reports; a lost, torn or doubled record fails an assertion.
#![cfg(loom)]

use std::sync::Arc;

use genie_ring::{Bells, Ends, Event, Layout, Mode, PushError, Record, Side, Spin, wait, wait_for_room};

const SMALLEST: Layout = Layout { lines: 2, area: 128 };

/// Runs `model` on the client's and the server's ends under every interleaving with at most `preemptions` switches
/// away from a thread that could go on.
fn explore(preemptions: usize, layout: Layout, model: fn(Ends, Ends)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let [client, server] = [(); 2].map(|()| Arc::new(Event::new()));
        let bells = |peer: &Arc<Event>, own: &Arc<Event>| Bells::shared(Arc::clone(peer), Arc::clone(own));
        let (client_bells, server_bells) = (bells(&server, &client), bells(&client, &server));
        let (client, server) = Ends::in_process(layout, client_bells, server_bells).unwrap();
        model(client, server);
    });
}

/// A payload that tells its number and its bytes' places.
fn payload(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number.wrapping_mul(31).wrapping_add(at as u8)).collect()
}

fn expect(ends: &mut Ends, record: &mut Record, number: u8, len: usize) {
    while !ends.consumer.pop(record).unwrap() {
        assert!(wait(&mut ends.consumer, Spin::NONE, None).unwrap());
    }
    assert_eq!((record.kind(), record.payload()), (number, &payload(number, len)[..]));
}

fn push(ends: &mut Ends, number: u8, len: usize) {
    let payload = payload(number, len);
    loop {
        match ends.producer.push(number, &payload) {
            Ok(()) => return,
            Err(PushError::Full) => {
                assert!(wait_for_room(&mut ends.producer, &mut ends.consumer, None).unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// One side sends records of these lengths, the other sleeps for each.
fn transfer<const N: usize>(mut client: Ends, mut server: Ends, lens: [usize; N]) {
    let sender = loom::thread::spawn(move || {
        (0..).zip(lens).for_each(|(number, len)| push(&mut client, number, len));
        client
    });
    let mut record = Record::new();
    (0..).zip(lens).for_each(|(number, len)| expect(&mut server, &mut record, number, len));
    // A last word, so that the sender finds whatever room there is.
    sender.join().unwrap();
    assert!(!server.consumer.pop(&mut record).unwrap(), "no record comes twice");
}

#[test]
fn a_record_wakes_a_consumer_that_arms_at_any_moment() {
    explore(4, SMALLEST, |client, server| transfer(client, server, [8, 16]));
}

#[test]
fn a_full_ring_that_wraps_loses_no_record_and_no_wake_up() {
    explore(2, SMALLEST, |client, server| transfer(client, server, [8; 5]));
}

#[test]
fn records_of_several_lines_are_seen_whole() {
    explore(3, Layout { lines: 4, area: 128 }, |client, server| transfer(client, server, [60, 8, 70]));
}

#[test]
fn spilled_records_are_seen_whole_and_the_area_is_used_again() {
    explore(2, SMALLEST, |client, server| transfer(client, server, [57, 64, 60]));
}

#[test]
fn request_and_reply_wake_each_other() {
    explore(3, SMALLEST, |mut client, mut server| {
        let echo = loom::thread::spawn(move || {
            let mut record = Record::new();
            expect(&mut server, &mut record, 1, 8);
            push(&mut server, 2, 16);
        });
        push(&mut client, 1, 8);
        expect(&mut client, &mut Record::new(), 2, 16);
        echo.join().unwrap();
    });
}

#[test]
fn a_batch_is_announced_by_one_bell() {
    explore(3, Layout { lines: 4, area: 128 }, |mut client, mut server| {
        let sender = loom::thread::spawn(move || {
            client.producer.publish(0, &payload(0, 8)).unwrap();
            client.producer.publish(1, &payload(1, 8)).unwrap();
            client.producer.ring_bell();
        });
        let mut record = Record::new();
        expect(&mut server, &mut record, 0, 8);
        expect(&mut server, &mut record, 1, 8);
        sender.join().unwrap();
    });
}

#[test]
fn a_bell_that_rings_while_the_consumer_disarms_loses_nothing() {
    explore(4, SMALLEST, |mut client, mut server| {
        let sender = loom::thread::spawn(move || push(&mut client, 0, 8));
        // Thinks better of it, in both modes, whatever the bell does meanwhile.
        for mode in [Mode::Futex, Mode::Descriptor] {
            server.consumer.arm(mode);
            server.consumer.disarm();
        }
        expect(&mut server, &mut Record::new(), 0, 8);
        sender.join().unwrap();
    });
}

#[test]
fn a_consumer_that_polls_its_descriptor_is_woken() {
    explore(3, SMALLEST, |mut client, mut server| {
        let sender = loom::thread::spawn(move || {
            push(&mut client, 0, 8);
            push(&mut client, 1, 8);
        });
        let mut record = Record::new();
        for number in 0..2 {
            while !server.consumer.pop(&mut record).unwrap() {
                if server.consumer.arm(Mode::Descriptor) {
                    server.consumer.poll();
                    server.consumer.disarm();
                }
            }
            assert_eq!((record.kind(), record.payload()), (number, &payload(number, 8)[..]));
        }
        sender.join().unwrap();
    });
}

#[test]
fn both_sides_full_make_room_for_each_other() {
    explore(2, SMALLEST, |client, server| {
        let run = |mut ends: Ends, side: Side| {
            let (mut sent, mut received, mut record) = (0, 0, Record::new());
            while sent < 3 || received < 3 {
                while ends.consumer.pop(&mut record).unwrap() {
                    assert_eq!((record.kind(), record.payload()), (received, &payload(received, 8)[..]));
                    received += 1;
                }
                match (sent < 3).then(|| ends.producer.push(sent, &payload(sent, 8))) {
                    Some(Ok(())) => sent += 1,
                    Some(_) => drop(wait_for_room(&mut ends.producer, &mut ends.consumer, None).unwrap()),
                    None if received < 3 => drop(wait(&mut ends.consumer, Spin::NONE, None).unwrap()),
                    None => {}
                }
            }
            (ends, side)
        };
        let other = loom::thread::spawn(move || run(server, Side::Server));
        let ours = run(client, Side::Client);
        drop((ours, other.join().unwrap()));
    });
}
