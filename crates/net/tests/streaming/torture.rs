//! Random opens, starts, stops, closes and deaths, with traffic.

use std::time::Duration;

use fastrand::Rng;
use genie_net::streaming::{End, Error, Flow, How, Streaming, Style, WhenFull};

use super::{STYLES, card_elsewhere, end, how, started, streaming, until};

const CARDS: usize = 3;

/// At length (`GENIE_DRIVERS_AT_LENGTH`), a hundred thousand times.
#[test]
fn whatever_is_opened_stopped_closed_and_killed_all_buffers_come_home_and_no_other_flow_is_disturbed() {
    let turns = if std::env::var_os("GENIE_DRIVERS_AT_LENGTH").is_some() { 100_000 } else { 1000 };
    let seed = std::env::var("GENIE_STREAMING_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random = Rng::with_seed(seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("GENIE_STREAMING_SEED={}", random.get_seed());
    let streaming = streaming();
    let cards: Vec<_> = ["a", "b", "c"].map(end).into();
    for (_, control) in &cards {
        control.generate(900, u64::MAX, Duration::from_micros(20)).expect("a device");
    }
    let [(from, generator), (to, sink)] = ["from", "to"].map(end);
    let other = started(&streaming, &from, &to, how(Style::Synchronous, WhenFull::Hold));
    sink.expect(turns).expect("a device");
    generator.generate(900, turns, Duration::from_micros(20)).expect("a device");
    let mut flows: Vec<Flow> = Vec::new();
    let mut packets = 0;
    for _ in 0..turns {
        if random.u32(..200) == 0 {
            dies(
                &streaming,
                &cards[random.usize(..CARDS)].0,
                random.bool(),
                random.choice(STYLES).expect("two"),
            );
        }
        match random.u32(..5) {
            0 | 1 => {
                let how = How {
                    style: if random.bool() { Style::Synchronous } else { Style::Asynchronous },
                    when_full: if random.bool() { WhenFull::Hold } else { WhenFull::Drop },
                    priority: random.u8(..3),
                    quantum: random.usize(1..40),
                    queue: random.usize(1..40),
                };
                let (from, to) = (random.usize(..CARDS), random.usize(..CARDS));
                // The source may be another flow's.
                flows.extend(streaming.connect(&cards[from].0, &cards[to].0, how, None));
            }
            2 | 3 if !flows.is_empty() => {
                let flow = &flows[random.usize(..flows.len())];
                if random.u32(..3) > 0 { flow.start() } else { flow.stop() }.expect("no card fails");
            }
            _ if !flows.is_empty() => {
                let flow = flows.swap_remove(random.usize(..flows.len()));
                packets += flow.statistics().packets;
            }
            _ => {}
        }
        if random.u32(..10) == 0 {
            std::thread::sleep(Duration::from_micros(random.u64(..2000)));
        }
    }
    drop(flows);
    assert!(packets > 1000, "only {packets} packets have flowed");
    until("all of the other flow comes", || sink.report().expect("a device").tally.missing == 0);
    let tally = sink.report().expect("a device").tally;
    assert_eq!((tally.arrived, tally.duplicated, tally.reordered, tally.damaged), (turns, 0, 0, 0));
    assert_eq!(other.wait(Some(Duration::ZERO)), Ok(false));
    drop(other);
    drop(streaming);
    for (end, control) in cards.into_iter().chain([(from, generator), (to, sink)]) {
        control.generate(900, 0, Duration::ZERO).expect("a device");
        // A thread may be about to let its flows go.
        let mut end = end;
        let mut rings = loop {
            match end.into_rings() {
                Ok(rings) => break rings,
                Err(other) => end = other,
            }
        };
        while control.report().expect("a device").free < 128 {
            rings.take(64, &mut |_| ()).expect("an honest card");
        }
        // Those for sending that are here come to be all, since the device has sent what it was given.
        let mut home = 0;
        while home < 128 {
            rings.take(64, &mut |_| ()).expect("an honest card");
            home = rings.room().expect("an honest card");
        }
    }
}

/// The device of one end of a flow dies in the middle of traffic.
fn dies(streaming: &Streaming, other: &End, is_source: bool, style: Style) {
    let (card, mut device) = card_elsewhere();
    let control = card.control();
    control.generate(900, u64::MAX, Duration::from_micros(20)).expect("a device");
    let mortal = End::new("mortal", card).expect("descriptors");
    let (from, to) = if is_source { (&mortal, other) } else { (other, &mortal) };
    // Another flow may have the source.
    let flow = streaming.connect(from, to, how(style, WhenFull::Drop), None);
    let flow = flow.inspect(|flow| flow.start().expect("it is new"));
    device.kill().and_then(|()| device.wait()).expect("it ends");
    if let Ok(flow) = flow
        && let Err(failed) = flow.wait(Some(Duration::from_millis(u64::from(is_source) * 20_000)))
    {
        // Its bell may be gone before its socket is.
        let (Error::Source { end, .. } | Error::Sink { end, .. }) = &failed else { panic!("{failed}") };
        assert_eq!((end.as_str(), matches!(failed, Error::Source { .. })), ("mortal", is_source), "{failed}");
    }
}
