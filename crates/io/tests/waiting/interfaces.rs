//! Several interfaces at one server.

use std::collections::HashSet;

use genie_io::{Error, Out, ServerHandle};

use super::stage::{ASK, Keeper, Stage, assert_idle, interface};

/// Each interface numbered its requests from 1, and each channel's were named by its places: a server that keeps requests by
/// name lost some, and was asked to let one client's go by the name of another's.
#[test]
fn requests_of_several_clients_at_one_server_have_different_names() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let running = stage.serve("keeper", keeper.clone());
    let here = ServerHandle::new(keeper.clone());
    let interfaces = [interface(), interface(), interface(), interface()];
    let [_, _, third, fourth] = &interfaces;
    let handles = [here.clone(), here, stage.connect(third, "keeper"), stage.connect(fourth, "keeper")];
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
