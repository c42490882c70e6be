//! Generators and sinks over wires.

use genie_net::Rate;
use genie_net::traffic::{Generator, STAMP, Sink, Tally};
use genie_net::wire::{Counters, LINK_HEADER};

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Runs a generator over a wire whose time is the test's, with a header in front of each payload; returns what the sink has found, and
/// what the wire says.
fn run(generator: &Generator, options: Options) -> (Tally, Counters) {
    let clock = Clock::stepped();
    let sink = Sink::new(generator.count, LINK_HEADER, clock.clone());
    let end = End::new(options, &clock, sink.clone());
    let sent = generator.run(&clock, |payload| {
        let request = end.interface.request(&end.handle, TRANSMIT);
        request.out(Out::copy(&[0; LINK_HEADER])).and_out(Out::copy(payload)).submit().map(drop)
    });
    sent.expect("each payload is sent");
    clock.advance(1000 * MS);
    assert_eq!(end.wire.in_flight(), 0);
    (sink.tally(), end.wire.counters())
}

#[test]
fn a_sink_finds_what_a_good_wire_did() {
    let rate = Rate::Bits(155_000_000);
    let generator = Generator { len: 1500, count: 100, rate };
    let (tally, _) = run(&generator, Options { rate, delay: 2 * MS, ..Options::default() });
    assert_eq!(Tally { latencies: Vec::new(), ..tally.clone() }, Tally { arrived: 100, ..Tally::default() });
    // The headers take the wire longer than the generator knows, so that each frame waits for those before it.
    let latency = |number: u64| {
        let sent = rate.time((1500 + LINK_HEADER as u64) * (number + 1));
        sent + 2 * MS - rate.time(1500 * number)
    };
    assert_eq!(tally.latencies, (0..100).map(|number| (number, latency(number))).collect::<Vec<_>>());
}

#[test]
fn a_sink_finds_what_each_wire_that_does_one_thing_wrong_did() {
    let generator = Generator { len: 200, count: 2000, rate: Rate::Bits(1_000_000_000) };
    let run = |options| run(&generator, Options { seed: 11, ..options });
    let none = Options::default;

    let (tally, wire) = run(Options { loss: 0.1, ..none() });
    assert!(wire.lost > 100);
    assert_eq!((tally.missing, tally.arrived), (wire.lost, 2000 - wire.lost));

    let (tally, wire) = run(Options { duplication: 0.1, ..none() });
    assert!(wire.duplicated > 100);
    assert_eq!(
        (tally.missing, tally.duplicated, tally.arrived),
        (0, wire.duplicated, 2000 + wire.duplicated)
    );

    let (tally, wire) = run(Options { reordering: 0.1, displacement: 4, ..none() });
    assert!(wire.reordered > 100);
    assert_eq!((tally.missing, tally.reordered), (0, wire.reordered));

    let (tally, wire) = run(Options { truncation: 0.1, ..none() });
    assert!(wire.truncated > 100);
    assert_eq!((tally.missing, tally.truncated, tally.damaged), (wire.truncated, wire.truncated, 0));

    // A bit of the header is no part of a payload, and one of the stamp's length may make it longer than what has come.
    let (tally, wire) = run(Options { damage: 0.5, damaged_bits: 3, ..none() });
    assert!(tally.damaged > 800 && tally.damaged + tally.truncated <= wire.damaged);
    assert_eq!(tally.missing, tally.damaged + tally.truncated);
}

#[test]
fn a_sink_takes_anything() {
    let clock = Clock::stepped();
    let sink = Sink::new(1, 0, clock.clone());
    let mut payload = [0; STAMP];
    let arrive = |bytes: &[u8]| sink.arrive(&Frame::new(bytes.into()));
    Generator::fill(1, Duration::ZERO, &mut payload);
    arrive(&payload); // nobody has sent that one
    arrive(&[0; STAMP]);
    arrive(&[0xff; STAMP]);
    (0..STAMP).for_each(|len| arrive(&payload[..len]));
    Generator::fill(0, Duration::MAX, &mut payload);
    arrive(&payload); // it comes before it was sent
    let tally = sink.tally();
    assert_eq!((tally.arrived, tally.missing), (4 + STAMP as u64, 0));
    assert_eq!((tally.damaged, tally.truncated), (2, 1 + STAMP as u64));
    assert_eq!(tally.latencies, [(0, Duration::ZERO)]);
}
