//! Attacks by memory: what a client announces, what it does to that memory afterwards, and what a server does with it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use genie_channel::ServeOptions;
use genie_channel::wire::control::{ArenaPlace, Hello, Message, ObjectPlace};
use genie_io::servers::memory::{NULL, SINK, STORE};
use genie_io::{Out, Returned};
use genie_memory::{Direction, Mapping};
use genie_passing::Scheme;
use genie_sys::arena::Access;
use genie_sys::socket::Socket;
use genie_sys::{Arena, GranuleKind, Object};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};

use crate::attacked::KEEP;
use crate::attacker::{Attacker, Ground};
use crate::client::{BASE, LEN, Raw, at, connection, farewell, hello, in_arena, object};
use crate::fuse::{self, place};
use crate::scene::{Scene, connect, eventually, interface, threads};
use crate::server::{Hostile, NAME};
use crate::support::bytes::{pattern, same};
use crate::support::machine::{mappings_of, object_at, skip};
use crate::{attack, attacker, hostile_server, roles};

const PAGE: u64 = 4096;
/// Set where a test may take all huge pages for a moment.
const HOG: &str = "GENIE_TEST_ALL_HUGE_PAGES";
const KEEP_IT: u16 = KEEP.0 as u16;

roles! {
    writes_to_output, names_what_it_gets, sends_what_is_no_object, shrinks, takes_all_addresses, has_a_vast_object,
    touches_more_than_allowed, withdraws_an_arena_in_use, withdraws_an_object_in_use, punches_holes,
    sends_files_that_do_not_answer,
}

