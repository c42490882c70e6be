//! Scenes: a server that keeps requests until it is told what to do with them, and clients of it.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Layout, Listener, Running, ServeOptions};
use genie_io::{
    Completer, Error, Failed, Fragment, Incoming, Interface, Limits, Out, Reply, RequestId, Server,
    ServerError, ServerHandle, Service, ServiceId,
};
use genie_memory::{Config, Faults, Granularity, GranuleKind, Space};
use genie_passing::{Costs, Passing};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{MaxSteps, Runner, thread};

/// Longer than any test: a thread that waits so long and is not woken waits for ever.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600);

/// The one service.
pub(crate) const SERVICE: ServiceId = ServiceId(0);

/// How many of the steps after the first are changes of priority.
const CHANGES: usize = 3;
/// How many steps an execution may take: a longer one fails.
const STEPS: usize = 200_000;

/// Runs `model` in many orders.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    let orders = std::env::var("GENIE_INTERLEAVINGS").map_or(500, |orders| orders.parse().expect("a number"));
    let model = Arc::new(model);
    run(RandomScheduler::new(orders), &model);
    run(PctScheduler::new(CHANGES, orders), &model);
}

fn run(scheduler: impl Scheduler + 'static, model: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    let model = Arc::clone(model);
    Runner::new(scheduler, config).run(move || model());
}

/// An interface by which one request can be pending.
pub(crate) fn narrow(abort_timeout: Duration) -> Interface {
    interface(Limits { pending_requests: 1, abort_timeout, ..Limits::default() })
}

/// An interface whose memory is that of all the others here.
pub(crate) fn interface(limits: Limits) -> Interface {
    static SPACE: OnceLock<Space> = OnceLock::new();
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 32 << 20,
        // A thread that handles faults would be none of shuttle's.
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: 8 << 20,
    };
    let space = SPACE.get_or_init(|| Space::new(&config).expect("a space"));
    Interface::new(Passing::new(space.clone(), Costs::default()), limits)
}

/// Verifies that nothing is pending of an interface made by [`narrow`]: another request is let in, and may be pending itself.
pub(crate) fn assert_free(interface: &Interface, server: &ServerHandle) {
    assert_eq!(interface.pending_bytes(), 0);
    let another = interface.request(server, SERVICE).submit();
    drop(another.expect("the first request's share is free again"));
}

/// Keeps requests; it lets those go that are aborted, if it is asked to heed that.
#[derive(Default)]
pub(crate) struct Keeper {
    kept: Mutex<VecDeque<Incoming>>,
    /// There is one more.
    more: Condvar,
    is_deaf: bool,
    /// Its clients look for what it has completed, which never is anything: the test replies.
    is_looked_at: bool,
    /// Its name, and the list on which it notes that it was asked to let a request go.
    notes: Option<(&'static str, Notes)>,
}

/// The names of servers, in the order in which they were asked to let requests go.
pub(crate) type Notes = Arc<Mutex<Vec<&'static str>>>;

/// The server's face.
struct Face(Arc<Keeper>);

static SERVICES: [Service; 1] = [Service::new("keep", true, true)];

impl Server for Face {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, incoming: Incoming) {
        self.0.kept.lock().unwrap().push_back(incoming);
        self.0.more.notify_all();
    }

    fn abort(&self, request: RequestId) {
        if let Some((name, notes)) = &self.0.notes {
            notes.lock().unwrap().push(name);
        }
        if !self.0.is_deaf {
            drop(self.0.take_named(request));
        }
    }

    fn completer(&self) -> Option<&dyn Completer> {
        self.0.is_looked_at.then_some(self)
    }
}

impl Completer for Face {
    fn collect(&self) -> usize {
        0
    }
}

impl Keeper {
    pub(crate) fn open() -> (ServerHandle, Arc<Self>) {
        let keeper = Arc::new(Self::default());
        (ServerHandle::new(Face(Arc::clone(&keeper))), keeper)
    }

    /// One that never lets go what is aborted.
    pub(crate) fn deaf() -> (ServerHandle, Arc<Self>) {
        let keeper = Arc::new(Self { is_deaf: true, ..Self::default() });
        (ServerHandle::new(Face(Arc::clone(&keeper))), keeper)
    }

    /// One whose clients look for what it has completed.
    pub(crate) fn looked_at() -> (ServerHandle, Arc<Self>) {
        let keeper = Arc::new(Self { is_looked_at: true, ..Self::default() });
        (ServerHandle::new(Face(Arc::clone(&keeper))), keeper)
    }

