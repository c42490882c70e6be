//! Subcontracting: a server forwards its client's data, without touching it, to servers here and in other processes.
//!
//! Source: thesis §5.1, §7.5.

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::{Setup, assert_idle, checked, memory_limit};
use genie_io::servers::memory;
use genie_io::{In, Interface, Out, ServerHandle};
use genie_memory::GranuleKind;
use genie_passing::{Scheme, Thresholds};

use super::{Fixture, connect, eventually, filled, open, opening};
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::holder::HOLD;
use crate::support::machine::{mappings_of, object_at};
use crate::support::peer::{Kind, Link, Peer};
use crate::support::relay::{HEADER, Manner, Relay};
use crate::support::transport::Place;

on_both_granules! {
    a_chain_of_processes_passes_data_that_the_middle_never_maps,
    a_client_that_leaves_a_chain_has_its_memory_back,
    a_server_here_passes_on_to_another_process,
}

/// Client, pack and memory server, each in a process of its own.
struct Chain {
    interface: Interface,
    /// The server in the middle.
    pack: ServerHandle,
    /// The last server, asked directly.
    memory: ServerHandle,
    _links: [Link; 2],
    middle: Peer,
    _last: Peer,
}

impl Chain {
    fn open(test: &str, kind: GranuleKind, manner: Manner) -> Option<Self> {
        let setup = Setup::allowed(kind);
        let limits = genie_io::Limits::default();
        let thresholds = Thresholds::ALWAYS;
        let interface = setup.interface(test, memory_limit(kind), limits, thresholds)?;
        let (middle, last) = (Peer::own(), Peer::own());
        let pool = super::pool(kind);
        let memory = super::Opening { pool, ..opening("memory", Kind::Memory(None)) };
        let to = vec![(last.run(), "memory".to_owned())];
        let pack = super::Opening { pool, ..opening("pack", Kind::Relay { to, manner, log: None }) };
        let links = [open(&last, memory), open(&middle, pack)];
        let pack = connect(&interface, &middle, "pack");
        let memory = connect(&interface, &last, "memory");
        Some(Self { interface, pack, memory, _links: links, middle, _last: last })
    }

    /// Verifies that the middle has never mapped what these bytes are in.
    #[track_caller]
    fn assert_unmapped(&self, bytes: &[u8]) {
        let object = object_at(bytes.as_ptr().addr());
        assert!(object.is_some(), "a buffer in a memory object");
        let mut all = mappings_of(self.middle.pid());
        all.retain(|mapping| mapping.object == object);
        assert_eq!(all, [], "the server in the middle has mapped the data");
    }
}

/// How many bytes of what it forwarded the relay says were copied.
fn copied_in_the_middle(argument: &[u8]) -> u64 {
    u64::from_le_bytes(argument.try_into().expect("8 bytes"))
}

fn a_chain_of_processes_passes_data_that_the_middle_never_maps(test: &str, kind: GranuleKind) {
    let Some(chain) = Chain::open(test, kind, Manner::Heading) else { return };
    let len = 3 * kind.size() - 100;
    for (seed, scheme) in (1..).zip([Scheme::EmulatedCopy, Scheme::Copy]) {
        let buffer = filled(&chain.interface, seed, len);
        let request = chain.interface.request(&chain.pack, memory::STORE);
        let request = request.out(Out::borrowed(scheme, &buffer)).argument(b"packed").room(8);
        let reply = request.send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        assert_eq!(copied_in_the_middle(reply.argument()), 0, "{scheme}");
        let expected = if scheme == Scheme::Copy { len } else { 0 };
        assert_eq!(reply.receipt().copied, expected, "{scheme}, by the client");
        chain.assert_unmapped(&buffer);
        let packed = [HEADER, &buffer[..]].concat();
        let check = chain.interface.request(&chain.memory, memory::CHECK);
        check.out(Out::copy(&packed)).argument(b"packed").send().expect("header and data are there");

        let mut back = filled(&chain.interface, 9, len);
        let request = chain.interface.request(&chain.pack, memory::FETCH);
        let request = request.input(In::borrowed(scheme, &mut back)).argument(b"packed").room(8);
        let reply = request.send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        assert_eq!(copied_in_the_middle(reply.argument()), 0, "{scheme}");
        assert_eq!(reply.receipt().swapped > 0, scheme == Scheme::EmulatedCopy, "{scheme}");
        same(&back, &packed[..len], scheme);
        chain.assert_unmapped(&back);
        chain.assert_unmapped(&buffer);
    }
    assert_idle(&chain.interface, 0);
}

