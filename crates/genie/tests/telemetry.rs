//! What the features `metrics` and `tracing` tell a program's own instruments.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use genie::channel::{Directory, Listener, ServeOptions};
use genie::mechanism::{Config, Granularity, GranuleKind, Passing};
use genie::memory::{self, Memory};
use genie::{
    Connect, Error, In, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_sys::lock::Mutex;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

/// Counters, by their names and labels.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counters {
    fn get(&self, name: &str) -> u64 {
        self.0.lock().get(name).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

impl metrics::Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        Counter::from_arc(Arc::clone(self.0.lock().entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Events, as lines.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn has(&self, event: &str) -> bool {
        self.0.lock().iter().any(|line| line.contains(event))
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("genie")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A server that fills inputs, and does not say how much it has filled.
struct Forgetful;

impl Server for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn services(&self) -> &[Service] {
        const { &[Service::new("fill", false, true)] }
    }

    fn request(&self, mut request: Incoming) {
        request.ready(0).unwrap().fill(7);
        request.reply(Ok(()));
    }

    fn abort(&self, _: RequestId) {}
}

#[test]
fn a_program_hears_of_its_requests_bytes_copies_connections_and_failures() {
    let (counters, events) = (Counters::default(), Events::default());
    metrics::set_global_recorder(counters.clone()).unwrap();
    tracing::subscriber::set_global_default(events.clone()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::at(scratch.path().join("run")).unwrap();
    let serving = Listener::bind_in(&directory, "memory", Memory::customized(), ServeOptions::default());
    let _running = serving.unwrap().start().unwrap();
    let memory = Config { granularity: Granularity::Only(GranuleKind::Base), ..Config::default() };
    let interface = Interface::new(Passing::open(&memory).unwrap(), Limits::default());
    let absent = interface.connect_with(&directory, "nobody", &Default::default());
    absent.expect_err("nobody serves there");
    let server = interface.connect_with(&directory, "memory", &Default::default()).unwrap();

    let request = |service| interface.request(&server, service);
    (0..5).for_each(|_| drop(request(memory::NULL).send().unwrap()));
    request(memory::STORE).out(Out::copy(&[1; 700])).argument(b"name").send().unwrap();
    request(memory::STORE).out(Out::emulated_copy(&vec![1; 5000])).send().unwrap();
    let mut shared = interface.allocate(1 << 20).unwrap();
    let fetch = request(memory::FETCH).input(In::emulated_share(&mut shared));
    assert_eq!(fetch.argument(b"name").send().unwrap().actual(), 700);
    request(memory::CHECK).out(Out::copy(b"x")).argument(b"missing").send().unwrap_err();

    for (name, count) in [
        ("genie_requests_total", 9),
        ("genie_failures_total", 1),
        ("genie_bytes_total scheme=copy direction=out", 5700),
        ("genie_bytes_total scheme=emulated share direction=in", 700),
        ("genie_copied_bytes_total scheme=copy reason=none", 700),
        ("genie_copied_bytes_total scheme=emulated copy reason=foreign memory", 5000),
        ("genie_served_requests_total", 9),
        ("genie_served_failures_total", 1),
        ("genie_served_bytes_total direction=out how=copied", 5700),
        ("genie_served_bytes_total direction=in how=passed", 700),
    ] {
        // The server counts a request when it has replied to it.
        eventually(name, || counters.get(name) == count);
    }
    let waits = ["spun", "slept"].map(|how| counters.get(&format!("genie_waits_total how={how}")));
    assert!(waits.iter().sum::<u64>() > 0, "{waits:?}");

    let mistaken = ServerHandle::new(Forgetful);
    let filled = interface.request(&mistaken, ServiceId(0)).input(In::emulated_share(&mut shared)).send();
    assert_eq!(filled.unwrap_err().error, Error::Untold { buffer: 0 });

    let pid = std::process::id();
    drop(server);
    for event in [
        "INFO message=not connected server=\"nobody\" error=no server nobody",
        "INFO message=connected server=\"memory\"",
        "INFO message=client connected server=\"memory\" client=\"telemetry",
        "DEBUG message=request failed error=the server replied with an error: nothing is kept under \"missing\"",
        "WARN message=server's mistake client=\"telemetry",
        "service=0 error=the server made buffer 0 ready, an input, and never said how many bytes came",
        "INFO message=channel ended server=\"memory\" reason=server memory is gone: the client ",
        &format!("pid={pid} "),
        "INFO message=client left server=\"memory\"",
    ] {
        eventually(&format!("{event} in {:#?}", events.0), || events.has(event));
    }
}

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
