//! Filling inputs: in one call, and what becomes of servers that never say how much they have filled.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, ServeOptions};
use genie_conformance::holder::Device;
use genie_io::{
    Error, In, Incoming, Limits, Out, RequestId, Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::DataMut;

use super::client;

/// What a server does with input 1. Output 0 is an argument that takes a buffer.
type Serve = fn(&mut Incoming) -> Result<(), ServerError>;

const DATA: &[u8] = b"data";
/// What lies in the client's buffer before.
const CANARY: u8 = 0x5a;
/// One that the records carry, and one that is copied.
const LENS: [usize; 2] = [64, 5000];

fn store(room: &DataMut<'_>) -> usize {
    room.copy_from(DATA)
}

fn break_off(room: &DataMut<'_>) -> Result<usize, ServerError> {
    store(room);
    Err("the disk is full".into())
}

/// What a client is to find of an input of so many bytes: how many came, or an error.
type Found = Result<usize, Error>;

fn untold(_: usize) -> Found {
    Err(Error::Untold { buffer: 1 })
}

fn failed(message: &str) -> Found {
    Err(Error::Server(message.into()))
}

/// A way of filling, or not, and what the client finds.
type Way = (&'static str, Serve, fn(usize) -> Found);

const WAYS: &[Way] = &[
    (
        "filled in one call",
        |request| request.fill(1, |room| store(&room)).map(drop).map_err(Into::into),
        |_| Ok(4),
    ),
    (
        "filled by a closure that may fail",
        |request| request.fill(1, |room| Ok::<_, ServerError>(store(&room))).map(drop),
        |_| Ok(4),
    ),
    ("failed", |request| request.fill(1, |room| break_off(&room)).map(drop), |_| failed("the disk is full")),
    (
        "failed, which the server hides",
        |request| {
            request.fill(1, |room| break_off(&room)).expect_err("it fails");
            Ok(())
        },
        untold,
    ),
    (
        "failed after a success, which the server hides",
        |request| {
            assert_eq!(request.fill(1, |room| store(&room)), Ok(4));
            request.fill(1, |room| break_off(&room)).expect_err("it fails");
            Ok(())
        },
        untold,
    ),
    (
        "panicked after a success, which the server hides",
        |request| {
            assert_eq!(request.fill(1, |room| store(&room)), Ok(4));
            let fill = |room: DataMut<'_>| -> usize {
                store(&room);
                // No report by the hook.
                resume_unwind(Box::new("half-way"))
            };
            catch_unwind(AssertUnwindSafe(|| drop(request.fill(1, fill)))).expect_err("it panics");
            Ok(())
        },
        untold,
    ),
    (
        "failed, and the server has nothing instead",
        |request| {
            request.fill(1, |room| break_off(&room)).expect_err("it fails");
            Ok(request.set_actual(1, 0)?)
        },
        |_| Ok(0),
    ),
    (
        "more than there is",
        |request| Ok(request.fill(1, |room| room.len() + 1).map(drop)?),
        |len| {
            let too_long = genie_passing::Error::TooLong { actual: len + 1, len };
            Err(Error::Server(Error::from(too_long).into()))
        },
    ),
    (
        "more than there is, which the server hides",
        |request| {
            request.fill(1, |room| room.len() + 1).expect_err("there is less");
            Ok(())
        },
        untold,
    ),
    (
        "an output",
        |request| {
            let error = request.fill(0, |_| unreachable!() as usize).expect_err("it is none");
            assert!(matches!(error, Error::NoSuchBuffer { index: 0, is_other: true, .. }), "{error}");
            Ok(())
        },
        |_| Ok(0),
    ),
    ("left alone", |_| Ok(()), |_| Ok(0)),
    (
        "made ready",
        |request| {
            store(&request.ready(1)?);
            Ok(())
        },
        untold,
    ),
    (
        "made ready after it was told",
        |request| {
            request.set_actual(1, 4)?;
            store(&request.ready(1)?);
            Ok(())
        },
        |_| Ok(4),
    ),
    (
        "made ready, and nothing came",
        |request| {
            request.ready(1)?;
            Ok(request.set_actual(1, 0)?)
        },
        |_| Ok(0),
    ),
    (
        "made ready by a server that fails",
        |request| {
            request.ready(1)?;
            Err("it is closed".into())
        },
        |_| failed("it is closed"),
    ),
    (
        "pinned",
        |request| {
            store(&request.pin_input(1, 0..request.len(1))?.data());
            Ok(())
        },
        untold,
    ),
    (
        "pinned and told",
        |request| {
            store(&request.pin_input(1, 0..request.len(1))?.data());
            Ok(request.set_actual(1, 4)?)
        },
        |_| Ok(4),
    ),
    ("forwarded", |request| Ok(request.fragment(1, 0..request.len(1)).map(drop)?), untold),
    ("forwarded in part", |request| Ok(request.fragment(1, 1..request.len(1)).map(drop)?), untold),
    ("linked to a device", |request| Ok(request.outboard(1, 0, Box::new(Device(DATA.to_vec())))?), untold),
    (
        "pinned, forwarded and linked where there is nothing",
        |request| {
            request.pin_input(1, 1..request.len(1) + 1).expect_err("there are fewer bytes");
            request.fragment(1, 1..request.len(1) + 1).expect_err("there are fewer bytes");
            let linked = request.outboard(1, 1, Box::new(Device(DATA.to_vec())));
            assert_eq!(linked, Err(Error::NoSuchElement { buffer: 1, element: 1, count: 1 }));
            Ok(())
        },
        |_| Ok(0),
    ),
    ("an output that is forwarded", |request| Ok(request.fragment(0, 0..1).map(drop)?), |_| Ok(0)),
];

struct Filler;

static SERVICES: [Service; 1] = [Service::new("fill", true, true)];

impl Server for Filler {
    fn name(&self) -> &str {
        "filler"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let mut ways = WAYS.iter().map(|(_, serve, _)| serve).chain(TOO_LONG);
        let serve = ways.nth(usize::from(request.argument()[0])).expect("a way");
        let result = serve(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {}
}

#[test]
fn a_success_without_the_length_of_an_input_is_the_servers_error() {
    let Some(t) = client("a_success_without_the_length", Limits::default()) else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "filler", Filler, ServeOptions::default());
    let _running = serving.and_then(|serving| serving.start()).expect("threads");
    let options = ConnectOptions::default();
    let there = t.interface().connect_with(&directory, "filler", &options).expect("a connection");
    for server in [ServerHandle::new(Filler), there] {
        let ways = WAYS.iter().enumerate().flat_map(|way| LENS.map(|len| (way, len)));
        for ((number, (way, _, found)), len) in ways {
            let way = format!("{way}, {len} bytes");
            let mut buffer = t.interface().allocate(len).expect("a buffer");
            buffer.fill(CANARY);
            let argument = [number as u8];
            let request = t.interface().request(&server, ServiceId(0)).argument(&argument);
            let request = request.out(Out::copy(b"output")).input(In::emulated_copy(&mut buffer));
            let actual = request.send().map(|reply| reply.buffers[1].actual).map_err(|failed| failed.error);
            assert_eq!(actual, found(len), "{way}");
            let len = actual.unwrap_or(0);
            assert_eq!(buffer[..len], DATA[..len], "{way}");
            assert!(buffer[len..].iter().all(|byte| *byte == CANARY), "{way}: the rest");
        }
    }
    t.assert_idle();
}

fn hide(failed: Result<(), Error>) -> Result<(), ServerError> {
    failed.expect_err("no memory");
    Ok(())
}

/// Ways of having input 0 filled, which is too long for the memory that there is; the server hides the failure.
const TOO_LONG: &[Serve] = &[
    |request| hide(request.ready(0).map(drop)),
    |request| hide(request.pin_input(0, 0..1).map(drop)),
    |request| hide(request.fragment(0, 0..1).map(drop)),
    |request| hide(request.fill(0, |_| unreachable!() as usize).map(drop)),
];

/// Once, a server that could not have an input filled, and replied with success, was said to have made it ready.
#[test]
fn a_server_that_could_not_have_an_input_filled_need_not_say_how_much_came() {
    let Some(t) = client("could_not_have_an_input_filled", Limits::default()) else { return };
    let server = ServerHandle::new(Filler);
    let mut bytes = vec![CANARY; t.setup().memory_limit() + 1];
    for number in 0..TOO_LONG.len() {
        let argument = [(WAYS.len() + number) as u8];
        let request = t.interface().request(&server, ServiceId(0)).argument(&argument);
        let actual = request.input(In::copy(&mut bytes)).send().map(|reply| reply.actual());
        assert_eq!(actual.map_err(|failed| failed.error), Ok(0), "way {number}");
        assert!(bytes.iter().all(|byte| *byte == CANARY), "way {number}");
    }
    t.assert_idle();
}