/// When a client was gone, the servers that stayed kept the forwarded memory: the client's arena was never withdrawn, so its
/// lifeline did not close, and its pools' memory was held until the server in the middle ended, too.
fn a_client_that_leaves_a_chain_has_its_memory_back(test: &str, kind: GranuleKind) {
    let Some(chain) = Chain::open(test, kind, Manner::Plain) else { return };
    let Chain { interface, mut pack, memory, _links, middle, _last: last } = chain;
    drop(memory);
    let len = kind.size() + 100;
    for seed in 1..4 {
        for scheme in [Scheme::EmulatedCopy, Scheme::Copy] {
            let buffer = filled(&interface, seed, len);
            let request = interface.request(&pack, memory::STORE).out(Out::borrowed(scheme, &buffer));
            request.argument(b"left").send().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        }
        drop(pack);
        eventually("lent memory is kept", || checked(interface.space()).lent == 0);
        // The arena's number is free again for the next channel's.
        pack = connect(&interface, &middle, "pack");
    }
    drop(pack);
    for peer in [&middle, &last] {
        let others =
            || mappings_of(peer.pid()).into_iter().filter(|mapping| mapping.object == own_object(&interface));
        eventually("a server has the client's memory mapped", || others().count() == 0);
    }
}

/// The object that the next buffer of an interface is in.
fn own_object(interface: &Interface) -> Option<String> {
    object_at(filled(interface, 0, 1).as_ptr().addr())
}

fn a_server_here_passes_on_to_another_process(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let interface = fixture.interface();
    let to = vec![fixture.channel.memory().clone()];
    let pack = ServerHandle::new(Relay::new(interface.clone(), to, Manner::Plain, None));
    // What was copied for the server here lies with the client's other data, which the other server may not see. Data
    // that the other server lends memory for is not copied once more.
    let to_memory = fixture.channel.memory();
    for (scheme, is_lent) in [(Scheme::EmulatedCopy, false), (Scheme::Copy, false), (Scheme::Copy, true)] {
        let buffer = fixture.buffer(5);
        let out = Out::borrowed(scheme, &buffer[3..]);
        let out = if is_lent { out.lent_by(to_memory) } else { out };
        let request = interface.request(&pack, memory::STORE).out(out);
        let reply = request.argument(b"here").room(8).send().expect("a reply");
        let copied = if scheme == Scheme::Copy && !is_lent { buffer.len() - 3 } else { 0 };
        assert_eq!(copied_in_the_middle(reply.argument()), copied as u64, "{scheme}");
        let mut back = fixture.buffer(6);
        let request = interface.request(&pack, memory::FETCH).input(In::borrowed(scheme, &mut back[3..]));
        request.argument(b"here").send().expect("a reply");
        same(&back[3..], &buffer[3..], scheme);
        same(&back[..3], &pattern(6, fixture.len())[..3], scheme);
    }
    fixture.channel.assert_idle();
}

