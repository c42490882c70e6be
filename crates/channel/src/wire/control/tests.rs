use std::time::Duration;

use genie_io::Service;
use genie_io::carrier::MAX_NAME;
use genie_memory::Mapping;
use genie_passing::Preferred;
use genie_ring::Layout;
use genie_sys::GranuleKind;
use proptest::collection::vec;
use proptest::prelude::*;

use super::layout::*;
use super::*;
use crate::counts::Counts;
use crate::wire::tests::{assert_documented, compare};
use crate::wire::{MAX_OFFSET, fuzzing};

const HEAD: usize = 16;

#[test]
fn the_documented_layouts_are_those_of_the_code() {
    assert_documented! {
        "Head": Head { magic, version, kind, len }
        "Hello (1)": HelloHead {
            version_min, version_max, pid, alias_base, alias_len, limits, granule, untrusted, name, mixed
        }
        "Welcome (2)": WelcomeHead {
            version, mapping, trust, instance, limits, abort_timeout_ms, lines, area, pool, services, name
        }
        "Service": ServiceHead { reads, writes, zero, name, zeros }
        "Refused (3) and goodbye (14)": EndingHead { reason, sentence }
        "Object (4)": ObjectPart { arena, writable, zero, id, start, len }
        "Arena (5)": ArenaPart { number, granule, zero, base, len }
        "Pool (8)": PoolHead { count }
        "Limits (10) and limits wanted (11)": LimitsPart { pending_bytes, pending_requests }
        "Layout wanted (16)": LayoutWantedHead { service, argument }
        "Layout (17)": LayoutPart { preferred, offset, len, header, trailer }
        "Status (13)": StatusHead { instance, uptime_ms, pid, clients_total, clients, services, name }
        "Client": ClientHead { pid, limits, name }
        "Traffic (15)": TrafficHead { departed, clients }
        "Counts of a client": ClientCountsPart { client, counts }
    }
    let numbers = [
        ("Withdraw (6)", Message::Withdraw(1), "id"),
        ("Withdraw arena (7)", Message::WithdrawArena(1), "number"),
        ("Pool wanted (9)", Message::PoolWanted(1), "bytes"),
    ];
    for (title, message, field) in numbers {
        compare(title, message.encode().unwrap().len() - HEAD, &[(field, 0)]);
    }
}

fn sender(message: &Message) -> Party {
    message.kind().sender().unwrap_or(Party::Server)
}

fn decode(message: &Message, bytes: &[u8]) -> Result<Message, Error> {
    Message::decode(bytes, message.descriptors(), sender(message))
}

fn limits() -> impl Strategy<Value = Limits> {
    any::<(u64, u32)>()
        .prop_map(|(pending_bytes, pending_requests)| Limits { pending_bytes, pending_requests })
}

fn granules() -> impl Strategy<Value = GranuleKind> {
    prop_oneof![Just(GranuleKind::Huge), Just(GranuleKind::Collapsed), Just(GranuleKind::Base)]
}

/// Arenas: the kind of granules, the start, and the length.
fn places() -> impl Strategy<Value = (GranuleKind, u64, u64)> {
    (granules(), 0u64..1 << 20, 1u64..1 << 20)
        .prop_map(|(kind, base, len)| (kind, base * kind.size() as u64, len * kind.size() as u64))
}

fn names() -> impl Strategy<Value = String> {
    "[a-z0-9 ._\u{e9}-]{0,30}"
}

fn millis() -> impl Strategy<Value = Duration> {
    any::<u32>().prop_map(|millis| Duration::from_millis(millis.into()))
}

fn services() -> impl Strategy<Value = Vec<Service>> {
    let service = (names(), any::<bool>(), any::<bool>()).prop_map(|(name, reads, writes)| Service {
        name: name.into(),
        reads,
        writes,
    });
    vec(service, 0..5)
}

fn layouts() -> impl Strategy<Value = Option<Preferred>> {
    let layout = any::<[usize; 4]>().prop_map(|[offset, len, header, trailer]| Preferred {
        offset,
        len,
        header,
        trailer,
    });
    prop::option::of(layout)
}

fn endings() -> impl Strategy<Value = Ending> {
    let reason = prop_oneof![
        Just(Reason::Closing),
        Just(Reason::Version),
        Just(Reason::Silent),
        Just(Reason::Permission),
        (100u16..).prop_map(Reason::Other),
    ];
    (reason, "\\PC{0,40}").prop_map(|(reason, sentence)| Ending { reason, sentence })
}

