//! Attacks by silence: a peer that stops in the middle of something.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::wire::control::Message;
use genie_channel::{Listener, ServeOptions, Serving};
use genie_io::servers::memory::{FETCH, STORE};
use genie_io::{Error, In, Out};
use genie_memory::Direction;
use genie_sys::lock::Mutex;
use genie_sys::poll::readable;
use genie_sys::socket::Socket;

use crate::attacked::{AttackedServer, KEEP};
use crate::attacker::Ground;
use crate::client::{Raw, at, connection, hello, object};
use crate::scene::{HONEST, connect, eventually, interface};
use crate::server::{Hostile, NAME};
use crate::support::bytes::{pattern, same};
use crate::{attack, attacker, hostile_server, roles};

const PAGE: u64 = 4096;

roles! { stops_as_a_client, listens_only, takes_a_request, replies_in_part, keeps_a_lifeline, hangs_its_bell_up }

/// A connection that has said nothing, one that awaits its welcome, and a client with requests under way.
fn stops_as_a_client(ground: &mut Ground) {
    let silent = connection(ground);
    let waiting = connection(ground);
    let (_lifeline, held) = Socket::pair().expect("sockets");
    waiting.send(&Message::Hello(hello()).encode().expect("a hello"), &[held.as_fd()]).expect("a connection");
    let mut raw = Raw::greet(ground);
    raw.announce(1, 0, 16 * PAGE, true, object(16 * PAGE as usize)).expect("an object");
    for index in 0..3 {
        raw.request((index, 0), KEEP.0 as u16, Direction::In, &[at(0, 16 * PAGE)]);
    }
    ground.say("ready to stop");
    ground.hear();
    drop((silent, waiting, raw));
}

#[test]
fn a_client_that_stops_holds_up_nobody_and_leaves_nothing_when_it_is_gone() {
    let (scene, attacker) = attack!(stops_as_a_client);
    attacker.says_that("ready to stop");
    eventually("requests", || (scene.attacked().kept_count() == 3).then_some(()).ok_or("few".to_owned()));
    attacker.stop();
    // Replies go to one who takes none.
    scene.attacked().fill(1);
    scene.goes_on();
    scene.attacked().fill(2);
    scene.goes_on();
    attacker.kill();
    eventually("the last request's end", || {
        (scene.attacked().kept_count() == 0).then_some(()).ok_or("kept".to_owned())
    });
    scene.is_unharmed();
}

/// A server that accepts nobody. Clients were told that it was gone.
fn listens_only(ground: &mut Ground) {
    let _server = Hostile::listen(ground);
    ground.stay();
}

#[test]
fn a_server_that_stops_in_the_handshake_is_given_up() {
    let (scene, attacker) = hostile_server!(listens_only);
    attacker.stop();
    let error = connect(scene.interface(), &scene.directory, NAME).expect_err("nobody answers");
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    scene.survives(attacker);
}

/// A server that takes a request, or is not even told what it needs.
fn takes_a_request(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    ground.say("taken");
    ground.stay();
}

#[test]
fn a_server_that_stops_with_a_request_holds_up_that_request_only() {
    let (scene, attacker) = hostile_server!(takes_a_request);
    let interface = interface();
    let handle = connect(&interface, &scene.directory, NAME).expect("a connection");
    let mut buffer = interface.allocate(10_000).expect("memory");
    let bytes = pattern(1, buffer.len());
    buffer.copy_from_slice(&bytes);
    let request = interface.request(&handle, STORE).timeout(Duration::from_millis(300));
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    attacker.says_that("taken");
    attacker.stop();
    let error = pending.sync().expect_err("nobody replies").error;
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    same(&buffer, &bytes, "the output");
    scene.goes_on();
    // One that needs an announcement first.
    let fresh = interface.allocate(40 << 20).expect("memory");
    let request = interface.request(&handle, STORE).out(Out::emulated_copy(&fresh));
    let error = request.timeout(Duration::from_millis(100)).send().expect_err("nobody replies").error;
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    scene.goes_on();
    drop((handle, fresh, buffer, interface));
    scene.survives(attacker);
}

