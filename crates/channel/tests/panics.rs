//! Servers that panic: the request ends with an error that says so, and all other clients are served as before.
//!
//! How: one server panics wherever its requests tell it to. It is asked in process and over a channel, from threads of its
//! own and from an event loop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions, Listener, Running, ServeOptions, Serving};
use genie_io::{
    Client, Error, In, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service, ServiceId,
};
use genie_memory::DataMut;
use genie_passing::{Outboard, Preferred, Scheme};
use genie_sys::lock::Mutex;

use crate::waiting::fixture::{FOR_EVER, interface_with};

/// Replies.
const PASS: ServiceId = ServiceId(0);
/// Panics with the request in its hands.
const PANIC: ServiceId = ServiceId(1);
/// Keeps the request; panics when it is to be aborted.
const KEEP: ServiceId = ServiceId(2);
/// Catches its own panic.
const CATCH: ServiceId = ServiceId(3);
/// Panics in a thread of its own.
const THREAD: ServiceId = ServiceId(4);
/// Panics with what panics when it is dropped.
const BOMB: ServiceId = ServiceId(5);
/// Links a device's memory that panics when it is read.
const DEVICE: ServiceId = ServiceId(6);

static SERVICES: [Service; 7] = [
    Service::new("pass", true, true),
    Service::new("panic", true, true),
    Service::new("keep", true, true),
    Service::new("catch", true, true),
    Service::new("thread", true, true),
    Service::new("bomb", true, true),
    Service::new("device", true, true),
];

/// Bytes that the device is said to have.
const LEN: usize = 100_000;

/// Cloning makes another handle.
#[derive(Clone, Default)]
struct Panicking {
    kept: Arc<Mutex<Vec<Incoming>>>,
    aborts: Arc<AtomicU32>,
    /// Panics when it is asked what it is, and when it is dropped.
    is_hopeless: bool,
}

impl Panicking {
    /// Waits until there is a kept request, and takes it out.
    #[track_caller]
    fn take(&self) -> Incoming {
        let start = Instant::now();
        loop {
            if let Some(kept) = self.kept.lock().pop() {
                return kept;
            }
            assert!(start.elapsed() < FOR_EVER, "the server has no request");
            std::thread::yield_now();
        }
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload's panic is part of the test");
    }
}

#[derive(Debug)]
struct Device;

impl Outboard for Device {
    fn len(&self) -> usize {
        LEN
    }

    fn transfer(&mut self, _offset: usize, _into: DataMut<'_>) -> std::io::Result<()> {
        panic!("a device's panic is part of the test");
    }
}

impl Server for Panicking {
    fn name(&self) -> &str {
        assert!(!self.is_hopeless, "a name's panic is part of the test");
        "panicking"
    }

    fn services(&self) -> &[Service] {
        assert!(!self.is_hopeless, "services' panic is part of the test");
        &SERVICES
    }

    fn preferred(&self, _client: &Client, service: ServiceId, _argument: &[u8]) -> Option<Preferred> {
        assert!(service == PASS, "a preference's panic is part of the test");
        None
    }

    fn request(&self, mut request: Incoming) {
        match request.service() {
            PANIC => panic!("{}", String::from_utf8_lossy(request.argument())),
            KEEP => self.kept.lock().push(request),
            CATCH => {
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _request = request;
                    panic!("a panic that is caught is part of the test");
                }));
                assert!(caught.is_err());
            }
            THREAD => {
                let thread = std::thread::spawn(move || {
                    let _request = request;
                    panic!("a thread's panic is part of the test");
                });
                thread.join().expect_err("a panic");
            }
            BOMB => std::panic::panic_any(Bomb),
            DEVICE => {
                request.outboard(0, 0, Box::new(Device)).expect("an input");
                request.set_actual(0, LEN).expect("room");
                request.reply(Ok(()));
            }
            _ => request.reply(Ok(())),
        }
    }

    fn abort(&self, _request: RequestId) {
        self.aborts.fetch_add(1, Ordering::Relaxed);
        panic!("an abort's panic is part of the test");
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        assert!(!self.is_hopeless, "a destructor's panic is part of the test");
    }
}

/// A server in another process, as its clients see it, that is in threads of this one.
struct Elsewhere {
    directory: Directory,
    _running: Running,
    _scratch: tempfile::TempDir,
}

impl Elsewhere {
    fn start(server: impl Server) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
        let options = ServeOptions { threads: 2, pool: 1 << 20, ..ServeOptions::default() };
        let serving = Listener::bind_in(&directory, "panicking", server, options).expect("a name");
        Self { directory, _running: serving.start().expect("threads"), _scratch: scratch }
    }

    fn connect(&self, interface: &Interface) -> ServerHandle {
        let options = ConnectOptions::default();
        interface.connect_with(&self.directory, "panicking", &options).expect("a connection")
    }
}