#[test]
fn a_reply_waits_until_all_fragments_are_let_go() {
    let test = "a_reply_waits_until_all_fragments_are_let_go";
    let Some(fixture) = Fixture::open(test, GranuleKind::Base, Place::Cached) else { return };
    let interface = fixture.interface();
    let hasty = |to| ServerHandle::new(Relay::new(interface.clone(), vec![to], Manner::Hasty, None));
    let here = hasty(fixture.holder().server().clone());
    // Two servers in a chain that reply before the last server is done; the holder's process is the third.
    for server in [here.clone(), hasty(here)] {
        let before = fixture.holder().held();
        let buffer = fixture.buffer(7);
        let request = interface.request(&server, HOLD).out(Out::emulated_copy(&buffer));
        let pending = request.submit().expect("a request");
        eventually("the holder has no fragment", || fixture.holder().held().len() > before.len());
        let name = *fixture.holder().held().last().expect("a request");
        assert!(!pending.is_replied(), "the memory is in use");
        same(&fixture.holder().read(name), &buffer, "the fragment");
        fixture.holder().reply(name);
        eventually("there is no reply", || pending.is_replied());
        pending.sync().expect("a reply");
    }
    fixture.channel.assert_idle();
}

#[test]
fn a_reply_waits_for_fragments_in_other_processes() {
    let test = "a_reply_waits_for_fragments_in_other_processes";
    let Some(fixture) = Fixture::open(test, GranuleKind::Base, Place::Cached) else { return };
    let middle = Peer::own();
    let to = vec![(fixture.peer.run(), fixture.holder().server().name().to_owned())];
    let _link = open(&middle, opening("hasty", Kind::Relay { to, manner: Manner::Hasty, log: None }));
    let hasty = connect(fixture.interface(), &middle, "hasty");
    let buffer = fixture.buffer(8);
    let request = fixture.interface().request(&hasty, HOLD).out(Out::emulated_copy(&buffer));
    let pending = request.submit().expect("a request");
    eventually("the holder has no fragment", || !fixture.holder().held().is_empty());
    let name = fixture.holder().held()[0];
    assert!(!pending.is_replied(), "the memory is in use");
    same(&fixture.holder().read(name), &buffer, "the fragment");
    fixture.holder().reply(name);
    eventually("there is no reply", || pending.is_replied());
    pending.sync().expect("a reply");
    drop(buffer);
    fixture.channel.assert_idle();
}

/// The error once said that the data was "not in memory of this interface", of which the server in the middle knows nothing.
#[test]
fn parts_that_cannot_be_named_to_another_process_are_refused_by_a_clear_error() {
    let test = "parts_that_cannot_be_named";
    let kind = GranuleKind::Base;
    let limits = genie_io::Limits::default();
    let interface =
        || Setup::allowed(kind).interface(test, memory_limit(kind), limits.clone(), Thresholds::ALWAYS);
    for (is_middle_trusted, why) in
        [(false, "its client does not trust this server"), (true, "that server is not trusted")]
    {
        let [Some(client), Some(middle)] = [interface(), interface()] else { return };
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        let options =
            |is_trusted: bool| ConnectOptions { untrusted: !is_trusted, ..ConnectOptions::default() };
        let last = memory::Memory::customized();
        let last = Listener::bind_in(&directory, "last", last, ServeOptions::default()).expect("a name");
        let _last = last.start().expect("threads");
        let to = middle.connect_with(&directory, "last", &options(!is_middle_trusted)).expect("a connection");
        let relay = Relay::new(middle, vec![to], Manner::Plain, None);
        let relay = Listener::bind_in(&directory, "middle", relay, ServeOptions::default()).expect("a name");
        let _middle = relay.start().expect("threads");
        let server =
            client.connect_with(&directory, "middle", &options(is_middle_trusted)).expect("a connection");
        let store = client.request(&server, memory::STORE).argument(b"a").out(Out::copy(b"forwarded"));
        let error = store.send().expect_err("it cannot be forwarded").error.to_string();
        assert!(error.contains("9 bytes of a request cannot be forwarded to server last"), "{error}");
        assert!(error.contains(why), "{error}");
    }
}
