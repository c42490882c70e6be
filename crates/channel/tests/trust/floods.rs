//! Attacks by numbers: a client sends more of everything than an honest client needs, and never reads answers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use genie_channel::ServeOptions;
use genie_channel::wire::control::{ArenaPlace, LayoutWanted, Limits, Message, ObjectPlace};
use genie_io::servers::memory::NULL;
use genie_memory::Direction;
use genie_sys::GranuleKind;
use genie_sys::socket::Socket;

use crate::attacked::FORWARD;
use crate::attacker::Ground;
use crate::client::{BASE, Raw, at, connection, farewell, hello, object};
use crate::scene::threads;
use crate::{attack, roles};

const PAGE: u64 = 4096;

roles! {
    reads_no_answers, announces_without_end, raises_limits, withdraws_what_is_not, sends_too_much, takes_no_replies,
    aborts_without_end, greets_without_end, connects_in_silence, wants_a_layout_for_no_service,
}

/// Questions whose answers nobody reads.
fn reads_no_answers(ground: &mut Ground) {
    let raw = Raw::greet(ground);
    let wanted = Message::LimitsWanted(Limits { pending_bytes: 1 << 20, pending_requests: 10 });
    let mut asked = 0;
    while raw.tell(&wanted, &[]) {
        asked += 1;
        assert!(asked < 1_000_000, "the server goes on answering");
    }
    ground.say(raw.farewell());
    ground.stay();
}

#[test]
fn a_client_that_reads_no_answers_is_cut_off() {
    let (scene, attacker) = attack!(reads_no_answers);
    let why = attacker.says();
    assert!(why == "nothing" || why.contains("does not read"), "{why}");
    scene.goes_on();
    scene.survives(attacker);
}

/// A service's number that is no service's.
fn wants_a_layout_for_no_service(ground: &mut Ground) {
    let raw = Raw::greet(ground);
    let service = u16::try_from(raw.welcome.services.len()).expect("a number");
    raw.tell(&Message::LayoutWanted(LayoutWanted { service, argument: b"port".to_vec() }), &[]);
    ground.say(raw.farewell());
    ground.stay();
}

#[test]
fn a_layout_for_no_service_ends_the_channel() {
    let (scene, attacker) = attack!(wants_a_layout_for_no_service);
    let why = attacker.says();
    assert!(why.contains("a layout is wanted for service 10 of 10"), "{why}");
    scene.goes_on();
    scene.survives(attacker);
}

/// Objects and arenas by the thousand.
fn announces_without_end(ground: &mut Ground) {
    let memory = object(PAGE as usize);
    let raw = Raw::greet(ground);
    let mut announced = 0;
    let why = loop {
        match raw.announce(announced + 1, announced * PAGE, PAGE, false, memory.as_fd()) {
            Ok(()) => announced += 1,
            Err(why) => break why,
        }
    };
    ground.say(announced);
    ground.say(why);
    let raw = Raw::greet(ground);
    let (_lifeline, held) = Socket::pair().expect("sockets");
    for number in 1.. {
        let place = ArenaPlace { number, granule: GranuleKind::Base, base: BASE, len: 1 << 21 };
        if let Err(why) = raw.ask(&Message::Arena(place), &[held.as_fd()]) {
            ground.say(why);
            break;
        }
    }
    ground.stay();
}

#[test]
fn announcements_are_counted() {
    let (scene, attacker) = attack!(announces_without_end);
    let announced: usize = attacker.says().parse().expect("a number");
    let most = (16 << 10).min(genie_sys::machine::descriptors_max() / 2);
    // Half of what there is, or what fits the honest client's objects being there, too.
    assert!((most / 2 - 10..=most / 2).contains(&announced), "{announced} of {most}");
    let why = attacker.says();
    assert!(why.contains("by this client"), "{why}");
    let why = attacker.says();
    assert!(why.contains("more than 128 arenas"), "{why}");
    scene.goes_on();
    scene.survives(attacker);
}

/// Limits beyond all bounds, again and again.
fn raises_limits(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    for requests in [u32::MAX, 1, 1 << 20, 0, u32::MAX] {
        let wanted = Limits { pending_bytes: u64::MAX, pending_requests: requests };
        raw.ask(&Message::LimitsWanted(wanted), &[]).expect("an answer");
    }
    raw.request((4095, 0), NULL.0 as u16, Direction::Out, &[]);
    ground.say(raw.reply().expect("a reply"));
    raw.request((4096, 0), NULL.0 as u16, Direction::Out, &[]);
    ground.say(raw.farewell());
    ground.stay();
}