    /// One that notes that it was asked to let a request go.
    pub(crate) fn noting(name: &'static str, notes: &Notes) -> (ServerHandle, Arc<Self>) {
        let keeper = Arc::new(Self { notes: Some((name, Arc::clone(notes))), ..Self::default() });
        (ServerHandle::new(Face(Arc::clone(&keeper))), keeper)
    }

    /// All of the data of the request that has been there for longest, to be forwarded.
    pub(crate) fn fragment(&self) -> Fragment {
        let mut kept = self.kept.lock().unwrap();
        let incoming = kept.front_mut().expect("a request");
        incoming.fragment(0, 0..incoming.len(0)).expect("a fragment")
    }

    /// Takes the request that has been there for longest, if there is any.
    pub(crate) fn take(&self) -> Option<Incoming> {
        self.kept.lock().unwrap().pop_front()
    }

    /// Waits for a request.
    pub(crate) fn await_one(&self) -> Incoming {
        let mut kept = self.kept.lock().unwrap();
        loop {
            match kept.pop_front() {
                Some(incoming) => return incoming,
                None => kept = self.more.wait(kept).unwrap(),
            }
        }
    }

    /// Replies to the request that has been there for longest; returns whether there was any.
    pub(crate) fn reply(&self) -> bool {
        self.take().map(|incoming| incoming.reply(Ok(()))).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.lock().unwrap().is_empty()
    }

    fn take_named(&self, request: RequestId) -> Option<Incoming> {
        let mut kept = self.kept.lock().unwrap();
        let index = kept.iter().position(|incoming| incoming.id() == request)?;
        kept.remove(index)
    }
}

/// Forwards a request to another server, as a contractor does, and replies with that server's result; returns whether it has
/// served the request.
pub(crate) fn forward(mut incoming: Incoming, to: &ServerHandle) -> bool {
    let interface = interface(Limits { abort_timeout: FOR_EVER, ..Limits::default() });
    let fragment = incoming.fragment(0, 0..incoming.len(0)).expect("a fragment");
    let came = interface.request(to, SERVICE).out(Out::fragment(fragment)).send();
    let is_served = came.is_ok();
    incoming.reply(came.map(drop).map_err(|failed| ServerError::new(failed.error.to_string())));
    is_served
}

/// Verifies that a request that was aborted has succeeded if, and only if, its server had replied; but a reply after the
/// request's time is over does not count.
#[track_caller]
pub(crate) fn assert_agreed(came: &Result<Reply, Failed>, is_replied: bool) {
    match came {
        Ok(_) => assert!(is_replied, "the reply that came was never given"),
        Err(failed) => {
            let is_fit = matches!(failed.error, Error::Aborted | Error::TimedOut { .. });
            assert!(is_fit, "{}", failed.error);
            let is_late = matches!(failed.error, Error::TimedOut { .. });
            assert!(is_late || !is_replied, "the reply was lost");
        }
    }
}

/// A server that is reached by channels.
pub(crate) struct Elsewhere {
    running: Running,
    directory: Directory,
    _run: tempfile::TempDir,
}

impl Elsewhere {
    pub(crate) fn open(keeper: &Arc<Keeper>) -> Self {
        let run = tempfile::tempdir().expect("a directory");
        let options = ServeOptions {
            pool: 0,
            hard_pool: 0,
            private_pool: 1 << 20,
            rings: Layout { lines: 8, area: 4096 },
            pending_requests: 4,
            spin: Duration::ZERO,
            abort_timeout: FOR_EVER,
            ..ServeOptions::default()
        };
        let directory = Directory::at(run.path()).expect("a run-time directory");
        let listener = Listener::claim_in(&directory, "keeper", options).expect("a name");
        let serving = listener.serve(Face(Arc::clone(keeper))).expect("a server");
        Self { running: serving.start().expect("threads"), directory, _run: run }
    }

    pub(crate) fn connect(&self, interface: &Interface) -> ServerHandle {
        let options = ConnectOptions { spin: Some(Duration::ZERO), ..ConnectOptions::default() };
        interface.connect_with(&self.directory, "keeper", &options).expect("a connection")
    }

    /// Waits until the server has no clients any more.
    pub(crate) fn await_departure(&self) {
        while self.running.status().clients_total > 0 {
            thread::yield_now();
        }
    }
}