fn interface() -> Interface {
    interface_with(Limits { abort_timeout: Duration::from_millis(10), ..Limits::default() })
}

/// Runs a test with the server in process, and over channels that different workers attend to.
fn everywhere(test: impl Fn(&Interface, &ServerHandle, &Panicking)) {
    let interface = interface();
    let server = Panicking::default();
    let here = ServerHandle::new(server.clone());
    test(&interface, &here, &server);
    passes(&interface, &here);
    let elsewhere = Elsewhere::start(server.clone());
    let channels = [elsewhere.connect(&interface), elsewhere.connect(&interface)];
    for channel in &channels {
        test(&interface, channel, &server);
    }
    // Clients that were there, and one that comes.
    for channel in channels.iter().chain([&elsewhere.connect(&interface)]) {
        passes(&interface, channel);
    }
    server.kept.lock().clear();
    let start = Instant::now();
    while interface.pending_bytes() > 0 {
        interface.collect();
        assert!(start.elapsed() < FOR_EVER, "{} bytes are pending", interface.pending_bytes());
    }
}

#[track_caller]
fn passes(interface: &Interface, server: &ServerHandle) {
    let request = interface.request(server, PASS).out(Out::copy(b"data")).timeout(FOR_EVER);
    request.send().expect("a reply");
}

#[track_caller]
fn fails(interface: &Interface, server: &ServerHandle, service: ServiceId) -> Error {
    let request = interface.request(server, service).out(Out::copy(b"data")).argument(b"what it says");
    let error = request.timeout(FOR_EVER).send().expect_err("a panic").error;
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
    error
}

/// A server that panicked in `request` ended its worker's thread. Where another worker was left, or the program's own thread
/// was no worker, clients were accepted and never answered.
#[test]
fn a_panic_ends_its_request_and_no_worker() {
    everywhere(|interface, server, _| {
        for _ in 0..3 {
            let error = fails(interface, server, PANIC);
            assert_eq!(error, Error::Panicked { message: "what it says".to_owned() });
        }
        passes(interface, server);
    });
}

#[test]
fn a_request_that_a_panic_drops_ends_wherever_that_is_caught() {
    everywhere(|interface, server, _| {
        for service in [CATCH, THREAD, BOMB] {
            fails(interface, server, service);
        }
    });
}

/// What waits for the panic's message was destroyed with the thread's locals by then, and the stack overflowed.
#[test]
fn a_panic_ends_its_request_while_a_thread_ends() {
    struct AtEnd(Interface, ServerHandle, Sender<Error>);

    impl Drop for AtEnd {
        fn drop(&mut self) {
            let failed = self.0.request(&self.1, PANIC).argument(b"at the end").send();
            self.2.send(failed.expect_err("a panic").error).expect("a test");
        }
    }

    thread_local!(static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) });
    let (sender, came) = channel();
    let ending = std::thread::spawn(move || {
        let (interface, server) = (interface(), ServerHandle::new(Panicking::default()));
        // The locals that a panic needs come later, and so are destroyed earlier.
        AT_END.set(Some(AtEnd(interface.clone(), server.clone(), sender)));
        fails(&interface, &server, PANIC);
    });
    ending.join().expect("its end");
    assert_eq!(came.try_recv(), Ok(Error::Panicked { message: "at the end".to_owned() }));
}

/// A server that panicked in `abort` killed the control thread, which attends to all clients, or the interface's timer.
#[test]
fn a_panic_in_abort_ends_neither_the_control_thread_nor_the_timer() {
    everywhere(|interface, server, panicking| {
        for _ in 0..3 {
            let before = panicking.aborts.load(Ordering::Relaxed);
            let request = interface.request(server, KEEP).out(Out::copy(b"data"));
            let pending = request.timeout(Duration::from_millis(1)).submit().expect("a request");
            let error = pending.sync().expect_err("it is kept").error;
            assert!(matches!(error, Error::TimedOut { .. }), "{error}");
            let start = Instant::now();
            while panicking.aborts.load(Ordering::Relaxed) == before {
                assert!(start.elapsed() < FOR_EVER, "the server was not asked");
            }
        }
    });
}

#[test]
fn a_panic_in_abort_when_a_client_leaves_keeps_nobody_out() {
    let server = Panicking::default();
    let elsewhere = Elsewhere::start(server.clone());
    for leaving in 1..=3 {
        let interface = interface();
        let handle = elsewhere.connect(&interface);
        let pending = interface.request(&handle, KEEP).out(Out::copy(b"data")).submit().expect("a request");
        let start = Instant::now();
        while server.kept.lock().len() < leaving {
            assert!(start.elapsed() < FOR_EVER, "the server has no request");
        }
        drop((pending, handle));
        while server.aborts.load(Ordering::Relaxed) < leaving as u32 {
            assert!(start.elapsed() < FOR_EVER, "nothing was aborted");
        }
    }
    let interface = interface();
    passes(&interface, &elsewhere.connect(&interface));
}

