//! Attacks by looking: what a server in another process finds of its client's memory, and what it can change there.
//!
//! How: the client has buffers full of a canary from before its requests and from after them, and passes canaries to an
//! honest server by copy. The hostile server looks through every memory object of which it has a descriptor, and stores into
//! each canary if it can. That it finds the data of its own requests shows that it looks well.

use std::fmt::Write;
use std::os::unix::fs::FileExt;

use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::servers::memory::{Memory, SINK, SOURCE};
use genie_io::{In, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service};
use genie_memory::{Buffer, Config, Direction, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Scheme, Thresholds};

use crate::attacker::{Attacker, Ground};
use crate::scene::{Scene, eventually};
use crate::support::machine::skip;
use crate::support::relay::{Manner, Relay};
use crate::{attacker, roles};

pub(crate) mod failover;

roles! { looks, relays }

/// The hostile server's name.
pub(crate) const LOOKER: &str = "looker";
/// The honest contractor in another process.
const CONTRACTOR: &str = "contractor";
/// What no server but the honest one may find.
const CANARY: &[u8; 16] = b"the canary sings";
/// What the client passes to the hostile server, and what that fills inputs with.
const DATA: [u8; 16] = [0xd1; 16];
const SPOILT: [u8; 16] = [0xee; 16];
const LENS: [usize; 4] = [100, 4096, 100_000, 3 << 20];

/// What an object holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    canaries: usize,
    spoilt: usize,
    data: usize,
}

/// A server that looks at all it can see when it is told to.
pub(crate) fn looks(ground: &mut Ground) {
    let pools = ground.hear();
    let (pool, hard_pool) = pools.split_once(' ').expect("two lengths");
    let [pool, hard_pool] = [pool, hard_pool].map(|len| len.parse().expect("a length"));
    let options = ServeOptions { pool, hard_pool, ..ServeOptions::default() };
    let serving = Listener::bind_in(&ground.directory, LOOKER, Memory::customized(), options);
    let _running = serving.expect("a name").start().expect("threads");
    ground.say("listening");
    loop {
        ground.hear();
        let Found { canaries, spoilt, data } = look();
        ground.say(format!("{canaries} {spoilt} {data}"));
    }
}

/// Looks through all memory objects that this process has descriptors of.
fn look() -> Found {
    let mut found = Found::default();
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").filter_map(Result::ok);
    for descriptor in descriptors {
        let is_memory = |path: std::path::PathBuf| path.to_string_lossy().starts_with("/memfd:");
        if !std::fs::read_link(descriptor.path()).is_ok_and(is_memory) {
            continue;
        }
        let number: i32 = descriptor.file_name().to_string_lossy().parse().expect("a number");
        let Ok(file) = duplicate(number) else { continue };
        let mut bytes = vec![0; 1 << 20];
        let mut at = 0;
        while let Ok(len @ 1..) = file.read_at(&mut bytes, at) {
            for (index, chunk) in bytes[..len].chunks_exact(CANARY.len()).enumerate() {
                if chunk == CANARY {
                    found.canaries += 1;
                    let place = at + (index * CANARY.len()) as u64;
                    found.spoilt += usize::from(file.write_at(&SPOILT, place).is_ok());
                }
                found.data += usize::from(chunk == DATA);
            }
            at += len as u64;
        }
    }
    found
}

/// The same open file: opening it anew would give rights that the descriptor does not give.
fn duplicate(number: i32) -> std::io::Result<std::fs::File> {
    let own = rustix::process::getpid();
    let process = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())?;
    let flags = rustix::process::PidfdGetfdFlags::empty();
    Ok(rustix::process::pidfd_getfd(process, number, flags)?.into())
}

/// A contractor that forwards what it gets to the hostile server.
fn relays(ground: &mut Ground) {
    let interface = interface(Thresholds::ALWAYS);
    let to = interface.connect_with(&ground.directory, LOOKER, &ConnectOptions::default());
    let relay = Relay::new(interface, vec![to.expect("a connection")], Manner::Plain, None);
    let serving = Listener::bind_in(&ground.directory, CONTRACTOR, relay, ServeOptions::default());
    let _running = serving.expect("a name").start().expect("threads");
    ground.say("listening");
    ground.stay();
}

/// A contractor in the client's process that forwards each buffer in two halves.
struct Halver {
    interface: Interface,
    to: ServerHandle,
}

