//! Leaves: servers that verify the data that they read and make the data that they write, in every manner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use genie_channel::{Listener, Running, ServeOptions, Serving, Status, servers};
use genie_conformance::checked;
use genie_io::{
    Anticipated, ClientId, Error, Incoming, RequestId, Server, ServerError, ServerHandle, Service,
};
use genie_memory::{Config, Data, Faults, Granularity, GranuleKind, Mapping, Space};
use genie_passing::Overlays;
use genie_sys::lock::Mutex;

use crate::cast::{ConductorLink, Cue, Word};
use crate::order::{EXCHANGE, GIVE, HEADER, Manner, ORDERED, Order, SERVICES, TAKE};
use crate::panics::{self, panic_as_ordered};
use crate::random::Random;
use crate::scarcity::Scarcity;
use crate::support::bytes::pattern;
use crate::tally::Tally;
use crate::traces::Traces;

/// How long requests may take to be let go once no thread waits for them, and clients' memory to be let go.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The longest that a driven server waits before it checks whether it is to end.
const TURN: Duration = Duration::from_millis(500);

/// Buffers that the leaf fills before it is asked: bytes of each, and how many.
const POOLED: (usize, usize) = (300_000, 3);

/// The requests that it keeps, and buffers of its own.
pub(crate) struct Leaf {
    kept: Mutex<HashMap<RequestId, (Incoming, Manner)>>,
    /// `None` for a server in its client's process.
    overlays: Option<Overlays>,
    clients: Mutex<Clients>,
}

/// The clients that it has met.
#[derive(Default)]
struct Clients {
    present: HashSet<ClientId>,
    departed: HashSet<ClientId>,
}

impl Clients {
    fn meet(&mut self, client: ClientId) {
        assert!(!self.departed.contains(&client), "a request of {client:?}, which has left");
        self.present.insert(client);
    }

    fn depart(&mut self, client: ClientId) {
        self.present.remove(&client);
        assert!(self.departed.insert(client), "{client:?} leaves twice");
    }
}

/// The server's face.
struct Face(Arc<Leaf>);

impl Server for Face {
    fn name(&self) -> &str {
        "leaf"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, incoming: Incoming) {
        let order = Order::decode(incoming.argument());
        let leaf = Arc::clone(&self.0);
        leaf.clients.lock().meet(incoming.client().id);
        match order.manner {
            Manner::Now => leaf.serve(incoming, &order),
            Manner::Later | Manner::Overlay => after(&order, move || leaf.serve(incoming, &order)),
            Manner::Anticipate => match incoming.anticipate() {
                Ok(anticipated) => after(&order, move || verify_anticipated(anticipated, &order)),
                Err(incoming) => leaf.serve(incoming, &order),
            },
            Manner::Fail => {
                incoming.reply(Err(ServerError { code: ORDERED, message: "as was ordered".to_owned() }));
            }
            Manner::Drop => drop(incoming),
            Manner::Keep | Manner::KeepAndPanic => leaf.keep(incoming, order.manner),
            Manner::Panic => panic_as_ordered(),
        }
    }

    fn departed(&self, client: ClientId) {
        self.0.clients.lock().depart(client);
        if client.number().is_multiple_of(3) {
            panic_as_ordered();
        }
    }

    fn abort(&self, request: RequestId) {
        let kept = self.0.kept.lock().remove(&request);
        let Some((incoming, manner)) = kept else { return };
        drop(incoming);
        if manner == Manner::KeepAndPanic {
            panic_as_ordered();
        }
    }
}

impl Leaf {
    /// A leaf in its client's process.
    pub(crate) fn within() -> (ServerHandle, Arc<Self>) {
        let leaf = Arc::new(Self { kept: Mutex::default(), overlays: None, clients: Mutex::default() });
        (ServerHandle::new(Face(Arc::clone(&leaf))), leaf)
    }

    fn keep(&self, incoming: Incoming, manner: Manner) {
        let id = incoming.id();
        let other = self.kept.lock().insert(id, (incoming, manner));
        assert!(other.is_none(), "two requests have the name {id:?}");
    }

