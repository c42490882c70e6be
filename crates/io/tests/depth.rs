//! Chains of requests, each with a part of the one before.

use std::sync::{Arc, Mutex};

use genie_io::{
    Error, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_memory::{Config, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing};

const KEEP: ServiceId = ServiceId(0);

/// A server that keeps its requests.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Incoming>>>);

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 1] = [Service::new("keep", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().expect("no panic before").push(request);
    }

    fn abort(&self, request: RequestId) {
        let gone: Vec<_> =
            self.0.lock().expect("no panic before").extract_if(.., |kept| kept.id() == request).collect();
        drop(gone);
    }
}

impl Keeper {
    fn take(&self) -> Incoming {
        self.0.lock().expect("no panic before").pop().expect("a request")
    }
}

fn interface() -> Interface {
    let granularity = Granularity::Only(GranuleKind::Base);
    let config = Config { granularity, limit: 64 << 20, ..Config::default() };
    Interface::new(Passing::new(Space::new(&config).expect("a space"), Costs::default()), Limits::default())
}

/// More links than a chain may have, and than a thread's stack has room for.
const MANY: usize = 60_000;

/// A chain of requests of any length could be made, whose end took a few hundred bytes of stack for each link: a long one killed
/// the process. Now its length is bounded, and the longest one ends well.
#[test]
fn a_chain_has_an_end_and_its_replies_go_all_the_way_back() {
    let (interface, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let first = interface.request(&server, KEEP).out(Out::copy(&[1; 100])).submit().expect("a request");
    let mut refused = None;
    for _ in 0..MANY {
        let mut incoming = keeper.take();
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
        drop(interface.request(&server, KEEP).out(Out::fragment(fragment)).submit().expect("a request"));
    }
    keeper.0.lock().expect("no panic before").clear();
    first.sync().expect("a reply");
    assert_eq!(refused, Some(Error::TooDeep { limit: 64 }));
    assert_eq!(interface.pending_bytes(), 0);
}

/// The same of requests that were aborted, each after what it had originated.
#[test]
fn the_longest_chain_can_be_aborted() {
    let (interface, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let first = interface.request(&server, KEEP).out(Out::copy(&[1; 100])).submit().expect("a request");
    let mut length = 1;
    while length < MANY {
        let mut kept = keeper.0.lock().expect("no panic before");
        let Ok(fragment) = kept.last_mut().expect("a request").fragment(0, 0..100) else { break };
        drop(kept);
        drop(interface.request(&server, KEEP).out(Out::fragment(fragment)).submit().expect("a request"));
        length += 1;
    }
    assert_eq!(first.abort().expect_err("it is aborted").error, Error::Aborted);
    assert!(keeper.0.lock().expect("no panic before").is_empty(), "all are aborted");
    assert_eq!(length, 65, "the first one, and 64 that were originated one by the other");
    assert_eq!(interface.pending_bytes(), 0);
}
