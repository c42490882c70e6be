//! What servers find, and change, of an input that a contractor in the client's process has one server fill after the other.

use std::fmt::Write;
use std::time::Duration;

use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory::SOURCE;
use genie_io::{In, Incoming, Interface, RequestId, Server, ServerHandle, Service};
use genie_memory::Direction;
use genie_passing::{Scheme, Thresholds};

use super::{DATA, Found, HALVED, LENS, SPOILT, Victim, ways};
use crate::attacker::Ground;
use crate::scene::Scene;
use crate::{attacker, roles};

roles! { stores_late }

/// The name of the server that stores late.
const LATE: &str = "late";

/// A server that stores into an input after its client has given it up.
struct Late;

impl Server for Late {
    fn name(&self) -> &str {
        LATE
    }

    fn services(&self) -> &[Service] {
        &HALVED
    }

    fn request(&self, mut request: Incoming) {
        std::thread::sleep(PATIENCE * 8);
        request.fill(0, |room| room.fill(SPOILT[0])).expect("memory");
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

fn stores_late(ground: &mut Ground) {
    let options = ServeOptions { pool: 8 << 20, ..ServeOptions::default() };
    let serving = Listener::bind_in(&ground.directory, LATE, Late, options).expect("a name");
    let _running = serving.start().expect("threads");
    ground.say("listening");
    ground.stay();
}

/// A contractor in the client's process that has one server fill the whole input, and then another, or fills it itself.
struct Failover {
    interface: Interface,
    first: ServerHandle,
    then: Option<ServerHandle>,
    /// Whether the first server is given up.
    is_impatient: bool,
}

/// How long it waits for a server that it gives up.
const PATIENCE: Duration = Duration::from_millis(30);

impl Server for Failover {
    fn name(&self) -> &str {
        "failover"
    }

    fn services(&self) -> &[Service] {
        &HALVED
    }

    fn request(&self, mut request: Incoming) {
        let len = request.len(0);
        let first = In::fragment(request.fragment(0, 0..len).expect("a fragment"));
        let asked = self.interface.request(&self.first, SOURCE).input(first).argument(&[0]);
        match self.is_impatient {
            true => drop(asked.timeout(PATIENCE).send().expect_err("it is given up")),
            false => drop(asked.send().expect("a reply")),
        }
        match &self.then {
            Some(then) => {
                let input = In::fragment(request.fragment(0, 0..len).expect("a fragment"));
                let asked = self.interface.request(then, SOURCE).input(input).argument(&DATA[..1]);
                assert_eq!(asked.send().expect("a reply").actual(), len);
            }
            None => assert_eq!(request.ready(0).expect("memory").fill(DATA[0]), len),
        }
        request.set_actual(0, len).expect("its own length");
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

/// An input that was forwarded whole stayed in the first server's pool while another server, or the contractor, filled it.
#[test]
fn a_server_finds_nothing_that_others_fill_the_same_input_with() {
    let scene = Scene::open();
    let mut wrong = String::new();
    for thresholds in [Thresholds::NEVER, Thresholds::ALWAYS] {
        let options = ConnectOptions::default();
        let mut victim = Victim::new(&scene, thresholds, [1 << 20, 64 << 20], &options);
        for then in [Some(victim.honest.clone()), None] {
            let (interface, first) = (victim.interface.clone(), victim.hostile.clone());
            let by = if then.is_some() { "another server" } else { "the contractor" };
            let to = ServerHandle::new(Failover { interface, first, then, is_impatient: false });
            let ways = ways(&[Scheme::Copy, Scheme::EmulatedCopy], &[true, false]);
            for way in ways.iter().filter(|way| way.direction == Direction::In && !way.is_lent) {
                for len in LENS {
                    victim.pass(&to, *way, len);
                    victim.keep();
                    let found = victim.found();
                    if found != Found::default() {
                        let _ = writeln!(wrong, "{way:?} of {len} bytes, then {by}: {found:?}");
                    }
                }
            }
        }
        victim.interface.space().check().expect("the tables agree");
        let Victim { attacker, .. } = victim;
        attacker.kill();
    }
    assert!(wrong.is_empty(), "{wrong}");
    scene.is_unharmed();
}

/// A server that was given up stored into the memory from which the client then got the next server's data.
#[test]
fn a_server_that_was_given_up_stores_into_nothing_that_the_client_gets() {
    let scene = Scene::open();
    let options = ConnectOptions::default();
    let victim = Victim::new(&scene, Thresholds::ALWAYS, [0, 0], &options);
    let late = attacker!(&scene.directory, stores_late);
    late.says_that("listening");
    let first = victim.interface.connect_with(&scene.directory, LATE, &options).expect("a connection");
    for then in [Some(victim.honest.clone()), None] {
        let (interface, first) = (victim.interface.clone(), first.clone());
        let to = ServerHandle::new(Failover { interface, first, then, is_impatient: true });
        let ways = ways(&[Scheme::Copy, Scheme::EmulatedCopy], &[true]);
        for way in ways.iter().filter(|way| way.direction == Direction::In && !way.is_lent) {
            // It asserts what the client gets.
            victim.pass(&to, *way, 100_000);
        }
    }
    drop(first);
    late.kill();
    victim.survives(scene);
}