    /// The clients of which it has not heard that they have left, if there are any.
    fn present(&self) -> Option<String> {
        let present = &self.clients.lock().present;
        (!present.is_empty()).then(|| format!("{present:?}"))
    }

    /// How many requests it keeps.
    pub(crate) fn kept(&self) -> usize {
        self.kept.lock().len()
    }

    fn serve(&self, mut incoming: Incoming, order: &Order) {
        let result = match incoming.service() {
            TAKE => verify(&incoming, order),
            GIVE => self.make(&mut incoming, 0, order),
            EXCHANGE => verify(&incoming, order).and_then(|()| self.make(&mut incoming, 1, order)),
            other => panic!("there is no service {other:?}"),
        };
        incoming.reply(result.map_err(|error| ServerError::new(error.to_string())));
    }

    /// Makes the pattern in an input buffer, or in one of the server's own.
    fn make(&self, incoming: &mut Incoming, index: usize, order: &Order) -> Result<(), Error> {
        let bytes = pattern(order.answer(), order.actual(incoming.len(index)));
        let is_overlaid = order.manner == Manner::Overlay
            && incoming.len(index) <= POOLED.0
            && incoming.elements(index) == 1;
        let overlays = self.overlays.as_ref().filter(|_| is_overlaid);
        match overlays.and_then(Overlays::allocate) {
            Some(overlay) => {
                overlay.data().copy_from(&bytes);
                incoming.overlay(index, 0, overlay)?;
            }
            None => {
                incoming.ready(index)?.part(0..bytes.len()).copy_from(&bytes);
            }
        }
        incoming.set_actual(index, bytes.len())
    }
}

/// Runs something when the order's delay is over.
fn after(order: &Order, run: impl FnOnce() + Send + 'static) {
    let delay = Duration::from_millis(order.delay.into());
    let run = move || {
        std::thread::sleep(delay);
        run();
    };
    std::thread::Builder::new().name("later".into()).spawn(run).expect("a thread");
}

/// Verifies the output; an error says that the output can't be had.
fn verify(incoming: &Incoming, order: &Order) -> Result<(), Error> {
    verify_bytes(&incoming.output(0)?, order);
    Ok(())
}

fn verify_anticipated(anticipated: Anticipated, order: &Order) {
    verify_bytes(&anticipated.output(0).expect("an output"), order);
}

/// Verifies the output's bytes: as they were when the request was made, or those of the buffer given by value.
///
/// # Panics
/// When the bytes are any others, which is what the soak looks for.
fn verify_bytes(data: &Data<'_>, order: &Order) {
    let len = data.len();
    let header = if order.is_headed { HEADER } else { &[] };
    let expected = [header, &pattern(order.seed, len - header.len())].concat();
    if let Some(offset) = data.mismatch(&expected) {
        panic!("byte {offset} of {len} is wrong: {order:?}");
    }
}

/// Serves until the conductor has it end.
pub(crate) fn play(mut link: ConductorLink, is_transient: bool, has_small_rings: bool) {
    let before = Traces::now();
    let mut options = options();
    if is_transient {
        options.mapping = Mapping::Transient;
    }
    if has_small_rings {
        // Requests fill a ring, so that later records about them find no room in it.
        options.rings = genie_channel::Layout { lines: 32, area: 16 << 10 };
        (options.pending_requests, options.hard_requests) = (32, 40);
        options.threads = 2;
    }
    let is_driven = link.script.seed.is_multiple_of(3);
    // The control thread, with a poller, and those that take requests. The thread that drives a server has a poller and an event.
    let (threads, descriptors) = if is_driven { (2, 3) } else { (options.threads + 1, 1) };
    let (listener, private) = claim(&link, options);
    let overlays = Overlays::reserve(&private, 0, POOLED.0, POOLED.1).expect("memory for the pool");
    let leaf = Arc::new(Leaf { kept: Mutex::default(), overlays: Some(overlays), clients: Mutex::default() });
    let serving = listener.serve(Face(Arc::clone(&leaf))).expect("a server");
    let (base, before_clients) = (Traces::now().serving(threads, descriptors), checked(&private));
    let running = Serves::begin(serving, is_driven);
    let mut random = Random::new(link.script.seed);
    link.tell(&Word::Ready);
    loop {
        let is_scarce = random.once_in(4);
        let scarcity = is_scarce.then(|| Scarcity::begin(&mut random));
        let cue = link.wait(Duration::from_secs(1));
        drop(scarcity);
        link.tell(&Word::Done(tally(is_scarce)));
        let Some(Cue::Rest) = cue else { continue };
        let own = || (checked(&private).objects - before_clients.objects) as usize;
        let left = Traces::settle(&base, PATIENCE, own);
        left.unwrap_or_else(|left| panic!("all clients are gone, but not {left}: {:?}", running.status()));
        let clients = running.status().map_or(0, |status| status.clients_total);
        assert_eq!((leaf.kept(), clients), (0, 0), "all clients are gone");
        eventually("clients that left are present", || leaf.present());
        panics::check();
        let system = checked(&private).system;
        assert_eq!(system, before_clients.system, "no data of anybody's is here");
        if !link.rest() {
            break;
        }
    }
    running.end();
    drop((private, leaf));
    Traces::settle(&before, PATIENCE, || 0)
        .unwrap_or_else(|left| panic!("the server is closed, but not {left}"));
}

