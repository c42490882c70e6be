//! Attacks by taking lent memory away: a client must not take the zeros there for data.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use genie_channel::wire::control::Welcome;
use genie_io::servers::memory::{FETCH, Memory, NULL, STORE};
use genie_io::{Error, In, Interface, Limits, Out, Returned, ServerHandle};
use genie_memory::{Buffer, Config, Faults, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing, Thresholds};
use rustix::fs::FallocateFlags;

use crate::attacker::{Attacker, Ground};
use crate::client::object;
use crate::missing::is_bus_error_at;
use crate::scene::{HONEST, Scene, connect, eventually, interface, store_and_fetch};
use crate::server::{Hostile, NAME, honest_welcome};
use crate::support::machine::{Mapping, mappings_of, object_at, skip};
use crate::{hostile_server, roles};

/// What a hostile server lends.
const LENT: u64 = 1 << 20;
/// The length of a buffer whose pages are all swapped.
const LEN_SWAPPED: usize = 20 << 12;

roles! { takes_lent_memory_away }

/// A server whose pool becomes one hole, after a buffer of it was delivered.
fn takes_lent_memory_away(ground: &mut Ground) {
    let mut server = Hostile::listen(ground);
    server.accept();
    let pool = object(LENT as usize);
    let welcome = Welcome { pool: vec![LENT], ..honest_welcome() };
    server.send_welcome(welcome, &[pool.as_fd()]);
    assert!(server.request(), "a request");
    server.succeed(server.slot, &[LEN_SWAPPED as u64]);
    let file = std::fs::File::from(pool.duplicate().expect("a descriptor"));
    ground.say(file.metadata().expect("memory").ino());
    ground.hear();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 0, LENT).expect("a hole");
    ground.say("gone");
    server.say_whether_left(ground);
    ground.stay();
}

/// A client with a buffer in which there is memory that a hostile server has lent.
struct Robbed {
    scene: Scene,
    attacker: Attacker,
    interface: Interface,
    handle: ServerHandle,
    buffer: Buffer,
    /// The inode of what was lent.
    lent: String,
}

impl Robbed {
    fn new(interface: Interface) -> Self {
        let (scene, attacker) = hostile_server!(takes_lent_memory_away);
        let handle = connect(&interface, &scene.directory, NAME).expect("a connection");
        let mut buffer = interface.allocate(LEN_SWAPPED).expect("memory");
        let fetch = interface.request(&handle, FETCH).input(In::emulated_copy(&mut buffer));
        fetch.send().expect("a reply");
        let lent = attacker.says();
        let shown = object_at(buffer.as_ptr().addr()).expect("a buffer in an object");
        assert!(shown.ends_with(&format!(" {lent}")), "the pages have been swapped");
        buffer.fill(3);
        Self { scene, attacker, interface, handle, buffer, lent }
    }

    /// Where this process has mapped what was lent, within these addresses.
    fn mapped(&self, within: &Range<usize>) -> Range<usize> {
        let is_it = |mapping: &Mapping| {
            let object = mapping.object.as_deref().unwrap_or_default();
            within.contains(&mapping.start) && object.ends_with(&format!(" {}", self.lent))
        };
        let found = mappings_of(std::process::id()).into_iter().find(is_it).expect("what was lent is mapped");
        found.start..found.end
    }

    /// Has the server take the memory away, so that a touch of it at these addresses is SIGBUS. Where that can't be had,
    /// says so and returns false.
    fn is_robbed(&mut self, test: &str, at: &Range<usize>) -> Option<OwnedFd> {
        let missing = is_bus_error_at(at).map_err(|why| skip(test, &why)).ok()?;
        self.attacker.tell("take it away");
        self.attacker.says_that("gone");
        Some(missing)
    }

