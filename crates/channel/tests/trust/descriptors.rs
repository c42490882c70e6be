//! Descriptors and guards: how many one client or user may take, and which process an error names when none are left.

use std::fs::{File, Permissions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::wire::control::{ArenaPlace, Message};
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory::{Memory, STORE};
use genie_io::{Error, Out};
use genie_sys::GranuleKind;
use genie_sys::socket::Socket;
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};

use crate::attacker::Ground;
use crate::client::{BASE, Raw, connection, heard, hello, object};
use crate::scene::{HONEST, Scene, connect, interface, store_and_fetch};
use crate::support::machine::skip;
use crate::{attacker, roles};

/// The server that has few descriptors.
const SMALL: &str = "small";
const PAGE: u64 = 4096;
/// A user that is nobody's.
const OTHER_USER: u32 = 65_534;

roles! {
    serves_with_few, begins_with_few, serves_with_a_thousand, connects_with_few, takes_its_share_of_arenas, takes_all_arenas,
    takes_all_there_is,
}

fn limit(most: usize) {
    let most = Some(most as u64);
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("a lower limit");
}

/// Sets the limit, which may be raised again.
fn allow(most: usize) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most as u64), maximum }).expect("a limit");
}

/// Serves, with as many descriptors left as the test says.
fn serves_with_few(ground: &mut Ground) {
    let options = ServeOptions { pool: 1 << 20, ..ServeOptions::default() };
    let serving = Listener::bind_in(&ground.directory, SMALL, Memory::customized(), options).expect("a name");
    let _running = serving.start().expect("threads");
    limit(64);
    ground.say("serving");
    let mut taken = Vec::new();
    loop {
        let left: usize = ground.hear().parse().expect("a number");
        taken.clear();
        // A connection that was just refused is closed a moment later.
        loop {
            taken.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            std::thread::sleep(Duration::from_millis(20));
            match File::open("/dev/null") {
                Ok(file) => taken.push(file),
                Err(_) => break,
            }
        }
        taken.truncate(taken.len() - left);
        ground.say("taken");
    }
}

#[test]
fn a_server_without_descriptors_blames_its_own_limit_and_ends_no_other_channel() {
    let scene = Scene::open();
    let mut server = attacker!(&scene.directory, serves_with_few);
    server.says_that("serving");
    let process = format!("process {}", server.pid());
    let blames_itself = |error: &Error| {
        let error = error.to_string();
        assert!(error.contains("ulimit -n") && error.contains(&process), "{error}");
    };
    let (steady, growing) = (interface(), interface());
    let kept = in_turn(|| connect(&steady, &scene.directory, SMALL));
    store_and_fetch(&steady, &kept, 1);
    let lost = in_turn(|| connect(&growing, &scene.directory, SMALL));
    server.tell("1");
    server.says_that("taken");
    let refused = connect(&interface(), &scene.directory, SMALL).expect_err("no descriptor for a lifeline");
    blames_itself(&refused);
    server.tell("0");
    server.says_that("taken");
    let buffer = growing.allocate(300_000).expect("memory");
    let request = growing.request(&lost, STORE).out(Out::emulated_copy(&buffer)).argument(b"name");
    blames_itself(&request.send().expect_err("no descriptor for an object").error);
    store_and_fetch(&steady, &kept, 2);
    server.tell("20");
    server.says_that("taken");
    store_and_fetch(&growing, &in_turn(|| connect(&growing, &scene.directory, SMALL)), 3);
    drop((kept, lost, buffer, steady, growing));
    scene.survives(server);
}

/// Connects with fewer descriptors than a welcome brings, and with one more each time.
fn connects_with_few(ground: &mut Ground) {
    let interface = interface();
    let lowest = File::open("/dev/null").expect("a file").as_raw_fd() as usize;
    for more in 0..40 {
        allow(lowest + more);
        match interface.connect_with(&ground.directory, HONEST, &ConnectOptions::default()) {
            Ok(_) => break,
            Err(error) => ground.say(error),
        }
    }
    ground.say("connected");
    ground.stay();
}

/// A client with RLIMIT_NOFILE 64 was told that the server sent too much.
#[test]
fn a_client_without_descriptors_blames_its_own_limit() {
    let scene = Scene::open();
    let client = attacker!(&scene.directory, connects_with_few);
    let mut refusals = 0;
    loop {
        let said = client.says();
        if said == "connected" {
            break;
        }
        refusals += 1;
        assert!(said.contains("ulimit -n") && !said.contains("sent more"), "{said}");
    }
    assert!(refusals > 3, "{refusals} refusals");
    scene.survives(client);
}

