//! Registrars' calls that drop, abort and reply to requests: among others, to requests of the channel in whose course they are told.
//!
//! Such calls were made under locks of the channel's and of forwarded inputs, and waited for the very locks that their thread had.

use std::sync::mpsc::channel;

use super::*;
use crate::support::holder::{Command, HOLD, Held, HoldingServer, PASS};
use genie_conformance::holder::{Control, Name};
use genie_io::servers::memory::{Memory, SOURCE};
use genie_io::{Error, Pending};

/// What a registrar was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Added,
    Shown,
    Removed,
}

type Act = Box<dyn FnOnce() + Send>;

/// Does something when it is told so for the first time since that was left here.
#[derive(Default)]
struct Acting {
    act: Mutex<Option<(Told, Act)>>,
    lenders: Mutex<Vec<LenderId>>,
}

impl Acting {
    fn on(&self, told: Told, act: impl FnOnce() + Send + 'static) {
        *self.act.lock() = Some((told, Box::new(act)));
    }

    fn told(&self, told: Told) {
        let act = self.act.lock().take_if(|(awaited, _)| *awaited == told);
        if let Some((_, act)) = act {
            act();
        }
    }

    /// Whether it has done what was left here.
    fn has_acted(&self) -> bool {
        self.act.lock().is_none()
    }
}

impl Registrar for Acting {
    fn added(&self, object: &SharedObject) {
        self.lenders.lock().extend(object.lender);
        self.told(Told::Added);
    }

    fn shown(&self, _: &SharedObject) {
        self.told(Told::Shown);
    }

    fn removed(&self, _: &SharedObject) {
        self.told(Told::Removed);
    }
}

/// An interface that waits for long until a server lets go of an aborted request.
fn patient() -> Interface {
    let limits = Limits { abort_timeout: Duration::from_secs(3600), ..Limits::default() };
    Interface::new(interface().passing().clone(), limits)
}

/// A server behind a channel that holds requests, and lets them go when it is asked to.
fn hold(interface: &Interface, directory: &Directory) -> (Arc<Held>, ServerHandle, Running) {
    let held = Arc::new(Held::new(None));
    held.set_obliging(true);
    let (server, options) = (HoldingServer(Arc::clone(&held)), ServeOptions::default());
    let listener = Listener::bind_in(directory, "holder", server, options).expect("a name");
    let running = listener.start().expect("threads");
    let options = ConnectOptions::default();
    (held, interface.connect_with(directory, "holder", &options).expect("a connection"), running)
}

/// A pending request whose record carries its data.
fn short(interface: &Interface, server: &ServerHandle) -> Pending<'static> {
    interface.request(server, HOLD).out(Out::copy(b"short")).submit().expect("a request")
}

/// Aborts one request, and drops two others.
fn let_go([aborted, dropped, forgotten]: [Pending<'static>; 3]) {
    assert_eq!(aborted.abort().expect_err("aborted").error, Error::Aborted);
    drop((dropped.abort_on_drop(), forgotten));
}

fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_registrar_may_abort_requests_of_the_channel_that_shows_an_object() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let interface = patient();
    let (held, server, _running) = hold(&interface, &directory);
    let registrar = Arc::new(Acting::default());
    let _registration = interface.space().register(registrar.clone());
    let [at_once, later] = [(); 2].map(|()| [(); 3].map(|()| short(&interface, &server)));
    let act = {
        let (registrar, space) = (Arc::clone(&registrar), interface.space().clone());
        move || {
            let_go(at_once);
            // The next use of the space is to have a descriptor of the object that is shown: it tells of this one.
            let (_taken, _new) = (use_up(&space), space.system_buffer(1).expect("memory"));
            registrar.on(Told::Added, move || let_go(later));
        }
    };
    registrar.on(Told::Shown, act);
    let output = Out::owned(Scheme::EmulatedShare, interface.allocate(100_000).expect("memory"));
    interface.request(&server, PASS).out(output).send().expect("a reply");
    assert!(registrar.has_acted(), "the object was shown, and one was made");
    wait_until(|| held.aborted().len() == 4);
}