fn hellos() -> impl Strategy<Value = Hello> {
    (any::<(u16, u16, u32, bool, bool)>(), names(), places(), limits()).prop_map(
        |((first, second, pid, untrusted, mixed), name, (granule, alias_base, alias_len), limits)| Hello {
            version_min: first.min(second),
            version_max: first.max(second),
            name,
            pid,
            granule,
            mixed: mixed && granule.size() > 4096,
            alias_base,
            alias_len,
            untrusted,
            limits,
        },
    )
}

fn welcomes() -> impl Strategy<Value = Welcome> {
    let fixed = any::<(u16, u64, u32, u32, bool, bool)>();
    (fixed, names(), limits(), millis(), vec(1..=MAX_OFFSET, 0..=13), services()).prop_map(
        |(
            (version, instance, lines, area, transient, copied),
            name,
            limits,
            abort_timeout,
            lens,
            services,
        )| {
            Welcome {
                version,
                name,
                instance,
                limits,
                abort_timeout,
                rings: Layout { lines, area },
                mapping: if transient { Mapping::Transient } else { Mapping::Cached },
                trust: if copied { Trust::Copied } else { Trust::Mapped },
                pool: lens,
                services,
            }
        },
    )
}

fn statuses() -> impl Strategy<Value = Status> {
    let client = (names(), any::<u32>(), limits()).prop_map(|(name, pid, pending)| ClientStatus {
        name,
        pid,
        pending,
    });
    (names(), any::<(u64, u32, u16)>(), millis(), services(), vec(client, 0..5)).prop_map(
        |(name, (instance, pid, more), uptime, services, clients)| Status {
            name,
            instance,
            pid,
            uptime,
            services,
            clients_total: clients.len() as u32 + u32::from(more),
            clients,
        },
    )
}

fn traffics() -> impl Strategy<Value = Traffic> {
    let counts = || {
        any::<[u64; 6]>().prop_map(|[requests, failures, out_copied, out_passed, in_copied, in_passed]| {
            Counts { requests, failures, out_copied, out_passed, in_copied, in_passed }
        })
    };
    let client = (any::<u64>(), counts()).prop_map(|(client, counts)| ClientCounts { client, counts });
    (counts(), vec(client, 0..5)).prop_map(|(departed, clients)| Traffic { departed, clients })
}

fn messages() -> impl Strategy<Value = Message> {
    let object = (any::<(u16, u64, bool)>(), 0u64..1 << 47, 1u64..1 << 47)
        .prop_map(|((arena, id, writable), start, len)| ObjectPlace { arena, id, start, len, writable });
    let arena = (1u16.., places()).prop_map(|(number, (granule, base, len))| ArenaPlace {
        number,
        granule,
        base,
        len,
    });
    prop_oneof![
        hellos().prop_map(Message::Hello),
        welcomes().prop_map(Message::Welcome),
        endings().prop_map(Message::Refused),
        object.prop_map(Message::Object),
        arena.prop_map(Message::Arena),
        any::<u64>().prop_map(Message::Withdraw),
        any::<u16>().prop_map(Message::WithdrawArena),
        vec(1..=MAX_OFFSET, 0..=16).prop_map(Message::Pool),
        any::<u64>().prop_map(Message::PoolWanted),
        limits().prop_map(Message::Limits),
        limits().prop_map(Message::LimitsWanted),
        Just(Message::Query(())),
        statuses().prop_map(Message::Status),
        traffics().prop_map(Message::Traffic),
        (any::<u16>(), vec(any::<u8>(), 0..40))
            .prop_map(|(service, argument)| Message::LayoutWanted(LayoutWanted { service, argument })),
        layouts().prop_map(Message::Layout),
        Just(Message::LayoutsChanged(())),
        endings().prop_map(Message::Goodbye),
    ]
}