/// Begins to serve with fewer descriptors than that takes, and with one more each time.
fn begins_with_few(ground: &mut Ground) {
    let lowest = File::open("/dev/null").expect("a file").as_raw_fd() as usize;
    for more in 0..60 {
        allow(lowest + more);
        let options = ServeOptions { pool: 1 << 20, ..ServeOptions::default() };
        let listener = Listener::bind_in(&ground.directory, SMALL, Memory::customized(), options);
        match listener.and_then(|listener| listener.start()) {
            Ok(_) => break,
            Err(error) => ground.say(format!("errno {}: {error}", error.errno())),
        }
    }
    ground.say("serving");
    ground.stay();
}

/// Once, where the lock file could not be opened, the directory's permissions were blamed.
#[test]
fn a_server_that_cannot_begin_for_lack_of_descriptors_blames_its_own_limit() {
    let scene = Scene::open();
    let server = attacker!(&scene.directory, begins_with_few);
    let refusals: Vec<_> =
        std::iter::from_fn(|| Some(server.says()).filter(|said| said != "serving")).collect();
    for refusal in &refusals {
        assert!(refusal.starts_with("errno 24: ") && refusal.contains("ulimit -n"), "{refusal}");
    }
    assert!(refusals.iter().any(|refusal| refusal.contains("small.lock")), "{refusals:?}");
    scene.survives(server);
}

/// Serves as a process with the usual limit.
fn serves_with_a_thousand(ground: &mut Ground) {
    limit(1024);
    let options = ServeOptions { pool: 1 << 20, ..ServeOptions::default() };
    let serving = Listener::bind_in(&ground.directory, SMALL, Memory::customized(), options).expect("a name");
    let _running = serving.start().expect("threads");
    ground.say("serving");
    ground.stay();
}

/// Holds as much as it gets of something, `most` for each of its connections: where a client is refused, which ends its channel,
/// the next one takes less. Returns what it was refused for.
fn hoard(
    ground: &Ground,
    held: &mut Vec<Raw>,
    most: u64,
    announce: impl Fn(&Raw, u64) -> Result<(), String>,
) -> Vec<String> {
    let (mut most, mut reasons) = (most, Vec::new());
    while most > 0 {
        let raw = match Raw::greet_as(ground, &hello()) {
            Ok(raw) => raw,
            Err(refused) => return [reasons, vec![refused]].concat(),
        };
        match (0..most).find_map(|number| announce(&raw, number).err().map(|why| (number, why))) {
            None => held.push(raw),
            Some((number, why)) => {
                most = number;
                reasons.push(why);
            }
        }
    }
    reasons
}

fn hoard_arenas(ground: &Ground, held: &mut Vec<Raw>) -> Vec<String> {
    let (_lifeline, end) = Socket::pair().expect("sockets");
    hoard(ground, held, 127, |raw, number| announce_arena(raw, number, &end))
}

/// Announces an arena; the first one has the number 0.
fn announce_arena(raw: &Raw, number: u64, lifeline: &Socket) -> Result<(), String> {
    // The client's own arena is announced by its hello, as number 0.
    let (number, granule) = (number as u16 + 1, GranuleKind::Base);
    let place = ArenaPlace { number, granule, base: BASE, len: 1 << 21 };
    raw.ask(&Message::Arena(place), &[lifeline.as_fd()])
}

