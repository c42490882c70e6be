//! The peer's own side: opens servers as tests ask, and closes them when those hang up.

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions, Serving};
use genie_io::servers::memory::Memory;
use genie_io::{In, Interface, Limits, Out, Pending, Server, ServerHandle};
use genie_memory::{Buffer, Config, Faults, Granularity, GranuleKind, Mapping, Space};
use genie_passing::{Costs, Overlays, Passing, Scheme, Thresholds};
use genie_sys::process::{self, Pid};
use rustix::process::Signal;

use super::message::{self, Ask, Kind, Opening, Pooled, Told};
use super::{CONTROL, DIRECTORY, OWNED, run_of};
use crate::support::holder::{Control, Held, Name};
use crate::support::log::{Log, Noting};
use crate::support::relay::Relay;

/// The name of the test that is the peer.
pub(super) const TEST: &str = "support::peer::serve::until_the_parent_hangs_up";

#[test]
#[ignore = "it is the other process of tests that need one"]
fn until_the_parent_hangs_up() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    if std::env::var_os(OWNED).is_some() {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a parent");
    }
    let listener = UnixListener::bind(directory.join(CONTROL)).expect("a socket");
    let place = directory.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, place) = (stream.expect("a connection"), place.clone());
            std::thread::spawn(move || Connection::default().attend(stream, &place));
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a parent");
    let _ = std::fs::remove_dir_all(directory);
    std::process::exit(0);
}

/// What one test has opened here.
#[derive(Default)]
struct Connection {
    holder: Option<Arc<Held>>,
    /// Closed before the servers: they make requests of others.
    running: Vec<Running>,
    /// What was sent as a client.
    sent: Vec<(Pending<'static>, Interface, ServerHandle, Buffer)>,
}

impl Connection {
    fn attend(mut self, mut stream: UnixStream, place: &Path) {
        while let Ok(Some(ask)) = message::receive(&mut stream) {
            let told = self.answer(ask, place).unwrap_or_else(Told::Failed);
            if message::send(&mut stream, told).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, ask: Ask, place: &Path) -> Result<Told, String> {
        match ask {
            Ask::Open(opening) => self.open(&opening, place)?,
            Ask::Held { expected } => return Ok(Told::Arrivals(self.holder()?.arrivals_held(expected))),
            Ask::Aborted => return Ok(Told::Arrivals(self.holder()?.arrivals_aborted())),
            Ask::SetObliging(obliging) => self.holder()?.set_obliging(obliging),
            Ask::Command { arrival, command } => {
                return Ok(Told::Answer(self.holder()?.command(Name::Arrival(arrival), command)));
            }
            Ask::Idle => self.running.iter().try_for_each(is_idle)?,
            Ask::Read { pid, addr } => {
                let pid = Pid::from_raw(pid as i32).ok_or("no process has the number 0")?;
                process::read_memory(pid, addr, &mut [0]).map_err(|error| error.to_string())?;
            }
            Ask::Send { directory, server, len } => self.send(&directory, &server, len)?,
        }
        Ok(Told::Done)
    }

    fn holder(&self) -> Result<&Arc<Held>, String> {
        self.holder.as_ref().ok_or_else(|| "no holder was opened".to_owned())
    }

    fn open(&mut self, opening: &Opening, place: &Path) -> Result<(), String> {
        match &opening.kind {
            Kind::Memory(None) => self.serve(opening, place, |_| Memory::customized()),
            Kind::Memory(Some(Pooled { len, count })) => self.serve(opening, place, |listener| {
                Memory::pooled(private(listener), 0, *len, *count).expect("memory for the pool")
            }),
            Kind::Holder { pooled, log } => {
                let mut holder = None;
                self.serve(opening, place, |listener| {
                    let overlays = pooled.map(|Pooled { len, count }| {
                        Overlays::reserve(private(listener), 0, len, count).expect("memory for the pool")
                    });
                    let (server, held) = Noting::new(overlays, open_log(log));
                    holder = Some(held);
                    server
                })?;
                self.holder = holder;
                Ok(())
            }
            Kind::Relay { to, manner, log } => {
                let interface = small_interface();
                let connect = |(directory, name): &(PathBuf, String)| connect(&interface, directory, name);
                let to = to.iter().map(connect).collect::<Result<_, _>>()?;
                self.serve(opening, place, |_| Relay::new(interface, to, *manner, open_log(log)))
            }
        }
    }

    /// Opens what `server` makes.
    fn serve<S: Server>(
        &mut self,
        opening: &Opening,
        place: &Path,
        server: impl FnOnce(&Listener) -> S,
    ) -> Result<(), String> {
        let options = ServeOptions {
            pool: opening.pool,
            hard_pool: opening.hard_pool,
            pending_bytes: opening.pending_bytes,
            pending_requests: opening.pending_requests,
            abort_timeout: Duration::from_millis(opening.abort_timeout),
            mapping: if opening.transient { Mapping::Transient } else { Mapping::Cached },
            ..ServeOptions::default()
        };
        let listener = Listener::claim_in(&run_of(place), &opening.name, options);
        let listener = listener.map_err(|error| error.to_string())?;
        let server = server(&listener);
        let running = listener.serve(server).and_then(Serving::start).map_err(|error| error.to_string())?;
        self.running.push(running);
        Ok(())
    }

    fn send(&mut self, directory: &Path, server: &str, len: usize) -> Result<(), String> {
        let interface = small_interface();
        let handle = connect(&interface, directory, server)?;
        let buffer = interface.allocate(len).map_err(|error| error.to_string())?;
        let input = interface.allocate(len).map_err(|error| error.to_string())?;
        let request = interface.request(&handle, crate::support::holder::HOLD);
        let request = request.out(Out::emulated_copy(&buffer)).input(In::owned(Scheme::EmulatedCopy, input));
        let pending = request.submit().map_err(|error| error.to_string())?;
        self.sent.push((pending, interface, handle, buffer));
        Ok(())
    }
}

/// Memory of a server's own.
fn private(listener: &Listener) -> &Space {
    listener.private_pool().expect("a private pool")
}

fn open_log(log: &Option<(PathBuf, String)>) -> Option<Log> {
    log.as_ref().map(|(path, label)| Log::open(path, label))
}

fn connect(interface: &Interface, directory: &Path, name: &str) -> Result<ServerHandle, String> {
    let directory = Directory::at(directory).map_err(|error| error.to_string())?;
    let connected = interface.connect_with(&directory, name, &ConnectOptions::default());
    connected.map_err(|error| error.to_string())
}

/// Waits a moment for what was replied to already to be off the books.
fn is_idle(running: &Running) -> Result<(), String> {
    for _ in 0..1000 {
        let status = running.status();
        if status.clients.iter().all(|c| (c.pending.pending_bytes, c.pending.pending_requests) == (0, 0)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("requests are pending: {:?}", running.status()))
}

/// Small granules, which are never stored into while they are output.
fn small_space() -> Space {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 64 << 20,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: 16 << 20,
    };
    Space::new(&config).expect("a space")
}

fn small_interface() -> Interface {
    let passing = Passing::new(small_space(), Costs::default()).with_thresholds(Thresholds::ALWAYS);
    Interface::new(passing, Limits::default())
}