#[test]
fn limits_are_raised_to_the_hard_ones_and_no_further() {
    let (scene, attacker) = attack!(raises_limits);
    attacker.says_that("ok");
    attacker.says_that("place 4096 was not granted");
    scene.survives(attacker);
}

/// Withdrawals of what was never announced, which would make the count of objects lie.
fn withdraws_what_is_not(ground: &mut Ground) {
    for message in [Message::Withdraw(77), Message::WithdrawArena(0), Message::WithdrawArena(9)] {
        let raw = Raw::greet(ground);
        ground.say(raw.ask(&message, &[]).expect_err("an end"));
    }
    ground.stay();
}

#[test]
fn what_was_not_announced_can_not_be_withdrawn() {
    let (scene, attacker) = attack!(withdraws_what_is_not);
    for _ in 0..3 {
        assert!(attacker.says().contains("was not announced"));
    }
    scene.survives(attacker);
}

/// Messages that are too long, with too many descriptors, and of the wrong side.
fn sends_too_much(ground: &mut Ground) {
    let raw = Raw::greet(ground);
    raw.socket.send(&[7; 100 << 10], &[]).expect("a long message");
    ground.say(raw.farewell());
    let raw = Raw::greet(ground);
    let memory = object(PAGE as usize);
    let many: Vec<BorrowedFd<'_>> = vec![memory.as_fd(); 16];
    let place = ObjectPlace { arena: 0, id: 1, start: 0, len: PAGE, writable: false };
    raw.socket.send(&Message::Object(place).encode().expect("a message"), &many).expect("a message");
    ground.say(raw.farewell());
    let raw = Raw::greet(ground);
    raw.socket.send(b"GENIEctl and what follows is no message", &[]).expect("a message");
    ground.say(raw.farewell());
    let raw = Raw::greet(ground);
    raw.tell(&Message::Limits(raw.welcome.limits), &[]);
    ground.say(raw.farewell());
    let raw = Raw::greet(ground);
    let (_lifeline, held) = Socket::pair().expect("sockets");
    raw.tell(&Message::Hello(hello()), &[held.as_fd()]);
    ground.say(raw.farewell());
    ground.say("over");
    ground.stay();
}

#[test]
fn messages_that_are_too_much_end_their_channel() {
    let (scene, attacker) = attack!(sends_too_much);
    for what in ["long", "16 descriptors", "no head", "another side's", "another hello"] {
        let why = attacker.says();
        assert!(why != "nothing" && why != "over", "{what}: {why}");
    }
    attacker.says_that("over");
    scene.survives(attacker);
}

/// Requests without end in the places of replies that were not taken.
fn takes_no_replies(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    let mut sent = 0u64;
    while !raw.socket.is_hung_up() {
        raw.request((sent as u32 % 4, sent as u32 / 4), NULL.0 as u16, Direction::Out, &[]);
        sent += 1;
        assert!(sent < 10_000_000, "the server goes on replying");
    }
    ground.say(raw.farewell());
    ground.stay();
}

#[test]
fn a_client_that_takes_no_replies_is_cut_off() {
    // When a busy machine keeps a worker from going on, a second worker finds the attacker's places taken: here is one worker.
    let options = ServeOptions { most_threads: 1, ..ServeOptions::default() };
    let (scene, attacker) = attack!(takes_no_replies, options);
    let why = attacker.says();
    assert!(why.contains("it takes no replies"), "{why}");
    scene.goes_on();
    scene.survives(attacker);
}

/// The same requests aborted without end, each of which has originated something.
fn aborts_without_end(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    raw.announce(1, 0, PAGE, false, object(PAGE as usize)).expect("an object");
    let slots: Vec<(u32, u32)> = (0..100).map(|index| (index, 0)).collect();
    for slot in &slots {
        raw.request(*slot, FORWARD.0 as u16, Direction::Out, &[at(0, 10)]);
    }
    for _ in 0..200 {
        slots.iter().for_each(|slot| raw.abort(*slot));
    }
    raw.request((200, 0), NULL.0 as u16, Direction::Out, &[]);
    ground.say(raw.reply().expect("a reply"));
    ground.stay();
}