/// An object is let go with the reply to a request for which nobody waits: its last memory was in that request's buffer. The reply is
/// taken by the thread that tends what is abandoned, or by one that waits for another reply (`leads`).
fn abort_when_a_reply_ends_an_object(leads: bool) {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let interface = patient();
    let (held, server, _running) = hold(&interface, &directory);
    let registrar = Arc::new(Acting::default());
    let _registration = interface.space().register(registrar.clone());
    registrar.lenders.lock().clear();
    // By page swapping, the client's buffer gets memory of a server that leaves.
    let name = "lender";
    let lending = Listener::bind_in(&directory, name, Memory::customized(), ServeOptions::default());
    let running = lending.expect("a name").start().expect("threads");
    let lender = interface.connect_with(&directory, name, &ConnectOptions::default()).expect("a connection");
    let input = In::owned(Scheme::EmulatedCopy, interface.allocate(64 << 10).expect("memory"));
    let mut reply = interface.request(&lender, SOURCE).input(input).argument(&[7]).send().expect("a reply");
    assert!(reply.receipts().all(|receipt| receipt.swapped > 0));
    let buffer = reply.take_buffer().expect("the buffer");
    let lent: Vec<LenderId> = std::mem::take(&mut *registrar.lenders.lock());
    drop((lender, running));
    wait_until(|| lent.iter().all(|lender| interface.space().pool_size(*lender).is_none()));
    let requests = [(); 3].map(|()| short(&interface, &server));
    let last = interface.request(&server, HOLD).out(Out::owned(Scheme::EmulatedShare, buffer));
    drop(last.submit().expect("a request"));
    let last = held.arrival(3).expect("it arrives");
    registrar.on(Told::Removed, move || let_go(requests));
    thread::scope(|scope| {
        let other = leads.then(|| {
            let pending = short(&interface, &server);
            scope.spawn(|| pending.sync().expect("a reply"));
            // It is to lead by then, but nothing depends on it.
            thread::sleep(Duration::from_millis(20));
            held.arrival(4).expect("it arrives")
        });
        held.command(Name::Client(last), Command::Reply);
        wait_until(|| registrar.has_acted() && held.aborted().len() == 2);
        if let Some(other) = other {
            held.command(Name::Client(other), Command::Reply);
        }
    });
}

#[test]
fn a_registrar_may_abort_requests_of_the_channel_whose_reply_ends_an_object() {
    abort_when_a_reply_ends_an_object(false);
}

#[test]
fn a_registrar_may_abort_requests_of_the_channel_while_a_thread_waits_for_another_reply() {
    abort_when_a_reply_ends_an_object(true);
}

/// Stores that byte into the whole input.
fn fill(mut request: Incoming, byte: u8) {
    request.ready(0).expect("memory").fill(byte);
    request.set_actual(0, request.len(0)).expect("all of it");
    request.reply(Ok(()));
}

/// Memory for an input is made for one subcontractor, which stores twos there. In the call that says so, `meanwhile` gets the request of
/// another one, to which the same input was forwarded. Returns what the client gets.
fn share_an_input(meanwhile: impl Fn(Incoming) + Clone + Send + Sync + 'static) -> Vec<u8> {
    let (interface, len) = (interface(), 2 << 20);
    let registrar = Arc::new(Acting::default());
    let _registration = interface.space().register(registrar.clone());
    let waiting = Arc::new(Mutex::new(None::<Incoming>));
    let waiter = ServerHandle::new(Serving(&SERVICES, {
        let waiting = Arc::clone(&waiting);
        move |request| *waiting.lock() = Some(request)
    }));
    let filler = ServerHandle::new(Serving(&SERVICES, {
        let (registrar, space) = (Arc::clone(&registrar), interface.space().clone());
        move |request| {
            let _taken = use_up(&space);
            let (waiting, meanwhile) = (Arc::clone(&waiting), meanwhile.clone());
            registrar.on(Told::Added, move || meanwhile(waiting.lock().take().expect("it waits")));
            fill(request, 2);
            assert!(registrar.has_acted(), "an object was made for it");
        }
    }));
    let contractor = ServerHandle::new(Serving(&SERVICES, {
        let interface = interface.clone();
        move |mut request: Incoming| {
            let mut whole = || In::fragment(request.fragment(0, 0..len).expect("a fragment"));
            let waiting = interface.request(&waiter, LOOK).input(whole()).submit().expect("a request");
            interface.request(&filler, LOOK).input(whole()).send().expect("a reply");
            waiting.sync().expect("a reply");
            request.set_actual(0, len).expect("all of it");
            request.reply(Ok(()));
        }
    }));
    let input = In::owned(Scheme::Copy, interface.allocate(len).expect("memory"));
    let mut reply = interface.request(&contractor, LOOK).input(input).send().expect("a reply");
    let bytes = reply.take_buffer().expect("the buffer").to_vec();
    interface.space().check().expect("the tables add up");
    bytes
}

