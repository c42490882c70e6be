//! Channels on which nothing is mapped: what leaves the client, which client gets memory for the copies, and into whose
//! memory the copies go.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use genie_channel::wire::control::{Hello, Limits, Message, ObjectPlace, Trust};
use genie_channel::{Connect, ConnectOptions, ServeOptions};
use genie_io::servers::memory::STORE;
use genie_io::{Error, Interface, Out};
use genie_memory::Direction;
use genie_sys::{Arena, GranuleKind, Object};
use rustix::io::FdFlags;

use crate::attacked::KEEP;
use crate::attacker::Ground;
use crate::client::{BASE, LEN, Raw, at, hello, object};
use crate::scene::{HONEST, Scene, eventually, interface, store_and_fetch};
use crate::server::{Hostile, NAME};
use crate::support::machine::skip;
use crate::{attack, attacker, hostile_server, roles};

const KEEP_IT: u16 = KEEP.0 as u16;
const MIB: u64 = 1 << 20;

roles! {
    counts_what_comes, maps_all_the_same, takes_all_memory, exchanges, announces, is_replaced, is_a_bystander, asks_for_much,
}

fn silent() -> ConnectOptions {
    ConnectOptions { untrusted: true, ..ConnectOptions::default() }
}

fn untrusted() -> Hello {
    Hello { untrusted: true, ..hello() }
}

/// A server that tells how many messages with descriptors came.
fn counts_what_comes(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    assert!(server.welcome(|_| {}), "the client asks for nothing to be mapped");
    for _ in 0..3 {
        assert!(server.request(), "a request");
        let slot = server.slot;
        server.succeed(slot, &[]);
    }
    while server.another_object().is_some() {}
    ground.say(server.announced);
    server.leave();
    ground.stay();
}

#[test]
fn no_descriptor_leaves_a_client_that_shares_nothing() {
    let (scene, attacker) = hostile_server!(counts_what_comes);
    let interface = interface();
    let handle = interface.connect_with(&scene.directory, NAME, &silent()).expect("a connection");
    let buffer = interface.allocate(3 << 20).expect("memory");
    for out in [Out::copy(&buffer[..100]), Out::copy(&buffer), Out::emulated_copy(&buffer)] {
        interface.request(&handle, STORE).out(out).send().expect("a reply");
    }
    attacker.says_that("0");
    drop((handle, buffer, interface));
    scene.survives(attacker);
}

/// A server that answers as if it had been asked to map, and one that lends what it is not to.
fn maps_all_the_same(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|welcome| welcome.trust = Trust::Mapped);
    server.say_whether_left(ground);
    server.accept();
    let mut welcome = crate::server::honest_welcome();
    (welcome.trust, welcome.pool) = (Trust::Copied, vec![MIB]);
    let lent = Object::create(GranuleKind::Base, MIB as usize).expect("memory");
    server.send_welcome(welcome, &[lent.as_fd()]);
    server.say_whether_left(ground);
    ground.stay();
}

#[test]
fn a_client_that_shares_nothing_does_not_stay_with_a_server_that_maps() {
    let (scene, attacker) = hostile_server!(maps_all_the_same);
    for _ in 0..2 {
        let refused = scene.interface().connect_with(&scene.directory, NAME, &silent());
        let error = refused.expect_err("a server that maps").to_string();
        assert!(error.contains("shares none"), "{error}");
        attacker.says_that("left");
    }
    scene.survives(attacker);
}

/// As much of the server's memory as it gets, which is its own share.
fn takes_all_memory(ground: &mut Ground) {
    let mut raw = match Raw::greet_as(ground, &untrusted()) {
        Ok(raw) => raw,
        Err(refused) => panic!("{refused}"),
    };
    let granted = raw.welcome.limits.pending_bytes;
    ground.say(granted);
    // One byte more than a page: each takes two.
    let arena = Arena::reserve_at(BASE as usize, LEN as usize).expect("addresses").expect("free ones");
    let memory = object(8 << 20);
    arena.map(0, &memory, 0, 8 << 20).expect("memory");
    for index in 0..256 {
        raw.request((index, 0), KEEP_IT, Direction::Out, &[at(0, 5000)]);
    }
    ground.say("full");
    ground.stay();
}

