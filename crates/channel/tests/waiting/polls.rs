//! How often event loops are woken although they have nothing to look at. They use poll(2), which returns as long as the
//! descriptor is readable.
//!
//! How: the documented loop asks each pending request whether it is replied to. The test completes the pending requests, so
//! that the number of polls depends on no time.

use std::time::Duration;

use genie_io::{Interface, Pending};
use genie_sys::poll::readable;

use super::fixture::{FOR_EVER, Fixture, assert_idle, interface};
use super::rings::{Middle, submit};

/// How many polls in a row may be for nothing: a signal may arrive after what it was for was taken.
const FEW: u32 = 3;

/// Runs an event loop as long as it is woken within a moment; returns how often it was woken.
#[track_caller]
fn look(interface: &Interface, pending: &[Pending<'_>]) -> u32 {
    let (mut wakes, mut turns) = (0, 0);
    loop {
        interface.collect();
        // Each request is asked, as by a loop that looks for the requests that are over.
        let _ = pending.iter().filter(|pending| pending.is_replied()).count();
        turns += 1;
        assert!(turns < 1_000, "the loop spins: it was woken {wakes} times in {turns} turns");
        if interface.arm() {
            let descriptor = interface.descriptor().expect("a descriptor");
            if !readable(descriptor, Some(Duration::from_millis(20))).expect("a descriptor") {
                return wakes;
            }
            wakes += 1;
        }
    }
}

/// Each poll returned at once, thousands of times: asking an unanswered request whether it was replied to told the loop that
/// replies had been taken.
#[test]
fn a_loop_that_asks_what_is_pending_sleeps_until_there_is_a_reply() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let mut pending: Vec<_> = (0..4).map(|_| submit(&interface, &server)).collect();
    assert!(look(&interface, &pending) <= FEW);
    for _ in 0..4 {
        keeper.take(1).remove(0).reply(Ok(()));
        let before = pending.len();
        let mut wakes = 0;
        while pending.len() == before {
            wakes += look(&interface, &pending);
            pending.retain(|pending| !pending.is_replied());
        }
        assert!(wakes <= FEW, "{wakes} polls for one reply");
    }
    assert_idle(&interface);
}

/// A loop slept for ever if it asked for its descriptor after it had armed: by then it may have something to look at.
#[test]
fn a_descriptor_that_is_asked_for_last_is_readable_for_what_came_before() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    for is_replied_before in [true, false] {
        let interface = interface();
        let server = fixture.connect(&interface, "keeper");
        let pending = submit(&interface, &server);
        interface.collect();
        assert!(interface.arm());
        let reply = || keeper.take(1).remove(0).reply(Ok(()));
        if is_replied_before {
            reply();
        }
        // Looking undoes the loop's arming, and takes the reply if it has come.
        let is_taken = pending.is_replied();
        let descriptor = interface.descriptor().expect("a descriptor");
        if !is_replied_before {
            reply();
        }
        assert!(readable(descriptor, Some(FOR_EVER)).expect("a descriptor"), "it sleeps, taken: {is_taken}");
        pending.sync().expect("a reply");
        assert!(look(&interface, &[]) <= FEW);
        assert_idle(&interface);
    }
}

#[test]
fn a_loop_that_is_asleep_is_told_of_a_reply_though_others_have_looked_meanwhile() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    interface.descriptor().expect("a descriptor");
    let pending = [submit(&interface, &server), submit(&interface, &server)];
    look(&interface, &pending);
    // Neither one that looks nor one that waits for a while takes the loop's bell away.
    assert!(!pending[0].is_replied());
    assert!(!pending[0].wait(Duration::from_millis(5)));
    let descriptor = interface.descriptor().expect("a descriptor");
    assert!(!readable(descriptor, Some(Duration::ZERO)).expect("a descriptor"), "nothing was taken");
    keeper.take(2).into_iter().for_each(|request| request.reply(Ok(())));
    assert!(readable(descriptor, Some(FOR_EVER)).expect("a descriptor"));
    // The loop has armed; what another one takes is told.
    look(&interface, &pending);
    for pending in pending {
        pending.sync().expect("a reply");
    }
    assert_idle(&interface);
}