/// Becomes a client of a server with few descriptors. The kernel counts what all of a user's processes have sent and not
/// received yet against the server's limit, so that others can keep it from sending its welcome for a moment.
#[track_caller]
fn in_turn<T, E: std::fmt::Display>(greet: impl Fn() -> Result<T, E>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match greet() {
            Ok(client) => return client,
            Err(refused) => {
                let refused = refused.to_string();
                let is_for_others = refused.contains("descriptors sent before are received");
                assert!(is_for_others && Instant::now() < deadline, "{refused}");
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Arenas until one is refused, with the server that has few descriptors.
fn takes_its_share_of_arenas(ground: &mut Ground) {
    ground.server = SMALL;
    let (_lifeline, end) = Socket::pair().expect("sockets");
    let raw = in_turn(|| Raw::greet_as(ground, &hello()));
    let refused = (0..).find_map(|number| announce_arena(&raw, number, &end).err().map(|why| (number, why)));
    let (announced, why) = refused.expect("no server takes all");
    ground.say(announced);
    ground.say(why);
    ground.stay();
}

/// Arenas by the thousand, with the server that the test names.
fn takes_all_arenas(ground: &mut Ground) {
    ground.server = if ground.hear() == SMALL { SMALL } else { HONEST };
    let mut held = Vec::new();
    let reasons = hoard_arenas(ground, &mut held);
    ground.say(reasons.join("; "));
    ground.stay();
}

/// Arenas, objects and connections, as another user.
fn takes_all_there_is(ground: &mut Ground) {
    ground.server = SMALL;
    let other = Uid::from_raw(OTHER_USER);
    if rustix::thread::set_thread_res_uid(None, other, None).is_err() {
        ground.say("not permitted");
        ground.stay();
    }
    let mut held = Vec::new();
    let mut reasons = hoard_arenas(ground, &mut held);
    let memory = object(PAGE as usize);
    reasons.extend(hoard(ground, &mut held, 1000, |raw, number| {
        raw.announce(number + 1, number * PAGE, PAGE, false, memory.as_fd())
    }));
    let silent: Vec<Socket> = (0..20).map(|_| connection(ground)).collect();
    loop {
        match Raw::greet_as(ground, &hello()) {
            Ok(raw) => held.push(raw),
            Err(refused) => break reasons.push(refused),
        }
    }
    ground.say(reasons.join("; "));
    ground.hear();
    drop(silent);
    ground.stay();
}

/// Whether a server that is asked how it is says so.
#[track_caller]
fn answers(directory: &Directory, server: &str) {
    let socket = Socket::connect(&directory.socket_path(server).expect("a name")).expect("a connection");
    socket.send(&Message::Query(()).encode().expect("a question"), &[]).expect("a question");
    assert!(matches!(heard(&socket), Some((Message::Status(_), _))));
}

/// Others connect to a server, and are served.
#[track_caller]
fn serves_others(scene: &Scene, server: &str) {
    for seed in 0..4 {
        answers(&scene.directory, server);
        let interface = interface();
        let handle = connect(&interface, &scene.directory, server).expect("a connection");
        store_and_fetch(&interface, &handle, seed);
    }
}

/// Of 64 descriptors, 16 are for arenas; one client may take half of what others leave.
#[test]
fn a_clients_own_arena_does_not_count_towards_its_share() {
    let scene = Scene::open();
    let small = attacker!(&scene.directory, serves_with_few);
    small.says_that("serving");
    let client = attacker!(&scene.directory, takes_its_share_of_arenas);
    client.says_that("8");
    let why = client.says();
    assert!(why.starts_with("8 arenas are announced here, 8 of them by this client"), "{why}");
    client.kill();
    small.kill();
    scene.is_unharmed();
}

/// 8 connections with 127 announced arenas each took all guards of a process, and 986 arenas took all of its descriptors, so
/// that the server did not even tell its status.
#[test]
fn clients_that_take_all_arenas_keep_nobody_out() {
    let scene = Scene::open();
    let small = attacker!(&scene.directory, serves_with_a_thousand);
    small.says_that("serving");
    for server in [SMALL, HONEST] {
        let mut attacker = attacker!(&scene.directory, takes_all_arenas);
        attacker.tell(server);
        let reasons = attacker.says();
        assert!(reasons.contains("arenas are announced here, 0 of them by this client"), "{reasons}");
        // Where its descriptors are what there is too little of, the server says so.
        let is_remedied =
            reasons.contains("by this client; raise the server's limit on open files: `ulimit -n`");
        assert!(is_remedied || server != SMALL, "{reasons}");
        serves_others(&scene, server);
        attacker.kill();
    }
    small.kill();
    scene.is_unharmed();
}

#[test]
fn a_user_that_takes_all_there_is_keeps_no_other_one_out() {
    let scene = Scene::open();
    let small = attacker!(&scene.directory, serves_with_a_thousand);
    small.says_that("serving");
    // Any user may connect.
    let socket = scene.directory.socket_path(SMALL).expect("a name");
    let run = scene.directory.path();
    for (path, mode) in [(run.parent().expect("a directory"), 0o755), (run, 0o755), (&socket, 0o777)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of this user's");
    }
    let attacker = attacker!(&scene.directory, takes_all_there_is);
    let reasons = attacker.says();
    if reasons == "not permitted" {
        skip("a_user_that_takes_all_there_is_keeps_no_other_one_out", "it can't act as another user");
    } else {
        for what in ["arenas", "objects", "clients"] {
            assert!(reasons.contains(&format!("{what} are here,")), "{what}: {reasons}");
        }
        serves_others(&scene, SMALL);
    }
    attacker.kill();
    small.kill();
    scene.is_unharmed();
}
