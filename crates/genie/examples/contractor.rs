//! A service of two servers. The *maker* makes data, step by step, and tells how far it has come. The *contractor* has the maker do what
//! its clients ask for, in the clients' buffers, passes on how far it has come, and waits for no reply in a thread. The client takes what has come
//! after a while, gives up the rest, and asks for the rest into another buffer. Each is a process of its own:
//!
//!     cargo run --release -p genie --example contractor -- maker
//!     cargo run --release -p genie --example contractor -- contractor
//!     cargo run --release -p genie --example contractor -- client
#![allow(clippy::disallowed_types, reason = "programs that use Genie have the standard library's locks")]

use std::error::Error;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use genie::channel::{ConnectOptions, Listener, ServeOptions};
use genie::{
    Completer, Connect, In, Incoming, Interface, Limits, Pending, Reconnecting, RequestId, Server,
    ServerError, ServerHandle, Service, ServiceId,
};

/// Both servers have this one service: it fills buffer 0 with bytes that count up, from the number on that the argument has.
static COUNT: [Service; 1] = [Service::new("count", false, true)];
const LEN: usize = 4 << 20;
const STEP: usize = 64 << 10;
const ENOUGH: usize = 256 << 10;

struct Maker;

impl Server for Maker {
    fn name(&self) -> &str {
        "maker"
    }

    fn services(&self) -> &[Service] {
        &COUNT
    }

    fn request(&self, mut request: Incoming) {
        match count(&mut request) {
            // The client has given up the rest: it gets what is final. An error would take that away.
            Ok(done) if done < request.len(0) => drop(request),
            result => request.reply(result.map(drop)),
        }
    }

    fn abort(&self, _request: RequestId) {
        // `request` has returned by now, and the request is over.
    }
}

fn count(request: &mut Incoming) -> Result<usize, ServerError> {
    let from = request.argument().try_into().map_err(|_| ServerError::misuse("the argument is no u64"))?;
    let (from, len, mut done) = (u64::from_le_bytes(from) as usize, request.len(0), 0);
    while done < len && !request.is_aborted() {
        std::thread::sleep(Duration::from_millis(10)); // it is hard work
        let step = done..len.min(done + STEP);
        let bytes: Vec<u8> = step.clone().map(|at| (from + at) as u8).collect();
        request.ready(0)?.part(step.clone()).copy_from(&bytes);
        done = step.end;
        request.progress(0, done)?;
    }
    Ok(done)
}

struct Contractor {
    genie: Interface,
    /// The maker, or the one that has come in its place.
    maker: Reconnecting,
    /// What it was asked for, and has asked for in turn.
    asked: Mutex<Vec<(Incoming, Pending<'static>)>>,
}

impl Server for Contractor {
    fn name(&self) -> &str {
        "contractor"
    }

    fn services(&self) -> &[Service] {
        &COUNT
    }

    fn request(&self, mut request: Incoming) {
        let maker = match self.maker.handle() {
            Ok(maker) => maker,
            Err(error) => return request.reply(Err(error.into())),
        };
        // Locked before the maker is asked: a thread that takes the maker's reply finds the request.
        let mut asked = self.asked.lock().expect("no panic");
        match self.forward(&maker, &mut request) {
            Ok(pending) => asked.push((request, pending)),
            Err(error) => {
                drop(asked);
                request.reply(Err(error));
            }
        }
    }

    fn abort(&self, _request: RequestId) {
        // The maker was asked first to let go of the client's buffer, and the reply follows from what it has said.
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Contractor {
    fn forward(&self, maker: &ServerHandle, request: &mut Incoming) -> Result<Pending<'static>, ServerError> {
        let room = request.fragment(0, 0..request.len(0))?;
        let count = self.genie.request(maker, ServiceId(0)).argument(request.argument()).room(request.room());
        Ok(count.input(In::fragment(room)).submit().map_err(|failed| failed.error)?)
    }
}

/// The threads that take requests look here between them, and sleep at the descriptor: it is readable when word of the maker's has come.
impl Completer for Contractor {
    fn collect(&self) -> usize {
        let mut asked = self.asked.lock().expect("no panic");
        // Each of these looks for what has come from the maker.
        let is_over = |(request, pending): &mut (Incoming, Pending<'_>)| {
            request.progress(0, pending.progress(0)).is_err() || pending.is_replied()
        };
        let over: Vec<_> = asked.extract_if(.., is_over).collect();
        drop(asked); // the replies may bring the next requests
        let count = over.len();
        for (mut request, pending) in over {
            // The last part comes with the reply, as does what was final of a request that the client has given up.
            let made = pending.sync().and_then(|reply| {
                request.set_actual(0, reply.actual())?;
                Ok(request.set_argument(reply.argument())?)
            });
            request.reply(made.map_err(|failed| failed.error.into()));
        }
        count
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.genie.descriptor().ok()
    }

    fn arm(&self) -> bool {
        self.genie.collect();
        // Another thread may have taken a reply before this armed.
        self.genie.arm() && self.collect() == 0
    }
}

fn ask() -> Result<(), Box<dyn Error>> {
    // The contractor may take a while to have the maker let go.
    let genie = Interface::open_with(Limits { abort_timeout: Duration::from_secs(20), ..Limits::default() })?;
    let contractor = genie.connect("contractor")?;
    let (mut first, mut second) = (genie.allocate(LEN)?, genie.allocate(LEN)?);

    let request = genie.request(&contractor, ServiceId(0)).argument(&[0; 8]);
    let pending = request.input(In::emulated_copy(&mut first)).submit()?;
    let mut come = 0;
    while come < ENOUGH && !pending.is_replied() {
        come = pending.wait_for_progress(0, come, Duration::from_secs(1));
    }
    let come = pending.abort()?.actual();
    println!("{come} of {LEN} bytes came");

    let from = (come as u64).to_le_bytes();
    let request = genie.request(&contractor, ServiceId(0)).argument(&from);
    let rest = request.input(In::emulated_copy(&mut second[come..])).send()?.actual();
    println!("{rest} bytes came elsewhere");
    let is_right = |bytes: &[u8], from: usize| bytes.iter().zip(from..).all(|(byte, at)| *byte == at as u8);
    let is_all = come >= ENOUGH && come + rest == LEN;
    if !is_all || !is_right(&first[..come], 0) || !is_right(&second[come..], come) {
        return Err("the bytes are not what they should be".into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // How long the contractor waits for the maker when a client has given up: less than the client waits for the contractor.
    let options = ServeOptions { abort_timeout: Duration::from_secs(10), ..ServeOptions::default() };
    match std::env::args().nth(1).as_deref() {
        Some("maker") => Ok(Listener::bind("maker", Maker, options)?.run_until_signal()?),
        Some("contractor") => {
            let genie = Interface::open()?;
            let maker = Reconnecting::new(&genie, "maker", ConnectOptions::default())?;
            let contractor = Contractor { genie, maker, asked: Mutex::default() };
            Ok(Listener::bind("contractor", contractor, options)?.run_until_signal()?)
        }
        Some("client") => ask(),
        _ => Err("say which: maker, contractor or client".into()),
    }
}
