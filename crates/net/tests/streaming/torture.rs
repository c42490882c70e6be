//! Random opens, starts, stops and closes, with traffic.

use std::time::Duration;

use fastrand::Rng;
use genie_net::streaming::{Flow, How, Style, WhenFull};

use super::{end, streaming};

const CARDS: usize = 3;

#[test]
fn whatever_is_opened_started_stopped_and_closed_all_buffers_come_home() {
    let seed = std::env::var("GENIE_STREAMING_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random = Rng::with_seed(seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("GENIE_STREAMING_SEED={}", random.get_seed());
    let streaming = streaming();
    let cards: Vec<_> = ["a", "b", "c"].map(end).into();
    for (_, control) in &cards {
        control.generate(900, u64::MAX, Duration::from_micros(20)).expect("a device");
    }
    let mut flows: Vec<Flow> = Vec::new();
    let mut packets = 0;
    for _ in 0..1000 {
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
    drop(streaming);
    for (end, control) in cards {
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
