//! Limits that a server grants: a synchronous request waits for room, an asynchronous one is refused.
//!
//! Source: thesis §3.1.2, point 1.

use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::{Buffering, Granules, Guard, Setup, assert_idle, memory_limit};
use genie_io::servers::memory::{Memory, NULL};
use genie_io::{Error, Failed, Interface, Limits, Out, Pending, ServerHandle};
use genie_memory::GranuleKind;
use genie_passing::Thresholds;

use super::{connect, open, opening};
use crate::support::holder::{HOLD, Holder, Name};
use crate::support::peer::{Kind, Opening, Peer, fresh_name};

/// A client of a holder that grants little.
struct Tight {
    interface: Interface,
    server: ServerHandle,
    holder: Holder,
}

const BYTES: usize = 100_000;

fn tight(test: &str, pending_bytes: usize, pending_requests: u32) -> Option<Tight> {
    let kind = GranuleKind::Base;
    let (limits, thresholds) = (Limits::default(), Thresholds::ALWAYS);
    let interface = Setup::allowed(kind).interface(test, memory_limit(kind), limits, thresholds)?;
    let name = fresh_name("tight");
    let plain = opening(&name, Kind::Holder { pooled: None, log: None });
    let link = open(Peer::shared(), Opening { pending_bytes, pending_requests, ..plain });
    let server = connect(&interface, Peer::shared(), &name);
    let holder = Holder::elsewhere(&interface, server.clone(), link);
    Some(Tight { interface, server, holder })
}

impl Tight {
    fn submit(&self, bytes: &[u8]) -> Result<Pending<'static>, Failed> {
        self.interface.request(&self.server, HOLD).out(Out::copy(bytes)).submit()
    }

    fn finish(&self, arrival: usize, pending: Pending<'_>) {
        self.holder.reply(Name::Arrival(arrival));
        pending.sync().expect("a reply");
    }

    /// Sends while there is no room; makes room by replying to the first request.
    fn waits(&self, bytes: &[u8], first: Pending<'_>) {
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| self.interface.request(&self.server, HOLD).out(Out::copy(bytes)).send());
            std::thread::sleep(Duration::from_millis(30));
            assert!(!waiting.is_finished(), "it waits for room");
            self.finish(0, first);
            self.holder.reply(Name::Arrival(2));
            waiting.join().expect("no panic").expect("there was room");
        });
    }
}

#[test]
fn requests_beyond_those_granted_wait_or_are_refused() {
    let Some(t) = tight("requests_beyond_those_granted", 1 << 30, 2) else { return };
    let [first, second] = [1, 2].map(|byte| t.submit(&[byte; 10]).expect("a request"));
    let refused = t.submit(&[3; 10]).expect_err("two are pending").error;
    assert_eq!(refused, Error::TooMany { pending: 2, limit: 2 });
    t.waits(&[4; 10], first);
    t.finish(1, second);
    assert_idle(&t.interface, 0);
}

#[test]
fn bytes_beyond_those_granted_wait_or_are_refused() {
    let Some(t) = tight("bytes_beyond_those_granted", BYTES, 16) else { return };
    let first = t.submit(&[1; 60_000]).expect("a request");
    let second = t.submit(&[2; 30_000]).expect("a request");
    let refused = t.submit(&[3; 10_001]).expect_err("no room").error;
    assert_eq!(refused, Error::Exhausted { asked: 10_001, pending: 90_000, limit: BYTES });
    t.waits(&[4; 60_000], first);
    t.finish(1, second);
    // Exactly as many as were granted are admitted, in one request or in several.
    for (lens, arrivals) in [(vec![BYTES], 3..), (vec![60_000, 30_000, 10_000], 4..)] {
        let pendings: Vec<_> = lens.iter().map(|len| t.submit(&vec![5; *len]).expect("a request")).collect();
        let refused = t.submit(&[6]).expect_err("no room").error;
        assert_eq!(refused, Error::Exhausted { asked: 1, pending: BYTES, limit: BYTES });
        arrivals.zip(pendings).for_each(|(arrival, pending)| t.finish(arrival, pending));
    }
    assert_idle(&t.interface, 0);
}