#[test]
fn each_request_is_aborted_once_and_few_threads_do_it() {
    let (scene, attacker) = attack!(aborts_without_end);
    let mut most = 0;
    let deadline = Instant::now() + Duration::from_secs(10);
    while scene.attacked().aborts() < 100 {
        assert!(Instant::now() < deadline, "{} aborts", scene.attacked().aborts());
        most = most.max(evictions());
    }
    attacker.says_that("ok");
    assert_eq!(scene.attacked().aborts(), 100, "of 20,000 that were asked for");
    assert!(most.max(evictions()) <= 8, "{most} threads");
    attacker.kill();
    scene.is_unharmed();
    // With the end of the channel, requests that were aborted are not aborted again.
    assert_eq!(scene.attacked().aborts(), 100);
}

/// How many threads abort what requests have originated.
fn evictions() -> usize {
    threads("genie-eviction").len()
}

/// Hellos without end, right and wrong ones, and questions.
fn greets_without_end(ground: &mut Ground) {
    let (_lifeline, held) = Socket::pair().expect("sockets");
    let right = Message::Hello(hello()).encode().expect("a hello");
    let question = Message::Query(()).encode().expect("a question");
    for round in 0..400 {
        let socket = connection(ground);
        match round % 4 {
            // Its welcome is not waited for.
            0 => drop(socket.send(&right, &[held.as_fd()])),
            1 => drop(socket.send(&right[..right.len() - 1], &[held.as_fd()])),
            2 => drop(socket.send(&question, &[])),
            _ => drop(socket.send(&right, &[])),
        }
    }
    // As many as there may be at once.
    let mut raws = Vec::new();
    let refused = loop {
        match Raw::greet_as(ground, &hello()) {
            Ok(raw) => raws.push(raw),
            Err(refused) => break refused,
        }
    };
    ground.say(raws.len());
    ground.say(refused);
    ground.hear();
    drop(raws);
    ground.stay();
}

#[test]
fn hellos_without_end_leave_nothing_behind() {
    let options = ServeOptions { clients: 20, ..ServeOptions::default() };
    let (scene, mut attacker) = attack!(greets_without_end, options);
    let taken: usize = attacker.says().parse().expect("a number");
    assert_eq!(taken, 19, "places but that of the honest client");
    let refused = attacker.says();
    assert!(refused.contains("20 clients already"), "{refused}");
    crate::scene::store_and_fetch(scene.interface(), scene.honest(), 3);
    attacker.tell("hang up");
    scene.await_clients(1);
    scene.goes_on();
    scene.survives(attacker);
}

/// More connections than may wait unauthenticated, none of which says anything.
fn connects_in_silence(ground: &mut Ground) {
    let mut silent: Vec<Socket> = (0..500).map(|_| connection(ground)).collect();
    ground.say("silent");
    ground.hear();
    // The first ones were sent away, and the last ones may still speak.
    ground.say(farewell(&silent[0]));
    let last = silent.pop().expect("the last one");
    let is_asked = last.send(&Message::Query(()).encode().expect("a question"), &[]).is_ok();
    ground.say(is_asked && matches!(crate::client::heard(&last), Some((Message::Status(_), _))));
    ground.stay();
}

#[test]
fn silent_connections_keep_nobody_out() {
    // On a busy machine silent connections may be late before anything was seen, which shows nothing.
    let is_seen = (0..5).any(|_| is_served_before_the_silent_are_late());
    assert!(is_seen, "a client is served only when silent connections are late");
}

/// Whether a scene went on in less time than that after which silent connections are ended for being late.
fn is_served_before_the_silent_are_late() -> bool {
    let start = Instant::now();
    let (scene, mut attacker) = attack!(connects_in_silence);
    attacker.says_that("silent");
    scene.goes_on();
    attacker.tell("speak");
    let said = [attacker.says(), attacker.says()];
    let is_in_time = start.elapsed() < Duration::from_secs(5);
    if is_in_time {
        assert_eq!(said, ["too many connections are waiting; try again later", "true"]);
    }
    scene.survives(attacker);
    is_in_time
}
