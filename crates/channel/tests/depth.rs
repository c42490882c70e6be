//! Chains of requests: each request forwards a part of the one before.

use genie_io::{Error, Out, ServerHandle};

use crate::waiting::fixture::{ASK, Keeper, assert_idle, interface};

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
