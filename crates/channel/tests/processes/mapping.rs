//! What a server maps of its client's memory: only what its services may touch, with no more rights, and for no longer than
//! documented.
//!
//! Source: thesis §5.1 (selective transient mapping, transient virtual addresses).

use genie_io::{In, Out};
use genie_memory::GranuleKind;
use genie_passing::Scheme;

use super::Fixture;
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
fn mapped(fixture: &Fixture, bytes: &[u8]) -> Vec<Mapping> {
    let object = object_at(bytes.as_ptr().addr()).expect("a buffer in a memory object");
    let mut all = mappings_of(fixture.peer.pid());
    all.retain(|mapping| mapping.object.as_ref() == Some(&object));
    all
}

fn output_is_mapped_read_only_until_input_is_in_place(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let buffer = fixture.buffer(1);
    assert_eq!(mapped(&fixture, &buffer), [], "before any request");
    for scheme in [Scheme::EmulatedCopy, Scheme::Copy] {
        let request = fixture.interface().request(fixture.holder().handle(), HOLD);
        let pending = request.out(Out::borrowed(scheme, &buffer)).submit().expect("a request");
        fixture.holder().read(pending.id());
        let seen = mapped(&fixture, &buffer);
        assert!(!seen.is_empty(), "{scheme}: the server has read it");
        assert!(seen.iter().all(|mapping| mapping.permissions == "r--s"), "{scheme}: {seen:?}");
        fixture.holder().reply(pending.id());
        pending.sync().expect("a reply");
    }
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.input(In::emulated_share(buffer)).submit().expect("a request");
    fixture.holder().deliver(pending.id(), &[5; 10]);
    let buffer = pending.sync().expect("a reply").take_buffer().expect("the buffer comes back");
    let seen = mapped(&fixture, &buffer);
    assert!(seen.iter().any(|mapping| mapping.permissions == "rw-s"), "it was written in place: {seen:?}");
}

fn a_service_without_flags_maps_nothing(test: &str, kind: GranuleKind) {
    for place in [Place::Cached, Place::Transient] {
        let Some(fixture) = Fixture::open(test, kind, place) else { return };
        let (buffer, shared) = (fixture.buffer(2), fixture.buffer(3));
        let request = fixture.interface().request(fixture.holder().handle(), UNMAPPED);
        let request = request.out(Out::emulated_copy(&buffer)).input(In::share(shared));
        let pending = request.submit().expect("a request");
        let asked = fixture.holder().command(pending.id(), Command::Read { buffer: 0 });
        assert!(matches!(asked, Answer::Refused(_)), "{asked:?}");
        assert_eq!(mapped(&fixture, &buffer), [], "while the request is served");
        fixture.holder().reply(pending.id());
        let shared = pending.sync().expect("a reply").take_buffer().expect("the buffer comes back");
        assert_eq!(mapped(&fixture, &shared), [], "after the reply");
    }
}

fn transient_mappings_last_as_long_as_their_request(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Transient) else { return };
    let buffer = fixture.buffer(4);
    let granule = fixture.granule();
    let submit = |part: &[u8]| {
        let request = fixture.interface().request(fixture.holder().handle(), HOLD);
        request.out(Out::emulated_copy(part)).submit().expect("a request")
    };
    let bytes = |fixture: &Fixture| -> usize {
        mapped(fixture, &buffer).iter().map(|mapping| mapping.end - mapping.start).sum()
    };
    let (one, two) = (submit(&buffer[..granule]), submit(&buffer[granule..]));
    fixture.holder().read(one.id());
    fixture.holder().read(two.id());
    assert_eq!(bytes(&fixture), fixture.len(), "what two requests name is mapped");
    fixture.holder().reply(one.id());
    one.sync().expect("a reply");
    assert_eq!(bytes(&fixture), fixture.len() - granule, "what only one of them named is not any more");
    fixture.holder().reply(two.id());
    two.sync().expect("a reply");
    assert_eq!(bytes(&fixture), 0, "nothing is left");
}

fn a_pin_prolongs_a_transient_mapping(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Transient) else { return };
    let buffer = fixture.buffer(4);
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    let command = |command| fixture.holder().command(pending.id(), command);
    assert_eq!(command(Command::Pin { buffer: 0 }), Answer::Done);
    fixture.holder().reply(pending.id());
    assert_eq!(command(Command::ReadPinned), Answer::Bytes(buffer.to_vec()), "after the server's reply");
    assert_ne!(mapped(&fixture, &buffer), []);
    assert_eq!(command(Command::Unpin), Answer::Done);
    pending.sync().expect("a reply");
    assert_eq!(mapped(&fixture, &buffer), [], "after the last pin");
}

fn nothing_of_a_client_is_mapped_without_trust(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Untrusted) else { return };
    let buffer = fixture.buffer(5);
    let request = fixture.interface().request(fixture.holder().handle(), HOLD);
    let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
    same(&fixture.holder().read(pending.id()), &buffer, "the output");
    assert_eq!(mapped(&fixture, &buffer), []);
    fixture.holder().reply(pending.id());
    pending.sync().expect("a reply");
}

fn a_system_buffer_has_one_address_in_both_processes(test: &str, kind: GranuleKind) {
    let Some(fixture) = Fixture::open(test, kind, Place::Cached) else { return };
    let buffer = fixture.buffer(6);
    for scheme in [Scheme::EmulatedCopy, Scheme::Copy] {
        let request = fixture.interface().request(fixture.holder().handle(), HOLD);
        let pending = request.out(Out::borrowed(scheme, &buffer[7..])).submit().expect("a request");
        let places = fixture.holder().places(pending.id());
        if !fixture.has_one_address(test, &places) {
            return fixture.holder().reply(pending.id());
        }
        let found: Vec<u8> = places.iter().flat_map(|(addr, len)| raw(*addr, *len)).collect();
        same(&found, &pattern(6, fixture.len())[7..], format_args!("{scheme}, at the server's addresses"));
        let own = buffer.addresses();
        assert!(places.iter().all(|(addr, _)| !own.contains(addr)), "an alias, not the client's window");
        fixture.holder().reply(pending.id());
        pending.sync().expect("a reply");
    }
}
