//! In two processes: the receiving one has the wire, and senders connect to it.
//!
//! How: the test binary is run once more, with the name of the one test that is the other process; it says what it found in lines.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_conformance::bytes::pattern;
use genie_memory::Data;
use genie_net::Rate;
use genie_net::traffic::{Generator, Sink, Tally};

use super::*;

/// Tells the other process where the wire is, and what it is to do.
const PLACE: &str = "GENIE_TEST_WIRE";
const TASK: &str = "GENIE_TEST_WIRE_TASK";
/// What it says begins with this.
const SAYS: &str = "the peer: ";
/// How many senders a process has, and how many frames each of them has in flight.
const SENDERS: usize = 10;
const FRAMES: usize = 4;

/// Another process; dropping it kills it.
struct Peer(Child);

impl Peer {
    fn start(place: &Path, task: &str) -> (Self, impl Iterator<Item = String> + use<>) {
        let mut program = Command::new(std::env::current_exe().expect("the test's own path"));
        program.args(["processes::peer", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        program.env(PLACE, place).env(TASK, task).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let said = lines.map_while(Result::ok).filter_map(|line| Some(line.split_once(SAYS)?.1.to_owned()));
        (Self(child), said)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A wire that processes can reach.
struct Reached {
    place: tempfile::TempDir,
    running: Running,
    wire: Wire,
}

impl Reached {
    fn new(options: Options, clock: &Clock, station: impl Station) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let wire = Wire::new(options, clock.clone(), station).expect("options that make sense");
        Self { running: serve(place.path(), &wire), place, wire }
    }
}

fn serve(place: &Path, wire: &Wire) -> Running {
    let directory = Directory::at(place.join("run")).expect("a run-time directory");
    let options = ServeOptions { pool: 1 << 20, ..ServeOptions::default() };
    let serving = Listener::bind_in(&directory, "wire", wire.clone(), options).expect("a listener");
    serving.start().expect("threads")
}

fn connect(place: &Path) -> (Interface, ServerHandle) {
    let interface = interface();
    let directory = Directory::at(place.join("run")).expect("a run-time directory");
    let handle = interface.connect_with(&directory, "wire", &ConnectOptions::default()).expect("the wire");
    (interface, handle)
}

#[test]
#[ignore = "it is the other process of tests that need one"]
fn peer() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    match &*std::env::var(TASK).expect("a task") {
        "send" => send(&place),
        "hold" => hold(&place),
        "sink" => sink(&place),
        "generate" => generate(&place),
        task => panic!("no task {task}"),
    }
}

/// Sends a header by copy, and data uncopied; says how much of either was copied, and whether the data is as it was.
fn send(place: &Path) {
    let (interface, handle) = connect(place);
    let (header, mut data) = (pattern(1, 42), interface.allocate(60_000).expect("a buffer"));
    data.copy_from_slice(&pattern(2, 60_000));
    let request =
        interface.request(&handle, TRANSMIT).out(Out::copy(&header)).and_out(Out::emulated_copy(&data));
    let reply = request.send().expect("a reply");
    for receipt in reply.receipts() {
        println!("\n{SAYS}{} {}", receipt.copied, receipt.effective);
    }
    println!("{SAYS}{}", data[..] == pattern(2, 60_000));
}

/// Has frames of several clients in flight, until it is killed.
fn hold(place: &Path) {
    let frame = pattern(3, 9000);
    let clients: Vec<_> = (0..SENDERS).map(|_| connect(place)).collect();
    let pending: Vec<_> = clients
        .iter()
        .flat_map(|(interface, handle)| {
            let frame = &frame;
            (0..FRAMES).map(move |_| interface.request(handle, TRANSMIT).out(Out::copy(frame)).submit())
        })
        .map(|pending| pending.expect("a request"))
        .collect();
    println!("\n{SAYS}{} are in flight", pending.len());
    std::io::stdin().read_line(&mut String::new()).expect("a parent");
}

/// Stores what arrives, and counts how many bytes that are.
#[derive(Clone, Default)]
struct Storing(Arc<Mutex<Vec<u8>>>);

impl Station for Storing {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut stored = self.0.lock();
        stored.resize(frame.len(), 0);
        frame.read(0, &mut stored);
    }
}

#[test]
fn between_processes_too_only_the_station_copies_a_frame() {
    let station = Storing::default();
    let reached = Reached::new(Options::default(), &Clock::default(), station.clone());
    let (_peer, mut said) = Peer::start(reached.place.path(), "send");
    assert_eq!(said.next().as_deref(), Some("42 copy"), "the header was to be copied");
    assert_eq!(said.next().as_deref(), Some("0 emulated copy"));
    assert_eq!(said.next().as_deref(), Some("true"));
    let expected = [pattern(1, 42), pattern(2, 60_000)].concat();
    assert_eq!(Data::from(&expected[..]).mismatch(&station.0.lock()), None);
    let counters = reached.wire.counters();
    assert_eq!((counters.delivered, counters.bytes), (1, 60_042));
    reached.running.stopper().stop();
    reached.running.wait();
}

/// What a generator sends over a wire that is not good, in processes of their own.
fn traffic() -> (Generator, Options) {
    let rate = Rate::Bits(1_000_000_000);
    let (loss, duplication, truncation) = (0.1, 0.1, 0.1);
    let delay = Duration::from_millis(1);
    let options = Options { rate, delay, loss, duplication, truncation, seed: 17, ..Options::default() };
    (Generator { len: 1500, count: 500, rate }, options)
}

/// Has the wire, and a sink at its end, until there is nothing more to come; says what has come.
fn sink(place: &Path) {
    let (generator, options) = traffic();
    let sink = Sink::new(generator.count, 0, Clock::default());
    let wire = Wire::new(options, Clock::default(), sink.clone()).expect("options that make sense");
    let _running = serve(place, &wire);
    println!("\n{SAYS}ready");
    std::io::stdin().read_line(&mut String::new()).expect("a parent");
    let least = sink.tally().latencies.into_iter().map(|(_, latency)| latency).min();
    println!("{SAYS}{:?}", Tally { latencies: Vec::new(), ..sink.tally() });
    println!("{SAYS}{}", least.expect("a latency").as_nanos());
}

/// Sends, up to 64 payloads before the first of them has arrived.
fn generate(place: &Path) {
    let (interface, handle) = connect(place);
    let mut pending = VecDeque::new();
    let sent = traffic().0.run(&Clock::default(), |payload| {
        if pending.len() == 64 {
            pending.pop_front().map(Pending::sync).transpose()?;
        }
        pending.push_back(interface.request(&handle, TRANSMIT).out(Out::copy(payload)).submit()?);
        Ok::<_, Failed>(())
    });
    sent.expect("each payload is sent");
    pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    println!("\n{SAYS}all is sent");
}

#[test]
fn what_becomes_of_a_generators_frames_is_the_same_between_processes_as_in_one() {
    let place = tempfile::tempdir().expect("a directory");
    let (mut sink, mut tally) = Peer::start(place.path(), "sink");
    assert_eq!(tally.next().as_deref(), Some("ready"));
    let (_generator, mut sent) = Peer::start(place.path(), "generate");
    assert_eq!(sent.next().as_deref(), Some("all is sent"));
    drop(sink.0.stdin.take());

    let ((generator, options), clock) = (traffic(), Clock::stepped());
    let delay = options.delay;
    let expected = Sink::new(generator.count, 0, clock.clone());
    let end = End::new(options, &clock, expected.clone());
    generator
        .run(&clock, |payload| {
            drop(end.submit(payload));
            Ok::<_, ()>(())
        })
        .expect("each payload is sent");
    clock.advance(2 * delay);
    let expected = Tally { latencies: Vec::new(), ..expected.tally() };
    assert!(expected.missing > 50 && expected.duplicated > 20 && expected.truncated > 20);
    assert_eq!(tally.next(), Some(format!("{expected:?}")));
    let least: u128 = tally.next().and_then(|said| said.parse().ok()).expect("the shortest latency");
    assert!(least >= delay.as_nanos(), "{least} ns is less than {delay:?}");
}

#[test]
fn of_a_thousand_senders_that_are_killed_with_frames_in_flight_nothing_is_left() {
    let (clock, recorder) = (Clock::stepped(), Recorder::default());
    let options =
        Options { delay: Duration::from_secs(1), in_flight: SENDERS * FRAMES, ..Options::default() };
    let reached = Reached::new(options, &clock, recorder.clone());
    for killed in 1..=1000 / SENDERS as u64 {
        let (sender, mut said) = Peer::start(reached.place.path(), "hold");
        assert_eq!(said.next(), Some(format!("{} are in flight", SENDERS * FRAMES)));
        let deadline = Instant::now() + Duration::from_secs(60);
        let wait = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                assert!(Instant::now() < deadline, "{:?}", reached.wire.counters());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&|| reached.wire.in_flight() == SENDERS * FRAMES);
        drop(sender);
        wait(&|| reached.wire.in_flight() == 0 && reached.running.status().clients_total == 0);
        assert_eq!(reached.wire.counters().let_go, killed * (SENDERS * FRAMES) as u64);
    }
    clock.advance(Duration::from_secs(2));
    assert!(recorder.bytes().is_empty(), "what was let go has not arrived");
    // The wire is as good as it was.
    let (interface, handle) = connect(reached.place.path());
    let pending = interface.request(&handle, TRANSMIT).out(Out::copy(&[1; 100])).submit().expect("a request");
    while reached.wire.in_flight() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    clock.advance(Duration::from_secs(1));
    pending.sync().expect("a reply");
    assert_eq!(recorder.bytes(), [[1; 100]]);
    genie_conformance::assert_idle(&interface, 0);
}