/// A server that was given memory to read tries all ways to change it.
fn writes_to_output(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    let object = server.object();
    let len = object.1;
    let file = std::fs::File::from(object.0.try_clone().expect("a descriptor"));
    let mut managed = Vec::new();
    let mapped = Object::accept(object.0).and_then(|object| {
        let arena = Arena::reserve(len)?;
        arena.map_for(0, &object, 0, len, Access::ReadWrite)
    });
    if mapped.is_ok() {
        managed.push("mapping it for stores");
    }
    if std::os::unix::fs::FileExt::write_at(&file, &[1; 4096], 0).is_ok() {
        managed.push("writing");
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(&file, hole, 0, PAGE).is_ok() {
        managed.push("punching a hole");
    }
    if file.set_len(PAGE).is_ok() || file.set_len(2 * len as u64).is_ok() {
        managed.push("another length");
    }
    ground.say(if managed.is_empty() { "nothing".to_owned() } else { managed.join(", ") });
    server.serve_on(ground);
}

#[test]
fn a_server_can_not_change_what_it_was_given_to_read() {
    let (scene, mut attacker) = hostile_server!(writes_to_output);
    let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let bytes = pattern(1, 100_000);
    let mut buffer = scene.interface().allocate(bytes.len()).expect("memory");
    buffer.copy_from_slice(&bytes);
    // Given by value, so that it is passed in place also where output cannot be protected.
    let passed = Out::owned(Scheme::EmulatedCopy, buffer);
    let pending = scene.interface().request(&handle, STORE).out(passed).submit().expect("a request");
    attacker.says_that("nothing");
    attacker.tell("reply");
    let mut reply = pending.sync().expect("a reply");
    assert_eq!(reply.receipt().copied, 0);
    let Returned::Buffer(buffer) = reply.buffers.remove(0).elements.remove(0).returned else {
        panic!("the buffer comes back");
    };
    same(&buffer, &bytes, "the output");
    drop((handle, buffer));
    scene.survives(attacker);
}

/// A server that tells which objects came to it.
fn names_what_it_gets(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|welcome| welcome.pool.clear());
    let (object, _) = server.object();
    let mut inodes = vec![std::fs::File::from(object).metadata().expect("memory").ino()];
    // Whatever else comes before the test is done with it.
    ground.say("asked");
    ground.hear();
    while let Some(object) = server.another_object() {
        inodes.push(std::fs::File::from(object).metadata().expect("memory").ino());
    }
    ground.say(inodes.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    server.serve_on(ground);
}

#[test]
fn a_server_gets_the_objects_that_requests_name_and_no_others() {
    let (scene, mut attacker) = hostile_server!(names_what_it_gets);
    let interface = interface();
    let handle = connect(&interface, &scene.directory, NAME).expect("a connection");
    // More than an object's usual length, so that the two are in different ones.
    let mut buffers = Vec::from([33 << 20, 34 << 20].map(|len| interface.allocate(len).expect("memory")));
    buffers.iter_mut().for_each(|buffer| buffer[..4].copy_from_slice(b"mine"));
    let inode = |addr| {
        let object = object_at(addr).expect("a buffer in an object");
        object.split(' ').nth(1).expect("an inode").to_owned()
    };
    let [named, other] = [0, 1].map(|index: usize| inode(buffers[index].as_ptr().addr()));
    assert_ne!(named, other, "the test needs two objects");
    // Given by value, so that it need not be protected, which not every machine can do.
    let passed = Out::owned(Scheme::EmulatedCopy, buffers.remove(0)).part(0..5000);
    let pending = interface.request(&handle, STORE).out(passed).submit().expect("a request");
    attacker.says_that("asked");
    attacker.tell("what came?");
    assert_eq!(attacker.says(), named);
    attacker.tell("reply");
    let reply = pending.sync().expect("a reply");
    assert_eq!(reply.receipt().copied, 0);
    drop((reply, handle, buffers, interface));
    scene.survives(attacker);
}

/// Descriptors that are no objects, or not as announced.
fn sends_what_is_no_object(ground: &mut Ground) {
    let sealed = |seals: SealFlags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("attack", flags).expect("memory");
        rustix::fs::ftruncate(&memory, 4 * PAGE).expect("a length");
        rustix::fs::fcntl_add_seals(&memory, seals).expect("seals");
        memory
    };
    let file = tempfile::tempfile().expect("a file");
    file.set_len(4 * PAGE).expect("a length");
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let (socket, _other) = Socket::pair().expect("sockets");
    let path = rustix::fs::open("/proc/self/exe", OFlags::PATH, Mode::empty()).expect("a path");
    let strange: Vec<(&str, OwnedFd)> = vec![
        ("a regular file", file.into()),
        ("a pipe", pipe),
        ("a socket", socket.into()),
        ("a device", std::fs::File::open("/dev/zero").expect("a device").into()),
        ("a path", path),
        ("an unsealed memfd", sealed(SealFlags::empty())),
        ("one that can grow", sealed(SealFlags::SHRINK)),
        ("one that can shrink", sealed(SealFlags::GROW)),
        ("a read-only one for stores", object(16384).read_only().expect("a descriptor")),
        ("one of another length", object(8192).duplicate().expect("a descriptor")),
    ];
    for (what, descriptor) in strange {
        let raw = Raw::greet(ground);
        let refused = raw.announce(1, 0, 4 * PAGE, true, &descriptor);
        assert!(refused.is_err(), "{what} was taken");
        assert!(raw.tell(&Message::Query(()), &[]) || raw.socket.is_hung_up());
        raw.farewell();
    }
    // Places that are not in the arena, or taken.
    for start in [LEN, LEN - PAGE, 1, u64::from(u32::MAX) << 15, 2 * PAGE] {
        let raw = Raw::greet(ground);
        raw.announce(1, 0, 4 * PAGE, false, object(16384).as_fd()).expect("an honest object");
        let refused = raw.announce(2, start, 4 * PAGE, false, object(16384).as_fd());
        assert!(refused.is_err(), "an object at {start:#x} was taken");
    }
    ground.say("all were refused");
    ground.stay();
}

#[test]
fn what_is_no_sealed_memory_object_is_refused() {
    let (scene, attacker) = attack!(sends_what_is_no_object);
    attacker.says_that("all were refused");
    scene.goes_on();
    scene.survives(attacker);
}

/// Objects are sealed by their own interface, so that not even their owner shrinks them.
fn shrinks(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    let object = object(16 * PAGE as usize);
    raw.announce(1, 0, 16 * PAGE, true, object.as_fd()).expect("an honest object");
    raw.request((0, 0), KEEP_IT, Direction::Out, &[at(0, 16 * PAGE)]);
    let file = std::fs::File::from(object.duplicate().expect("a descriptor"));
    ground.say(file.set_len(PAGE).is_err());
    ground.stay();
}

