//! Clients and servers that were built from different versions of a trait.

use genie::service::{Error, Mismatch};
use genie::{Incoming, Interface, RequestId, Server, ServerHandle, Service, memory};

use crate::stage::interface;

mod old {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) enum Unit {
        Metres,
        Feet(u16),
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Picture {
        pub(crate) width: u32,
        pub(crate) unit: Unit,
    }

    #[genie::service]
    pub(crate) trait Gallery {
        fn count(&self, name: &str) -> u64;
        fn hang(&self, picture: Picture, pixels: &[u8]) -> Result<(), String>;
        fn frame(&self, #[scheme(share)] pixels: genie::Buffer, wide: u8, high: u8) -> u8;
        fn dropped(&self);
    }
}

mod new {
    use serde::{Deserialize, Serialize};

    use super::old::Unit;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(crate) struct Picture {
        pub(crate) height: u32,
        pub(crate) unit: Unit,
    }

    /// `count` is as it was, but in another place; the others have changed or are new.
    #[genie::service]
    pub(crate) trait Gallery {
        fn added(&self, data: &[u8]) -> u64;
        fn frame(&self, pixels: genie::Buffer, high: u8, wide: u8) -> u8;
        fn hang(&self, picture: Picture, pixels: &[u16]) -> Result<(), String>;
        fn count(&self, name: &str) -> u64;
    }
}

struct Old;

impl old::Gallery for Old {
    fn count(&self, name: &str) -> u64 {
        name.len() as u64
    }

    fn hang(&self, _: old::Picture, _: genie::service::Output<'_>) -> Result<(), String> {
        panic!("no client calls this with these types")
    }

    fn frame(&self, _: genie::service::Output<'_>, _: u8, _: u8) -> u8 {
        panic!("no client calls this with these types")
    }

    fn dropped(&self) {}
}

fn connected() -> (Interface, new::GalleryClient) {
    let genie = interface();
    let client = new::GalleryClient::new(&genie, ServerHandle::new(old::GalleryServer::new(Old)));
    (genie, client.expect("some methods agree"))
}

#[test]
fn methods_are_found_by_name_wherever_they_stand() {
    let (_genie, gallery) = connected();
    assert_eq!(gallery.count("four").send().unwrap().value, 4);
}

#[test]
fn a_method_with_other_types_says_which_side_has_what() {
    let (_genie, gallery) = connected();
    let picture = new::Picture { height: 1, unit: old::Unit::Metres };
    let failed = gallery.hang(picture, &[1]).send().unwrap_err();
    assert_eq!(
        failed.to_string(),
        "method hang differs: server Gallery has `hang(picture: Picture, pixels: &[u8]) -> Result<(), str> where \
         Picture { width: u32, unit: Unit }, Unit { Metres, Feet(u16) }`, and this client has \
         `hang(picture: Picture, pixels: &[u16]) -> Result<(), str> where \
         Picture { height: u32, unit: Unit }, Unit { Metres, Feet(u16) }`"
    );
    assert!(matches!(failed.error, Error::Mismatch(Mismatch::Signature { method: "hang", .. })));
}

/// Postcard would read one for the other.
#[test]
fn arguments_that_have_changed_places_are_told_apart_and_buffers_come_back() {
    let (genie, gallery) = connected();
    let mut failed = gallery.frame(genie.allocate(8192).unwrap(), 2, 3).submit().unwrap_err();
    assert!(failed.to_string().contains("wide: u8, high: u8"), "{failed}");
    assert!(failed.to_string().contains("high: u8, wide: u8"), "{failed}");
    assert_eq!(failed.take_buffer().map(|buffer| buffer.len()), Some(8192));
}

#[test]
fn a_missing_method_fails_when_it_is_called_and_says_what_there_is() {
    let (_genie, gallery) = connected();
    let failed = gallery.added(&[]).send().unwrap_err();
    assert_eq!(
        failed.to_string(),
        "server Gallery has no method added; its services are: count, hang, frame, dropped"
    );
}

#[test]
fn a_server_with_no_method_of_the_clients_is_refused_at_once() {
    let genie = interface();
    let server = ServerHandle::new(memory::Memory::customized());
    let refused = old::GalleryClient::new(&genie, server).unwrap_err();
    assert!(matches!(refused, Error::Mismatch(Mismatch::Absent { method: "count", .. })), "{refused}");
    assert!(refused.to_string().contains("its services are: null, "), "{refused}");
    let absent = old::GalleryClient::connect(&genie, "no such gallery").unwrap_err();
    assert!(matches!(absent, Error::Genie(_)), "{absent}");
}

#[test]
fn a_service_of_this_name_that_is_not_typed_is_told_from_a_missing_one() {
    #[genie::service]
    trait Sinks {
        fn sink(&self, data: &[u8]);
    }
    let server = ServerHandle::new(memory::Memory::customized());
    let refused = SinksClient::new(&interface(), server).unwrap_err();
    assert!(matches!(refused, Error::Mismatch(Mismatch::Untyped { method: "sink", .. })), "{refused}");
}

#[test]
fn a_server_that_does_not_tell_its_types_is_told_by_its_digests() {
    let genie = interface();
    let mut services = ServerHandle::new(old::GalleryServer::new(Old)).services().to_vec();
    services.pop();
    struct Silent(Vec<Service>);
    impl Server for Silent {
        fn name(&self) -> &str {
            "silent"
        }
        fn services(&self) -> &[Service] {
            &self.0
        }
        fn request(&self, request: Incoming) {
            drop(request);
        }
        fn abort(&self, _request: RequestId) {}
    }
    let silent = new::GalleryClient::new(&genie, ServerHandle::new(Silent(services.clone()))).unwrap();
    let failed = silent.frame(genie.allocate(1).unwrap(), 1, 1).send().unwrap_err().to_string();
    let name = &services[2].name;
    assert!(failed.contains(&format!("server silent has `{name}`, and this client has `frame(")), "{failed}");
}

#[test]
fn schemes_are_the_clients_choice_and_no_part_of_the_signature() {
    #[genie::service]
    trait A {
        fn sum(&self, data: &[u8]) -> u64;
    }
    mod other {
        #[genie::service]
        pub(super) trait B {
            fn sum(&self, #[scheme(copy)] data: &[u8]) -> u64;
        }
    }
    let server = ServerHandle::new(AServer::from_fn(|data| data.data().sum()));
    let client = other::BClient::new(&interface(), server).unwrap();
    let reply = client.sum(&[1; 8]).send().unwrap();
    assert_eq!(
        (reply.value, reply.buffers[0].elements[0].receipt.asked),
        (0x0101_0101_0101_0101, genie::Scheme::Copy)
    );
}
