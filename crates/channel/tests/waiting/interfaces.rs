//! Several interfaces at one server, and a handle in the wrong hands.

use std::collections::HashSet;
use std::time::Duration;

use genie_io::servers::memory::SINK;
use genie_io::{Error, In, Out, ServerHandle};
use genie_memory::Space;

use super::fixture::{ASK, FOR_EVER, Fixture, assert_idle, interface, memory, options};

/// Each interface numbered its requests from 1, and a channel's requests were named by their places. So requests of two
/// clients could have the same name: a server that keeps requests by name lost some, and was asked to let the wrong client's
/// request go.
#[test]
fn requests_of_several_clients_at_one_server_have_different_names() {
    let (fixture, keeper, running) = Fixture::with_keeper();
    let here = ServerHandle::new(keeper.clone());
    let interfaces = [interface(), interface(), interface(), interface()];
    let [_, _, third, fourth] = &interfaces;
    let handles = [here.clone(), here, fixture.connect(third, "keeper"), fixture.connect(fourth, "keeper")];
    // One after the other, so that each is the keeper's last.
    let pendings: Vec<_> = (0..3)
        .flat_map(|_| interfaces.iter().zip(&handles))
        .enumerate()
        .map(|(count, (interface, handle))| {
            let pending =
                interface.request(handle, ASK).out(Out::copy(b"whose?")).submit().expect("a request");
            keeper.wait_for(count + 1);
            pending
        })
        .collect();
    let names = keeper.names();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), pendings.len(), "{names:?}");
    assert_eq!(pendings.iter().map(|pending| pending.id()).collect::<HashSet<_>>().len(), pendings.len());
    let pairs = pendings.iter().zip(&names).zip(handles.iter().cycle());
    for ((pending, name), handle) in pairs.filter(|(_, handle)| !handle.is_remote()) {
        assert_eq!((pending.id(), pending.id().number()), (*name, name.number()), "{handle:?}");
    }
    let mut left = names.clone();
    for (at, pending) in pendings.into_iter().enumerate().rev() {
        assert_eq!(pending.abort().expect_err("aborted").error, Error::Aborted);
        left.truncate(at);
        assert_eq!(keeper.names(), left, "no other request was let go");
    }
    drop((handles, running));
    interfaces.iter().for_each(assert_idle);
}

/// The data was first copied into the pool of whatever server had that number in this interface; only then was the server
/// found to be of another interface. As a lender such a server was accepted without an error.
#[test]
fn a_handle_of_another_interface_is_refused_before_any_byte_moves() {
    let fixture = Fixture::new();
    let running =
        ["first", "second"].map(|name| fixture.bind(name, memory(), options()).start().expect("threads"));
    let (one, other) = (interface(), interface());
    let foreign = fixture.connect(&one, "first");
    let own = fixture.connect(&other, "second");
    let before = usage(other.space());
    let bytes = vec![7; 100_000];
    let mut into = vec![1; 100_000];
    let shared = || other.allocate(5_000).expect("memory");
    let wrong = Error::OtherInterface { server: "first".to_owned() };
    let requests = [
        other.request(&foreign, SINK).out(Out::copy(&bytes)),
        other.request(&own, SINK).out(Out::copy(&bytes)).and_out(Out::copy(&bytes).lent_by(&foreign)),
        other.request(&own, SINK).out(Out::copy(&bytes)).input(In::copy(&mut into).lent_by(&foreign)),
        other.request(&foreign, SINK).out(Out::copy(&bytes)).and_out(Out::emulated_share(shared())),
    ];
    for (index, request) in requests.into_iter().enumerate() {
        let mut failed = match index % 2 {
            0 => request.send().expect_err("refused"),
            _ => request.submit().map(drop).expect_err("refused"),
        };
        assert_eq!(failed.error, wrong, "request {index}");
        assert_eq!(failed.take_buffer().is_some(), index == 3, "what was given by value comes back");
    }
    assert!(wrong.to_string().contains("request to server first mixes two interfaces"), "{wrong}");
    assert_eq!(usage(other.space()), before, "no pool was touched");
    assert!(other.flush(&own, FOR_EVER) && one.flush(&foreign, Duration::ZERO));
    // Where both belong it is as ever, and a server in this process is everybody's.
    one.request(&foreign, SINK).out(Out::copy(&bytes).lent_by(&foreign)).send().expect("a reply");
    let here = ServerHandle::new(memory());
    for interface in [&one, &other] {
        interface.request(&here, SINK).out(Out::copy(&bytes).lent_by(&here)).send().expect("a reply");
    }
    other.request(&own, SINK).out(Out::copy(&bytes).lent_by(&here)).send().expect("a reply");
    drop((foreign, own, running));
    [one, other].iter().for_each(assert_idle);
}

/// (granules kept for reuse, free, of system buffers).
fn usage(space: &Space) -> (u32, u32, u32) {
    let usage = space.check().unwrap_or_else(|wrong| panic!("{wrong}"));
    (usage.pooled, usage.free, usage.system)
}
