//! The soak: clients and servers are killed and stopped at random points of their work, and the others go on.
//!
//! How: the test conducts a cast of processes, each of them this binary run once more: servers that verify and make patterns
//! (*leaves*), servers that forward requests to them without touching the data (*relays*), and clients that use all eight
//! schemes both ways. The test kills one process after the other, whatever it is doing, and starts a successor under the
//! same name. Each process checks every byte, every error (a server said to be gone must be dead), and its own accounts. Now
//! and then all of them *rest*, and a process that still has a descriptor, mapping, thread or granule too many fails the
//! test. Meanwhile servers panic, processes are stopped for longer than any other process waits, clients fork, and memory
//! and descriptors run out: each of those is a module.
//! Limits: `GENIE_SOAK_KILLS` says how many processes are killed (40), `GENIE_SOAK_SECONDS` how long the test runs at least
//! (0 s), and `GENIE_SOAK_HOARD` how many of the machine's free huge pages one process may take (none). `GENIE_SOAK_SEED`
//! repeats the conductor's choices and those of the cast, but not what the kernel makes of them.
//! Source: thesis §3.1.2 (eviction on exit).

mod support;

#[path = "../../sys/tests/child/mod.rs"]
mod child;

#[path = "soak/cast.rs"]
mod cast;
#[path = "soak/client.rs"]
mod client;
#[path = "soak/conductor.rs"]
mod conductor;
#[path = "soak/crowd.rs"]
mod crowd;
#[path = "soak/door.rs"]
mod door;
#[path = "soak/flight.rs"]
mod flight;
#[path = "soak/forks.rs"]
mod forks;
#[path = "soak/hoarder.rs"]
mod hoarder;
#[path = "soak/leaf.rs"]
mod leaf;
#[path = "soak/order.rs"]
mod order;
#[path = "soak/pair.rs"]
mod pair;
#[path = "soak/panics.rs"]
mod panics;
#[path = "soak/random.rs"]
mod random;
#[path = "soak/relay.rs"]
mod relay;
#[path = "soak/scarcity.rs"]
mod scarcity;
#[path = "soak/steps.rs"]
mod steps;
#[path = "soak/tally.rs"]
mod tally;
#[path = "soak/traces.rs"]
mod traces;
#[path = "soak/verdict.rs"]
mod verdict;

use std::time::Duration;

use random::Random;
use support::machine::{missing_huge_pages, skip};

/// Huge pages that the whole cast may hold, those killed but not yet replaced included.
const HUGE_PAGES: usize = 200;

#[test]
fn survivors_go_on_and_nothing_is_left_of_the_dead() {
    let test = "survivors_go_on_and_nothing_is_left_of_the_dead";
    let seconds = number("GENIE_SOAK_SECONDS").unwrap_or(0);
    let kills = number("GENIE_SOAK_KILLS").unwrap_or(40);
    let seed = number("GENIE_SOAK_SEED").unwrap_or_else(Random::fresh_seed);
    println!("soak: {kills} kills, {seconds} s; to repeat: GENIE_SOAK_SEED={seed} GENIE_SOAK_KILLS={kills}");
    let has_huge_pages = match missing_huge_pages(HUGE_PAGES) {
        None => true,
        Some(reason) => {
            skip(&format!("{test}, with granules of 2 MiB"), &reason);
            false
        }
    };
    conductor::Conductor::open(test, seed, has_huge_pages).run(kills, Duration::from_secs(seconds));
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, not {text:?}")))
}
