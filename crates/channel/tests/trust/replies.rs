//! Attacks by a server's records: replies to nothing, twice, too large, and garbage.

use std::os::unix::fs::FileExt;

use genie_channel::wire::record::{Body, Kind, Outcome, RequestWriter, Slot};
use genie_io::servers::memory::{FETCH, STORE};
use genie_io::{Error, In, Out};

use crate::attacker::Ground;
use crate::records::Random;
use crate::scene::connect;
use crate::server::{Hostile, NAME};
use crate::support::bytes::{pattern, same};
use crate::{hostile_server, roles};

roles! { replies_wrongly, carries_wrongly, replies_twice, dies_half_way, tells_without_end, scribbles }

/// One wrong reply to a request of 10,000 bytes with room for 16.
type Wrong = (&'static str, fn(&mut Hostile, Slot));

const WRONG: &[Wrong] = &[
    ("a place that is vacant", |server, slot| server.succeed(Slot { index: slot.index ^ 1, ..slot }, &[])),
    ("a place that there is not", |server, slot| server.succeed(Slot { index: u32::MAX, ..slot }, &[])),
    ("a request that was before", |server, slot| {
        server.succeed(Slot { generation: slot.generation.wrapping_sub(1), ..slot }, &[]);
    }),
    ("more than there is room for", |server, slot| server.succeed(slot, &[10_001])),
    ("as much as can be said", |server, slot| server.succeed(slot, &[(1 << 48) - 1])),
    ("a longer argument", |server, slot| {
        server.reply(slot, Outcome::Ok { anticipated: false, argument: &[1; 17] }, &[10]);
    }),
    ("no room where there is some", |server, slot| {
        server.reply(slot, Outcome::ArgumentTooLong { len: 16 }, &[]);
    }),
    ("more buffers", |server, slot| server.succeed(slot, &[10, 10])),
    ("a hundred buffers", |server, slot| server.succeed(slot, &[0; 100])),
    ("done without anticipation", |server, slot| server.push_slot(Kind::Done, slot)),
    ("done with what never was", |server, _| {
        server.push_slot(Kind::Done, Slot { index: u32::MAX, generation: 7 });
    }),
    ("an abort", |server, slot| server.push_slot(Kind::Abort, slot)),
    ("a request", |server, slot| {
        let mut body = Body::new();
        RequestWriter::begin(&mut body, slot, 0, b"", 0).expect("a request");
        server.push(Kind::Request as u8, &body);
    }),
    ("half a reply", |server, _| server.push(Kind::Reply as u8, &[0; 7])),
    ("a kind that there is not", |server, _| server.push(200, &[0; 20])),
    ("an input that there is not", |server, slot| server.reply(slot, Outcome::Untold { buffer: 1 }, &[])),
    ("an output that it would have had to fill", |server, slot| {
        server.reply(slot, Outcome::Untold { buffer: 0 }, &[]);
    }),
    ("a reply that is long", |server, _| server.push(Kind::Reply as u8, &[255; 2000])),
    ("bytes that were not asked for", |server, slot| server.carry(slot, false, 10, 10)),
    ("progress beyond the buffer", |server, slot| server.progress(slot, 0, 10_001)),
    ("progress as far as can be said", |server, slot| server.progress(slot, 0, (1 << 48) - 1)),
    ("progress of no bytes", |server, slot| server.progress(slot, 0, 0)),
    ("progress of another buffer", |server, slot| server.progress(slot, 1, 10)),
    ("progress of the last buffer", |server, slot| server.progress(slot, u16::MAX, 10)),
    ("progress that stands", |server, slot| [7, 7].into_iter().for_each(|len| server.progress(slot, 0, len))),
    ("progress backwards", |server, slot| [7, 6].into_iter().for_each(|len| server.progress(slot, 0, len))),
    ("less than had come", |server, slot| {
        server.progress(slot, 0, 7);
        server.succeed(slot, &[6]);
    }),
    ("progress of what never was", |server, _| {
        server.progress(Slot { index: u32::MAX, generation: 7 }, 0, 7)
    }),
    ("progress of a request that was before", |server, slot| {
        server.progress(Slot { generation: slot.generation.wrapping_sub(1), ..slot }, 0, 7);
    }),
    ("progress after an anticipated reply", |server, slot| {
        server.reply(slot, Outcome::Ok { anticipated: true, argument: &[] }, &[]);
        server.progress(slot, 0, 7);
    }),
    ("half of progress", |server, _| server.push(Kind::Progress as u8, &[0; 8])),
];

/// Wrong replies to a request for 64 bytes, which the reply carries.
const WRONGLY_CARRIED: &[Wrong] = &[
    ("a byte more", |server, slot| server.carry(slot, false, 64, 65)),
    ("a byte less", |server, slot| server.carry(slot, false, 64, 63)),
    ("no bytes", |server, slot| server.carry(slot, false, 1, 0)),
    ("bytes of which none were passed", |server, slot| server.carry(slot, false, 0, 64)),
    ("more than there is room for", |server, slot| server.carry(slot, false, 65, 65)),
    ("bytes before the end", |server, slot| server.carry(slot, true, 64, 64)),
    ("another buffer", |server, slot| server.succeed(slot, &[0, 0])),
    ("another input that it would have had to fill", |server, slot| {
        server.reply(slot, Outcome::Untold { buffer: 1 }, &[]);
    }),
];

/// Gives one reply to each client that comes.
fn reply_each(ground: &mut Ground, replies: &[Wrong]) {
    let mut server = Hostile::listen(ground);
    for (_, reply) in replies {
        server.welcome(|_| {});
        assert!(server.request(), "a request");
        let slot = server.slot;
        reply(&mut server, slot);
        server.say_whether_left(ground);
    }
    ground.stay();
}

fn carries_wrongly(ground: &mut Ground) {
    reply_each(ground, WRONGLY_CARRIED);
}

#[test]
fn a_reply_that_carries_what_was_not_asked_for_ends_the_channel_and_the_request() {
    let (scene, attacker) = hostile_server!(carries_wrongly);
    for (what, _) in WRONGLY_CARRIED {
        let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
        let mut bytes = [3; 64];
        let request = scene.interface().request(&handle, FETCH).input(In::copy(&mut bytes));
        let error = request.send().expect_err(what).error;
        let is_told = matches!(&error, Error::Gone { server, .. } if server == NAME);
        let is_refused = matches!(&error, Error::Passing(_) | Error::NoSuchBuffer { .. });
        assert!(is_told || is_refused, "{what}: {error}");
        assert_eq!(bytes, [3; 64], "{what}");
        attacker.says_that("left");
        drop(handle);
        scene.goes_on();
    }
    scene.survives(attacker);
}

fn replies_wrongly(ground: &mut Ground) {
    reply_each(ground, WRONG);
}

#[test]
fn a_wrong_reply_ends_the_channel_and_the_request() {
    let (scene, attacker) = hostile_server!(replies_wrongly);
    for (number, (what, _)) in WRONG.iter().enumerate() {
        let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
        let mut buffer = scene.interface().allocate(10_000).expect("memory");
        let bytes = pattern(number as u64, buffer.len());
        buffer.copy_from_slice(&bytes);
        // Output and input alternate.
        let request = match number % 2 {
            0 => scene.interface().request(&handle, STORE).out(Out::emulated_copy(&buffer)).room(16).send(),
            _ => scene
                .interface()
                .request(&handle, FETCH)
                .input(In::emulated_copy(&mut buffer))
                .room(16)
                .send(),
        };
        let error = request.expect_err(what).error;
        let is_told = matches!(&error, Error::Gone { server, .. } if server == NAME);
        let is_unfit = matches!(
            &error,
            Error::ArgumentTooLong { .. }
                | Error::NoSuchBuffer { .. }
                | Error::Passing(_)
                | Error::Backwards { .. }
        );
        assert!(is_told || is_unfit, "{what}: {error}");
        same(&buffer, &bytes, what);
        attacker.says_that("left");
        drop(handle);
        scene.goes_on();
    }
    scene.survives(attacker);
}

/// The same reply once more, when the place is vacant and when another request has it.
fn replies_twice(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    let slot = server.slot;
    server.succeed(slot, &[]);
    assert!(server.request(), "another request");
    assert_eq!(server.slot.index, slot.index, "the place is used again");
    server.succeed(slot, &[]);
    server.say_whether_left(ground);
    // An anticipated reply, and the request's end twice.
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    let slot = server.slot;
    server.reply(slot, Outcome::Ok { anticipated: true, argument: &[] }, &[]);
    server.push_slot(Kind::Done, slot);
    server.push_slot(Kind::Done, slot);
    server.say_whether_left(ground);
    ground.stay();
}

#[test]
fn a_reply_that_is_replayed_does_not_hit_the_next_request() {
    let (scene, attacker) = hostile_server!(replies_twice);
    let connected = || connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let buffer = scene.interface().allocate(10_000).expect("memory");
    let handle = connected();
    let patience = std::time::Duration::from_secs(5);
    let store = || {
        let request = scene.interface().request(&handle, STORE).timeout(patience);
        request.out(Out::copy(b"some bytes")).send()
    };
    store().expect("an honest reply");
    let error = store().expect_err("a reply to the request before").error;
    assert!(error.to_string().contains("not pending"), "{error}");
    attacker.says_that("left");
    drop(handle);

    let handle = connected();
    let request = scene.interface().request(&handle, STORE).timeout(patience);
    request.out(Out::emulated_copy(&buffer)).send().expect("an anticipated reply");
    // The thread that takes replies finds the second one.
    let next = scene.interface().request(&handle, STORE).timeout(patience);
    let error = next.out(Out::copy(b"next")).send().expect_err("a channel that is over").error;
    assert!(error.to_string().contains("not anticipated"), "{error}");
    attacker.says_that("left");

    drop((handle, buffer));
    scene.survives(attacker);
}

/// Two of three thirds of an output and of an input are done, and it is gone; then it tells of a request that is over.
fn dies_half_way(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    for _ in 0..2 {
        server.welcome(|_| {});
        assert!(server.request(), "a request");
        [3_333, 6_666].into_iter().for_each(|len| server.progress(server.slot, 0, len));
        server.leave();
    }
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    let slot = server.slot;
    server.progress(slot, 0, 10_000);
    server.succeed(slot, &[10_000]);
    server.progress(slot, 0, 10_000);
    server.say_whether_left(ground);
    ground.stay();
}

#[test]
fn a_server_that_dies_has_said_how_far_it_had_come() {
    let (scene, attacker) = hostile_server!(dies_half_way);
    let connected = || connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let mut buffer = scene.interface().allocate(10_000).expect("memory");
    let before = pattern(8, buffer.len());
    buffer.copy_from_slice(&before);

    let handle = connected();
    let failed = scene.interface().request(&handle, STORE).out(Out::emulated_copy(&buffer)).send();
    let failed = failed.expect_err("no reply");
    assert!(matches!(failed.error, Error::Gone { .. }), "{failed}");
    assert_eq!(failed.actual(0), 6_666, "{failed}");
    drop(handle);

    let handle = connected();
    let pending = scene.interface().request(&handle, FETCH).input(In::emulated_copy(&mut buffer)).submit();
    let pending = pending.expect("a request");
    assert_eq!(pending.wait_for_progress(0, 3_333, std::time::Duration::from_secs(60)), 6_666);
    let failed = pending.sync().expect_err("no reply");
    assert!(matches!(failed.error, Error::Gone { .. }), "{failed}");
    assert_eq!(failed.actual(0), 6_666, "{failed}");
    same(&buffer, &before, "nothing is delivered of a request that has failed");
    drop(handle);

    let handle = connected();
    let request = scene.interface().request(&handle, STORE).out(Out::emulated_copy(&buffer));
    assert_eq!(request.send().expect("an honest reply").actual(), 10_000);
    let error =
        scene.interface().request(&handle, STORE).out(Out::copy(b"next")).send().expect_err("a lie").error;
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    attacker.says_that("left");
    drop((handle, buffer));
    scene.survives(attacker);
}

/// Each byte by itself, as fast as the client takes that.
fn tells_without_end(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.welcome(|_| {});
    assert!(server.request(), "a request");
    let slot = server.slot;
    for len in 1..300_000 {
        while !server.has_room() {
            std::hint::spin_loop();
        }
        server.progress(slot, 0, len);
    }
    ground.stay();
}

#[test]
fn a_server_that_tells_of_progress_without_end_holds_no_client_beyond_its_time() {
    let (scene, attacker) = hostile_server!(tells_without_end);
    let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
    let buffer = scene.interface().allocate(300_000).expect("memory");
    let timeout = std::time::Duration::from_millis(5);
    let request = scene.interface().request(&handle, STORE).timeout(timeout).out(Out::emulated_copy(&buffer));
    let failed = request.send().expect_err("no reply");
    assert_eq!(failed.error, Error::TimedOut { timeout });
    let come = failed.actual(0);
    assert!(come < 290_000, "{come} bytes, which took longer than the request's time");
    drop((handle, buffer));
    scene.survives(attacker);
}

/// Anything anywhere in the rings' memory.
fn scribbles(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    for seed in 0..12 {
        server.welcome(|_| {});
        assert!(server.request(), "a request");
        let mut random = Random::new(seed);
        let len = server.rings.metadata().expect("memory").len();
        match seed % 2 {
            0 => server.rings.write_all_at(&random.bytes(len as usize), 0).expect("memory"),
            // The replies' half.
            _ => server.rings.write_all_at(&random.bytes(len as usize / 2), len / 2).expect("memory"),
        }
        if seed % 2 == 0 {
            // By chance this may repair the very line that the client looks at next.
            server.succeed(server.slot, &[]);
        }
        ground.say("done");
        ground.hear();
        server.leave();
    }
    ground.stay();
}

#[test]
fn garbage_in_the_rings_memory_ends_the_channel_or_the_request() {
    let (scene, mut attacker) = hostile_server!(scribbles);
    for seed in 0..12 {
        let handle = connect(scene.interface(), &scene.directory, NAME).expect("a connection");
        let buffer = scene.interface().allocate(10_000).expect("memory");
        let request = scene.interface().request(&handle, STORE).out(Out::emulated_copy(&buffer));
        let pending = request.submit().expect("a request");
        attacker.says_that("done");
        // Garbage may as well say nothing.
        pending.wait(std::time::Duration::from_millis(20));
        attacker.tell("hang up");
        let replied = pending.sync();
        assert!(replied.is_err() || seed % 2 == 0, "a reply made of garbage: {replied:?}");
        drop(handle);
        scene.goes_on();
    }
    scene.survives(attacker);
}
