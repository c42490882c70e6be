//! Servers that panic or misbehave, clients that lose interest, and what comes back.

use genie_conformance::checked;
use genie_io::{
    Error, Failed, In, Incoming, Limits, Out, RequestId, Returned, Server, ServerHandle, Service, ServiceId,
};
use genie_passing::{Overlays, Scheme};

use super::{client, finish, submit};
use crate::support::bytes::same;
use crate::support::holder::{Answer, Command, HOLD, Holder, UNMAPPED};

/// A server that panics with a request in its hands, before or after it looked at it.
struct Panicking;

static SERVICES: [Service; 2] =
    [Service::new("at once", true, true), Service::new("in the middle", true, true)];

impl Server for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        if request.service() == ServiceId(1) {
            request.output(0).expect("an output");
            request.ready(1).expect("an input").fill(1);
        }
        panic!("this panic is part of the test");
    }

    fn abort(&self, _request: RequestId) {}
}

#[test]
fn a_server_that_panics_leaves_nothing_behind() {
    let Some(t) = client("a_server_that_panics", Limits::default()) else { return };
    let server = ServerHandle::new(Panicking);
    for service in [ServiceId(0), ServiceId(1)] {
        for scheme in Scheme::ALL {
            let mut bytes = t.interface().allocate(3 * t.setup().granule()).expect("a buffer");
            bytes.fill(9);
            let before = bytes.to_vec();
            let request = t.interface().request(&server, service);
            let native = scheme.allocation() == genie_passing::model::Allocation::Native;
            let request = if native {
                let shared = t.interface().allocate(5000).expect("a buffer");
                request.out(Out::owned(scheme, shared)).input(In::borrowed(scheme, &mut bytes))
            } else {
                let strong = scheme.integrity() == genie_passing::model::Integrity::Strong;
                let region = t.interface().allocate_migrant(5000, strong).expect("a region");
                request.out(Out::migrant(scheme, region)).input(In::migrant(scheme, 9000))
            };
            let failed = request.send().map(drop).expect_err("a panic");
            assert_eq!(
                failed.error,
                Error::Panicked { message: "this panic is part of the test".to_owned() }
            );
            drop(failed);
            // A server stores into shared memory in place.
            if scheme.integrity() == genie_passing::model::Integrity::Strong {
                same(&bytes, &before, scheme);
            }
            drop(bytes);
            t.assert_idle();
        }
    }
    finish(&t, submit(&t, b"the interface works on"));
}

#[test]
fn a_failure_brings_every_buffer_back() {
    let Some(t) = client("a_failure_brings_every_buffer_back", Limits::default()) else { return };
    for way in ["error", "drop", "refused"] {
        let mut shared = t.interface().allocate(5000).expect("a buffer");
        shared.fill(1);
        let mut strong = t.interface().allocate_migrant(6000, true).expect("a region");
        strong.fill(2);
        let mut weak = t.interface().allocate_migrant(7000, false).expect("a region");
        weak.fill(3);
        let target = t.interface().allocate(8000).expect("a buffer");
        let request = t.interface().request(t.holder().handle(), HOLD);
        let request = request.out(Out::share(shared)).and_out(Out::emulated_move(strong));
        // A weak buffer that is passed by move is refused.
        let scheme = if way == "refused" { Scheme::Move } else { Scheme::EmulatedWeakMove };
        let request = request.out(Out::migrant(scheme, weak)).input(In::emulated_share(target));
        let mut failed = match way {
            "refused" => request.submit().map(drop).expect_err("refused"),
            _ => {
                let pending = request.submit().expect("a request");
                match way {
                    "error" => t.holder().fail(pending.id(), "no"),
                    _ => t.holder().drop_request(pending.id()),
                }
                pending.sync().expect_err("failed")
            }
        };
        came_back(&mut failed, way);
    }
    t.assert_idle();
}

fn came_back(failed: &mut Failed, way: &str) {
    let mut buffer = || failed.take_buffer().unwrap_or_else(|| panic!("{way}: a buffer is missing"));
    same(&buffer(), &[1; 5000], way);
    assert_eq!(buffer().len(), 8000, "{way}");
    let mut migrant = || failed.take_migrant().unwrap_or_else(|| panic!("{way}: a region is missing"));
    same(&migrant(), &[2; 6000], way);
    same(&migrant(), &[3; 7000], way);
    assert_eq!(failed.buffers.len(), 3, "{way}");
}