proptest! {
    #[test]
    fn a_message_arrives_as_it_was_sent_and_no_part_of_it_does(message in messages()) {
        let bytes = message.encode().unwrap();
        prop_assert!(bytes.len() <= MAX_MESSAGE);
        prop_assert_eq!(decode(&message, &bytes), Ok(message.clone()));
        for len in 0..bytes.len() {
            prop_assert!(decode(&message, &bytes[..len]).is_err(), "its first {} bytes", len);
            // The message is not accepted either if its head states the shorter length.
            if len >= HEAD {
                let shorter = fuzzing::frame(message.kind() as u8, &bytes[HEAD..len]);
                prop_assert!(decode(&message, &shorter).is_err(), "its first {} bytes, announced", len);
            }
        }
        let longer = fuzzing::frame(message.kind() as u8, &[&bytes[HEAD..], &[0]].concat());
        prop_assert!(decode(&message, &longer).is_err());
    }

    #[test]
    fn a_message_is_taken_only_with_its_descriptors_and_from_its_sender(
        message in messages(), descriptors in 0usize..20
    ) {
        let bytes = message.encode().unwrap();
        let result = Message::decode(&bytes, descriptors, sender(&message));
        prop_assert_eq!(result.is_ok(), descriptors == message.descriptors());
        prop_assert!(message.kind().descriptors().contains(&message.descriptors()));
        let other = if sender(&message) == Party::Client { Party::Server } else { Party::Client };
        let result = Message::decode(&bytes, message.descriptors(), other);
        match message.kind().sender() {
            Some(_) => prop_assert_eq!(result, Err(Error::Sender { kind: message.kind(), from: other })),
            None => prop_assert!(result.is_ok()),
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_panic_and_encode_to_themselves(
        how in any::<u8>(), kind in 0u8..21, body in vec(prop_oneof![3 => 0u8..3, 1 => any::<u8>()], 0..200)
    ) {
        fuzzing::message(&[&[how, kind][..], &body].concat());
        fuzzing::message(&body);
    }

    #[test]
    fn damaged_messages_are_decoded_without_panic_and_encode_to_themselves(
        message in messages(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut bytes = message.encode().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let from = if sender(&message) == Party::Client { 0 } else { 0x40 };
        fuzzing::message(&[&[from | message.descriptors() as u8][..], &bytes].concat());
    }
}

fn a_hello() -> Hello {
    Hello {
        version_min: 1,
        version_max: 1,
        name: "client".to_owned(),
        pid: 1,
        granule: GranuleKind::Base,
        mixed: false,
        alias_base: 4096,
        alias_len: 4096,
        untrusted: false,
        limits: Limits { pending_bytes: 1, pending_requests: 1 },
    }
}

/// A welcome whose services begin behind its head: it has no name, and lends nothing.
fn a_welcome() -> Welcome {
    Welcome {
        version: VERSION,
        name: String::new(),
        instance: 0,
        limits: Limits { pending_bytes: 0, pending_requests: 0 },
        abort_timeout: Duration::ZERO,
        rings: Layout::default(),
        mapping: Mapping::Cached,
        trust: Trust::Mapped,
        pool: Vec::new(),
        services: Vec::new(),
    }
}

#[test]
fn other_programs_other_versions_and_unknown_kinds_have_their_own_errors() {
    let bytes = Message::Query(()).encode().unwrap();
    assert_eq!(Message::decode(b"GET / HTTP/1.1", 0, Party::Client), Err(Error::Magic { len: 14 }));
    assert_eq!(Message::decode(&[], 0, Party::Client), Err(Error::Magic { len: 0 }));
    let mut newer = bytes.clone();
    newer[8] = 2;
    let error = Message::decode(&newer, 0, Party::Client).unwrap_err();
    assert_eq!(error, Error::Version { found: 2, expected: 1 });
    assert!(error.to_string().contains("update the older side"));
    for kind in [0u16, 19, 0x010c] {
        let mut unknown = bytes.clone();
        unknown[10..12].copy_from_slice(&kind.to_le_bytes());
        assert_eq!(Message::decode(&unknown, 0, Party::Client), Err(Error::Kind { kind }));
    }
}

#[test]
fn a_message_beyond_the_limit_is_refused_before_its_body_is_read() {
    let bytes = fuzzing::frame(Kind::Goodbye as u8, &vec![0; MAX_MESSAGE]);
    let Err(Error::Malformed(malformed)) = Message::decode(&bytes, 0, Party::Client) else { panic!() };
    assert_eq!(malformed.offset, 0);
}

#[test]
fn the_largest_messages_fit_the_limit() {
    let name = "n".repeat(MAX_NAME);
    let service = |_| Service { name: name.clone().into(), reads: true, writes: true };
    let limits = Limits { pending_bytes: 0, pending_requests: 0 };
    let services: Vec<_> = (0..MAX_SERVICES).map(service).collect();
    let client = |_| ClientStatus { name: name.clone(), pid: 0, pending: limits };
    let status = Status {
        name: name.clone(),
        instance: 0,
        pid: 0,
        uptime: Duration::MAX,
        services,
        clients_total: MAX_CLIENTS as u32,
        clients: (0..MAX_CLIENTS).map(client).collect(),
    };
    assert!(Message::Status(status.clone()).encode().unwrap().len() <= MAX_MESSAGE);
    let mut more = status;
    more.clients.push(client(0));
    assert_eq!(Message::Status(more).encode().unwrap_err().max, 512);
    let client = ClientCounts { client: 1, counts: Counts::default() };
    let mut traffic = Traffic { departed: Counts::default(), clients: vec![client; MAX_CLIENTS] };
    assert!(Message::Traffic(traffic.clone()).encode().unwrap().len() <= MAX_MESSAGE);
    traffic.clients.push(client);
    assert_eq!(Message::Traffic(traffic).encode().unwrap_err().max, 512);
}

#[test]
fn what_is_too_long_is_not_encoded_and_sentences_are_cut() {
    let mut hello = a_hello();
    hello.name = "n".repeat(65);
    assert_eq!(Message::Hello(hello.clone()).encode().unwrap_err().count, 65);
    hello.name = "a\u{1b}[2J".to_owned();
    Message::Hello(hello).encode().unwrap_err();
    let lens = vec![4096; 17];
    Message::Pool(lens).encode().unwrap_err();
    let object = ObjectPlace { arena: 0, id: 0, start: MAX_OFFSET, len: 1, writable: false };
    Message::Object(object).encode().unwrap_err();
    let mut wanted = LayoutWanted { service: 0, argument: vec![0; MAX_LAYOUT_ARGUMENT] };
    Message::LayoutWanted(wanted.clone()).encode().unwrap();
    wanted.argument.push(0);
    Message::LayoutWanted(wanted).encode().unwrap_err();
    let ending = Ending { reason: Reason::Busy, sentence: "\u{20ac}".repeat(400) };
    let bytes = Message::Refused(ending).encode().unwrap();
    let Ok(Message::Refused(ending)) = Message::decode(&bytes, 0, Party::Server) else { panic!() };
    assert_eq!(ending.sentence.len(), 1023);
}

/// The complaint about a message in whose body one byte is changed.
fn complaint(message: &Message, at: usize, byte: u8) -> String {
    let mut bytes = message.encode().unwrap();
    bytes[HEAD + at] = byte;
    decode(message, &bytes).unwrap_err().to_string()
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let hello = Message::Hello(a_hello());
    assert!(complaint(&hello, 0, 9).contains("from 9 to 1"));
    assert!(complaint(&hello, 8, 1).contains("4096 bytes at 0x1001"));
    assert!(complaint(&hello, 17, 0).contains("0 bytes at"));
    assert!(complaint(&hello, 36, 3).contains("no granules are of kind 3"));
    assert!(complaint(&hello, 37, 2).contains("\"untrusted\" is 2"));
    assert!(complaint(&hello, 40, 0xff).contains("not valid UTF-8"));
    assert!(complaint(&hello, 40, 0x1b).contains("control characters"));
    let object = Message::Object(ObjectPlace { arena: 0, id: 1, start: 0, len: 1, writable: false });
    assert!(complaint(&object, 20, 0).contains("no object has 0 bytes"));
    assert!(complaint(&object, 19, 1).contains("no object has 1 bytes at"));
    assert!(complaint(&object, 3, 1).contains("spare byte 1"));
    let arena = Message::Arena(ArenaPlace { number: 1, granule: GranuleKind::Base, base: 0, len: 4096 });
    assert!(complaint(&arena, 0, 0).contains("number 0"));
    let layout = Message::Layout(Some(Preferred { len: 1, ..Preferred::default() }));
    assert!(complaint(&layout, 0, 2).contains("\"preferred\" is 2"));
    assert!(complaint(&layout, 0, 0).contains("no layout has the numbers [0, 1, 0, 0]"));
    let longest = LayoutWanted { service: 0, argument: vec![0; MAX_LAYOUT_ARGUMENT] };
    assert!(complaint(&Message::LayoutWanted(longest), 3, 0x81).contains("an argument of 33024 bytes"));
    let service = Service { name: "s".into(), reads: true, writes: true };
    let welcome = Message::Welcome(Welcome { services: vec![service], ..a_welcome() });
    assert!(complaint(&welcome, 42 + 2, 1).contains("spare bytes"));
    assert!(complaint(&welcome, 42 + 19, 1).contains("spare bytes"));
    let pool = Message::Pool(vec![1]);
    assert!(complaint(&pool, 2, 0).contains("no object has 0 bytes"));
}
