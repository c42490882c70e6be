//! The server that is asked for short data, and how it is reached: by one channel, or by way of another one of its kind.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions};
use genie_io::{
    Error, In, Incoming, Interface, Limits, Out, RequestId, Server, ServerError, ServerHandle, Service,
    ServiceId,
};
use genie_memory::{Config, Direction, Faults, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing};
use genie_sys::lock::Mutex;

use super::CANARY;

/// Gives back the outputs as its argument.
pub(super) const ECHO: ServiceId = ServiceId(0);
/// Fills the first half of each input with ones, and says that it has filled all.
pub(super) const HALF: ServiceId = ServiceId(1);
/// Gives back how it prints its request while an input of it is being filled.
pub(super) const PRINT: ServiceId = ServiceId(2);
/// Keeps the request.
pub(super) const KEEP: ServiceId = ServiceId(3);
/// Forwards all buffers to the next server's service [`HALF`] or [`ECHO`].
pub(super) const FORWARD: ServiceId = ServiceId(4);
/// Pins the output, replies, and says what it was when its pin is the only hold.
pub(super) const PIN: ServiceId = ServiceId(5);

/// As [`FORWARD`], but takes no reply, says that all has come, and replies at once.
pub(super) const LEAVE: ServiceId = ServiceId(7);
/// As [`FORWARD`], and gives back how many bytes of the only buffer had to be copied for that.
pub(super) const COPIED: ServiceId = ServiceId(6);

/// Does something with each of four buffers, has them made whole, and gives back what it kept of the first one and pinned of the
/// third one. It says what came of the second one, and of the last one if there is an argument.
pub(super) const TURN: ServiceId = ServiceId(8);

static SERVICES: [Service; 9] = [
    Service::new("echo", true, true),
    Service::new("half", true, true),
    Service::new("print", true, true),
    Service::new("keep", true, true),
    Service::new("forward", true, true),
    Service::new("pin", true, true),
    Service::new("copied", true, true),
    Service::new("leave", true, true),
    Service::new("turn", true, true),
];

#[derive(Default)]
pub(super) struct Probe {
    pub(super) next: Option<(Interface, ServerHandle)>,
    pub(super) kept: Mutex<Vec<Incoming>>,
    pub(super) said: Option<mpsc::Sender<Vec<u8>>>,
}

impl Probe {
    fn serve(&self, request: &mut Incoming) -> Result<(), Error> {
        let all = 0..request.buffers();
        match request.service() {
            ECHO => {
                let mut echo = Vec::new();
                for index in all {
                    match request.direction(index)? {
                        Direction::Out => echo.extend(request.output(index)?.to_vec()),
                        Direction::In => {
                            let len = request.ready(index)?.copy_from(&echo);
                            request.set_actual(index, len)?;
                        }
                    }
                }
                request.set_argument(&echo)?;
            }
            HALF => {
                for index in all {
                    let len = request.len(index);
                    request.ready(index)?.copy_from(&vec![1; len / 2]);
                    request.set_actual(index, len)?;
                }
            }
            PRINT => {
                request.ready(1)?.fill(CANARY);
                request.set_actual(1, 64)?;
                let printed = format!("{request:?}");
                request.set_argument(printed.as_bytes())?;
            }
            FORWARD | COPIED => {
                let (interface, next) = self.next.as_ref().expect("a next server");
                let has_input = all.clone().any(|index| request.direction(index) == Ok(Direction::In));
                let mut asked = interface.request(next, if has_input { HALF } else { ECHO }).room(64 << 10);
                for index in all.clone() {
                    let fragment = request.fragment(index, 0..request.len(index))?;
                    asked = match request.direction(index)? {
                        Direction::Out => asked.out(Out::fragment(fragment)),
                        Direction::In => asked.input(In::fragment(fragment)),
                    };
                }
                let reply = asked.send().map_err(|failed| failed.error)?;
                let copied: usize = reply.receipts().map(|receipt| receipt.copied).sum();
                match request.service() {
                    COPIED => request.set_argument(&copied.to_le_bytes())?,
                    _ => request.set_argument(reply.argument())?,
                }
                drop(reply);
                for index in all.filter(|_| has_input) {
                    request.set_actual(index, request.len(index))?;
                }
            }
            TURN => {
                let kept = request.keep(0)?;
                request.fill(1, |room| room.copy_from(&[1; 64]))?;
                request.ready(3)?.fill(2);
                if !request.argument().is_empty() {
                    request.set_actual(3, 64)?;
                }
                let pin = request.pin_output(2, 0..request.len(2))?;
                drop(request.fragment(2, 1..3)?);
                assert!(request.keep(0).is_err(), "it is kept already");
                request.set_argument(&[&kept[..], &pin.data().to_vec()].concat())?;
            }
            LEAVE => {
                let (interface, next) = self.next.as_ref().expect("a next server");
                let len = request.len(0);
                let asked = interface.request(next, HALF).input(In::fragment(request.fragment(0, 0..len)?));
                let pending = asked.submit().map_err(|failed| failed.error)?;
                // With some lengths the reply is there, with others it is yet to come.
                while len % 2 == 1 && !pending.is_replied() {
                    thread::yield_now();
                }
                drop(pending);
                request.set_actual(0, len)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Server for Probe {
    fn name(&self) -> &str {
        "probe"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        match request.service() {
            KEEP => self.kept.lock().push(request),
            PIN => {
                let pin = request.pin_output(0, 0..request.len(0)).expect("a pin");
                let said = self.said.clone().expect("a listener");
                request.reply(Ok(()));
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    let _ = said.send(pin.data().to_vec());
                });
            }
            _ => {
                let result = self.serve(&mut request).map_err(ServerError::from);
                request.reply(result);
            }
        }
    }

    fn abort(&self, _request: RequestId) {}
}

/// Servers of this process that are reached by channels.
pub(super) struct Reached {
    directory: Directory,
    pub(super) running: Vec<Running>,
    _scratch: tempfile::TempDir,
}

impl Reached {
    pub(super) fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        Self { directory, running: Vec::new(), _scratch: scratch }
    }

    pub(super) fn open(&mut self, name: &str, probe: Probe, options: ServeOptions) {
        let serving = Listener::bind_in(&self.directory, name, probe, options).expect("a name");
        self.running.push(serving.start().expect("threads"));
    }

    pub(super) fn connect(&self, interface: &Interface, name: &str) -> ServerHandle {
        interface.connect_with(&self.directory, name, &ConnectOptions::default()).expect("a connection")
    }

    /// A client and a server that carries for it.
    pub(super) fn one(options: ServeOptions) -> (Self, Interface, ServerHandle) {
        let (mut reached, interface) = (Self::new(), interface());
        reached.open("probe", Probe::default(), options);
        let probe = reached.connect(&interface, "probe");
        (reached, interface, probe)
    }

    /// A server in the middle, and the last one.
    pub(super) fn chain() -> (Self, Interface, ServerHandle) {
        let mut reached = Self::new();
        reached.open("last", Probe::default(), ServeOptions::default());
        let middle = interface();
        let last = reached.connect(&middle, "last");
        let probe = Probe { next: Some((middle, last)), ..Probe::default() };
        reached.open("middle", probe, ServeOptions::default());
        let interface = interface();
        let middle = reached.connect(&interface, "middle");
        (reached, interface, middle)
    }
}

/// Copying is the cheapest for all lengths, as far as is known.
pub(super) fn interface() -> Interface {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 64 << 20,
        faults: Faults::Never,
        ..Config::default()
    };
    let passing = Passing::new(Space::new(&config).expect("a space"), Costs::default());
    Interface::new(passing, Limits::default())
}