#[test]
fn a_buffer_of_the_other_integrity_is_refused_with_a_reason() {
    let Some(t) = client("a_buffer_of_the_other_integrity", Limits::default()) else { return };
    for (scheme, strong) in [
        (Scheme::Move, false),
        (Scheme::EmulatedMove, false),
        (Scheme::WeakMove, true),
        (Scheme::EmulatedWeakMove, true),
    ] {
        let region = t.interface().allocate_migrant(100, strong).expect("a region");
        let request = t.interface().request(t.holder().handle(), HOLD);
        let mut failed = request.out(Out::migrant(scheme, region)).send().expect_err("refused");
        let refusal = Error::Passing(genie_passing::Error::Integrity {
            scheme,
            expected: if strong { "weak" } else { "strong" },
        });
        assert_eq!(failed.error, refusal);
        assert!(failed.take_migrant().is_some());
    }
    t.assert_idle();
}

#[test]
fn an_unknown_service_is_refused_and_named() {
    let Some(t) = client("an_unknown_service", Limits::default()) else { return };
    let shared = t.interface().allocate(100).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), ServiceId(9));
    let mut failed = request.out(Out::share(shared)).send().expect_err("no such service");
    assert_eq!(failed.to_string(), "server holder has no service number 9; it has 3, numbered from 0");
    assert!(failed.take_buffer().is_some());
    t.assert_idle();
}

#[test]
fn mapping_flags_keep_a_service_from_buffers() {
    let Some(t) = client("mapping_flags", Limits::default()) else { return };
    let mut bytes = [5; 10];
    let request = t.interface().request(t.holder().handle(), UNMAPPED);
    let pending = request.out(Out::copy(b"secret")).input(In::copy(&mut bytes)).submit().expect("a request");
    for command in [
        Command::Read { buffer: 0 },
        Command::Write { buffer: 1, offset: 0, bytes: vec![1] },
        Command::Read { buffer: 1 },
        Command::Read { buffer: 2 },
    ] {
        let answer = t.holder().command(pending.id(), command.clone());
        assert!(matches!(answer, Answer::Refused(_)), "{command:?}: {answer:?}");
    }
    finish(&t, pending);
    assert_eq!(bytes, [5; 10]);
    t.assert_idle();
}

#[test]
fn an_input_is_no_output_and_the_other_way_round() {
    let Some(t) = client("an_input_is_no_output", Limits::default()) else { return };
    let mut bytes = [5; 10];
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::copy(b"out")).input(In::copy(&mut bytes)).submit().expect("a request");
    for command in [
        Command::Read { buffer: 1 },
        Command::Write { buffer: 0, offset: 0, bytes: vec![1] },
        Command::Write { buffer: 2, offset: 0, bytes: vec![1] },
        Command::SetActual { buffer: 1, actual: 11 },
        Command::SetActual { buffer: 2, actual: 0 },
    ] {
        let answer = t.holder().command(pending.id(), command.clone());
        assert!(matches!(answer, Answer::Refused(_)), "{command:?}: {answer:?}");
    }
    finish(&t, pending);
    assert_eq!(bytes, [5; 10]);
    t.assert_idle();
}

#[test]
fn a_forgotten_request_does_no_harm() {
    let Some(t) = client("a_forgotten_request", Limits::default()) else { return };
    for scheme in [Scheme::Copy, Scheme::EmulatedCopy] {
        let mut buffer = t.interface().allocate(3 * t.setup().granule()).expect("a buffer");
        buffer.fill(1);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.input(In::borrowed(scheme, &mut buffer)).submit().expect("a request");
        let id = pending.id();
        std::mem::forget(pending);
        buffer.fill(2);
        t.holder().deliver(id, &vec![3; buffer.len()]);
        assert!(buffer.iter().all(|byte| *byte == 2), "{scheme}");
        let pending = submit(&t, &buffer);
        let id = pending.id();
        std::mem::forget(pending);
        buffer.fill(4);
        assert_eq!(t.holder().read(id), vec![2; buffer.len()], "{scheme}");
        t.holder().reply(id);
    }
    // What was forgotten stays with its request; the books know it.
    checked(t.interface().space());
}

