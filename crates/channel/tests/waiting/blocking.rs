//! Blocking: a thread sleeps until its reply is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genie_channel::ServeOptions;
use genie_io::servers::memory::NULL;
use genie_io::{Error, Out, ServerHandle};
use rustix::process::Signal;

use super::fixture::{
    ASK, Deaf, FOR_EVER, Fixture, Keeper, Random, Slow, assert_idle, interface, memory, options,
};

/// A thread that is not woken looks again after this long at the earliest; that hides a lost wake-up, but not its delay.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

#[test]
fn wake_ups_are_not_lost_however_the_two_sides_meet() {
    const REQUESTS: u64 = 100_000;
    let fixture = Fixture::new();
    let no_spinning = ServeOptions { spin: Duration::ZERO, ..options() };
    let _running = fixture.bind("slow", Slow::new(1), no_spinning).start().unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "slow");
    let mut random = Random::new(2);
    let mut overslept = 0;
    for _ in 0..REQUESTS {
        random.pause(15);
        let start = Instant::now();
        interface.request(&server, ASK).send().unwrap();
        overslept += u64::from(start.elapsed() >= LONGEST_SLEEP);
    }
    // A machine with other work to do holds a process up now and then; a race would show far more often.
    assert!(
        overslept < REQUESTS / 1_000,
        "{overslept} of {REQUESTS} requests took {LONGEST_SLEEP:?} and more"
    );
}

#[test]
fn a_thread_that_waits_in_steps_reacts_to_a_signal_and_its_request_goes_on() {
    let noted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(Signal::WINCH.as_raw(), Arc::clone(&noted)).unwrap();
    let (fixture, keeper) = (Fixture::new(), Keeper::default());
    let _running = fixture.bind("keeper", keeper.clone(), options()).start().unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let pending = interface.request(&server, ASK).submit().unwrap();
    let (mut steps, start) = (0, Instant::now());
    while !pending.wait(Duration::from_millis(20)) && !noted.load(Ordering::SeqCst) {
        assert!(start.elapsed() < FOR_EVER, "the signal was not noted");
        steps += 1;
        if steps == 3 {
            // In this thread: others would be interrupted by it.
            signal_hook::low_level::raise(Signal::WINCH.as_raw()).unwrap();
        }
    }
    assert!(steps >= 3 && !pending.is_replied(), "after {steps} steps");
    keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
    pending.sync().unwrap();
}

#[test]
fn threads_of_one_client_take_replies_for_each_other() {
    const REQUESTS: u64 = 3_000;
    let fixture = Fixture::new();
    let _running = fixture
        .bind("slow", Slow::new(3), ServeOptions { spin: Duration::ZERO, ..options() })
        .start()
        .unwrap();
    let interface = interface();
    let server = fixture.connect(&interface, "slow");
    let overslept: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let (interface, server) = (&interface, &server);
                scope.spawn(move || {
                    let mut random = Random::new(4 + seed);
                    let ask = |_| {
                        random.pause(20);
                        let start = Instant::now();
                        interface.request(server, ASK).send().unwrap();
                        u64::from(start.elapsed() >= LONGEST_SLEEP)
                    };
                    (0..REQUESTS).map(ask).sum::<u64>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(overslept < 4 * REQUESTS / 100, "{overslept} requests took {LONGEST_SLEEP:?} and more");
    assert_idle(&interface);
}

#[test]
fn a_flush_returns_when_the_last_of_256_requests_is_done() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let ask = || interface.request(&server, ASK).submit();
    let pending: Vec<_> = (0..256).map(|_| ask().unwrap()).collect();
    let refused = ask().unwrap_err().error;
    assert_eq!(refused, Error::TooMany { pending: 256, limit: 256 });
    assert!(!interface.flush(&server, Duration::from_millis(10)), "nothing has been replied to");
    let mut kept = keeper.take(256);
    let last = kept.pop();
    kept.into_iter().for_each(|request| request.reply(Ok(())));
    assert!(!interface.flush(&server, Duration::from_millis(10)), "one request is left");
    drop(last);
    assert!(interface.flush(&server, FOR_EVER));
    let outcomes: Vec<_> = pending.into_iter().map(|pending| pending.sync()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 255);
    ask().unwrap().abort().unwrap_err();
    assert_idle(&interface);
}

#[test]
fn a_channel_that_is_let_go_takes_its_pending_requests_along() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let buffer = interface.allocate(50_000).unwrap();
    let server = fixture.connect(&interface, "keeper");
    for _ in 0..8 {
        drop(interface.request(&server, ASK).out(Out::emulated_copy(&buffer)).submit().unwrap());
    }
    let kept = keeper.take(8);
    drop(server);
    assert!(interface.pending_bytes() > 0, "the server still has the memory");
    drop(kept);
    let start = Instant::now();
    while interface.pending_bytes() > 0 {
        assert!(start.elapsed() < FOR_EVER, "the memory comes back when the server has let it go");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(buffer);
    assert_idle(&interface);
}

#[test]
fn interfaces_of_one_process_are_clients_of_their_own() {
    let fixture = Fixture::new();
    let running = fixture.serve("memory", memory());
    let (one, other) = (interface(), interface());
    let (server, same) = (fixture.connect(&one, "memory"), fixture.connect(&other, "memory"));
    super::fixture::await_clients(&running, 2);
    for round in 0..50 {
        super::fixture::store_and_fetch(&one, &server, 1, round);
        super::fixture::store_and_fetch(&other, &same, 2, round);
    }
    let here = ServerHandle::new(memory());
    one.request(&here, NULL).send().unwrap();
    drop(server);
    super::fixture::store_and_fetch(&other, &same, 2, 50);
    assert_idle(&one);
    assert_idle(&other);
}

/// The timer gave the request up without a look for its reply.
#[test]
fn a_reply_in_time_counts_where_no_thread_has_taken_it() {
    let (fixture, keeper, interface) = (Fixture::new(), Keeper::default(), interface());
    let _running = fixture.serve("deaf", Deaf(keeper.clone()));
    let server = fixture.connect(&interface, "deaf");
    for gives in [false, true] {
        let is_in_time = |timeout: Duration| {
            let begun = Instant::now();
            let request = interface.request(&server, ASK).timeout(timeout);
            let request = match gives {
                true => request.out(Out::emulated_share(interface.allocate(5_000).unwrap())),
                false => request,
            };
            let pending = request.submit().unwrap();
            keeper.take(1).into_iter().for_each(|request| request.reply(Ok(())));
            let is_in_time = begun.elapsed() < timeout;
            std::thread::sleep(2 * timeout);
            let came = pending.sync();
            if is_in_time {
                came.expect("the reply that came in time");
            }
            is_in_time
        };
        // On a busy machine the reply may be late, which says nothing.
        assert!(
            (0..10).any(|doublings| is_in_time(Duration::from_millis(20 << doublings))),
            "none is in time"
        );
    }
    assert!(interface.flush(&server, FOR_EVER));
    assert_idle(&interface);
}
