//! A recorder of `metrics` that makes requests itself.

use std::sync::Arc;
use std::time::Duration;

use genie::channel::{Directory, Listener, ServeOptions};
use genie::memory::{self, Memory};
use genie::{Connect, Interface};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

/// Makes a request whenever it is told of something, unless that is such a request.
struct Asks(Interface, genie::ServerHandle);

thread_local! {
    static IS_ASKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl metrics::CounterFn for Asks {
    fn increment(&self, _: u64) {
        if !IS_ASKING.replace(true) {
            self.0.request(&self.1, memory::NULL).send().unwrap();
            IS_ASKING.set(false);
        }
    }

    fn absolute(&self, _: u64) {}
}

struct Asking(Arc<Asks>);

impl metrics::Recorder for Asking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(&self.0))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A thread that told the recorder while it took the replies of others waited for ever.
#[test]
fn a_recorder_may_make_requests_of_the_same_server() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::at(scratch.path().join("run")).unwrap();
    let serving = Listener::bind_in(&directory, "memory", Memory::customized(), ServeOptions::default());
    let _running = serving.unwrap().start().unwrap();
    let interface = Interface::open().unwrap();
    let server = interface.connect_with(&directory, "memory", &Default::default()).unwrap();
    let asking = Asking(Arc::new(Asks(interface.clone(), server.clone())));
    metrics::with_local_recorder(&asking, || {
        for round in 0..200 {
            interface.request(&server, memory::NULL).send().unwrap();
            if round % 20 == 0 {
                std::thread::sleep(Duration::from_millis(1)); // so that the server sleeps, and this thread, too
            }
        }
    });
}