#[test]
fn a_dropped_request_runs_on_and_its_buffers_are_freed_at_the_end() {
    let Some(t) = client("a_dropped_request_runs_on", Limits::default()) else { return };
    for scheme in [Scheme::Share, Scheme::EmulatedShare] {
        let mut shared = t.interface().allocate(5 * t.setup().granule()).expect("a buffer");
        shared.fill(6);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::owned(scheme, shared)).submit().expect("a request");
        let id = pending.id();
        drop(pending);
        assert_eq!(t.holder().read(id), vec![6; 5 * t.setup().granule()], "{scheme}");
        assert!(checked(t.interface().space()).regions >= 5, "the server still reads it");
        t.holder().reply(id);
        t.assert_idle();
    }
}

#[test]
fn a_reply_to_a_client_that_is_gone_is_dropped() {
    let Some(t) = client("a_reply_after_the_client_has_gone", Limits::default()) else { return };
    let buffer = t.interface().allocate(2 * t.setup().granule()).expect("a buffer");
    let request = t.interface().request(t.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    let id = pending.id();
    drop((pending, buffer));
    let (holder, interface) = t.into_parts();
    drop(interface);
    assert!(holder.read(id).iter().all(|byte| *byte == 0), "its memory lives as long as the server needs it");
    holder.reply(id);
}

/// A reply's inputs were delivered one after the other: if there was no memory for the second input, the client got an
/// error, but also the first input's data.
#[test]
fn inputs_are_delivered_all_or_none_when_memory_ends() {
    let Some(t) = client("inputs_are_delivered_all_or_none", Limits::default()) else { return };
    let granule = t.setup().granule();
    // What the server fills is another space's, so that it is copied into memory of this one on the way.
    let Some(elsewhere) = t.setup().space("inputs_are_delivered_all_or_none", 4 << 20) else { return };
    let overlays = Overlays::reserve(&elsewhere, 0, 3 * granule, 8).expect("memory for the pool");
    let holder = Holder::in_process(Some(overlays));
    let either = [Scheme::Copy, Scheme::EmulatedCopy, Scheme::Move];
    for schemes in either.into_iter().flat_map(|one| either.map(|other| [one, other])) {
        let (mut first, mut second) = (vec![1; granule], vec![1; 3 * granule]);
        let [one, other] = [(schemes[0], &mut first), (schemes[1], &mut second)].map(|(scheme, bytes)| {
            if scheme == Scheme::Move { In::moved(bytes.len()) } else { In::borrowed(scheme, bytes) }
        });
        let request = t.interface().request(holder.handle(), HOLD);
        let request = request.input(one).input(other);
        let pending = request.submit().expect("a request");
        for (buffer, len) in [(0, granule), (1, 3 * granule)] {
            let write = Command::Write { buffer, offset: 0, bytes: vec![7; len] };
            assert_eq!(holder.command(pending.id(), write), Answer::Done);
            assert_eq!(
                holder.command(pending.id(), Command::SetActual { buffer, actual: len }),
                Answer::Done
            );
        }
        holder.reply(pending.id());
        // One granule is left, which the first input takes.
        let mut taken: Vec<_> = std::iter::from_fn(|| t.interface().allocate(granule).ok()).collect();
        taken.pop();
        let failed = pending.sync().expect_err("no memory");
        assert!(failed.error.to_string().contains("limit"), "{schemes:?}: {failed}");
        let brought = failed.buffers.iter().flat_map(|buffer| &buffer.elements);
        assert!(brought.into_iter().all(|element| matches!(element.returned, Returned::Nothing)));
        assert!(first.iter().chain(&second).all(|byte| *byte == 1), "{schemes:?}: a buffer has changed");
        drop(taken);
    }
    t.assert_idle();
    elsewhere.check().unwrap_or_else(|wrong| panic!("{wrong}"));
}
