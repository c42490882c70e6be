//! Threads that wait for a network's packets, and packets that wait for room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use genie_net::network::Network;
use genie_net::network::stream::Stream;
use genie_net::traffic::Generator;

use super::network::{networks, packet, send};
use super::{card, until};

/// Longer than the tests wait for a thread that should have been woken.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(40));
/// Within this a thread gets to sleep.
const MOMENT: Duration = Duration::from_millis(20);

#[test]
fn a_thread_that_waits_is_woken_although_another_one_has_looked_meanwhile() {
    for (_, network, control) in networks() {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| network.receive_timeout(PATIENCE));
            std::thread::sleep(MOMENT);
            assert!(network.receive().expect("an honest card").is_none());
            control.generate(64, 1, Duration::ZERO).expect("a device");
            until("the thread is woken", || waits.is_finished());
            assert!(waits.join().expect("no panic").expect("an honest card").is_some());
        });
    }
}

/// Each takes one packet, and goes.
#[test]
fn as_many_threads_as_packets_get_one_each() {
    for (_, network, control) in networks() {
        let got = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let packet = network.receive_timeout(PATIENCE).expect("an honest card");
                    got.fetch_add(u64::from(packet.is_some()), Ordering::Relaxed);
                });
            }
            std::thread::sleep(MOMENT);
            control.generate(64, 20, Duration::from_micros(300)).expect("a device");
            until("each has one", || got.load(Ordering::Relaxed) == 20);
        });
    }
}

/// The card's pool of buffers for transmission is empty, so that the second look for one finds what has come.
#[test]
fn what_a_search_for_room_has_found_is_not_slept_over() {
    for (_, network, control) in networks().into_iter().filter(|(copies, ..)| *copies == 0) {
        let all: Vec<_> = std::iter::from_fn(|| network.allocate(64).expect("an honest card")).collect();
        control.generate(64, 1, Duration::ZERO).expect("a device");
        std::thread::sleep(MOMENT);
        assert!(network.allocate(64).expect("an honest card").is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| network.wait(PATIENCE));
            until("it has not slept", || waits.is_finished());
        });
        assert!(network.receive().expect("an honest card").is_some());
        assert_eq!(all.len(), 128);
    }
}

/// Regression: what waited in the stream stayed there until another packet was sent, or one received.
#[test]
fn what_waits_for_room_goes_by_itself_when_it_is_flushed_or_waited_for() {
    const COUNT: u64 = 400;
    for flushes in [true, false] {
        let card = card();
        let control = card.control();
        let network = Network::two_copies(card, Stream::with_marks(1 << 30, 1 << 20)).expect("memory");
        control.expect(COUNT).expect("a device");
        for number in 0..COUNT {
            let mut bytes = vec![0; 1000];
            Generator::fill(number, Duration::ZERO, &mut bytes);
            send(&network, packet(&network, &bytes));
        }
        let come = || control.report().expect("a device").tally.missing == 0;
        if flushes {
            assert_eq!(network.flush(PATIENCE), Ok(true));
            until("all comes", come);
        } else {
            until("all comes", || {
                network.wait(Some(Duration::from_millis(1))).expect("an honest card");
                come()
            });
        }
        assert_eq!(network.flush(Some(Duration::ZERO)), Ok(true));
    }
}
