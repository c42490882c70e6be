//! Streams: parts that come in their order, streams that end early on either side.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use genie_channel::ServeOptions;
use genie_io::servers::memory::NULL;
use genie_io::{ClientId, Error, Incoming, Limits, Out, RequestId, Server, Service, ServiceId};
use genie_series::{Parts, Stream, Streams};
use genie_sys::lock::Mutex;

use super::fixture::{FOR_EVER, Fixture, assert_idle, interface, interface_with, memory, options};

static SERVICES: [Service; 1] = [Service::new("stream", false, true)];
const STREAM: ServiceId = ServiceId(0);

/// Gives each stream's argument and parts to the test.
struct Streaming {
    streams: Streams,
    /// Requests that open a stream first wait for this.
    gate: Option<Mutex<Receiver<()>>>,
    opened: Mutex<Sender<(Vec<u8>, Parts)>>,
}

fn streaming() -> (Streaming, Receiver<(Vec<u8>, Parts)>) {
    let (opened, opening) = channel();
    (Streaming { streams: Streams::default(), gate: None, opened: Mutex::new(opened) }, opening)
}

impl Server for Streaming {
    fn name(&self) -> &str {
        "streaming"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        if let (Some(gate), true) = (&self.gate, request.argument().ends_with(b"slow")) {
            gate.lock().recv().expect("the test opens the gate");
        }
        if let Some(opened) = self.streams.take(request) {
            // A test that is over wants none.
            let _ = self.opened.lock().send(opened);
        }
    }

    fn abort(&self, request: RequestId) {
        self.streams.abort(request);
    }

    fn departed(&self, client: ClientId) {
        self.streams.departed(client);
    }
}

#[test]
fn parts_come_in_their_order_without_being_copied() {
    for threads in [1, 4] {
        let (fixture, (server, opening)) = (Fixture::new(), streaming());
        let _running = fixture
            .bind("streaming", server, ServeOptions { threads, ..options() })
            .start()
            .expect("threads");
        let interface = interface();
        let server = fixture.connect(&interface, "streaming");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (argument, mut parts) = opening.recv_timeout(FOR_EVER).expect("a stream");
                assert_eq!(argument, b"numbers");
                for number in 0..200_u8 {
                    let mut part = parts.room().expect("room");
                    assert_eq!(part.len(), 20_000);
                    part.buffer().expect("memory").fill(number);
                    part.send(usize::from(number) * 100).expect("a part");
                }
                parts.end(Ok(()));
            });
            let mut stream =
                Stream::open(&interface, &server, STREAM, b"numbers", 3, 20_000).expect("a stream");
            for number in 0..200_u8 {
                let part = stream.next_part().expect("a part").expect("a part");
                assert_eq!(part.len(), usize::from(number) * 100);
                assert!(part.iter().all(|byte| *byte == number), "part {number}");
            }
            assert_eq!(stream.next_part().expect("the end"), None);
            assert_eq!(stream.next_part().expect("the end, still"), None);
        });
        // A thread takes the replies to requests for parts that never came.
        let begun = Instant::now();
        while interface.pending_bytes() > 0 {
            assert!(begun.elapsed() < FOR_EVER, "requests are left");
            std::thread::yield_now();
        }
        assert_idle(&interface);
    }
}

/// A server with several threads may take the requests for parts in another order than they were made. Once, the first that was told
/// of the end closed the stream: the one before it, for which the client waits, was then told that there was no such stream.
#[test]
fn a_client_is_told_of_the_end_in_whatever_order_its_requests_come() {
    for is_asked_before in [false, true] {
        let (fixture, (server, opening)) = (Fixture::new(), streaming());
        let _running = fixture.serve("streaming", server);
        let interface = interface();
        let server = fixture.connect(&interface, "streaming");
        // What `Stream` sends: what is asked, the stream's number, and how many parts were asked for before.
        let ask = |kind: u8, asked: u8| {
            let argument: [u8; 17] =
                [[kind].as_slice(), &[7; 8], &[asked], &[0; 7]].concat().try_into().unwrap();
            let request = interface.request(&server, STREAM).argument(&argument).room(1);
            request.submit().expect("room")
        };
        ask(0, 0).sync().expect("a stream");
        let parts = opening.recv_timeout(FOR_EVER).expect("a stream").1;
        let later = is_asked_before.then(|| ask(1, 1));
        parts.end(Ok(()));
        let later = later.unwrap_or_else(|| ask(1, 1));
        for pending in [later, ask(1, 0)] {
            assert_eq!(pending.sync().expect("the end").argument(), [1]);
        }
        // Then the server has forgotten it.
        assert!(matches!(ask(1, 2).sync().expect_err("over").error, Error::Server(_)));
    }
}