#[test]
fn a_registrar_may_reply_to_a_request_that_shares_the_input_for_which_memory_is_made() {
    let bytes = share_an_input(|request| fill(request, 1));
    assert!(bytes.iter().all(|byte| *byte == 2), "it was stored last");
}

/// The other server found the memory made, used the space for nothing, and went on while the registrar was still being told.
#[test]
fn a_server_gets_no_memory_of_which_a_registrar_has_yet_to_hear() {
    let (has_heard, other) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    share_an_input({
        let other = Arc::clone(&other);
        move |mut request| {
            let ((starting, has_started), hears) = (channel(), Arc::clone(&has_heard));
            *other.lock() = Some(thread::spawn(move || {
                starting.send(()).expect("the call waits");
                request.ready(0).expect("memory");
                assert!(hears.load(Ordering::Relaxed), "the call is under way");
                request.set_actual(0, request.len(0)).expect("all of it");
                request.reply(Ok(()));
            }));
            has_started.recv().expect("the other thread");
            thread::sleep(Duration::from_millis(20));
            has_heard.store(true, Ordering::Relaxed);
        }
    });
    other.lock().take().expect("it was told").join().expect("it has waited");
}

/// Registrars heard that its first buffer was shown, and a server got the descriptor, before it was found that the second one cannot be.
#[test]
fn a_request_that_cannot_be_sent_shows_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let (own, clients, len) = (interface(), interface(), 100_000);
    let (_held, server, _running) = hold(&own, &directory);
    let registrar = Arc::new(Acting::default());
    let _registration = own.space().register(registrar.clone());
    registrar.on(Told::Shown, || {});
    let contractor = ServerHandle::new(Serving(&SERVICES, move |mut request: Incoming| {
        let buffer = Out::owned(Scheme::EmulatedShare, own.allocate(len).expect("memory"));
        let fragment = Out::fragment(request.fragment(0, 0..len).expect("a fragment"));
        let failed = own.request(&server, PASS).out(buffer).out(fragment).send();
        let error = failed.expect_err("the fragment is another interface's").error;
        assert!(matches!(error, Error::Unforwardable { .. }), "{error}");
        // Nor does the next request say so.
        own.request(&server, PASS).out(Out::copy(b"short")).send().expect("a reply");
        request.reply(Ok(()));
    }));
    let buffer = Out::owned(Scheme::EmulatedShare, clients.allocate(len).expect("memory"));
    clients.request(&contractor, LOOK).out(buffer).send().expect("a reply");
    assert!(!registrar.has_acted(), "nothing was shown");
}

/// A continuation ran in the call, whose thread tells nobody: a server had data in an object of which no registrar had heard.
#[test]
fn what_follows_from_a_registrars_reply_uses_no_memory_of_which_registrars_have_yet_to_hear() {
    let (interface, table, acting) = (interface(), Arc::new(Table::default()), Arc::new(Acting::default()));
    let _registrations =
        (interface.space().register(table.clone()), interface.space().register(acting.clone()));
    let looker = ServerHandle::new(Looker { table, is_elsewhere: false });
    let kept = Arc::new(Mutex::new(None::<Incoming>));
    let keeper = ServerHandle::new(Serving(&SERVICES, {
        let kept = Arc::clone(&kept);
        move |request| *kept.lock() = Some(request)
    }));
    let ((sender, looked), genie) = (channel(), interface.clone());
    interface.request(&keeper, LOOK).submit().expect("a request").then(Duration::ZERO, move |_| {
        let _taken = use_up(genie.space());
        let output = Out::owned(Scheme::EmulatedShare, genie.allocate(100_000).expect("memory"));
        let looked = genie.request(&looker, LOOK).out(output).submit().and_then(Pending::sync);
        sender.send(looked.map(drop).map_err(|failed| failed.error)).expect("a test");
    });
    acting.on(Told::Added, move || kept.lock().take().expect("a request").reply(Ok(())));
    let (_taken, _new) = (use_up(interface.space()), interface.space().system_buffer(1).expect("memory"));
    let looked = looked.recv_timeout(Duration::from_secs(60)).expect("the continuation runs");
    assert_eq!(looked, Ok(()));
}