    /// The channel of who did it is over, and no other.
    fn ends_the_channel(self) {
        let Self { scene, attacker, interface, handle, buffer, .. } = self;
        eventually("the channel's end", || {
            let sent = interface.request(&handle, NULL).timeout(Duration::from_secs(5)).send();
            let error = sent.err().ok_or("a reply")?.error.to_string();
            error.contains("took memory away").then_some(()).ok_or(error)
        });
        attacker.says_that("left");
        let honest = connect(&interface, &scene.directory, HONEST).expect("a connection");
        store_and_fetch(&interface, &honest, 5);
        drop((handle, honest, buffer));
        eventually("the lent memory's end", || match interface.space().check() {
            Ok(usage) if usage.lent == 0 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        drop(interface);
        scene.survives(attacker);
    }
}

/// No code checked whether memory that a server had lent was still there: another server was sent zeros from it, and the
/// request succeeded.
#[test]
fn lent_memory_that_is_taken_away_fails_requests_that_use_it_and_ends_the_lenders_channel() {
    const TEST: &str =
        "lent_memory_that_is_taken_away_fails_requests_that_use_it_and_ends_the_lenders_channel";
    let mut robbed = Robbed::new(interface());
    let space = robbed.interface.space();
    let aliases = space.aliases_base()..space.aliases_base() + space.aliases_len();
    let at = robbed.mapped(&aliases);
    let Some(_missing) = robbed.is_robbed(TEST, &at) else { return };
    let here = ServerHandle::new(Memory::customized());
    let fresh = robbed.interface.allocate(10).expect("memory");
    let buffer = std::mem::replace(&mut robbed.buffer, fresh);
    let send = |buffer| robbed.interface.request(&here, STORE).out(Out::emulated_share(buffer)).send();
    let failed = send(buffer).expect_err("what the server saw was zeros");
    assert!(is_lost(&failed.error), "{failed}");
    // Later ones are refused, too.
    let buffer = failed.buffers.into_iter().flat_map(|buffer| buffer.elements).find_map(|element| {
        match element.returned {
            Returned::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    });
    let failed = send(buffer.expect("the buffer comes back")).expect_err("its contents are lost");
    assert!(is_lost(&failed.error), "{failed}");
    drop(failed);
    robbed.ends_the_channel();
}

/// The same where the client itself finds zeros in its buffer, and sends a copy of them.
#[test]
fn a_buffer_in_which_a_client_finds_zeros_of_taken_memory_can_not_be_sent() {
    const TEST: &str = "a_buffer_in_which_a_client_finds_zeros_of_taken_memory_can_not_be_sent";
    // A buffer's addresses can be registered with one userfaultfd only.
    let mut robbed = Robbed::new(unprotected());
    let at = robbed.buffer.addresses();
    let Some(_missing) = robbed.is_robbed(TEST, &at) else { return };
    assert!(robbed.buffer.iter().all(|byte| *byte == 0), "what was there is gone");
    let here = ServerHandle::new(Memory::customized());
    let sent = robbed.interface.request(&here, STORE).out(Out::copy(&robbed.buffer)).send();
    let failed = sent.expect_err("zeros are no data");
    assert!(is_lost(&failed.error), "{failed}");
    robbed.ends_the_channel();
}

/// Short data of a client is carried to another server in another process, and from there, without memory of a pool.
#[test]
fn memory_that_was_taken_away_fails_short_outputs_and_inputs_too() {
    const TEST: &str = "memory_that_was_taken_away_fails_short_outputs_and_inputs_too";
    let mut robbed = Robbed::new(unprotected());
    let honest = connect(&robbed.interface, &robbed.scene.directory, HONEST).expect("a connection");
    let store = |bytes: &[u8]| robbed.interface.request(&honest, STORE).out(Out::copy(bytes)).send();
    store(&[6; 64]).expect("a reply");
    let at = robbed.buffer.addresses();
    let Some(_missing) = robbed.is_robbed(TEST, &at) else { return };
    let (first, second) = robbed.buffer[..].split_at_mut(LEN_SWAPPED / 2);
    let fetched = robbed.interface.request(&honest, FETCH).input(In::copy(&mut second[..64])).send();
    let failed = fetched.expect_err("what was stored is gone");
    assert!(is_lost(&failed.error), "{failed}");
    let sent = robbed.interface.request(&honest, STORE).out(Out::copy(&first[..64])).send();
    let failed = sent.expect_err("zeros are no data");
    assert!(is_lost(&failed.error), "{failed}");
    drop(honest);
    robbed.ends_the_channel();
}

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Passing(genie_passing::Error::Memory(genie_memory::Error::Lost)))
}

/// An interface that registers no buffer for faults.
fn unprotected() -> Interface {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 128 << 20,
        faults: Faults::Never,
        ..Config::default()
    };
    let space = Space::new(&config).expect("a space");
    let passing = Passing::new(space, Costs::default()).with_thresholds(Thresholds::ALWAYS);
    Interface::new(passing, Limits::default())
}
