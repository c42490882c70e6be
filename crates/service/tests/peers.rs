//! Peers that know nothing of types, or pretend to.

use std::collections::HashMap;
use std::sync::Arc;

use allocation_counter::measure;
use genie::service::{Error, Mismatch};
use genie::{
    Error as GenieError, In, Incoming, Interface, Out, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_sys::lock::Mutex;
use serde::{Deserialize, Serialize};

use crate::stage::{BulkServer, Bulks, Header, SmallClient, SmallServer, Smalls, bulk, interface, small};

/// The number of a typed server's method.
fn method(server: &ServerHandle, name: &str) -> ServiceId {
    let number = server.services().iter().position(|service| service.name.starts_with(&format!("{name}#")));
    ServiceId(number.expect("the method") as u32)
}

/// What a typed server says to a request with this argument and no buffers.
fn reply_to(
    genie: &Interface,
    server: &ServerHandle,
    service: ServiceId,
    argument: &[u8],
) -> Result<(), String> {
    let reply = genie.request(server, service).argument(argument).room(1 << 16).send();
    reply.map(drop).map_err(|failed| match failed.error {
        GenieError::Server(error) => error.message,
        other => panic!("the server refuses, and does not fail: {other}"),
    })
}

#[test]
fn garbage_for_arguments_is_refused() {
    let genie = interface();
    let server = ServerHandle::new(SmallServer::new(Smalls));
    let rename = method(&server, "rename");
    let refused = |argument: &[u8]| reply_to(&genie, &server, rename, argument).unwrap_err();
    assert!(refused(&[]).starts_with("the argument header cannot be decoded"), "{}", refused(&[]));
    assert!(refused(&[1, 5, b'a']).starts_with("the argument header"));
    assert!(
        refused(&[1, 0, 0, 0xff, 0xff]).starts_with("the argument name"),
        "{}",
        refused(&[1, 0, 0, 0xff, 0xff])
    );
    assert!(refused(&[1, 0, 0, 1, 0xff, 0]).starts_with("the argument name"), "text that is not UTF-8");
    assert_eq!(refused(&[1, 0, 0, 0, 0, 9]), "the arguments cannot be decoded: 1 bytes are left over");
    let mirror = method(&server, "mirror");
    let refused = reply_to(&genie, &server, mirror, &[0; 15]).unwrap_err();
    assert_eq!(refused, "the argument factor cannot be decoded: 3 bytes are left, and it takes 4");
    // The server goes on.
    let small = SmallClient::new(&genie, server).unwrap();
    assert_eq!(small.root(4.0).send().unwrap().value, 2.0);
}

#[test]
fn lengths_from_a_peer_reserve_no_memory() {
    let genie = interface();
    let server = ServerHandle::new(SmallServer::new(Smalls));
    let rename = method(&server, "rename");
    // A header whose list of tags claims 2^60 texts.
    let argument = [&[1, 0][..], &[0x80; 8], &[0x10]].concat();
    let allocated = measure(|| {
        reply_to(&genie, &server, rename, &argument).unwrap_err();
    });
    assert!(allocated.bytes_total < 100_000, "{allocated:?}");
}

/// A value that is nested a hundred thousand times, in a byte each, took the server's stack and ended its process.
#[test]
fn values_nested_too_deeply_are_refused() {
    #[derive(Serialize, Deserialize)]
    enum Chain {
        End,
        Link(Box<Chain>),
    }
    #[genie::service]
    trait Chains {
        fn length(&self, chain: Chain) -> u32;
    }
    let chains = ChainsServer::from_fn(|mut chain| {
        let mut length = 0;
        while let Chain::Link(next) = chain {
            (chain, length) = (*next, length + 1);
        }
        length
    });
    let genie = interface();
    let server = ServerHandle::new(chains);
    let mut bytes = vec![1; 100_000];
    bytes.push(0);
    let refused = reply_to(&genie, &server, method(&server, "length"), &bytes).unwrap_err();
    assert_eq!(
        refused,
        "the argument chain cannot be decoded: values in it are nested too deeply, or are too large"
    );
    let short = (0..50).fold(Chain::End, |chain, _| Chain::Link(Box::new(chain)));
    let chains = ChainsClient::new(&genie, server).unwrap();
    assert_eq!(chains.length(short).send().unwrap().value, 50);
}

/// Nine bytes took a server's memory without end, or its time: they claimed 2^62 elements, which encode to no bytes.
#[test]
fn elements_without_bytes_are_refused_beyond_a_bound() {
    #[derive(Default, Serialize, Deserialize)]
    struct Skips {
        #[serde(skip)]
        cache: [u64; 16],
    }
    #[genie::service]
    trait Lists {
        fn units(&self, list: Vec<()>) -> usize;
        fn skips(&self, list: Vec<Skips>) -> usize;
        fn nested(&self, list: Vec<Option<Vec<Skips>>>) -> usize;
        fn map(&self, list: HashMap<u64, [u64; 16]>) -> usize;
    }
    struct Lengths;
    impl Lists for Lengths {
        fn units(&self, list: Vec<()>) -> usize {
            list.len()
        }
        fn skips(&self, list: Vec<Skips>) -> usize {
            list.iter().filter(|element| element.cache == [0; 16]).count()
        }
        fn nested(&self, list: Vec<Option<Vec<Skips>>>) -> usize {
            list.iter().flatten().map(Vec::len).sum()
        }
        fn map(&self, list: HashMap<u64, [u64; 16]>) -> usize {
            list.len()
        }
    }
    let genie = interface();
    let server = ServerHandle::new(ListsServer::new(Lengths));
    // 2^62 elements; one more than 1,024 and the bytes of their number; and some in lists that are elements themselves.
    let (endless, beyond) = ([&[0x80; 8][..], &[0x40]].concat(), vec![0x83, 0x08]);
    let within = [&[3][..], &[1, 0xd0, 0x0f].repeat(3)].concat();
    let hostile = [
        ("units", &beyond),
        ("units", &endless),
        ("skips", &beyond),
        ("skips", &endless),
        ("nested", &within),
        ("map", &endless),
    ];
    for (name, argument) in hostile {
        let mut refused = String::new();
        let allocated = measure(|| {
            refused = reply_to(&genie, &server, method(&server, name), argument).unwrap_err();
        });
        let expected = format!(
            "the argument list cannot be decoded: its lists claim more elements than there are bytes left ({}), plus 1024",
            argument.len()
        );
        assert_eq!(refused, expected, "{name}");
        assert!(allocated.bytes_total < 1 << 20, "{name}: {allocated:?}");
    }
    let lists = ListsClient::new(&genie, server).unwrap();
    let skips = || (0..1024).map(|_| Skips::default()).collect::<Vec<_>>();
    assert_eq!(lists.units(vec![(); 1024]).send().unwrap().value, 1024);
    assert_eq!(lists.skips(skips()).send().unwrap().value, 1024);
    assert_eq!(lists.nested(vec![None, Some(skips()), Some(Vec::new())]).send().unwrap().value, 1024);
    assert_eq!(lists.map((0..2000).map(|key| (key, [key; 16])).collect()).send().unwrap().value, 2000);
}

#[test]
fn random_arguments_never_harm_a_server() {
    let genie = interface();
    let server = ServerHandle::new(SmallServer::new(Smalls));
    let methods = ["rename", "mirror", "root", "nothing", "type"].map(|name| method(&server, name));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let mut refused = 0;
    for _ in 0..5_000 {
        let argument: Vec<u8> = (0..next() % 40).map(|_| (next() % 17) as u8).collect();
        refused +=
            usize::from(reply_to(&genie, &server, methods[next() % methods.len()], &argument).is_err());
    }
    assert!((1..5_000).contains(&refused), "{refused}");
}

#[test]
fn buffers_that_are_none_of_the_methods_are_refused() {
    let genie = interface();
    let server = ServerHandle::new(BulkServer::new(Bulks));
    let (sum, invert, scale) = (method(&server, "sum"), method(&server, "invert"), method(&server, "scale"));
    let message = |sent: Result<genie::Reply, genie::Failed>| sent.unwrap_err().to_string();
    let data = [0; 10];
    let mut room = [0; 10];
    let none = message(genie.request(&server, sum).send());
    assert!(none.contains("the method takes buffers (output), and the request has ()"), "{none}");
    let wrong = message(genie.request(&server, sum).input(In::copy(&mut room)).send());
    assert!(wrong.contains("takes buffers (output), and the request has (input)"), "{wrong}");
    let many = genie.request(&server, invert).out(Out::copy(&data)).out(Out::copy(&data));
    let many = message(many.input(In::copy(&mut room)).argument(&[0]).send());
    assert!(many.contains("(output, input), and the request has (output, output, input)"), "{many}");
    let odd = genie.request(&server, scale).out(Out::copy(&data)).input(In::copy(&mut room));
    let odd = message(odd.argument(&[0; 4]).send());
    assert!(odd.contains("the argument points cannot be decoded: its 10 bytes are no whole number"), "{odd}");
    let without_room = genie.request(&server, sum).out(Out::copy(&data)).send().unwrap_err().error;
    assert!(matches!(without_room, GenieError::ArgumentTooLong { .. }), "{without_room}");
    let text = reply_to(&genie, &server, ServiceId(server.services().len() as u32 - 1), &[99]);
    assert_eq!(text.unwrap_err(), "there is no method number 99");
}

/// Announces what a typed server does, and replies to all with the same bytes.
struct Liar {
    services: Vec<Service>,
    result: Vec<u8>,
}

impl Server for Liar {
    fn name(&self) -> &str {
        "liar"
    }

    fn services(&self) -> &[Service] {
        &self.services
    }

    fn request(&self, mut request: Incoming) {
        request.set_argument(&self.result).expect("the client makes room");
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {}
}

#[test]
fn a_garbage_result_is_an_error() {
    let genie = interface();
    let honest = small(&genie);
    let header = Header { id: 1, name: String::new(), tags: Vec::new() };
    // Nothing; neither success nor failure; cut off; 2^60 texts; left over; an unknown error; text that is not UTF-8.
    let claims = [&[0, 1, 0][..], &[0x80; 8], &[0x10]].concat();
    for result in
        [&[][..], &[2, 0], &[0], &[0, 1, 3, b'a'], &claims, &[0, 1, 0, 0, 0], &[1, 9], &[1, 1, 1, 0xff]]
    {
        let liar = Liar { services: honest.server().services().to_vec(), result: result.to_vec() };
        let small = SmallClient::new(&genie, ServerHandle::new(liar)).unwrap();
        let allocated = measure(|| {
            let failed = small.rename(&header, "", None).send().unwrap_err();
            assert!(
                matches!(failed.error, Error::Undecodable { method: "rename", .. }),
                "{result:?}: {failed}"
            );
        });
        assert!(allocated.bytes_total < 100_000, "{allocated:?}");
    }
    // Any value but () is too long for this one.
    let liar = Liar { services: honest.server().services().to_vec(), result: vec![0, 0] };
    let small = SmallClient::new(&genie, ServerHandle::new(liar)).unwrap();
    assert!(matches!(small.nothing().send().unwrap_err().error, Error::Undecodable { .. }));
}

#[test]
fn a_garbage_signature_is_shown_without_control_characters() {
    let genie = interface();
    let mut services = bulk(&genie).server().services().to_vec();
    services
        .iter_mut()
        .filter(|service| service.name.starts_with("sum#"))
        .for_each(|service| service.name = "sum#0".into());
    // A string that clears the screen.
    let liar = Liar { services: services.clone(), result: b"\0\x05\x1b[2Ja".to_vec() };
    let client = crate::stage::BulkClient::new(&genie, ServerHandle::new(liar)).unwrap();
    let failed = client.sum(&[]).send().unwrap_err();
    let Error::Mismatch(Mismatch::Signature { servers, .. }) = &failed.error else { panic!("{failed}") };
    assert_eq!(servers, "?[2Ja");
    // One that can't be decoded is replaced by the service's name.
    let liar = Liar { services, result: vec![0, 200] };
    let client = crate::stage::BulkClient::new(&genie, ServerHandle::new(liar)).unwrap();
    assert!(client.sum(&[]).send().unwrap_err().to_string().contains("server liar has `sum#0`"));
}

/// Each of the methods that differed took the time that a server has for telling its types.
#[test]
fn a_server_that_tells_no_types_is_asked_once() {
    /// Keeps what it is asked.
    struct Silent(Vec<Service>, Arc<Mutex<Vec<Incoming>>>);
    impl Server for Silent {
        fn name(&self) -> &str {
            "silent"
        }
        fn services(&self) -> &[Service] {
            &self.0
        }
        fn request(&self, request: Incoming) {
            self.1.lock().push(request);
        }
        fn abort(&self, _request: RequestId) {}
    }
    let genie = interface();
    let mut services = bulk(&genie).server().services().to_vec();
    // All methods but the first and the service that tells their types.
    let differing = 1..services.len() - 1;
    services[differing.clone()]
        .iter_mut()
        .for_each(|service| service.name = format!("{}0", service.name).into());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let silent = ServerHandle::new(Silent(services, asked.clone()));
    let client = crate::stage::BulkClient::new(&genie, silent).unwrap();
    let failed = client.copied(&[]).send().unwrap_err();
    assert!(failed.to_string().contains("server silent has `copied#"), "{failed}");
    assert_eq!((differing.len(), asked.lock().len()), (7, 1));
}