/// Data that a server has in a device is fetched after the server has replied; a panic then left the request in the
/// channel's table for ever.
#[test]
fn a_device_that_panics_ends_its_request() {
    everywhere(|interface, server, _| {
        for scheme in [Scheme::Copy, Scheme::EmulatedCopy] {
            let mut bytes = interface.allocate(LEN).expect("memory");
            bytes.fill(7);
            let request = interface.request(server, DEVICE).input(In::borrowed(scheme, &mut bytes));
            let error = request.timeout(FOR_EVER).send().expect_err("a panic").error.to_string();
            assert!(error.contains("its code panicked"), "{error}");
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    });
}

#[test]
fn a_server_that_can_not_say_what_it_is_harms_nobody() {
    let hopeless = || Panicking { kept: Arc::default(), aborts: Arc::default(), is_hopeless: true };
    let interface = interface();
    let here = ServerHandle::new(hopeless());
    assert_eq!((here.name(), here.services().len()), ("nameless", 0));
    let error = interface.request(&here, PASS).send().expect_err("no services").error;
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
    drop(here);
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    for _ in 0..2 {
        let bound = Listener::bind_in(&directory, "hopeless", hopeless(), ServeOptions::default());
        let error = bound.expect_err("a panic");
        assert!(
            matches!(&error, Error::Panicked { message } if message.contains("services' panic")),
            "{error}"
        );
    }
}

/// Makes a request of another server when it is dropped.
struct Calling<'c>(&'c Interface, &'c ServerHandle);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        passes(self.0, self.1);
    }
}

/// Panics while it holds what makes a request of another server when it is dropped.
struct Nesting(ServerHandle);

impl Server for Nesting {
    fn name(&self) -> &str {
        "nesting"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let interface = interface();
        let _calling = Calling(&interface, &self.0);
        let _held = request;
        panic!("the outer panic");
    }

    fn abort(&self, _request: RequestId) {}
}

/// A call of another server, made during unwinding, took the request that unwinding had dropped before, and ended it without
/// the panic's message.
#[test]
fn a_request_made_by_unwinding_takes_no_message_from_others() {
    let server = ServerHandle::new(Nesting(ServerHandle::new(Panicking::default())));
    let error = fails(&interface(), &server, PASS);
    assert_eq!(error, Error::Panicked { message: "the outer panic".to_owned() });
}

#[test]
fn an_event_loop_goes_on_when_the_server_panics() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let serving = Listener::bind_in(&directory, "panicking", Panicking::default(), ServeOptions::default());
    let mut driven = serving.and_then(Serving::drive).expect("a server");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let interface = interface();
            let server = interface.connect_with(&directory, "panicking", &ConnectOptions::default());
            let server = server.expect("a connection");
            fails(&interface, &server, PANIC);
            passes(&interface, &server);
        });
        while !client.is_finished() {
            driven.attend(Duration::from_millis(1)).expect("a server");
        }
        client.join().expect("a client that was served");
    });
}

/// Panics when it is woken.
struct PanickingTask;

impl Wake for PanickingTask {
    fn wake(self: Arc<Self>) {
        panic!("a task's panic is part of the test");
    }
}

/// A task that panicked when it was woken killed the interface's timer, unwound through the server that had replied, and left
/// its request outstanding for ever.
#[test]
fn a_task_that_panics_when_it_is_woken_harms_neither_timer_nor_server() {
    everywhere(|interface, server, panicking| {
        let panics = |mut timeout: Duration| loop {
            let request = interface.request(server, KEEP).out(Out::copy(b"data")).timeout(timeout);
            let pending = request.submit().expect("a request");
            let waker = Waker::from(Arc::new(PanickingTask));
            if pending.poll(&mut Context::from_waker(&waker)).is_pending() {
                return pending;
            }
            // On a busy machine its time is over before it is polled.
            drop((pending, panicking.take()));
            timeout *= 2;
            assert!(timeout < FOR_EVER, "no request is pending");
        };
        for _ in 0..2 {
            let pending = panics(Duration::from_millis(1));
            assert!(pending.wait(FOR_EVER), "the timer goes on");
            // The server may come to a request only after the client has given it up.
            drop((pending, panicking.take()));
        }
        let pending = panics(FOR_EVER);
        panicking.take().reply(Ok(()));
        pending.sync().expect("a reply");
        assert!(interface.flush(server, FOR_EVER), "no request is outstanding");
    });
}