/// An honest client in a process of its own.
fn exchanges(ground: &mut Ground) {
    let interface = interface();
    let handle = interface.connect_with(&ground.directory, HONEST, &silent()).expect("a connection");
    loop {
        store_and_fetch(&interface, &handle, 5);
        ground.say("exchanged");
        ground.hear();
    }
}

#[test]
fn each_client_that_is_not_trusted_has_memory_of_its_own() {
    let scene = Scene::open();
    let mut honest = attacker!(&scene.directory, exchanges);
    honest.says_that("exchanged");
    let attacker = attacker!(&scene.directory, takes_all_memory);
    let granted: u64 = attacker.says().parse().expect("a number");
    assert_eq!(granted, 2 << 20, "as much as the pool that others are lent");
    attacker.says_that("full");
    eventually("requests", || (scene.attacked().kept_count() > 100).then_some(()).ok_or("few".to_owned()));
    for _ in 0..3 {
        honest.tell("again");
        honest.says_that("exchanged");
    }
    attacker.kill();
    honest.kill();
    scene.is_unharmed();
}

/// A genuine interface that asks for more than there is room for, after all, and goes on.
fn asks_for_much(ground: &mut Ground) {
    let interface = interface();
    let handle = interface.connect_with(&ground.directory, HONEST, &silent()).expect("a connection");
    let buffer = interface.allocate(4 << 20).expect("memory");
    let error = interface.request(&handle, STORE).out(Out::copy(&buffer)).send().expect_err("too much").error;
    ground.say(matches!(error, Error::TooLarge { .. }));
    // What fits by its bytes, and not by the pages that each takes: 4097 bytes take two.
    ground.say(shortage(&interface, &handle));
    store_and_fetch(&interface, &handle, 6);
    ground.say("goes on");
    ground.stay();
}

fn shortage(interface: &Interface, handle: &genie_io::ServerHandle) -> String {
    let buffer = interface.allocate(5000).expect("memory");
    let mut pending = Vec::new();
    for _ in 0..250 {
        let request = interface.request(handle, KEEP).out(Out::copy(&buffer));
        pending.push(request.submit().expect("a request"));
    }
    let short = pending.iter_mut().rev().find(|pending| pending.wait(std::time::Duration::from_millis(500)));
    if short.is_none() {
        return "all fit".to_owned();
    }
    let mut errors = Vec::new();
    while let Some(last) = pending.pop() {
        match last.is_replied() {
            true => errors.push(last.sync().expect_err("a shortage").error),
            false => drop(last.abort()),
        }
    }
    match errors.iter().all(|error| matches!(error, Error::NoRoom { unit: "bytes of data", .. })) {
        true => "refused".to_owned(),
        false => format!("{errors:?}"),
    }
}

#[test]
fn a_request_for_which_there_is_no_room_is_refused_and_its_channel_goes_on() {
    let scene = Scene::open_with(ServeOptions {
        hard_pool: MIB as usize * 3 / 2,
        kept: 320 << 10,
        ..ServeOptions::default()
    });
    let client = attacker!(&scene.directory, asks_for_much);
    client.says_that("true");
    client.says_that("refused");
    client.says_that("goes on");
    client.kill();
    scene.is_unharmed();
}