static HALVED: [Service; 7] = [const { Service::new("halve", true, true) }; 7];

impl Server for Halver {
    fn name(&self) -> &str {
        "halver"
    }

    fn services(&self) -> &[Service] {
        &HALVED
    }

    fn request(&self, mut request: Incoming) {
        let (len, service) = (request.len(0), request.service());
        for range in [0..len / 2, len / 2..len] {
            let argument = request.argument().to_vec();
            let direction = request.direction(0).expect("a buffer");
            let part = request.fragment(0, range).expect("a fragment");
            let asked = self.interface.request(&self.to, service).argument(&argument);
            let sent = match direction {
                Direction::Out => asked.out(Out::fragment(part)).send(),
                Direction::In => asked.input(In::fragment(part)).send(),
            };
            sent.expect("a reply");
        }
        request.set_actual(0, len).expect("its own length");
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

fn interface(thresholds: Thresholds) -> Interface {
    let config =
        Config { granularity: Granularity::Only(GranuleKind::Base), limit: 128 << 20, ..Config::default() };
    let space = Space::new(&config).expect("a space");
    Interface::new(Passing::new(space, Costs::default()).with_thresholds(thresholds), Limits::default())
}

/// A client with something to hide, and the hostile server.
struct Victim {
    interface: Interface,
    hostile: ServerHandle,
    honest: ServerHandle,
    attacker: Attacker,
    kept: Vec<Buffer>,
}

impl Victim {
    fn new(scene: &Scene, thresholds: Thresholds, pool: [usize; 2], options: &ConnectOptions) -> Self {
        let mut attacker = attacker!(&scene.directory, looks);
        attacker.tell(&format!("{} {}", pool[0], pool[1]));
        attacker.says_that("listening");
        let interface = interface(thresholds);
        let connect = |name| interface.connect_with(&scene.directory, name, options).expect("a connection");
        let (hostile, honest) = (connect(LOOKER), connect(crate::scene::HONEST));
        let mut victim = Self { interface, hostile, honest, attacker, kept: Vec::new() };
        victim.keep();
        victim
    }

    /// Allocates buffers full of canaries, and passes some to the honest server.
    fn keep(&mut self) {
        for len in [64, 4096, 300_000] {
            let mut buffer = self.interface.allocate(len).expect("memory");
            buffer.chunks_exact_mut(CANARY.len()).for_each(|chunk| chunk.copy_from_slice(CANARY));
            self.interface.request(&self.honest, SINK).out(Out::copy(&buffer)).send().expect("a reply");
            self.kept.push(buffer);
        }
        // Each of them was allocated before some requests and after others.
        if self.kept.len() > 30 {
            self.kept.drain(..3);
        }
    }

    /// What the hostile server finds, and stores into. The client looks, too, and then has its canaries again.
    fn found(&mut self) -> Found {
        self.attacker.tell("look");
        let said = self.attacker.says();
        let counts: Vec<usize> = said.split(' ').map(|count| count.parse().expect("a count")).collect();
        let mut spoilt = 0;
        for chunk in self.kept.iter_mut().flat_map(|buffer| buffer.chunks_exact_mut(CANARY.len())) {
            spoilt += usize::from(chunk != CANARY);
            chunk.copy_from_slice(CANARY);
        }
        Found { canaries: counts[0], spoilt: spoilt.max(counts[1]), data: counts[2] }
    }

    /// Passes `len` bytes in this direction by this scheme, from or to memory of the interface's if `is_native`.
    fn pass(&self, to: &ServerHandle, way: Way, len: usize) {
        let Way { scheme, direction, is_native, is_lent } = way;
        let mut native = self.interface.allocate(len).expect("memory");
        let mut foreign = vec![0; len];
        let bytes = if is_native { &mut native[..] } else { &mut foreign[..] };
        match direction {
            Direction::Out => {
                bytes.fill(DATA[0]);
                let out = Out::borrowed(scheme, bytes);
                let out = if is_lent { out.lent_by(&self.honest) } else { out };
                self.interface.request(to, SINK).out(out).send().expect("a reply");
            }
            Direction::In => {
                let input = In::borrowed(scheme, &mut *bytes);
                let input = if is_lent { input.lent_by(&self.honest) } else { input };
                let request = self.interface.request(to, SOURCE).input(input).argument(&DATA[..1]);
                assert_eq!(request.send().expect("a reply").actual(), len);
                assert!(bytes.iter().all(|byte| *byte == DATA[0]), "the data of {way:?}");
            }
        }
    }

    /// Ends the client and the attacker.
    fn survives(self, scene: Scene) {
        let Self { interface, hostile, honest, attacker, kept } = self;
        drop((hostile, honest, kept, interface));
        scene.survives(attacker);
    }
}

#[derive(Debug, Clone, Copy)]
struct Way {
    scheme: Scheme,
    direction: Direction,
    is_native: bool,
    is_lent: bool,
}

/// All ways by these schemes.
fn ways(schemes: &[Scheme], natives: &[bool]) -> Vec<Way> {
    let mut ways = Vec::new();
    for (direction, is_lent) in
        [(Direction::Out, false), (Direction::In, false), (Direction::Out, true), (Direction::In, true)]
    {
        for (scheme, is_native) in schemes.iter().flat_map(|scheme| natives.iter().map(|n| (*scheme, *n))) {
            ways.push(Way { scheme, direction, is_native, is_lent });
        }
    }
    ways
}

/// The hostile server itself, and contractors in the client's process that forward to it.
fn chains(victim: &Victim) -> [(&'static str, ServerHandle); 3] {
    let (interface, to) = (victim.interface.clone(), victim.hostile.clone());
    let relay = Relay::new(interface.clone(), vec![to.clone()], Manner::Plain, None);
    [
        ("directly", to.clone()),
        ("through a relay", ServerHandle::new(relay)),
        ("in halves", ServerHandle::new(Halver { interface, to })),
    ]
}

/// Passes data in all these ways, by all chains; nothing else may be found.
#[track_caller]
fn nothing_else_is_found(victim: &mut Victim, ways: &[Way]) {
    let mut wrong = String::new();
    for (chain, to) in chains(victim) {
        for way in ways {
            for len in LENS {
                victim.pass(&to, *way, len);
                victim.keep();
                let found = victim.found();
                if (found.canaries, found.spoilt) != (0, 0) {
                    let _ = writeln!(wrong, "{way:?} of {len} bytes, {chain}: {found:?}");
                }
            }
        }
        assert!(victim.found().data > 0, "it does not look well");
    }
    assert!(wrong.is_empty(), "{wrong}");
    victim.interface.space().check().expect("the tables agree");
}

/// Where a server's pool was missing or exhausted, the client's own objects stood in, and were shown as a whole, to be
/// stored into for inputs. A contractor in the client's process forwarded what lay in the client's own objects, too, and
/// `lent_by` showed the lender's whole pool.
#[track_caller]
fn copy_shows_nothing_else(pool: [usize; 2]) {
    let scene = Scene::open();
    let mut victim = Victim::new(&scene, Thresholds::NEVER, pool, &ConnectOptions::default());
    // Whatever is too short, or in memory of other kinds, is copied.
    nothing_else_is_found(&mut victim, &ways(&[Scheme::Copy, Scheme::EmulatedCopy], &[true, false]));
    victim.survives(scene);
}

#[test]
fn copy_shows_nothing_else_to_a_server_without_a_pool() {
    copy_shows_nothing_else([0, 0]);
}

#[test]
fn copy_shows_nothing_else_to_a_server_whose_pool_is_exhausted() {
    copy_shows_nothing_else([1 << 20, 1 << 20]);
}

#[test]
fn copy_shows_nothing_else_to_a_server_whose_pool_grows() {
    copy_shows_nothing_else([1 << 20, 64 << 20]);
}

/// Short data was hidden from a server, but not from the same server behind a contractor in the client's process.
#[test]
fn a_contractor_shows_no_shorter_data_in_place_than_the_server_may_see() {
    let scene = Scene::open();
    let options = ConnectOptions { shown_from: usize::MAX, ..ConnectOptions::default() };
    let mut victim = Victim::new(&scene, Thresholds::ALWAYS, [0, 0], &options);
    let out = ways(&[Scheme::EmulatedCopy], &[true]);
    let out: Vec<Way> = out.into_iter().filter(|way| way.direction == Direction::Out).collect();
    nothing_else_is_found(&mut victim, &out);
    victim.survives(scene);
}

/// A contractor in another process shows what it was shown itself: nothing of its client's that was passed to others.
#[test]
fn a_contractor_elsewhere_shows_nothing_that_it_was_not_shown() {
    let scene = Scene::open();
    let options = ConnectOptions::default();
    let mut victim = Victim::new(&scene, Thresholds::NEVER, [0, 0], &options);
    let contractor = attacker!(&scene.directory, relays);
    contractor.says_that("listening");
    let to = victim.interface.connect_with(&scene.directory, CONTRACTOR, &options).expect("a connection");
    let mut wrong = String::new();
    for (way, len) in ways(&[Scheme::Copy], &[true]).iter().flat_map(|way| LENS.map(|len| (*way, len))) {
        victim.pass(&to, way, len);
        victim.keep();
        let found = victim.found();
        if (found.canaries, found.spoilt) != (0, 0) || found.data == 0 {
            let _ = writeln!(wrong, "{way:?} of {len} bytes: {found:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    drop(to);
    contractor.kill();
    victim.survives(scene);
}

/// The other schemes show the objects in which their data lies, as documented: to be read for output, and to be stored into
/// for share.
#[test]
fn schemes_that_pass_data_in_place_show_its_objects_as_documented() {
    let scene = Scene::open();
    for (scheme, direction, is_spoilt) in [
        (Scheme::EmulatedCopy, Direction::Out, false),
        (Scheme::EmulatedShare, Direction::Out, false),
        (Scheme::EmulatedShare, Direction::In, true),
    ] {
        let options = ConnectOptions::default();
        let mut victim = Victim::new(&scene, Thresholds::ALWAYS, [0, 0], &options);
        let hostile = victim.hostile.clone();
        victim.pass(&hostile, Way { scheme, direction, is_native: true, is_lent: false }, 100_000);
        let found = victim.found();
        assert!(found.canaries > 0 && found.data > 0, "{scheme} {direction:?}: {found:?}");
        assert_eq!(found.spoilt > 0, is_spoilt, "{scheme} {direction:?}: {found:?}");
        let Victim { attacker, .. } = victim;
        attacker.kill();
    }
    scene.is_unharmed();
}

/// In untrusted mode a server has no object of its client's at all.
#[test]
fn an_untrusted_server_finds_neither_data_nor_anything_else() {
    const TEST: &str = "an_untrusted_server_finds_neither_data_nor_anything_else";
    let scene = Scene::open();
    let options = ConnectOptions { untrusted: true, ..ConnectOptions::default() };
    let mut victim = Victim::new(&scene, Thresholds::ALWAYS, [0, 16 << 20], &options);
    let probe = victim.interface.request(&victim.hostile, SINK).out(Out::copy(&DATA));
    if let Err(failed) = probe.send() {
        skip(TEST, &failed.to_string());
        return victim.survives(scene);
    }
    let mut wrong = String::new();
    for (chain, to) in chains(&victim) {
        for way in ways(&[Scheme::Copy, Scheme::EmulatedCopy], &[true, false]) {
            victim.pass(&to, way, 100_000);
            victim.keep();
            let found = victim.found();
            if (found.canaries, found.spoilt) != (0, 0) {
                let _ = writeln!(wrong, "{way:?}, {chain}: {found:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    victim.survives(scene);
}

/// What the client adds to a server's pool comes back when it is not needed any more.
#[test]
fn memory_that_stood_in_for_a_pool_comes_back() {
    let scene = Scene::open();
    let mut victim = Victim::new(&scene, Thresholds::ALWAYS, [0, 0], &ConnectOptions::default());
    let stand_ins = |victim: &Victim| victim.interface.space().check().expect("the tables agree").stand_ins;
    for (scheme, direction) in
        [(Scheme::Copy, Direction::Out), (Scheme::Copy, Direction::In), (Scheme::EmulatedCopy, Direction::In)]
    {
        let hostile = victim.hostile.clone();
        victim.pass(&hostile, Way { scheme, direction, is_native: true, is_lent: false }, 3 << 20);
        // What an input has swapped goes with the buffer.
        if scheme == Scheme::Copy {
            assert!(stand_ins(&victim) > 0, "{direction:?}: memory stands in");
        }
        eventually("all of it comes back", || match stand_ins(&victim) {
            0 => Ok(()),
            left => Err(format!("{left} granules")),
        });
    }
    victim.found();
    victim.survives(scene);
}
