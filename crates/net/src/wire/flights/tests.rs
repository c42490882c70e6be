use proptest::prelude::*;

use super::*;
use crate::Rate;

/// A frame that has arrived, or was lost: its number, when, and what has become of it.
type Arrival = (u64, Duration, Fate);

/// Sends frames, each of a length and so many nanoseconds after the one before; returns what came, in order, until nothing is left.
fn run(flights: &mut Flights<u64>, frames: impl IntoIterator<Item = (u64, usize)>) -> Vec<Arrival> {
    let (mut arrivals, mut now) = (Vec::new(), Duration::ZERO);
    for (wait, len) in frames {
        now += Duration::from_nanos(wait);
        arrive(flights, now, &mut arrivals);
        let number = flights.counters.sent + 1;
        assert_eq!(flights.send(number, len, now), None, "there is room");
    }
    arrive(flights, Duration::MAX, &mut arrivals);
    assert_eq!(flights.len(), 0);
    arrivals
}

fn arrive(flights: &mut Flights<u64>, until: Duration, arrivals: &mut Vec<Arrival>) {
    while let Some(due) = flights.next_due().filter(|due| *due <= until) {
        let flight = flights.take();
        arrivals.push((flight.sent, due, flight.fate));
    }
}

/// All that can happen, each to a tenth of the frames.
fn bad(seed: u64) -> Options {
    Options {
        loss: 0.1,
        duplication: 0.1,
        reordering: 0.1,
        displacement: 5,
        truncation: 0.1,
        damage: 0.1,
        damaged_bits: 4,
        seed,
        in_flight: usize::MAX,
        ..Options::default()
    }
}

fn fates(arrivals: Vec<Arrival>) -> Vec<(u64, Fate)> {
    arrivals.into_iter().map(|(number, _, fate)| (number, fate)).collect()
}

#[test]
fn a_tenth_of_the_frames_has_each_fate_that_a_tenth_is_to_have() {
    let mut flights = Flights::new(bad(1));
    let arrivals = run(&mut flights, (0..100_000).map(|_| (0, 1000)));
    let counted = |is: fn(&Fate) -> bool| arrivals.iter().filter(|(_, _, fate)| is(fate)).count();
    let there: [(&str, usize); 5] = [
        ("lost", counted(|fate| fate.copies == 0)),
        ("duplicated", counted(|fate| fate.copies == 2) * 10 / 9),
        ("late", counted(|fate| fate.displacement > 0) * 10 / 9),
        ("truncated", counted(|fate| fate.is_truncated)),
        ("damaged", counted(|fate| !fate.flips.is_empty())),
    ];
    for (what, count) in there {
        assert!((9_500..10_500).contains(&count), "{what}: {count}");
    }
    let bits = arrivals.iter().map(|(_, _, fate)| fate.flips.len()).max();
    let furthest = arrivals.iter().map(|(_, _, fate)| fate.displacement).max();
    assert_eq!((bits, furthest), (Some(4), Some(5)));
}

#[test]
fn what_has_the_probability_0_never_happens_and_what_has_1_always_does() {
    let mut good = Flights::new(Options { seed: 7, in_flight: usize::MAX, ..Options::default() });
    let fate = Fate { copies: 1, displacement: 0, len: 9, is_truncated: false, flips: Vec::new() };
    assert!(run(&mut good, (0..10_000).map(|_| (0, 9))).iter().all(|(_, _, is)| *is == fate));

    let all = Options { duplication: 1.0, truncation: 1.0, damage: 1.0, ..bad(7) };
    let arrivals = run(&mut Flights::new(Options { loss: 0.0, ..all.clone() }), (0..10_000).map(|_| (0, 9)));
    assert!(arrivals.iter().all(|(_, _, fate)| fate.copies == 2 && fate.len < 9));
    assert!(arrivals.iter().all(|(_, _, fate)| fate.flips.is_empty() == (fate.len == 0)));
    let arrivals = run(&mut Flights::new(Options { loss: 1.0, ..all }), (0..10_000).map(|_| (0, 9)));
    assert!(arrivals.iter().all(|(_, _, fate)| fate.copies == 0));
}