/// Announcements where there are none.
fn announces(ground: &mut Ground) {
    for _ in 0..2 {
        let raw = Raw::greet_as(ground, &untrusted()).expect("a welcome");
        assert_eq!(raw.welcome.trust, Trust::Copied);
        assert!(raw.welcome.pool.is_empty());
        let place = ObjectPlace { arena: 0, id: 1, start: 0, len: MIB, writable: false };
        ground.say(raw.ask(&Message::Object(place), &[object(MIB as usize).as_fd()]).expect_err("an end"));
    }
    // Memory that is not there, or not its own.
    for segment in [at(LEN - 10, 10), at(LEN, 10), crate::client::in_arena(3, 0, 10)] {
        let mut raw = Raw::greet_as(ground, &untrusted()).expect("a welcome");
        raw.request((0, 0), STORE.0 as u16, Direction::Out, &[segment]);
        raw.farewell();
    }
    let more = Limits { pending_bytes: u64::MAX, pending_requests: 1 };
    let raw = Raw::greet_as(ground, &untrusted()).expect("a welcome");
    raw.tell(&Message::LimitsWanted(more), &[]);
    match crate::client::heard(&raw.socket) {
        Some((Message::Limits(limits), _)) => ground.say(limits.pending_bytes),
        other => ground.say(format!("{other:?}")),
    }
    ground.stay();
}

#[test]
fn nothing_can_be_announced_where_nothing_is_mapped() {
    let (scene, attacker) = attack!(announces);
    for _ in 0..2 {
        assert!(attacker.says().contains("nothing is mapped"));
    }
    attacker.says_that(&(2 << 20).to_string());
    scene.survives(attacker);
}

/// A client that dies with an input pending, while a child of its own keeps its connection open.
fn is_replaced(ground: &mut Ground) {
    let mut raw = Raw::greet_as(ground, &untrusted()).expect("a welcome");
    raw.request((0, 0), KEEP_IT, Direction::In, &[at(0, 4096)]);
    for descriptor in [raw.socket.as_fd(), raw.lifeline.as_fd()] {
        rustix::io::fcntl_setfd(descriptor, FdFlags::empty()).expect("a descriptor");
    }
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    ground.say(child.expect("a process").id());
    ground.stay();
}

/// Somebody who has memory where the client had, under the client's number.
fn is_a_bystander(ground: &mut Ground) {
    let arena = Arena::reserve_at(BASE as usize, LEN as usize).expect("addresses").expect("free ones");
    let memory = object(4096);
    arena.map(0, &memory, 0, 4096).expect("memory");
    let file = std::fs::File::from(memory.duplicate().expect("a descriptor"));
    std::os::unix::fs::FileExt::write_all_at(&file, &[5; 4096], 0).expect("memory");
    ground.say("here");
    ground.hear();
    let mut bytes = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).expect("memory");
    ground.say(if bytes == [5; 4096] { "untouched" } else { "overwritten" });
    ground.stay();
}

#[test]
fn nothing_is_written_to_a_process_that_has_a_dead_clients_number() {
    const TEST: &str = "nothing_is_written_to_a_process_that_has_a_dead_clients_number";
    let (scene, attacker) = attack!(is_replaced);
    let child = attacker.says();
    let number = attacker.pid();
    eventually("a request", || (scene.attacked().kept_count() == 1).then_some(()).ok_or("none".to_owned()));
    attacker.kill();
    // The kernel gives the next free number after the last one that it gave.
    let last = std::path::Path::new("/proc/sys/kernel/ns_last_pid");
    let bystander = (0..50).find_map(|_| {
        std::fs::write(last, (number - 1).to_string()).ok()?;
        let bystander = attacker!(&scene.directory, is_a_bystander);
        (bystander.pid() == number).then_some(bystander)
    });
    let end_child = || drop(Command::new("kill").args(["-9", &child]).status());
    let Some(mut bystander) = bystander else {
        end_child();
        return skip(TEST, "the number can't be had again");
    };
    bystander.says_that("here");
    assert_eq!(scene.running().status().clients_total, 2, "the server has not heard of its client's end");
    scene.attacked().fill(9);
    bystander.tell("look");
    bystander.says_that("untouched");
    end_child();
    bystander.kill();
    scene.is_unharmed();
}