#[test]
fn a_request_that_never_fits_is_refused_at_once() {
    let Some(t) = tight("a_request_that_never_fits", BYTES, 16) else { return };
    let expected = Error::TooLarge { asked: BYTES + 1, limit: BYTES };
    let bytes = vec![1; BYTES + 1];
    let request = t.interface.request(&t.server, HOLD);
    assert_eq!(request.out(Out::copy(&bytes)).send().expect_err("too large").error, expected);
    let shared = t.interface.allocate(BYTES + 1).expect("a buffer");
    let request = t.interface.request(&t.server, HOLD);
    let mut failed = request.out(Out::share(shared)).submit().expect_err("too large");
    assert_eq!(failed.error, expected);
    assert!(failed.take_buffer().is_some(), "the shared buffer comes back");
    assert_idle(&t.interface, 0);
}

#[test]
fn waiting_for_room_ends_with_the_timeout() {
    let Some(t) = tight("waiting_for_room_ends_with_the_timeout", 1 << 30, 1) else { return };
    let first = t.submit(&[1; 10]).expect("a request");
    let request = t.interface.request(&t.server, HOLD).timeout(Duration::from_millis(20));
    let error = request.out(Out::copy(&[2; 10])).send().expect_err("no room").error;
    assert!(matches!(error, Error::TooMany { .. }), "{error}");
    t.finish(0, first);
    assert_idle(&t.interface, 0);
}

/// An interface of small pages without protection, which these tests need no more than rights.
fn interface(test: &str) -> Interface {
    let limit = memory_limit(GranuleKind::Base);
    let setup = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
    let interface = setup.interface(test, limit, Limits::default(), Thresholds::ALWAYS);
    interface.expect("small pages need no more")
}

/// The error of the kernel's lay within others, and whatever a server refused was reported as its end.
#[test]
fn a_server_that_cannot_be_reached_says_so_by_the_kind_of_error() {
    let (name, interface) = ("reached", interface("reached"));
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let connect = |options: &ConnectOptions| interface.connect_with(&directory, name, options);
    let options = ConnectOptions::default();
    let absent = connect(&options).expect_err("nobody serves");
    assert!(matches!(&absent, Error::NoServer { server, .. } if server == name), "{absent}");
    let serve = ServeOptions { clients: 1, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory, name, Memory::customized(), serve).expect("a name");
    let running = serving.start().expect("threads");
    let refused = connect(&ConnectOptions { lent: 1, ..options.clone() }).expect_err("more is lent");
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    // The server may not have seen yet that the client before has left.
    let server = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        connect(&options).ok()
    });
    let server = server.expect("a place");
    let busy = connect(&options).expect_err("there is one place");
    assert!(matches!(busy, Error::Busy { .. }) && busy.is_congestion(), "{busy}");
    drop((server, running));
    let gone = connect(&options).expect_err("the server has stopped");
    assert!(matches!(gone, Error::NoServer { .. }), "{gone}");
}

/// A server without a limit on pending requests allocated a place for each when a client asked for 2^32 - 1 of them, and was
/// killed for lack of memory.
#[test]
fn a_client_that_asks_for_all_requests_there_are_is_granted_a_table_that_fits() {
    let (name, interface) = ("generous", interface("generous"));
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let most = u32::MAX;
    let options = ServeOptions { hard_requests: most, pending_requests: most, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory, name, Memory::customized(), options).expect("a name");
    let _running = serving.start().expect("threads");
    for pending_requests in [1, most] {
        let wanted = ConnectOptions { pending_requests, ..ConnectOptions::default() };
        let server = interface.connect_with(&directory, name, &wanted).expect("a connection");
        assert_eq!(server.adjust(1 << 20, most).expect("what is granted"), (1 << 20, 1 << 16));
        interface.request(&server, NULL).send().expect("a reply");
    }
}