/// A server that writes a part of an input, and never says so.
fn replies_in_part(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    let slot = server.slot;
    // The head of a reply whose buffers are missing.
    server.push(2, &[slot.index.to_le_bytes(), slot.generation.to_le_bytes(), [0, 0, 1, 0]].concat());
    ground.say("half");
    ground.stay();
}

#[test]
fn a_server_that_stops_in_a_reply_loses_its_channel() {
    let (scene, attacker) = hostile_server!(replies_in_part);
    let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let mut buffer = scene.interface().allocate(10_000).expect("memory");
    let bytes = pattern(2, buffer.len());
    buffer.copy_from_slice(&bytes);
    let request = scene.interface().request(&handle, FETCH).input(In::emulated_copy(&mut buffer));
    let pending = request.submit().expect("a request");
    attacker.says_that("half");
    attacker.stop();
    let error = pending.sync().expect_err("half a reply").error;
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    same(&buffer, &bytes, "the input");
    scene.goes_on();
    drop((handle, buffer));
    scene.survives(attacker);
}

/// A server that hangs up, and may still touch its client's memory.
fn keeps_a_lifeline(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    server.socket = None;
    ground.say("hung up");
    ground.stay();
}

/// A thread that waited for a lifeline's end looked 200 times a second, for as long as the server kept the lifeline.
#[test]
fn waiting_for_a_server_that_keeps_the_lifeline_wakes_no_thread() {
    let (scene, attacker) = hostile_server!(keeps_a_lifeline);
    let before = links();
    let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let mut buffer = scene.interface().allocate(10_000).expect("memory");
    let request = scene.interface().request(&handle, FETCH).input(In::emulated_copy(&mut buffer));
    let pending = request.submit().expect("a request");
    attacker.says_that("hung up");
    let error = pending.sync().expect_err("it hung up").error;
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    // The request was given up when the thread began to wait without a timeout.
    let link = *links().difference(&before).next().expect("the thread of the channel's link");
    eventually("a thread that sleeps", || {
        let first = sleeps(link);
        std::thread::sleep(Duration::from_millis(100));
        (sleeps(link) == first).then_some(()).ok_or("it woke up".to_owned())
    });
    scene.goes_on();
    drop((handle, buffer));
    scene.survives(attacker);
}

/// The threads of links.
fn links() -> BTreeSet<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let number = |task: std::fs::DirEntry| task.file_name().to_str()?.parse().ok();
    let is_link = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "genie-link\n")
    };
    tasks.filter_map(Result::ok).filter(is_link).filter_map(number).collect()
}

/// How often a thread of this process has gone to sleep.
fn sleeps(thread: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("a thread");
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.expect("a count of switches").to_owned()
}

/// A client whose server can't ring.
fn hangs_its_bell_up(ground: &mut Ground) {
    let Raw { socket, ends, lifeline, .. } = Raw::greet(ground);
    drop(ends);
    ground.say("hung up");
    let _stays = (socket, lifeline);
    ground.stay();
}

/// What the program slept by stayed readable.
#[test]
fn a_client_that_hangs_its_bell_up_does_not_keep_a_program_awake_that_drives_the_server() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let server = AttackedServer::default();
    let serving = Listener::bind_in(&directory, HONEST, server, ServeOptions::default());
    let driven = Mutex::new(serving.and_then(Serving::drive).expect("a server"));
    let attacker = attacker!(&directory, hangs_its_bell_up);
    attacker.says_that("hung up");
    eventually("sleep", || {
        let mut driven = driven.lock();
        while driven.attend(Duration::ZERO).expect("a server that goes on") {}
        let is_awake = !driven.arm()
            || readable(driven.descriptor(), Some(Duration::from_millis(100))).expect("an answer");
        if is_awake { Err("the program is kept awake".to_owned()) } else { Ok(()) }
    });
    attacker.kill();
}
