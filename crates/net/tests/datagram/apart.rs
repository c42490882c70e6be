//! The application's own headers and trailers, which come apart from the data (§13.1).

use std::collections::HashSet;
use std::sync::Arc;

use genie_conformance::bytes::{pattern, same};
use genie_io::{Error, In, Out, Reply, ServerHandle};
use genie_net::adapter::program::{
    Comparison, Instruction, Instruction::*, Operand::*, Place::*, Program, Register::*, Width::*,
};
use genie_net::adapter::{Counters, Dropped, Port, Received, Support};
use genie_net::datagram::{
    APART, ARRIVED, Arrived, Datagrams, OPEN, OPENED, Open, RECEIVE, Socket, Summing, open_argument,
    port_argument,
};
use genie_net::{Adapter, Frame, wire};
use genie_passing::Scheme;
use genie_sys::lock::Mutex;

use crate::elsewhere::Reached;
use crate::hosts::{Hosts, Level, address, open, options, out, room, synced, taken};
use crate::peer::connect;

/// The first two bytes of a datagram say how long its header is, these included, and how long its trailer.
fn lengths_in_front() -> Program {
    let instructions =
        vec![Require(At(2)), Load(B, One, At(0)), Load(C, One, At(1)), Return(In(A), In(B), In(C))];
    Program::new(instructions).expect("a program")
}

fn apart(program: Program) -> Open {
    Open { apart: Some(program), ..Open::default() }
}

/// A datagram with such a header and trailer, and the three parts of it.
fn datagram(seed: u64, header: u8, len: usize, trailer: u8) -> (Vec<u8>, [Vec<u8>; 3]) {
    let mut bytes = pattern(seed, usize::from(header) + len + usize::from(trailer));
    bytes.iter_mut().zip([header, trailer]).for_each(|(byte, len)| *byte = len);
    let (first, rest) = bytes.split_at(header.into());
    let (data, last) = rest.split_at(len);
    let parts = [first, data, last].map(<[u8]>::to_vec);
    (bytes, parts)
}

/// Verifies that a datagram has come in three parts; returns the reply.
#[track_caller]
fn came((reply, arrived): (Reply, Arrived), [header, data, trailer]: &[Vec<u8>; 3], what: &str) -> Reply {
    assert_eq!(arrived.len, data.len(), "{what}");
    assert_eq!((&arrived.header[..], &arrived.trailer[..]), (&header[..], &trailer[..]), "{what}");
    let (found, reply) = taken(reply);
    same(&found, data, what);
    reply
}

#[test]
fn data_of_every_length_comes_apart_from_headers_and_trailers_by_every_scheme_over_every_adapter() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        for (is_v6, is_connected) in [(false, true), (true, false)] {
            let alice = hosts.socket(0);
            let peer = is_connected.then(|| address(0, is_v6, &alice));
            let bob = hosts.opened(1, &Open { peer, ..apart(lengths_in_front()) });
            for (seed, len) in [0, 1, 17, 1400, 4096, 8192, 60_000].into_iter().enumerate() {
                for (number, scheme) in Scheme::ALL.into_iter().enumerate() {
                    for waits in [true, false] {
                        let (header, trailer) = ([2, 8, 3, 64][number % 4], [0, 4, 16][seed % 3]);
                        let what =
                            format!("{level:?}, {header} {len} {trailer} by {scheme}, {waits}, {is_v6}");
                        let (bytes, parts) = datagram(seed as u64, header, len, trailer);
                        let receive =
                            || bob.submit(room(&hosts.genie, scheme, len.max(1) + 3)).expect("a request");
                        let before = waits.then(receive);
                        alice
                            .send_to(out(&hosts.genie, scheme, &bytes), address(1, is_v6, &bob))
                            .expect("it is sent");
                        let came_so = synced(before.unwrap_or_else(receive)).expect("it arrives");
                        came(came_so, &parts, &what);
                        hosts.check();
                    }
                }
            }
            assert_eq!(bob.statistics().expect("counters").rejected, 0);
        }
        hosts.assert_idle(level);
    }
}

#[test]
fn headers_of_0_to_64_bytes_and_trailers_of_0_to_16_come_apart() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.opened(1, &apart(lengths_in_front())));
        for (header, trailer) in (0..=64).flat_map(|header| (0..=16).map(move |trailer| (header, trailer))) {
            let scheme = [Scheme::EmulatedCopy, Scheme::EmulatedMove][usize::from(header + trailer) % 2];
            let (bytes, parts) = datagram(header.into(), header, 4100, trailer);
            let pending = bob.submit(room(&hosts.genie, scheme, 4100)).expect("a request");
            alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
            came(
                synced(pending).expect("it arrives"),
                &parts,
                &format!("{level:?}, {header}, {trailer}, {scheme}"),
            );
        }
        drop((alice, bob));
        hosts.assert_idle(level);
    }
}