/// While a completer made requests over a channel of the same interface, a loop was woken each time that it looked.
#[test]
fn a_loop_whose_completer_shares_its_interface_sleeps_until_there_is_a_reply() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    let middle = Middle::serve(fixture.connect(&interface, "keeper"), interface.clone());
    let pending = [submit(&interface, &middle)];
    assert!(look(&interface, &pending) <= FEW);
    keeper.take(1).remove(0).reply(Ok(()));
    assert!(look(&interface, &pending) <= FEW);
    let [pending] = pending;
    assert!(pending.is_replied());
    pending.sync().expect("a reply");
    assert_idle(&interface);
}

/// Two loops woke each other for ever: each that looked at the completer told the other one so.
#[test]
fn loops_at_one_completer_do_not_wake_each_other() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let inner = interface();
    let middle = Middle::serve(fixture.connect(&inner, "keeper"), inner);
    let loops = [interface(), interface()];
    let pending = loops.each_ref().map(|interface| [submit(interface, &middle)]);
    for round in 0..10 {
        let (sleeps, looks) = (round % 2, (round + 1) % 2);
        assert!(look(&loops[sleeps], &pending[sleeps]) <= FEW);
        loops[looks].collect();
        let descriptor = loops[sleeps].descriptor().expect("a descriptor");
        let is_woken = readable(descriptor, Some(Duration::ZERO)).expect("a descriptor");
        assert!(!is_woken, "round {round}: it is woken for nothing");
    }
    keeper.take(2).into_iter().for_each(|request| request.reply(Ok(())));
    let wakes: u32 = (0..50).map(|round| look(&loops[round % 2], &pending[round % 2])).sum();
    assert!(wakes <= 4 * FEW, "{wakes} polls for two replies");
    for [pending] in pending {
        assert!(pending.is_replied());
        pending.sync().expect("a reply");
    }
    loops.iter().for_each(assert_idle);
}

/// If a loop took a reply while it armed, and never came back, the reply was lost for another loop that slept at the same
/// completer.
#[test]
fn a_loop_that_stops_after_it_could_not_be_armed_leaves_nothing_to_one_that_sleeps() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let inner = interface();
    let middle = Middle::serve(fixture.connect(&inner, "keeper"), inner);
    let [sleeps, stops] = [interface(), interface()];
    let pending = [&sleeps, &stops].map(|interface| submit(interface, &middle));
    look(&stops, &[]);
    look(&sleeps, &[]);
    let descriptor = sleeps.descriptor().expect("a descriptor");
    keeper.take(1).remove(0).reply(Ok(()));
    assert!(readable(descriptor, Some(FOR_EVER)).expect("a descriptor"));
    // It takes the reply to the request of the one that sleeps, and is never seen again.
    while stops.arm() {}
    assert!(readable(descriptor, Some(FOR_EVER)).expect("a descriptor"), "its reply was taken from it");
    look(&sleeps, &[]);
    let [replied, rest] = pending;
    replied.sync().expect("a reply");
    keeper.take(1).remove(0).reply(Ok(()));
    rest.sync().expect("a reply");
}

/// The descriptor was readable without a pause from the death of a server until its channel had ended.
#[test]
fn a_server_that_goes_wakes_a_loop_a_few_times() {
    let (fixture, keeper, gone) = Fixture::with_keeper();
    let interface = interface();
    let server = fixture.connect(&interface, "keeper");
    let pending = [submit(&interface, &server)];
    look(&interface, &pending);
    let kept = keeper.take(1);
    drop((gone, kept));
    // Until the client has heard of it, which may take as long as the machine likes.
    while server.adjust(1 << 20, 4).is_ok() {}
    while !pending[0].is_replied() {
        look(&interface, &pending);
    }
    let [pending] = pending;
    pending.sync().expect_err("its server is gone");
    assert_eq!(look(&interface, &[]), 0);
}