/// What there is to be told of.
fn tally(is_scarce: bool) -> Tally {
    let mut tally = Tally::default();
    tally.add("servers' seconds with hardly any descriptors", is_scarce.into());
    panics::count(&mut tally);
    tally
}

/// A server that runs in threads of its own, or is driven by one of this process's.
enum Serves {
    Running(Running),
    Driven { is_over: Arc<AtomicBool>, thread: JoinHandle<()> },
}

impl Serves {
    fn begin(serving: Serving, is_driven: bool) -> Self {
        if !is_driven {
            return Self::Running(serving.start().expect("threads"));
        }
        let mut driven = serving.drive().expect("a descriptor");
        let is_over = Arc::new(AtomicBool::new(false));
        let run = {
            let is_over = Arc::clone(&is_over);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    driven.attend(TURN).expect("a server");
                }
            }
        };
        let thread = std::thread::Builder::new().name("driving".into()).spawn(run).expect("a thread");
        Self::Driven { is_over, thread }
    }

    fn status(&self) -> Option<Status> {
        if let Self::Running(running) = self { Some(running.status()) } else { None }
    }

    fn end(self) {
        if let Self::Driven { is_over, thread } = self {
            is_over.store(true, Ordering::Relaxed);
            thread.join().expect("no panic");
        }
    }
}

/// Claims the name that the script gives; returns the server's own memory, too.
pub(crate) fn claim(link: &ConductorLink, options: ServeOptions) -> (Listener, Space) {
    let listener = Listener::claim_in(&link.directory(), &link.script.name, options);
    let listener = listener.unwrap_or_else(|error| panic!("the name is not free: {error}"));
    let private = listener.private_pool().expect("memory of the server's own").clone();
    (listener, private)
}

/// How leaves and relays serve: so that limits are reached, and huge pages last.
pub(crate) fn options() -> ServeOptions {
    ServeOptions {
        pool: 8 << 20,
        hard_pool: 16 << 20,
        private_pool: 32 << 20,
        pending_bytes: 24 << 20,
        pending_requests: 12,
        hard_bytes: 32 << 20,
        hard_requests: 16,
        ..ServeOptions::default()
    }
}

/// Memory of a server's own: small granules, which are never stored into while they are output.
pub(crate) fn small_space(limit: usize) -> Space {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: limit / 2,
    };
    Space::new(&config).expect("a space")
}

/// What clients have pending at each server, as the servers say.
fn loads() -> Vec<String> {
    let load = |(name, status): (String, Result<Status, Error>)| match status {
        Ok(status) => format!("{name}: {:?}", status.clients),
        Err(error) => format!("{name}: {error}"),
    };
    servers().map_or_else(|error| vec![error.to_string()], |all| all.into_iter().map(load).collect())
}

/// Waits until nothing is in the way any more; `left` says what still is.
pub(crate) fn eventually(what: &str, left: impl Fn() -> Option<String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Some(left) = left() {
        assert!(Instant::now() < deadline, "{what}, after a while: {left}; {:?}", loads());
        std::thread::sleep(Duration::from_millis(2));
    }
}
