//! The wire, with requests, in real time and in time that the tests set, in one process and in two.

mod here;
mod processes;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use genie_conformance::{Guard, Setup};
use genie_io::{Failed, Interface, Limits, Out, Pending, Reply, ServerHandle};
use genie_memory::GranuleKind;
use genie_net::wire::{Clock, Options, Station, TRANSMIT};
use genie_net::{Frame, Wire};
use genie_passing::Thresholds;
use genie_sys::lock::Mutex;

/// A client that needs nothing of the machine.
fn interface() -> Interface {
    let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
    setup.interface("wire", 64 << 20, Limits::default(), Thresholds::ALWAYS).expect("an interface")
}

/// A station that keeps what arrives, and when.
#[derive(Clone, Default)]
struct Recorder(Arc<Recorded>);

#[derive(Default)]
struct Recorded {
    clock: Clock,
    frames: Mutex<Vec<(Duration, Vec<u8>)>>,
}

impl Recorder {
    fn by(clock: &Clock) -> Self {
        Self(Arc::new(Recorded { clock: clock.clone(), ..Recorded::default() }))
    }

    /// What has come since the last call.
    fn take(&self) -> Vec<(Duration, Vec<u8>)> {
        std::mem::take(&mut self.0.frames.lock())
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        self.take().into_iter().map(|(_, bytes)| bytes).collect()
    }
}

impl Station for Recorder {
    fn arrive(&self, frame: &Frame<'_>) {
        let mut bytes = vec![0; frame.len()];
        assert_eq!(frame.read(0, &mut bytes), bytes.len());
        self.0.frames.lock().push((self.0.clock.now(), bytes));
    }
}

/// A wire, and its sender's end.
struct End {
    interface: Interface,
    wire: Wire,
    handle: ServerHandle,
}

impl End {
    fn new(options: Options, clock: &Clock, station: impl Station) -> Self {
        let wire = Wire::new(options, clock.clone(), station).expect("options that make sense");
        Self { interface: interface(), handle: ServerHandle::new(wire.clone()), wire }
    }

    fn submit(&self, frame: &[u8]) -> Pending<'static> {
        let request = self.interface.request(&self.handle, TRANSMIT).out(Out::copy(frame));
        request.submit().expect("a request")
    }

    fn send(&self, frame: &[u8]) -> Result<Reply, Failed> {
        self.interface.request(&self.handle, TRANSMIT).out(Out::copy(frame)).send()
    }
}