#[test]
fn data_between_headers_and_trailers_is_stored_in_its_place_and_not_copied() {
    let len = 8192;
    for level in [Level::Early, Level::EarlySplitting, Level::SnapOff, Level::Approximation] {
        let hosts = Hosts::with(level, wire::Options::default(), |options| options.summing = Summing::None);
        // Without header lists, the length has to be known before.
        let (program, headers) = match level {
            Level::Early => (Program::lengths(24, 8), [24; 3]),
            _ => (lengths_in_front(), [2, 24, 64]),
        };
        let (alice, bob) = (hosts.socket(0), hosts.opened(1, &apart(program)));
        for scheme in Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Copy) {
            for header in headers {
                let what = format!("{level:?}, {scheme}, {header}");
                let (bytes, parts) = datagram(header.into(), header, len, 8);
                let pending = bob.submit(room(&hosts.genie, scheme, len)).expect("a request");
                alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
                let reply = came(synced(pending).expect("it arrives"), &parts, &what);
                assert_eq!(reply.receipt().copied, 0, "{what}");
            }
        }
        assert_eq!(bob.statistics().expect("counters").copied, 0, "{level:?}");
    }
}

/// Snap-off has also what nobody has asked for yet begin at a granule, whatever the header's length.
#[test]
fn data_that_waits_begins_at_a_granule_where_the_adapter_takes_headers_off() {
    for level in [Level::EarlySplitting, Level::SnapOff, Level::Approximation] {
        let hosts = Hosts::with(level, wire::Options::default(), |options| options.summing = Summing::None);
        let (alice, bob) = (hosts.socket(0), hosts.opened(1, &apart(lengths_in_front())));
        for header in [2, 31, 64] {
            let (bytes, parts) = datagram(header.into(), header, 8192, 0);
            alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
            let came_so =
                synced(bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, 8192)).expect("a request"));
            let reply = came(came_so.expect("it waits"), &parts, &format!("{level:?}, {header}"));
            assert_eq!(reply.receipt().copied, 0, "{level:?}, {header}");
        }
    }
}

#[test]
fn buffers_as_the_server_prefers_them_behind_headers_change_places() {
    for (level, offset) in [(Level::Pooled, 42 + 24), (Level::Splitting, 24)] {
        let hosts = Hosts::with(level, wire::Options::default(), |options| options.summing = Summing::None);
        let (alice, bob) = (hosts.socket(0), hosts.opened(1, &apart(Program::lengths(24, 8))));
        let preferred = hosts.genie.preferred(&hosts.handles[1], RECEIVE, &port_argument(bob.port()));
        assert_eq!(preferred.expect("an answer").preferred().expect("a layout").offset, offset);
        let (bytes, [_, data, _]) = datagram(1, 24, 8000, 8);
        for (offset, copied) in [(offset, 0..=300), (100, 8000..=8000)] {
            let mut buffer = hosts.genie.allocate_at(offset, data.len()).expect("memory");
            alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
            let (reply, _) = bob.receive(In::emulated_copy(&mut buffer)).expect("it arrives");
            same(&buffer, &data, format!("{level:?} at {offset}"));
            assert!(copied.contains(&reply.receipt().copied), "{level:?} at {offset}: {}", reply.receipt());
        }
    }
}

