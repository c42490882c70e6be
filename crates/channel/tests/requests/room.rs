//! Room for the reply's argument: a client that forgets it is told so, and not that its server has failed.

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_io::{
    Error, Incoming, Limits, Request, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};

use super::client;

struct Greeter;

const GREET: ServiceId = ServiceId(0);
/// Makes do with less room.
const ABBREVIATE: ServiceId = ServiceId(1);
/// Fails for a reason of its own, whatever room there is.
const FAIL: ServiceId = ServiceId(2);
/// Says in words of its own that there is too little room.
const REWORD: ServiceId = ServiceId(3);
/// Is told by a server of its own that it made too little room for it.
const ASK: ServiceId = ServiceId(4);

static SERVICES: [Service; 5] = [
    Service::new("greet", false, false),
    Service::new("abbreviate", false, false),
    Service::new("fail", false, false),
    Service::new("reword", false, false),
    Service::new("ask", false, false),
];

fn greet(request: &mut Incoming) -> Result<(), ServerError> {
    match request.service() {
        GREET => Ok(request.set_argument(b"hello")?),
        ABBREVIATE => Ok(request.set_argument(b"hello").or_else(|_| request.set_argument(b"hi"))?),
        REWORD => request.set_argument(b"hello").map_err(|error| {
            let ServerError { code, message } = error.into();
            ServerError { code, message: format!("greeting failed: {message}") }
        }),
        ASK => Err(Error::ArgumentTooLong { len: 9, room: 8 }.into()),
        _ => {
            let _ = request.set_argument(b"hello");
            Err("it is closed".into())
        }
    }
}

impl Server for Greeter {
    fn name(&self) -> &str {
        "greeter"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = greet(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

#[test]
fn a_client_that_makes_too_little_room_is_told_how_much_it_takes() {
    let Some(t) = client("a_client_that_makes_too_little_room", Limits::default()) else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let listener = Listener::bind_in(&directory, "greeter", Greeter, ServeOptions::default());
    let _running = listener.and_then(|serving| serving.start()).expect("threads");
    let elsewhere = t.interface().connect_with(&directory, "greeter", &ConnectOptions::default());
    for server in [ServerHandle::new(Greeter), elsewhere.expect("a connection")] {
        let request = |service| t.interface().request(&server, service);
        let fails = |request: Request<'_, '_, '_>| request.send().expect_err("too little room").error;
        let error = fails(request(GREET));
        assert_eq!(error, Error::ArgumentTooLong { len: 5, room: 0 });
        assert!(error.to_string().contains("`.room(5)`"), "{error}");
        assert_eq!(fails(request(GREET).room(4)), Error::ArgumentTooLong { len: 5, room: 4 });
        assert_eq!(request(GREET).room(5).send().expect("a reply").argument(), b"hello");
        assert_eq!(request(ABBREVIATE).room(4).send().expect("a reply").argument(), b"hi");
        assert_eq!(fails(request(ABBREVIATE).room(1)), Error::ArgumentTooLong { len: 2, room: 1 });
        assert_eq!(fails(request(FAIL)), Error::Server("it is closed".into()));
        // Once, only the very sentence of the refusal was taken for it.
        assert_eq!(fails(request(REWORD).room(4)), Error::ArgumentTooLong { len: 5, room: 4 });
        let asked = fails(request(ASK).room(4));
        assert!(matches!(&asked, Error::Server(error) if error.message.contains("9 bytes")), "{asked}");
    }
    t.assert_idle();
}
