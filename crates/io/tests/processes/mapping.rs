//! What a server maps of its client's memory: only what its services may touch, with no more rights, and for no longer than
//! documented.
//!
//! Source: thesis §5.1 (selective transient mapping, transient virtual addresses).

use genie_io::{In, Out};
use genie_memory::GranuleKind;
use genie_passing::Scheme;

use super::Stage;
use crate::on_both_granules;
use crate::support::bytes::{pattern, same};
use crate::support::holder::{Answer, Command, HOLD, UNMAPPED};
use crate::support::machine::{Mapping, mappings_of, object_at, raw};
use crate::support::transport::Place;

on_both_granules! {
    output_is_mapped_read_only_until_input_is_in_place,
    a_service_without_flags_maps_nothing,
    transient_mappings_last_as_long_as_their_request,
    a_pin_prolongs_a_transient_mapping,
    nothing_of_a_client_is_mapped_without_trust,
    a_system_buffer_has_one_address_in_both_processes,
}

/// The server's mappings of the object that holds `bytes` here.
fn mapped(stage: &Stage, bytes: &[u8]) -> Vec<Mapping> {
    let object = object_at(bytes.as_ptr().addr()).expect("a buffer in a memory object");
    let mut all = mappings_of(stage.peer.pid());
    all.retain(|mapping| mapping.object.as_ref() == Some(&object));
    all
}

fn output_is_mapped_read_only_until_input_is_in_place(test: &str, kind: GranuleKind) {
    let Some(stage) = Stage::open(test, kind, Place::Cached) else { return };
    let buffer = stage.buffer(1);
    assert_eq!(mapped(&stage, &buffer), [], "before any request");
    for scheme in [Scheme::EmulatedCopy, Scheme::Copy] {
        let request = stage.interface().request(stage.holder().handle(), HOLD);
        let pending = request.out(Out::borrowed(scheme, &buffer)).submit().expect("a request");
        stage.holder().read(pending.id());
        let seen = mapped(&stage, &buffer);
        assert!(!seen.is_empty(), "{scheme}: the server has read it");
        assert!(seen.iter().all(|mapping| mapping.permissions == "r--s"), "{scheme}: {seen:?}");
        stage.holder().reply(pending.id());
        pending.sync().expect("a reply");
    }
    let request = stage.interface().request(stage.holder().handle(), HOLD);
    let pending = request.input(In::emulated_share(buffer)).submit().expect("a request");
    stage.holder().deliver(pending.id(), &[5; 10]);
    let buffer = pending.sync().expect("a reply").take_buffer().expect("the buffer comes back");
    let seen = mapped(&stage, &buffer);
    assert!(seen.iter().any(|mapping| mapping.permissions == "rw-s"), "it was written in place: {seen:?}");
}

fn a_service_without_flags_maps_nothing(test: &str, kind: GranuleKind) {
    for place in [Place::Cached, Place::Transient] {
        let Some(stage) = Stage::open(test, kind, place) else { return };
        let (buffer, shared) = (stage.buffer(2), stage.buffer(3));
        let request = stage.interface().request(stage.holder().handle(), UNMAPPED);
        let request = request.out(Out::emulated_copy(&buffer)).input(In::share(shared));
        let pending = request.submit().expect("a request");
        let asked = stage.holder().command(pending.id(), Command::Read { buffer: 0 });
        assert!(matches!(asked, Answer::Refused(_)), "{asked:?}");
        assert_eq!(mapped(&stage, &buffer), [], "while the request is served");
        stage.holder().reply(pending.id());
        let shared = pending.sync().expect("a reply").take_buffer().expect("the buffer comes back");
        assert_eq!(mapped(&stage, &shared), [], "after the reply");
    }
}

fn transient_mappings_last_as_long_as_their_request(test: &str, kind: GranuleKind) {
    let Some(stage) = Stage::open(test, kind, Place::Transient) else { return };
    let buffer = stage.buffer(4);
    let granule = stage.granule();
    let submit = |part: &[u8]| {
        let request = stage.interface().request(stage.holder().handle(), HOLD);
        request.out(Out::emulated_copy(part)).submit().expect("a request")
    };
    let bytes = |stage: &Stage| -> usize {
        mapped(stage, &buffer).iter().map(|mapping| mapping.end - mapping.start).sum()
    };
    let (one, two) = (submit(&buffer[..granule]), submit(&buffer[granule..]));
    stage.holder().read(one.id());
    stage.holder().read(two.id());
    assert_eq!(bytes(&stage), stage.len(), "what two requests name is mapped");
    stage.holder().reply(one.id());
    one.sync().expect("a reply");
    assert_eq!(bytes(&stage), stage.len() - granule, "what only one of them named is not any more");
    stage.holder().reply(two.id());
    two.sync().expect("a reply");
    assert_eq!(bytes(&stage), 0, "nothing is left");
}

fn a_pin_prolongs_a_transient_mapping(test: &str, kind: GranuleKind) {
    let Some(stage) = Stage::open(test, kind, Place::Transient) else { return };
    let buffer = stage.buffer(4);
    let request = stage.interface().request(stage.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    let command = |command| stage.holder().command(pending.id(), command);
    assert_eq!(command(Command::Pin { buffer: 0 }), Answer::Done);
    stage.holder().reply(pending.id());
    assert_eq!(command(Command::ReadPinned), Answer::Bytes(buffer.to_vec()), "after the server's reply");
    assert_ne!(mapped(&stage, &buffer), []);
    assert_eq!(command(Command::Unpin), Answer::Done);
    pending.sync().expect("a reply");
    assert_eq!(mapped(&stage, &buffer), [], "after the last pin");
}

fn nothing_of_a_client_is_mapped_without_trust(test: &str, kind: GranuleKind) {
    let Some(stage) = Stage::open(test, kind, Place::Untrusted) else { return };
    let buffer = stage.buffer(5);
    let request = stage.interface().request(stage.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    same(&stage.holder().read(pending.id()), &buffer, "the output");
    assert_eq!(mapped(&stage, &buffer), []);
    stage.holder().reply(pending.id());
    pending.sync().expect("a reply");
}

fn a_system_buffer_has_one_address_in_both_processes(test: &str, kind: GranuleKind) {
    let Some(stage) = Stage::open(test, kind, Place::Cached) else { return };
    let buffer = stage.buffer(6);
    for scheme in [Scheme::EmulatedCopy, Scheme::Copy] {
        let request = stage.interface().request(stage.holder().handle(), HOLD);
        let pending = request.out(Out::borrowed(scheme, &buffer[7..])).submit().expect("a request");
        let places = stage.holder().places(pending.id());
        if !stage.has_one_address(test, &places) {
            return stage.holder().reply(pending.id());
        }
        let found: Vec<u8> = places.iter().flat_map(|(addr, len)| raw(*addr, *len)).collect();
        same(&found, &pattern(6, stage.len())[7..], format_args!("{scheme}, at the server's addresses"));
        let own = buffer.addresses();
        assert!(places.iter().all(|(addr, _)| !own.contains(addr)), "an alias, not the client's window");
        stage.holder().reply(pending.id());
        pending.sync().expect("a reply");
    }
}