#[test]
fn what_a_program_rejects_is_counted_and_changes_no_buffer_and_takes_no_requests_place() {
    let first_is_one = vec![
        Require(At(1)),
        Load(B, One, At(0)),
        Check(B, Comparison::Equal, Number(1)),
        Return(In(A), Number(1), Number(0)),
    ];
    let long = vec![Require(At(2)), Load(B, Two, At(0)), Return(In(A), In(B), Number(2))];
    let of_length = |len: usize| [&(len as u16).to_be_bytes(), &vec![9; 5000][..]].concat();
    for level in Level::ALL {
        for (program, rejected, accepted) in [
            (Program::new(first_is_one.clone()), vec![vec![2; 5000], vec![]], vec![1; 5000]),
            (Ok(Program::lengths(100, 10)), vec![vec![7; 109], vec![7; 0]], vec![7; 110]),
            (Ok(Program::lengths(u16::MAX, u16::MAX)), vec![vec![7; 60_000]], vec![]),
            (
                Program::new(long.clone()),
                [APART - 1, 5002, 65_535].map(of_length).to_vec(),
                of_length(APART - 2),
            ),
        ] {
            let hosts = Hosts::new(level);
            let program = program.expect("a program");
            let (alice, bob) = (hosts.socket(0), hosts.opened(1, &apart(program.clone())));
            let mut buffer = hosts.genie.allocate(5000).expect("memory");
            buffer.fill(0xaa);
            let pending = bob.submit(In::emulated_copy(&mut buffer)).expect("a request");
            let send = |bytes: &[u8]| {
                drop(alice.send_to(Out::copy(bytes), address(1, false, &bob)).expect("it is sent"))
            };
            rejected.iter().for_each(|bytes| send(bytes));
            assert!(!pending.is_replied(), "{level:?}: what {program:?} rejects was received");
            assert_eq!(
                bob.statistics().expect("counters").rejected,
                rejected.len() as u64,
                "{level:?}, {program:?}"
            );
            if accepted.is_empty() {
                assert_eq!(pending.abort().expect_err("nothing came").error, Error::Aborted);
                assert!(buffer.iter().all(|byte| *byte == 0xaa), "{level:?}, {program:?}");
                continue;
            }
            send(&accepted);
            let (_, arrived) = synced(pending).expect("it arrives");
            let found = [&arrived.header[..], &buffer[..arrived.len], &arrived.trailer].concat();
            same(&found, &accepted, format!("{level:?}, {program:?}"));
            assert!(buffer[arrived.len..].iter().all(|byte| *byte == 0xaa), "{level:?}, {program:?}");
            assert_eq!(hosts.servers[1].adapter().no_buffers, 0);
        }
    }
}

#[test]
fn each_port_has_its_own_program_and_what_comes_after_it_is_closed_is_whole() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let alice = hosts.socket(0);
        let opened =
            [Some(Program::lengths(4, 2)), None, Some(lengths_in_front()), Some(Program::lengths(0, 3))];
        let open =
            |port: usize, apart| hosts.opened(1, &Open { port: port as u16 + 7, apart, ..Open::default() });
        let bobs: Vec<_> = opened.iter().enumerate().map(|(at, apart)| open(at, apart.clone())).collect();
        let mut random = fastrand::Rng::with_seed(30);
        for _ in 0..100 {
            let mut to: Vec<_> = (0..8).map(|number| number % 4).collect();
            random.shuffle(&mut to);
            let receive = |bob: &usize| {
                bobs[*bob].submit(room(&hosts.genie, Scheme::EmulatedCopy, 4200)).expect("a request")
            };
            let mut waiting: Vec<_> = to[..4].iter().map(|bob| (*bob, receive(bob))).collect();
            let mut parts = vec![Vec::new(); 4];
            for bob in &to {
                let (header, trailer) = [(4, 2), (0, 0), (random.u8(2..64), random.u8(..16)), (0, 3)][*bob];
                let (bytes, expected) = datagram(random.u64(..), header, 4000 + random.usize(..200), trailer);
                alice.send_to(Out::copy(&bytes), address(1, random.bool(), &bobs[*bob])).expect("it is sent");
                parts[*bob].push(expected);
            }
            waiting.extend(to[4..].iter().map(|bob| (*bob, receive(bob))));
            for (bob, pending) in waiting {
                came(
                    synced(pending).expect("it arrives"),
                    &parts[bob].remove(0),
                    &format!("{level:?}, {bob}"),
                );
            }
        }
        drop(bobs);
        let bob = open(0, None);
        let (bytes, _) = datagram(1, 4, 4000, 2);
        let pending = bob.submit(room(&hosts.genie, Scheme::EmulatedCopy, 5000)).expect("a request");
        alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
        came(synced(pending).expect("it arrives"), &[vec![], bytes, vec![]], &level.name());
        assert_eq!(
            bob.statistics().expect("counters").copied,
            0,
            "{level:?}: the adapter has taken some of it off"
        );
        drop((alice, bob));
        hosts.assert_idle(level);
    }
}