#[test]
fn no_fate_depends_on_the_probability_of_another() {
    let run = |options| run(&mut Flights::new(options), (0..1000).map(|_| (0, 1000)));
    let (some, more) = (run(bad(3)), run(Options { loss: 0.2, truncation: 0.0, ..bad(3) }));
    let twice = |arrivals: &[Arrival], of: &[Arrival]| -> Vec<u64> {
        let is_there = |number| of.iter().any(|(of, _, fate)| *of == number && fate.copies > 0);
        let twice = arrivals.iter().filter(|(number, _, fate)| fate.copies == 2 && is_there(*number));
        twice.map(|(number, ..)| *number).collect()
    };
    let mut expected = twice(&some, &more);
    expected.sort_unstable();
    let mut found = twice(&more, &some);
    found.sort_unstable();
    assert!(found.len() > 50);
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn the_same_seed_and_the_same_frames_have_the_same_fates_whatever_the_timing(
        seed in any::<u64>(),
        lens in prop::collection::vec(0usize..2000, 1..100),
        waits in prop::collection::vec(0u64..1_000_000, 100),
        bits in 1_000_000u64..10_000_000_000,
    ) {
        let quick = run(&mut Flights::new(bad(seed)), lens.iter().map(|len| (0, *len)));
        let slow = Options { rate: Rate::of(bits), delay: Duration::from_micros(3), ..bad(seed) };
        let slow = run(&mut Flights::new(slow), waits.into_iter().zip(lens));
        // Late frames do not wait for ever for those that they come behind, so the order may be another one.
        let mut fates = [fates(quick), fates(slow)];
        fates.iter_mut().for_each(|fates| fates.sort_by_key(|(number, _)| *number));
        prop_assert_eq!(&fates[0], &fates[1]);
    }

    #[test]
    fn frames_keep_their_order_and_a_late_one_comes_right_behind_its_last(
        seed in any::<u64>(),
        lens in prop::collection::vec(0usize..2000, 1..200),
        waits in prop::collection::vec(0u64..100_000, 200),
    ) {
        let options = Options { rate: Rate::Bits(155_000_000), ..bad(seed) };
        let arrivals = run(&mut Flights::new(options), waits.into_iter().zip(lens));
        let mut expected: Vec<_> = arrivals.iter().map(|(number, _, fate)| (number + fate.displacement, *number)).collect();
        expected.sort_by_key(|(place, number)| (*place, *place > *number, *number));
        let order: Vec<_> = arrivals.iter().map(|(number, ..)| *number).collect();
        prop_assert_eq!(order, expected.into_iter().map(|(_, number)| number).collect::<Vec<_>>());
    }

    #[test]
    fn each_frame_arrives_when_its_last_bit_has_been_sent_and_has_come(
        bits in 1_000u64..1_000_000_000_000,
        delay in 0u64..1_000_000,
        lens in prop::collection::vec(0usize..70_000, 1..100),
        seed in any::<u64>(),
    ) {
        let delay = Duration::from_nanos(delay);
        let options = Options { rate: Rate::of(bits), delay, reordering: 0.0, ..bad(seed) };
        let arrivals = run(&mut Flights::new(options), lens.iter().map(|len| (0, *len)));
        let mut bytes = 0u128;
        for ((_, at, _), len) in arrivals.iter().zip(&lens) {
            bytes += *len as u128;
            let sent = (bytes * 8 * 1_000_000_000).div_ceil(u128::from(bits));
            prop_assert_eq!(at.as_nanos(), sent + delay.as_nanos());
        }
        prop_assert_eq!(arrivals.len(), lens.len());
    }

    #[test]
    fn each_frame_is_counted_once_whatever_becomes_of_it(
        seed in any::<u64>(),
        steps in prop::collection::vec((0u64..40_000, 0usize..2000, 0u8..10), 1..300),
    ) {
        let options = Options { rate: Rate::Bits(512_000_000), in_flight: 20, ..bad(seed) };
        let (mut flights, mut arrivals, mut now) = (Flights::new(options), Vec::new(), Duration::ZERO);
        for (wait, len, what) in steps {
            now += Duration::from_nanos(wait);
            match what {
                0 => arrive(&mut flights, now, &mut arrivals),
                1 => drop(flights.remove(|number| number % 7 == len as u64 % 7)),
                _ => drop(flights.send(flights.counters.sent + 1, len, now)),
            }
            let Counters { sent, delivered, lost, duplicated, dropped, let_go, bytes, .. } = flights.counters;
            prop_assert_eq!(sent + duplicated, delivered + lost + dropped + let_go + flights.len() as u64);
            let arrived: usize = arrivals.iter().map(|(_, _, fate)| fate.copies as usize * fate.len).sum();
            prop_assert_eq!(bytes, arrived as u64);
            prop_assert!(flights.len() <= 20);
        }
    }
}

#[test]
fn a_frame_that_is_refused_leaves_the_fates_of_the_others_as_they_were() {
    let mut few = Flights::new(Options { in_flight: 1, delay: Duration::from_secs(1), ..bad(9) });
    assert_eq!(few.send(1, 100, Duration::ZERO), None);
    assert_eq!(few.send(2, 100, Duration::ZERO), Some(2));
    assert_eq!(few.take().sent, 1);
    assert_eq!(few.send(3, 100, Duration::ZERO), None);
    let third = few.take();
    let mut all = fates(run(&mut Flights::new(bad(9)), [(0, 100); 3]));
    all.sort_by_key(|(number, _)| *number);
    assert_eq!((third.sent, third.fate), all[2]);
    assert_eq!(few.counters.dropped, 1);
}

#[test]
fn a_late_frame_that_none_follow_comes_all_the_same() {
    let options = Options { reordering: 1.0, displacement: 1, in_flight: 3, ..Options::default() };
    let mut flights = Flights::new(options);
    let now = Duration::from_secs(1);
    assert_eq!(flights.send(1, 10, now), None);
    assert_eq!(flights.next_due(), Some(now + PATIENCE));
    // The next one is late, too, and comes behind a third.
    assert_eq!(flights.send(2, 10, now), None);
    assert_eq!((flights.next_due(), flights.take().sent), (Some(now), 1));
    assert_eq!((flights.next_due(), flights.take().sent), (Some(now + PATIENCE), 2));
    assert_eq!(flights.counters.reordered, 0);
}

#[test]
fn a_frame_is_damaged_in_bits_that_it_has() {
    let options = Options { damage: 1.0, damaged_bits: 64, truncation: 0.5, ..bad(4) };
    for (_, _, fate) in run(&mut Flights::new(options), (0..1000).map(|at| (0, at % 5))) {
        let mut flips = fate.flips.clone();
        flips.sort_unstable();
        flips.dedup();
        assert_eq!(flips.len(), fate.flips.len(), "no bit is turned over twice");
        assert!(flips.iter().all(|(at, bits)| *at < fate.len && bits.count_ones() == 1));
    }
}