#[test]
fn an_announced_object_can_not_shrink() {
    let (scene, attacker) = attack!(shrinks);
    attacker.says_that("true");
    eventually("a request", || (scene.attacked().kept_count() == 1).then_some(()).ok_or("none".to_owned()));
    assert_eq!(scene.attacked().look(0), vec![0; 16 * PAGE as usize]);
    scene.survives(attacker);
}

/// An arena as long as half of all addresses.
fn takes_all_addresses(ground: &mut Ground) {
    let vast = Hello { alias_len: 1 << 46, ..hello() };
    ground.say(Raw::greet_as(ground, &vast).err().unwrap_or_else(|| "welcome".to_owned()));
    let raw = Raw::greet(ground);
    let (lifeline, held) = Socket::pair().expect("sockets");
    let place = |number| ArenaPlace { number, granule: GranuleKind::Base, base: BASE, len: 600 << 30 };
    raw.ask(&Message::Arena(place(1)), &[held.as_fd()]).expect("an arena");
    let refused = raw.ask(&Message::Arena(place(2)), &[held.as_fd()]);
    drop(lifeline);
    ground.say(refused.err().unwrap_or_else(|| "another one".to_owned()));
    ground.stay();
}

#[test]
fn a_client_can_not_take_all_addresses() {
    let options = ServeOptions { addresses: 1 << 40, ..ServeOptions::default() };
    let (scene, attacker) = attack!(takes_all_addresses, options);
    for _ in 0..2 {
        let refused = attacker.says();
        assert!(refused.contains("addresses that a peer may take"), "{refused}");
    }
    scene.survives(attacker);
}

/// A byte here and there of an object with nothing but holes.
fn has_a_vast_object(ground: &mut Ground) {
    let vast = Hello { alias_len: 1 << 39, ..hello() };
    let mut raw = Raw::greet_as(ground, &vast).expect("a welcome");
    let object = object(1 << 39);
    raw.announce(1, 0, 1 << 39, false, object.as_fd()).expect("an honest object");
    for round in 0..2 {
        raw.request((0, round), SINK.0 as u16, Direction::Out, &[at(1 << 38, 1)]);
        ground.say(raw.reply().expect("a reply"));
    }
    ground.say(
        std::fs::File::from(object.duplicate().expect("a descriptor")).metadata().expect("memory").ino(),
    );
    ground.stay();
}

#[test]
fn a_byte_of_a_vast_object_does_not_have_all_of_it_mapped() {
    let (scene, attacker) = attack!(has_a_vast_object);
    attacker.says_that("ok");
    attacker.says_that("ok");
    let inode = attacker.says();
    let mapped = mappings_of(std::process::id());
    let of_it = mapped
        .iter()
        .filter(|mapping| mapping.object.as_ref().is_some_and(|o| o.ends_with(&format!(" {inode}"))));
    let lens: Vec<usize> = of_it.map(|mapping| mapping.end - mapping.start).collect();
    assert_eq!(lens, [64 << 20], "what is mapped of 512 GiB");
    scene.survives(attacker);
}

/// More of an object than may be mapped at once, piece by piece.
fn touches_more_than_allowed(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    let piece = 64 << 20;
    raw.announce(1, 0, 4 * piece, false, object(4 * piece as usize).as_fd()).expect("an honest object");
    let slots = [(0, 0), (1, 0)];
    raw.request(slots[0], KEEP_IT, Direction::Out, &[at(0, 1)]);
    raw.request(slots[1], KEEP_IT, Direction::Out, &[at(piece, 1)]);
    raw.request((2, 0), KEEP_IT, Direction::Out, &[at(2 * piece, 1)]);
    ground.say(raw.reply().expect("a reply"));
    slots.iter().for_each(|slot| raw.abort(*slot));
    ground.say(raw.reply().expect("a reply"));
    ground.say(raw.reply().expect("a reply"));
    // Now that nothing is pending, what was mapped makes room.
    raw.request((2, 1), SINK.0 as u16, Direction::Out, &[at(2 * piece, 1)]);
    ground.say(raw.reply().expect("a reply"));
    raw.request((2, 2), SINK.0 as u16, Direction::Out, &[at(0, 3 * piece)]);
    ground.say(raw.reply().expect("a reply"));
    ground.stay();
}

