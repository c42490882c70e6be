//! Chains of requests: each request forwards a part of the one before.

use genie_io::{Error, Fragment, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service};

use crate::waiting::fixture::{ASK, Keeper, SERVICES, assert_idle, interface};

/// More links than a chain may have, and than a thread's stack has room for.
const MANY: usize = 60_000;

/// A chain of requests could have any length, and ending it took a few hundred bytes of stack for each link: a long chain
/// killed the process. Now its length is bounded, and the longest chain ends well.
#[test]
fn a_chain_has_an_end_and_its_replies_go_all_the_way_back() {
    let (interface, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let first = interface.request(&server, ASK).out(Out::copy(&[1; 100])).submit().expect("a request");
    let mut refused = None;
    for _ in 0..MANY {
        let mut incoming = keeper.take(1).remove(0);
        let fragment = match incoming.fragment(0, 0..100) {
            Ok(fragment) => fragment,
            Err(error) => {
                let pin = incoming.pin_output(0, 0..100).expect("a pin goes no further");
                assert!(pin.data().to_vec() == [1; 100], "the first request's data");
                refused = Some(error);
                incoming.reply(Ok(()));
                break;
            }
        };
        incoming.reply(Ok(()));
        drop(interface.request(&server, ASK).out(Out::fragment(fragment)).submit().expect("a request"));
    }
    keeper.kept().clear();
    first.sync().expect("a reply");
    assert_eq!(refused, Some(Error::TooDeep { limit: 64 }));
    assert_idle(&interface);
}

/// The same with requests that are aborted, each after the request that it originated.
#[test]
fn the_longest_chain_can_be_aborted() {
    let (interface, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let first = interface.request(&server, ASK).out(Out::copy(&[1; 100])).submit().expect("a request");
    let mut length = 1;
    while length < MANY {
        let mut kept = keeper.kept();
        let Ok(fragment) = kept.last_mut().expect("a request").fragment(0, 0..100) else { break };
        drop(kept);
        drop(interface.request(&server, ASK).out(Out::fragment(fragment)).submit().expect("a request"));
        length += 1;
    }
    assert_eq!(first.abort().expect_err("it is aborted").error, Error::Aborted);
    assert!(keeper.kept().is_empty(), "all are aborted");
    assert_eq!(length, 65, "the first one, and 64 that were originated one by the other");
    assert_idle(&interface);
}

/// A server that replies at once, and forwards a part of another request when it is dropped.
struct WriteBehind {
    kept: Option<Fragment>,
    interface: Interface,
    to: ServerHandle,
}

impl Server for WriteBehind {
    fn name(&self) -> &str {
        "write-behind"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        let kept = self.kept.take().expect("a part");
        let request = self.interface.request(&self.to, ASK).out(Out::fragment(kept));
        drop(request.submit().expect("a request"));
    }
}

/// Where a contractor had let a subcontractor go, its next request dropped that server, with the list locked of what its client's
/// request had originated. A server that forwarded a part of the same request as it was dropped waited for that lock for ever.
#[test]
fn a_subcontractor_may_forward_as_it_is_dropped() {
    let (interface, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let first = interface.request(&server, ASK).out(Out::copy(b"abc")).submit().expect("a request");
    let mut incoming = keeper.take(1).remove(0);
    let kept = Some(incoming.fragment(0, 0..1).expect("a part"));
    let behind = WriteBehind { kept, interface: interface.clone(), to: server.clone() };
    let behind = ServerHandle::new(behind);
    for (server, part) in [(behind, 1..2), (server.clone(), 2..3)] {
        let fragment = incoming.fragment(0, part).expect("a part");
        let request = interface.request(&server, ASK).out(Out::fragment(fragment));
        drop(request.submit().expect("a request"));
    }
    let came = keeper.take(2);
    let data = came.iter().map(|request| request.output(0).expect("an output").to_vec());
    assert_eq!(data.collect::<Vec<_>>(), [b"a", b"c"], "what the subcontractor has kept comes first");
    came.into_iter().chain([incoming]).for_each(|request| request.reply(Ok(())));
    first.sync().expect("a reply");
    assert_idle(&interface);
}
