//! Attacks on what a server has kept: a client stores into all memory that it has, looks through it, and asks for memory that the
//! server has used before; and so does another server to which the client has shown memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use genie_channel::{Connect, ConnectOptions};
use genie_io::servers::memory::{NULL, SINK, SOURCE};
use genie_io::{In, Kept, Out, ServerHandle};
use genie_memory::Buffer;
use genie_passing::Scheme;
use genie_passing::model::Allocation;

use crate::attacked::{AttackedServer, OWN};
use crate::attacker::Ground;
use crate::scene::{HONEST, Scene, connect, interface};
use crate::shown::{LOOKER, looks};
use crate::support::bytes::{pattern, same};
use crate::support::machine::mappings_of;
use crate::{attack, attacker, roles};

roles! { takes_what_it_can, shows_all }

const LEN: usize = 300_000;
/// What the server stores into what it has kept.
const SECRET: &[u8; 16] = b"keep this secret";

/// A genuine client, until it has passed what it has.
fn takes_what_it_can(ground: &mut Ground) {
    let untrusted = ground.hear() == "untrusted";
    let interface = interface();
    let options = ConnectOptions { untrusted, ..ConnectOptions::default() };
    let handle = interface.connect_with(&ground.directory, HONEST, &options).expect("a connection");
    for scheme in Scheme::ALL {
        let bytes = pattern(1, LEN);
        let element = match scheme.allocation() {
            Allocation::Native => {
                let mut buffer = interface.allocate(LEN).expect("memory");
                buffer.copy_from_slice(&bytes);
                Out::owned(scheme, buffer)
            }
            Allocation::Migrant => {
                let is_strong = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
                let mut region = interface.allocate_migrant(LEN, is_strong).expect("memory");
                region.copy_from_slice(&bytes);
                Out::migrant(scheme, region)
            }
        };
        interface.request(&handle, OWN).out(element).send().map(drop).expect("a reply");
    }
    ground.say("passed");
    // Memory in which the server has had something before.
    ground.hear();
    let mut found = 0;
    for len in [LEN, LEN, 4096, 100_000, 2 * LEN, LEN] {
        let mut room = vec![0; len];
        interface.request(&handle, NULL).input(In::copy(&mut room)).send().expect("a reply");
        found += count(&room);
    }
    let own = each_object(|_, _, bytes| count_of(bytes, &pattern(1, LEN)[..16]));
    ground.say(if untrusted || own > 0 {
        found + each_object(|_, _, bytes| count(bytes))
    } else {
        usize::MAX
    });
    // The channel does not survive this.
    ground.hear();
    ground.say(
        each_object(|memory, at, bytes| usize::from(memory.write_at(&vec![0xee; bytes.len()], at).is_ok()))
            > 0,
    );
    ground.stay();
}

fn count(bytes: &[u8]) -> usize {
    count_of(bytes, SECRET)
}

fn count_of(bytes: &[u8], found: &[u8]) -> usize {
    bytes.windows(found.len()).filter(|window| *window == found).count()
}

/// Calls `act` with each page or so of this process's mappings of memory objects that it can store into; adds up what it returns.
fn each_object(act: impl Fn(&File, u64, &[u8]) -> usize) -> usize {
    let memory = File::options().read(true).write(true).open("/proc/self/mem").expect("/proc is mounted");
    let mut sum = 0;
    for mapping in mappings_of(std::process::id()) {
        if mapping.object.is_none() || !mapping.permissions.starts_with("rw") {
            continue;
        }
        let mut bytes = vec![0; 1 << 20];
        let mut at = mapping.start;
        while at < mapping.end {
            let here = bytes.len().min(mapping.end - at);
            if let Ok(len @ 1..) = memory.read_at(&mut bytes[..here], at as u64) {
                sum += act(&memory, at as u64, &bytes[..len]);
            }
            at += here;
        }
    }
    sum
}

fn check(kept: &[Kept], marked: usize) {
    for kept in kept {
        assert!(
            kept[..marked].chunks_exact(SECRET.len()).all(|chunk| chunk == SECRET),
            "what the server stored"
        );
        same(&kept[marked..], &pattern(1, LEN)[marked..], "what the client passed");
    }
}

fn mark(kept: &mut [Kept], marked: usize) {
    kept.iter_mut()
        .flat_map(|kept| kept[..marked].chunks_exact_mut(SECRET.len()))
        .for_each(|chunk| chunk.copy_from_slice(SECRET));
}

#[test]
fn a_client_can_change_nothing_that_its_server_has_kept_nor_see_what_becomes_of_it() {
    for trust in ["mapped", "untrusted"] {
        let (scene, mut attacker) = attack!(takes_what_it_can);
        attacker.tell(trust);
        attacker.says_that("passed");
        let mut kept = scene.attacked().own();
        assert_eq!(kept.len(), Scheme::ALL.len(), "{trust}");
        check(&kept, 0);
        mark(&mut kept, LEN / 2 / SECRET.len() * SECRET.len());
        kept.truncate(Scheme::ALL.len() / 2);
        attacker.tell("look");
        attacker.says_that("0");
        attacker.tell("store");
        attacker.says_that("true");
        check(&kept, LEN / 2 / SECRET.len() * SECRET.len());
        attacker.kill();
        check(&kept, LEN / 2 / SECRET.len() * SECRET.len());
        drop(kept);
        scene.is_unharmed();
    }
}

/// A server in another process that stores into all that it was ever shown.
fn shows_all(ground: &mut Ground) {
    looks(ground);
}

/// A server in the client's own process keeps what lies in objects that its client has shown to a hostile one, to be filled.
#[test]
fn no_other_server_of_a_client_can_change_what_is_kept() {
    let scene = Scene::open();
    let mut attacker = attacker!(&scene.directory, shows_all);
    attacker.tell(&format!("{} {}", 1 << 20, 1 << 20));
    attacker.says_that("listening");
    let interface = interface();
    let hostile = connect(&interface, &scene.directory, LOOKER).expect("a connection");
    let keeper = AttackedServer::default();
    let here = ServerHandle::new(keeper.clone());
    let canary = || Vec::from_iter(b"the canary sings".iter().copied().cycle().take(LEN));
    let native = || -> Buffer {
        let mut buffer = interface.allocate(LEN).expect("memory");
        buffer.copy_from_slice(&canary());
        buffer
    };
    // The hostile server is shown all objects, to be stored into.
    for _ in 0..3 {
        let shared = In::owned(Scheme::EmulatedShare, native());
        interface.request(&hostile, SOURCE).input(shared).argument(b"x").send().expect("a reply");
        interface.request(&hostile, SINK).out(Out::copy(&native())).send().expect("a reply");
        for scheme in Scheme::ALL {
            let element = match scheme.allocation() {
                Allocation::Native => Out::owned(scheme, native()),
                Allocation::Migrant => {
                    let is_strong = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
                    let mut region = interface.allocate_migrant(LEN, is_strong).expect("memory");
                    region.copy_from_slice(&canary());
                    Out::migrant(scheme, region)
                }
            };
            interface.request(&here, OWN).out(element).send().map(drop).expect("a reply");
        }
    }
    attacker.tell("look");
    let said = attacker.says();
    let spoilt: usize = said.split(' ').nth(1).and_then(|count| count.parse().ok()).expect("three counts");
    assert!(spoilt > 0, "it has stored into something: {said}");
    for kept in keeper.own() {
        same(&kept, &canary(), "what is kept");
    }

    drop((hostile, here, interface));
    scene.survives(attacker);
}