#[test]
fn no_more_of_a_client_is_mapped_at_once_than_allowed() {
    let options = ServeOptions { mapped: 128 << 20, ..ServeOptions::default() };
    let (scene, attacker) = attack!(touches_more_than_allowed, options);
    for expected in ["refused", "dropped", "dropped", "ok", "refused"] {
        attacker.says_that(expected);
    }
    scene.goes_on();
    scene.survives(attacker);
}

/// An arena that goes while a request works in it, and one that comes, so that the server looks again.
fn withdraws_an_arena_in_use(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    let (_lifeline, held) = Socket::pair().expect("sockets");
    let arena = |number| {
        let len = 1 << 28;
        Message::Arena(ArenaPlace { number, granule: GranuleKind::Base, base: BASE + LEN, len })
    };
    raw.ask(&arena(1), &[held.as_fd()]).expect("an arena");
    let memory = object(1 << 20);
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::from(memory.duplicate().expect("a descriptor")),
        &[7; 1 << 20],
        0,
    )
    .expect("memory");
    let place = ObjectPlace { arena: 1, id: 1, start: 0, len: 1 << 20, writable: false };
    raw.ask(&Message::Object(place), &[memory.as_fd()]).expect("an object");
    raw.request((0, 0), KEEP_IT, Direction::Out, &[in_arena(1, 0, 1 << 20)]);
    ground.hear();
    raw.ask(&Message::WithdrawArena(1), &[]).expect("an acknowledgement");
    raw.ask(&arena(2), &[held.as_fd()]).expect("an arena");
    raw.request((1, 0), NULL.0 as u16, Direction::Out, &[]);
    ground.say(raw.reply().expect("a reply"));
    ground.stay();
}

#[test]
fn an_arena_withdrawn_in_the_middle_of_a_request_stays_until_the_request_is_over() {
    let (scene, mut attacker) = attack!(withdraws_an_arena_in_use);
    eventually("a request", || (scene.attacked().kept_count() == 1).then_some(()).ok_or("none".to_owned()));
    attacker.tell("withdraw it");
    attacker.says_that("ok");
    // Without it, this would be the end of the process.
    assert_eq!(scene.attacked().look(0), vec![7; 1 << 20]);
    scene.survives(attacker);
}

/// The same with an object, of a server that maps only for the time of a request.
fn withdraws_an_object_in_use(ground: &mut Ground) {
    let mut raw = Raw::greet(ground);
    raw.announce(1, 0, 1 << 20, false, object(1 << 20).as_fd()).expect("an object");
    raw.request((0, 0), KEEP_IT, Direction::Out, &[at(0, 1 << 20)]);
    ground.hear();
    let withdrawn = raw.ask(&Message::Withdraw(1), &[]);
    ground.say(withdrawn.err().unwrap_or_else(|| "gone".to_owned()));
    ground.stay();
}

#[test]
fn an_object_withdrawn_in_the_middle_of_a_request_ends_the_channel_of_a_transient_mirror() {
    let options = ServeOptions { mapping: Mapping::Transient, ..ServeOptions::default() };
    let (scene, mut attacker) = attack!(withdraws_an_object_in_use, options);
    eventually("a request", || (scene.attacked().kept_count() == 1).then_some(()).ok_or("none".to_owned()));
    attacker.tell("withdraw it");
    let refused = attacker.says();
    assert!(refused.contains("being served"), "{refused}");
    scene.survives(attacker);
}