#[test]
fn either_side_can_end_a_stream_early() {
    let (fixture, (server, opening)) = (Fixture::new(), streaming());
    let _running = fixture.serve("streaming", server);
    let _plain = fixture.serve("memory", memory());
    let interface = interface();
    let server = fixture.connect(&interface, "streaming");
    let open = || Stream::open(&interface, &server, STREAM, &[], 2, 5_000).expect("a stream");
    let parts = || opening.recv_timeout(FOR_EVER).expect("a stream").1;
    // The client drops the stream.
    let (mut stream, mut theirs) = (open(), parts());
    theirs.send(b"first").expect("a part");
    assert_eq!(stream.next_part().expect("a part"), Some(&b"first"[..]));
    drop(stream);
    while theirs.send(b"unwanted").is_ok() {}
    assert_eq!(theirs.room().expect_err("nobody listens"), Error::Aborted);
    // The server ends it with an error.
    let (mut stream, theirs) = (open(), parts());
    theirs.end(Err("the tape is torn".into()));
    let error = stream.next_part().expect_err("torn").error;
    assert!(matches!(&error, Error::Server(error) if error.message == "the tape is torn"), "{error}");
    assert_eq!(stream.next_part().expect("the end"), None);
    // The server drops it.
    let (mut stream, theirs) = (open(), parts());
    drop(theirs);
    assert_eq!(stream.next_part().err().map(|failed| failed.error), Some(Error::Dropped));
    // A part is longer than the client's buffers.
    let (mut stream, mut theirs) = (open(), parts());
    assert!(theirs.send(&[0; 5_001]).is_err());
    assert!(matches!(stream.next_part().expect_err("too long").error, Error::Server(_)));
    drop(theirs);
    let (mut stream, mut theirs) = (open(), parts());
    assert!(theirs.room().expect("a part").send(5_001).is_err());
    assert!(matches!(stream.next_part().expect_err("too long").error, Error::Server(_)));
    drop(theirs);
    // The service does not stream: its success is no stream.
    let plain = fixture.connect(&interface, "memory");
    let refused = Stream::open(&interface, &plain, NULL, &[], 2, 5_000).expect_err("no stream").error;
    assert!(refused.is_misuse() && refused.to_string().contains("does not stream"), "{refused}");
    // The client leaves without a word.
    let mut theirs = {
        let interface = super::fixture::interface();
        let server = fixture.connect(&interface, "streaming");
        let opened = interface.request(&server, STREAM).argument(&[0; 17]).room(1).send();
        opened.expect("a stream");
        parts()
    };
    assert_eq!(theirs.room().expect_err("nobody listens"), Error::Aborted);
}

/// What no client of ours sends is refused, and harms no stream.
#[test]
fn a_service_that_streams_refuses_other_requests() {
    let (fixture, (server, opening)) = (Fixture::new(), streaming());
    let _running = fixture.serve("streaming", server);
    let interface = interface();
    let server = fixture.connect(&interface, "streaming");
    let mut stream = Stream::open(&interface, &server, STREAM, &[], 2, 5_000).expect("a stream");
    let mut theirs = opening.recv_timeout(FOR_EVER).expect("a stream").1;
    for argument in [&b""[..], b"\0", &[9; 17], &[0; 16]] {
        let request = interface.request(&server, STREAM).out(Out::copy(b"text")).argument(argument);
        assert!(matches!(request.send().expect_err("refused").error, Error::Server(_)), "{argument:?}");
    }
    // A part is asked for of a stream that never was.
    let unknown = interface.request(&server, STREAM).argument(&[1; 17]).room(1).send();
    assert!(matches!(unknown.expect_err("refused").error, Error::Server(_)));
    theirs.send(b"still here").expect("a part");
    assert_eq!(stream.next_part().expect("a part"), Some(&b"still here"[..]));
    theirs.end(Ok(()));
    assert_eq!(stream.next_part().expect("the end"), None);
}

/// A client that opened streams and never read them took as much of the server's memory as it liked.
#[test]
fn a_client_has_only_so_many_streams() {
    let (fixture, (server, opening)) = (Fixture::new(), streaming());
    let _running = fixture.serve("streaming", server);
    let interface = interface();
    let server = fixture.connect(&interface, "streaming");
    // Each stream has a request pending.
    server.adjust(1 << 30, 1000).expect("more requests");
    let open = || Stream::open(&interface, &server, STREAM, &[], 1, 100);
    let streams: Vec<_> = std::iter::from_fn(|| open().ok()).take(300).collect();
    assert_eq!(streams.len(), 256);
    assert!(matches!(open().expect_err("too many").error, Error::Server(_)));
    drop(streams);
    open().expect("room for another");
    assert_eq!(opening.try_iter().count(), 257);
}

#[test]
fn a_stream_that_opens_too_late_is_closed() {
    let (fixture, (mut server, opening)) = (Fixture::new(), streaming());
    let (open_gate, gate) = channel();
    server.gate = Some(Mutex::new(gate));
    let _running =
        fixture.bind("streaming", server, ServeOptions { threads: 2, ..options() }).start().unwrap();
    let hasty = interface_with(Limits { timeout: Some(Duration::from_millis(5)), ..Limits::default() });
    let server = fixture.connect(&hasty, "streaming");
    let late = Stream::open(&hasty, &server, STREAM, b"slow", 2, 5_000).expect_err("too late").error;
    assert!(matches!(late, Error::TimedOut { .. }), "{late}");
    open_gate.send(()).expect("the server waits");
    let patient = interface();
    let server = fixture.connect(&patient, "streaming");
    let _stream = Stream::open(&patient, &server, STREAM, b"quick", 2, 5_000).expect("a stream");
    loop {
        let (argument, mut parts) = opening.recv_timeout(FOR_EVER).expect("a stream");
        if argument == b"quick" {
            break;
        }
        assert_eq!(parts.room().expect_err("nobody listens"), Error::Aborted);
    }
}