/// A program might say that its datagrams were another port's, so they would be stored into another client's buffer.
#[test]
fn a_program_makes_no_datagram_another_ports() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.socket(1));
        let bobs = Number(bob.port().into());
        let eve = Program::new(vec![Return(bobs, Number(1), Number(0))]).expect("a program");
        let eve = hosts.opened(1, &apart(eve));
        let mut buffer = hosts.genie.allocate(8192).expect("memory");
        buffer.fill(0xaa);
        let pending = bob.submit(In::emulated_copy(&mut buffer)).expect("a request");
        let its = eve.submit(room(&hosts.genie, Scheme::EmulatedCopy, 8192)).expect("a request");
        let (bytes, parts) = datagram(1, 1, 8191, 0);
        alice.send_to(Out::copy(&bytes), address(1, false, &eve)).expect("it is sent");
        came(synced(its).expect("it arrives"), &parts, &level.name());
        assert_eq!(pending.abort().expect_err("nothing came").error, Error::Aborted);
        assert!(buffer.iter().all(|byte| *byte == 0xaa), "{level:?}");
    }
}

#[test]
fn a_look_at_data_and_its_delivery_elsewhere_see_no_header() {
    for level in Level::ALL {
        let hosts = Hosts::new(level);
        let (alice, bob) = (hosts.socket(0), hosts.opened(1, &apart(lengths_in_front())));
        for (header, scheme) in [(2, Scheme::Copy), (20, Scheme::EmulatedCopy), (64, Scheme::EmulatedCopy)] {
            let (bytes, [first, data, last]) = datagram(3, header, 9000, 5);
            let (mut buffer, mut elsewhere) = (hosts.genie.allocate(9000).expect("memory"), vec![0; 9000]);
            let pending = bob.submit(In::borrowed(scheme, &mut buffer[..])).expect("a request");
            alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
            let mut head = [0; 100];
            assert_eq!(pending.peek(&mut [&mut head]).expect("a look"), [100]);
            same(&head, &data[..100], level.name());
            let reply = pending.redirect([&mut elsewhere[..]]).expect("it is delivered");
            same(&elsewhere, &data, level.name());
            let arrived = Arrived::from_reply(reply.argument()).expect("a sender");
            assert_eq!((&arrived.header[..], &arrived.trailer[..]), (&first[..], &last[..]));
        }
    }
}

#[test]
fn a_reply_without_room_for_header_and_trailer_is_refused_and_no_datagram_is_lost() {
    let hosts = Hosts::new(Level::SnapOff);
    for (program, most) in
        [(Program::lengths(8, 4), 12), (lengths_in_front(), APART), (Program::lengths(0, 0), 0)]
    {
        let opened = apart(program);
        assert_eq!(opened.room(), ARRIVED + most);
        let (alice, bob) = (hosts.socket(0), hosts.opened(1, &opened));
        let (bytes, _) = datagram(1, 8, 100, 4);
        alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
        let port = port_argument(bob.port());
        for room in [0, ARRIVED + most - 1] {
            let request = hosts.genie.request(&hosts.handles[1], RECEIVE).argument(&port).room(room);
            let failed = request.input(In::copy(&mut [0; 200])).send().expect_err("too little room").error;
            assert_eq!(failed, Error::ArgumentTooLong { len: ARRIVED + most, room });
        }
        let mut buffer = [0; 200];
        let (_, arrived) = bob.receive(In::copy(&mut buffer)).expect("it is there");
        same(&[&arrived.header[..], &buffer[..arrived.len], &arrived.trailer].concat(), &bytes, "it");
    }
}

/// The argument of a request to open a port with these bytes for a program.
fn argument(program: &[u8]) -> Vec<u8> {
    [&open_argument(&Open::default()), program].concat()
}

#[test]
fn a_program_that_may_do_harm_is_refused_with_its_instruction_and_the_reason() {
    let hosts = Hosts::new(Level::Early);
    let ask = |handle: &ServerHandle, program: &[u8]| {
        let argument = argument(program);
        let refused = hosts.genie.request(handle, OPEN).argument(&argument).room(OPENED).send();
        refused.expect_err("a program that is refused").error.to_string()
    };
    // As they are written, without their having been verified.
    let parts = |parts: &[&[Instruction]]| postcard::to_allocvec(parts).expect("bytes");
    let good = [Require(At(2)), Load(B, Two, At(0)), Return(In(A), In(B), Number(4))];
    let bytes = parts(&[&good]);
    let cases = [
        (parts(&[&good[1..]]), "instruction 0 (Load(B, Two, At(0))) may read up to byte 2"),
        (parts(&[&good, &good[..2]]), "instruction 1 (Load(B, Two, At(0))) goes on with instruction 2"),
        (parts(&[&good.repeat(22)]), "66 instructions, and 64"),
        (
            parts(&[&[Length(D), Length(D), Return(In(A), Number(0), Number(0))][..]; 22]),
            "66 instructions, and 64",
        ),
        (parts(&[]), "no instruction"),
        (parts(&[&good, &[]]), "no instruction"),
        (bytes[..bytes.len() - 1].to_vec(), "are no program"),
        ([&bytes[..], &[0]].concat(), "are no program"),
        (vec![255; 40], "40 bytes are no program"),
        (vec![1; 1 << 20], "are no program"),
    ];
    for (program, reason) in cases {
        let message = ask(&hosts.handles[1], &program);
        assert!(
            message.contains("the program of the port is refused") && message.contains(reason),
            "{message}"
        );
    }
    // It has taken nothing: a client may open as many ports as ever.
    drop((0..64).map(|_| hosts.opened(1, &apart(lengths_in_front()))).collect::<Vec<_>>());
}