/// Holes in a huge-paged object, whose pages then are not to be had again: a touch would be SIGBUS.
fn punches_holes(ground: &mut Ground) {
    let Ok(memory) = Object::create(GranuleKind::Huge, 4 << 20) else {
        ground.say("no huge pages");
        ground.stay();
    };
    let huge = Hello { granule: GranuleKind::Huge, ..hello() };
    let mut raw = Raw::greet_as(ground, &huge).expect("a welcome");
    raw.announce(1, 0, 4 << 20, true, memory.as_fd()).expect("an object");
    raw.request((0, 0), KEEP_IT, Direction::Out, &[at(0, 4 << 20)]);
    ground.say("kept");
    ground.hear();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let file = memory.duplicate().expect("a descriptor");
    rustix::fs::fallocate(&file, hole, 0, 4 << 20).expect("a hole");
    // All the others, for a moment, where no other test needs them.
    let free = genie_sys::inspect::huge_pages().expect("/proc is mounted");
    let may_hog = std::env::var_os(HOG).is_some();
    let most = if may_hog { free.free.saturating_sub(free.reserved) } else { 0 };
    let hog = (0..most).map_while(|_| Object::create(GranuleKind::Huge, 2 << 20).ok()).collect::<Vec<_>>();
    ground.say("gone");
    ground.hear();
    drop(hog);
    raw.request((1, 0), NULL.0 as u16, Direction::Out, &[]);
    ground.say(raw.farewell());
    ground.stay();
}

#[test]
fn a_hole_in_an_object_ends_its_channel_and_no_other() {
    const TEST: &str = "a_hole_in_an_object_ends_its_channel_and_no_other";
    let (scene, mut attacker) = attack!(punches_holes);
    match attacker.says() {
        said if said == "kept" => {}
        said => return skip(TEST, &said),
    }
    eventually("a request", || (scene.attacked().kept_count() == 1).then_some(()).ok_or("none".to_owned()));
    attacker.tell("punch");
    attacker.says_that("gone");
    // Zeros, whether the kernel had pages for the holes or the guard mapped them.
    assert!(scene.attacked().look(0).iter().all(|byte| *byte == 0));
    attacker.tell("go on");
    scene.goes_on();
    if std::env::var_os(HOG).is_some() {
        let why = attacker.says();
        assert!(why.contains("took memory away"), "{why}");
    } else {
        skip(TEST, &format!("the kernel has other huge pages for the holes; {HOG}=1 has the test take them"));
    }
    scene.survives(attacker);
}

/// Files that must not be closed, as an object, as a lifeline, and with nonsense.
fn sends_files_that_do_not_answer(ground: &mut Ground) {
    let file = std::fs::File::open(place(ground)).expect("a file");
    let raw = Raw::greet(ground);
    ground.say("opened");
    ground.hear();
    let object = ObjectPlace { arena: 0, id: 1, start: 0, len: PAGE, writable: false };
    assert!(raw.tell(&Message::Object(object), &[file.as_fd()]));
    ground.say(raw.farewell());
    let greeting = connection(ground);
    let bytes = Message::Hello(hello()).encode().expect("a hello");
    greeting.send(&bytes, &[file.as_fd()]).expect("a connection");
    let other = connection(ground);
    other.send(b"nothing", &[file.as_fd(); 16]).expect("a connection");
    ground.say(farewell(&greeting));
    ground.say(farewell(&other));
    ground.stay();
}

#[test]
fn a_file_system_that_does_not_answer_holds_up_nobody() {
    const TEST: &str = "a_file_system_that_does_not_answer_holds_up_nobody";
    let scene = Scene::open();
    let file_system = Attacker::start(&scene.directory, fuse::ROLES[0].0);
    let said = file_system.says();
    if said != "mounted" {
        return skip(TEST, &said);
    }
    let mut attacker = attacker!(&scene.directory, sends_files_that_do_not_answer);
    attacker.says_that("opened");
    // Dropped before the attacker: a process that has the file open ends with the file system only.
    let mut file_system = file_system;
    file_system.tell("be silent");
    file_system.says_that("silent");
    attacker.tell("send it");
    for _ in 0..3 {
        attacker.says_that("it sent a descriptor that is neither memory nor a socket");
        scene.goes_on();
    }
    // 18 files wait to be closed. The thread of an earlier test may be about to end.
    eventually("one thread closes them", || match threads("genie-closer") {
        closers if closers.len() == 1 => Ok(()),
        closers => Err(format!("{closers:?}")),
    });
    file_system.kill();
    scene.survives(attacker);
}
