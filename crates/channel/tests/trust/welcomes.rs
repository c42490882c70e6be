//! Attacks by what a server sends over the control socket: its welcome, its pool, and what nobody asked for.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use genie_channel::Counts;
use genie_channel::Layout;
use genie_channel::wire::control::{Ending, Limits, Message, Reason, Status, Traffic, Welcome};
use genie_channel::{Connect, ConnectOptions};
use genie_io::servers::memory::STORE;
use genie_io::{Error, Out};
use genie_sys::{GranuleKind, Object};
use rustix::fs::MemfdFlags;

use crate::attacker::Ground;
use crate::records::Random;
use crate::scene::{Scene, connect, eventually};
use crate::server::{Hostile, NAME, honest_welcome};
use crate::{hostile_server, roles};

roles! { welcomes_wrongly, is_absurd, lends_what_is_no_memory, talks, answers_unasked }

/// What nobody has asked for.
const LIMITS: Limits = Limits { pending_bytes: 1, pending_requests: 1 };

/// A way to spoil a welcome.
type Spoil = (&'static str, fn(&mut Welcome));

const WRONG: &[Spoil] = &[
    ("no requests", |welcome| welcome.limits.pending_requests = 0),
    ("rings of no lines", |welcome| welcome.rings.lines = 0),
    ("rings of three lines", |welcome| welcome.rings.lines = 3),
    ("rings longer than their object", |welcome| welcome.rings.lines *= 2),
    ("vast rings", |welcome| welcome.rings = Layout { lines: 1 << 20, area: 1 << 30 }),
    ("impossible rings", |welcome| welcome.rings = Layout { lines: u32::MAX, area: u32::MAX }),
];

fn welcomes_wrongly(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    for (_, spoil) in WRONG {
        server.welcome(spoil);
        server.say_whether_left(ground);
    }
    // No welcome at all.
    let mut random = Random::new(9);
    for round in 0..8 {
        server.accept();
        match round {
            0 | 1 => server.say(&Message::Limits(LIMITS)),
            2 => server.say(&Message::Refused(Ending { reason: Reason::Busy, sentence: "no".repeat(500) })),
            3 => drop(server.socket().send(&[0; 3], &[])),
            4 => drop(server.socket().send(&random.bytes(100_000), &[])),
            5 => drop(
                server.socket().send(&Message::Welcome(honest_welcome()).encode().expect("a welcome"), &[]),
            ),
            6 => server.leave(),
            _ => drop(server.socket().send(&random.bytes(900), &[])),
        }
        ground.say(if server.socket.is_none() || server.is_left() { "left" } else { "stayed" });
    }
    ground.stay();
}

#[test]
fn a_wrong_welcome_makes_no_channel() {
    let (scene, attacker) = hostile_server!(welcomes_wrongly);
    for round in 0..WRONG.len() + 8 {
        let what = WRONG.get(round).map_or("no welcome", |(what, _)| what);
        let refused = connect(scene.interface(), &scene.directory, NAME);
        assert!(refused.is_err(), "{what}, round {round}");
        attacker.says_that("left");
    }
    scene.goes_on();
    scene.survives(attacker);
}

/// Limits as large as can be said, at once and later.
fn is_absurd(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    let most = Limits { pending_bytes: u64::MAX, pending_requests: u32::MAX };
    server.welcome(|welcome| {
        (welcome.limits, welcome.abort_timeout) = (most, Duration::from_millis(u32::MAX.into()))
    });
    while server.request() {
        let slot = server.slot;
        server.succeed(slot, &[]);
    }
    server.leave();
    ground.stay();
}

#[test]
fn absurd_limits_are_cut() {
    let (scene, attacker) = hostile_server!(is_absurd);
    let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let buffer = scene.interface().allocate(10_000).expect("memory");
    for _ in 0..3 {
        let request = scene.interface().request(&handle, STORE).out(Out::emulated_copy(&buffer));
        request.send().expect("a reply");
    }
    drop((handle, buffer));
    scene.survives(attacker);
}

/// Pools of what is no memory, not sealed, or vast.
fn lends_what_is_no_memory(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    let unsealed = || {
        let memory = rustix::fs::memfd_create("attack", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let memory = memory.expect("memory");
        rustix::fs::ftruncate(&memory, 1 << 20).expect("a length");
        memory
    };
    let sealed = |len| Object::create(GranuleKind::Base, len).expect("memory").duplicate().expect("one");
    let file = || OwnedFd::from(tempfile::tempfile().expect("a file"));
    let read_only =
        || Object::create(GranuleKind::Base, 1 << 20).expect("memory").read_only().expect("a descriptor");
    let pipe = || rustix::pipe::pipe().expect("a pipe").0;
    let honest = || (1 << 20, sealed(1 << 20));
    let pools: Vec<Vec<(u64, OwnedFd)>> = vec![
        vec![(1 << 20, unsealed())],
        vec![(1 << 20, file())],
        vec![(1 << 20, pipe())],
        vec![honest(), honest(), (1 << 20, unsealed())],
        vec![(1 << 20, sealed(2 << 20))],
        vec![honest(), (1 << 30, sealed(4096))],
        vec![(1 << 40, sealed(1 << 40))],
        vec![(1 << 20, sealed(1 << 40))],
        vec![honest(), (1 << 20, read_only())],
    ];
    for pool in pools {
        server.accept();
        let welcome = Welcome { pool: pool.iter().map(|(len, _)| *len).collect(), ..honest_welcome() };
        let descriptors: Vec<_> = pool.iter().map(|(_, object)| object.as_fd()).collect();
        server.send_welcome(welcome, &descriptors);
        server.say_whether_left(ground);
    }
    ground.say("over");
    ground.stay();
}

#[test]
fn a_pool_that_is_no_memory_is_refused_and_nothing_of_it_stays() {
    let (scene, attacker) = hostile_server!(lends_what_is_no_memory);
    for round in 0.. {
        if round == 9 {
            attacker.says_that("over");
            break;
        }
        let refused = connect(scene.interface(), &scene.directory, NAME);
        assert!(refused.is_err(), "pool {round} was taken");
        attacker.says_that("left");
    }
    scene.survives(attacker);
}

/// Something on the control socket in the middle of a channel.
type Talk = (&'static str, fn(&Hostile));

const TALK: &[Talk] = &[
    ("garbage", |server| drop(server.socket().send(&Random::new(3).bytes(500), &[]))),
    ("too much", |server| drop(server.socket().send(&Random::new(4).bytes(100_000), &[]))),
    ("another welcome", |server| {
        let bytes = Message::Welcome(honest_welcome()).encode().expect("a welcome");
        let device = std::fs::File::open("/dev/null").expect("a device");
        let _ = server.socket().send(&bytes, &[device.as_fd(), device.as_fd()]);
    }),
    ("its status", |server| {
        let (name, clients, services) = (NAME.to_owned(), Vec::new(), Vec::new());
        let uptime = Duration::ZERO;
        server.say(&Message::Status(Status {
            name,
            instance: 1,
            pid: 1,
            uptime,
            services,
            clients_total: 0,
            clients,
        }));
    }),
    ("its traffic", |server| {
        server.say(&Message::Traffic(Traffic { departed: Counts::default(), clients: Vec::new() }));
    }),
    ("many descriptors", |server| {
        let bytes = Message::Limits(LIMITS).encode().expect("a message");
        let device = std::fs::File::open("/dev/null").expect("a device");
        let _ = server.socket().send(&bytes, &[device.as_fd(); 16]);
    }),
    ("goodbye", |server| {
        server.say(&Message::Goodbye(Ending {
            reason: Reason::Malformed,
            sentence: "\u{1b}[31mbye".to_owned(),
        }));
    }),
];

fn talks(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    for (_, say) in TALK {
        server.welcome(|_| {});
        assert!(server.request(), "a request");
        say(&server);
        server.say_whether_left(ground);
    }
    ground.stay();
}

#[test]
fn nonsense_on_the_control_socket_ends_the_channel_and_the_request() {
    let (scene, attacker) = hostile_server!(talks);
    for (what, _) in TALK {
        let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
        let buffer = scene.interface().allocate(10_000).expect("memory");
        let request = scene.interface().request(&handle, STORE).out(Out::emulated_copy(&buffer));
        let error = request.send().expect_err(what).error;
        assert!(matches!(error, Error::Gone { .. }), "{what}: {error}");
        attacker.says_that("left");
        drop(handle);
        scene.goes_on();
    }
    scene.survives(attacker);
}

/// Answers without questions, by the thousand.
fn answers_unasked(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    for _ in 0..100_000 {
        if server.socket().send(&Message::Limits(LIMITS).encode().expect("a message"), &[]).is_err() {
            break;
        }
    }
    server.say_whether_left(ground);
    for message in [Message::Layout(None), Message::LayoutsChanged(())] {
        server.welcome(|_| {});
        server.say(&message);
        server.say_whether_left(ground);
    }
    // An answer that changes twice.
    server.welcome(|_| {});
    let wanted = server.hear(Duration::from_secs(20));
    assert!(matches!(wanted, Some((Message::LayoutWanted(_), _))), "{wanted:?}");
    for message in [Message::Layout(None), Message::LayoutsChanged(()), Message::LayoutsChanged(())] {
        server.say(&message);
    }
    server.say_whether_left(ground);
    // A pool that nobody wanted.
    server.welcome(|_| {});
    let object = Object::create(GranuleKind::Base, 1 << 20).expect("memory");
    let pool = Message::Pool(vec![1 << 20]).encode().expect("a message");
    let _ = server.socket().send(&pool, &[object.as_fd()]);
    server.say_whether_left(ground);
    ground.stay();
}

#[test]
fn unasked_answers_end_the_channel() {
    let (scene, attacker) = hostile_server!(answers_unasked);
    for round in 0..5 {
        let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
        if round == 3 {
            // The channel may have ended before the answer is seen.
            let _ = scene.interface().preferred(&handle, STORE, &[]);
        }
        attacker.says_that("left");
        eventually("the channel's end", || {
            let request = scene.interface().request(&handle, STORE).out(Out::copy(b"anything"));
            let error =
                request.timeout(Duration::from_secs(5)).send().err().ok_or("a reply")?.error.to_string();
            error.contains("not asked for").then_some(()).ok_or(error)
        });
    }
    scene.survives(attacker);
}

#[test]
fn a_client_says_how_much_it_is_lent() {
    let scene = Scene::open();
    let options = ConnectOptions { lent: 1 << 20, ..ConnectOptions::default() };
    let refused = scene.interface().connect_with(&scene.directory, crate::scene::HONEST, &options);
    let error = refused.expect_err("more is lent").to_string();
    assert!(error.contains("the client allows 1048576"), "{error}");
    scene.is_unharmed();
}