/// An adapter that stores nothing, and knows the programs of ports.
#[derive(Clone, Default)]
struct Programs(Arc<Mutex<HashSet<Port>>>);

impl Adapter for Programs {
    fn support(&self) -> Support {
        Support::Pooled
    }

    fn arrive(&mut self, _frame: &Frame<'_>) -> Result<Received, Dropped> {
        Err(Dropped::NoBuffers)
    }

    fn set_program(&mut self, port: Port, program: Option<Program>) {
        let mut ports = self.0.lock();
        let _was_there = if program.is_some() { ports.insert(port) } else { ports.remove(&port) };
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// A client that opens one port after the other would fill the adapter with programs.
#[test]
fn programs_of_ports_that_are_closed_are_taken_from_the_adapter() {
    let (genie, adapter) = (open(), Programs::default());
    let server = Datagrams::new(genie.clone(), Box::new(adapter.clone()), options(0));
    let handle = ServerHandle::new(server);
    let count = || adapter.0.lock().len();
    let opened = || Socket::open(&genie, &handle, &apart(Program::lengths(1, 0))).expect("a port");
    let sockets = [opened(), opened()];
    assert_eq!(count(), 2);
    drop(sockets);
    assert_eq!(count(), 0);
    // No socket closes this one.
    let (leaving, argument) = (open(), open_argument(&apart(Program::lengths(1, 0))));
    leaving.request(&handle, OPEN).argument(&argument).room(OPENED).send().expect("a port");
    assert_eq!(count(), 1);
    drop(leaving);
    assert_eq!(count(), 0);
}

#[test]
fn headers_and_trailers_of_datagrams_that_wait_count_as_their_bytes() {
    let hosts = Hosts::new(Level::SnapOff);
    let opened = Open { queued_bytes: 1000, ..apart(Program::lengths(150, 50)) };
    let (alice, bob) = (hosts.socket(0), hosts.opened(1, &opened));
    (0..6).for_each(|_| {
        drop(alice.send_to(Out::copy(&[1; 200]), address(1, false, &bob)).expect("it is sent"))
    });
    assert_eq!(bob.statistics().expect("counters").full, 1);
}

#[test]
fn clients_of_a_server_elsewhere_get_headers_and_trailers_apart() {
    // As long as a program may be.
    let long = (0..60).map(|_| Length(D)).chain([
        Require(At(2)),
        Load(B, One, At(0)),
        Load(C, One, At(1)),
        Return(In(A), In(B), In(C)),
    ]);
    let long = Program::new(long.collect()).expect("a program");
    for level in Level::ALL {
        let reached = Reached::new(level);
        let (alice, genie) = (reached.hosts.socket(0), open());
        let server = connect(&genie, reached.place.path(), "host1");
        let bob = Socket::open(&genie, &server, &apart(long.clone())).expect("a port");
        for (seed, (header, trailer)) in [(2, 0), (24, 8), (64, 16), (255, 1)].into_iter().enumerate() {
            for scheme in Scheme::ALL {
                for waits in [true, false] {
                    let what = format!("{level:?}, {header}, {trailer}, {scheme}, waits {waits}");
                    let (bytes, parts) = datagram(seed as u64, header, 8192, trailer);
                    let receive = || bob.submit(room(&genie, scheme, 8192)).expect("a request");
                    let before = waits.then(receive);
                    // What was submitted has been taken from the ring when this is answered.
                    bob.statistics().expect("counters");
                    alice.send_to(Out::copy(&bytes), address(1, false, &bob)).expect("it is sent");
                    let came_so = synced(before.unwrap_or_else(receive)).expect("it arrives");
                    let reply = came(came_so, &parts, &what);
                    if scheme != Scheme::Copy {
                        assert_eq!(reply.receipt().copied, 0, "{what}: the client copies nothing");
                    }
                }
            }
        }
    }
}
