//! Small arguments and results.

use allocation_counter::measure;
use genie::service::Error;
use genie::{Error as GenieError, ServerHandle};

use crate::stage::{Header, Point, SmallClient, SmallServer, Smalls, StoreError, interface, serve, small};

fn header() -> Header {
    Header { id: 7, name: "seven".to_owned(), tags: vec!["odd".to_owned(), String::new()] }
}

/// Both ways to reach a server: in process, and by a channel.
fn everywhere(test: impl Fn(&SmallClient)) {
    let genie = interface();
    test(&small(&genie));
    let served = serve(&genie, SmallServer::new(Smalls));
    test(&SmallClient::new(&genie, served.server.clone()).expect("a client"));
}

#[test]
fn values_of_serde_and_of_plain_data_arrive_as_they_were() {
    everywhere(|small| {
        let renamed = small.rename(&header(), "eight", Some("even".to_owned())).send().unwrap().value;
        let tags = ["odd", "", "even"].map(str::to_owned).to_vec();
        assert_eq!(renamed, Header { id: 8, name: "eight".to_owned(), tags });
        let mirrored = small.mirror(Point { x: 1.0, y: -2.0, z: 0.5 }, &2.0).send().unwrap().value;
        assert_eq!(mirrored, Point { x: -2.0, y: 4.0, z: -1.0 });
        assert_eq!(small.root(9.0).send().unwrap().value, 3.0);
        small.nothing().send().unwrap();
        assert_eq!(small.r#type(1).send().unwrap().value, 2);
    });
}

#[test]
fn a_methods_own_error_can_be_matched() {
    everywhere(|small| {
        let refused = small.rename(&header(), "", None).send().unwrap_err();
        assert_eq!(refused.error, Error::Method(StoreError::Refused("seven".to_owned())));
        assert_eq!(refused.to_string(), "the store says Refused(\"seven\")");
        assert_eq!(small.root(-1.0).send().unwrap_err().error, Error::Method(StoreError::Full { room: 7 }));
    });
}

#[test]
fn a_method_can_know_its_client() {
    let genie = interface();
    let small = small(&genie);
    let first = small.caller().send().unwrap().value;
    assert!(first > 0);
    assert_eq!(small.clone().caller().send().unwrap().value, first);
    let other = SmallClient::new(&interface(), small.server().clone()).unwrap();
    assert_ne!(other.caller().send().unwrap().value, first);
}

#[test]
fn a_panic_is_the_clients_error_and_the_server_goes_on() {
    everywhere(|small| {
        let panicked = small.panics().send().unwrap_err();
        let message = "the store is on fire".to_owned();
        assert_eq!(panicked.error, Error::Genie(GenieError::Panicked { message }));
        small.nothing().send().unwrap();
    });
}

#[test]
fn a_result_that_is_too_long_says_so_and_how_to_pass_it() {
    everywhere(|small| {
        assert_eq!(small.text(65_000).send().unwrap().value.len(), 65_000);
        let refused = small.text(65_536).send().unwrap_err().to_string();
        assert!(refused.contains("takes 65540 bytes, and a result may take 65536"), "{refused}");
        assert!(refused.contains("`&mut [u8]`"), "{refused}");
    });
}

#[test]
fn long_arguments_pass_like_short_ones() {
    everywhere(|small| {
        let name = "n".repeat(100_000);
        let refused = small.rename(&header(), &name, None).send().unwrap_err().to_string();
        assert!(refused.contains("a result may take 65536"), "the argument arrived: {refused}");
    });
}

#[test]
fn a_short_call_allocates_nothing() {
    let genie = interface();
    let small = small(&genie);
    let call = || {
        let point = small.mirror(Point { x: 1.0, y: 2.0, z: 3.0 }, &1.0).send().unwrap();
        assert_eq!(point.value.x, -1.0);
        assert_eq!(small.root(4.0).send().unwrap().value, 2.0);
    };
    call();
    assert_eq!(measure(call).count_total, 0);
}

#[test]
fn a_value_that_cannot_be_encoded_is_an_error_before_anything_is_asked() {
    struct Stubborn;
    impl serde::Serialize for Stubborn {
        fn serialize<S: serde::Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    impl<'r> serde::Deserialize<'r> for Stubborn {
        fn deserialize<D: serde::Deserializer<'r>>(_deserializer: D) -> Result<Self, D::Error> {
            Err(serde::de::Error::custom("no"))
        }
    }
    #[genie::service]
    trait Asks {
        fn ask(&self, what: Stubborn);
    }
    let asks = AsksServer::from_fn(|_| panic!("nothing was asked"));
    let asks = AsksClient::new(&interface(), ServerHandle::new(asks)).unwrap();
    let failed = asks.ask(Stubborn).send().unwrap_err();
    assert!(matches!(failed.error, Error::Unencodable { method: "ask", .. }), "{failed}");
}
