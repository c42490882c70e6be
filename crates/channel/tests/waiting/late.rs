//! Late: servers that forward parts of a request after they have been asked to let it go. Nothing would abort the requests
//! that they make then, so those are refused.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use genie_io::{Error, Incoming, Interface, Limits, Out, Pending, RequestId, Server, ServerHandle, Service};
use genie_sys::lock::Mutex;

use super::fixture::{ASK, FOR_EVER, Fixture, Keeper, assert_idle, interface, interface_with};

/// A server that forwards each request when it is asked to let the request go, and no sooner.
struct Late {
    interface: Interface,
    to: ServerHandle,
    asked: Sender<()>,
    was_asked: Mutex<Receiver<()>>,
    events: Sender<Event>,
}

/// What a late server does.
#[derive(Debug, PartialEq)]
enum Event {
    HasRequest,
    Forwarded(Result<(), Error>),
}

static SERVICES: [Service; 1] = [Service::new("ask", false, false)];

impl Late {
    fn new(interface: &Interface, to: &ServerHandle) -> (Self, Receiver<Event>) {
        let ((asked, was_asked), (events, heard)) = (channel(), channel());
        let (interface, to, was_asked) = (interface.clone(), to.clone(), Mutex::new(was_asked));
        (Self { interface, to, asked, was_asked, events }, heard)
    }

    fn tell(&self, events: Event) {
        self.events.send(events).expect("the test listens");
    }

    fn forward(&self, mut request: Incoming) {
        let fragment = request.fragment(0, 0..request.len(0)).expect("a part of the request");
        let forwarded = self.interface.request(&self.to, ASK).out(Out::fragment(fragment)).send();
        self.tell(Event::Forwarded(forwarded.map(drop).map_err(|failed| failed.error)));
    }
}

/// The server, with threads of its own.
struct Threaded(Arc<Late>);

impl Server for Threaded {
    fn name(&self) -> &str {
        "late"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let late = Arc::clone(&self.0);
        late.tell(Event::HasRequest);
        std::thread::spawn(move || {
            let asked = late.was_asked.lock().recv_timeout(FOR_EVER);
            asked.expect("the request is aborted");
            late.forward(request);
        });
    }

    fn abort(&self, _request: RequestId) {
        self.0.asked.send(()).expect("the server waits for it");
    }
}

/// A client of a late server, and what waits for what that forwards.
struct Scene {
    fixture: Fixture,
    client: Interface,
    keeper: Keeper,
    late: Threaded,
    events: Receiver<Event>,
}

impl Scene {
    fn new() -> Self {
        let keeper = Keeper::default();
        let (late, events) = Late::new(&interface(), &ServerHandle::new(keeper.clone()));
        let client = interface_with(Limits { abort_timeout: Duration::from_millis(1), ..Limits::default() });
        Self { fixture: Fixture::new(), client, keeper, late: Threaded(Arc::new(late)), events }
    }
}

/// Makes a request, which the server has then.
fn ask<'i>(client: &'i Interface, server: &ServerHandle, events: &Receiver<Event>) -> Pending<'i> {
    let pending = client.request(server, ASK).out(Out::copy(b"too late")).submit().expect("a request");
    assert_eq!(events.recv_timeout(FOR_EVER), Ok(Event::HasRequest));
    pending
}

/// Verifies that what was forwarded too late was refused, and never came anywhere.
#[track_caller]
fn assert_refused(keeper: &Keeper, events: &Receiver<Event>) {
    assert_eq!(events.recv_timeout(FOR_EVER), Ok(Event::Forwarded(Err(Error::Aborted))));
    assert_eq!(keeper.count(), 0);
}

/// Aborts a request, which the server forwards only then.
#[track_caller]
fn abort(client: &Interface, server: &ServerHandle, keeper: &Keeper, events: &Receiver<Event>) {
    assert_eq!(ask(client, server, events).abort().unwrap_err().error, Error::Aborted);
    assert_refused(keeper, events);
    assert!(client.flush(server, FOR_EVER), "the request was let go");
    assert_idle(client);
}

#[test]
fn an_aborted_request_originates_no_more() {
    let Scene { client, keeper, late, events, .. } = Scene::new();
    abort(&client, &ServerHandle::new(late), &keeper, &events);
}

#[test]
fn an_aborted_request_from_another_process_originates_no_more() {
    let Scene { fixture, client, keeper, late, events } = Scene::new();
    let _running = fixture.serve("late", late);
    abort(&client, &fixture.connect(&client, "late"), &keeper, &events);
}

#[test]
fn a_request_of_a_client_that_is_gone_originates_no_more() {
    let Scene { fixture, client, keeper, late, events } = Scene::new();
    let _running = fixture.serve("late", late);
    let server = fixture.connect(&client, "late");
    let request = ask(&client, &server, &events);
    drop(server);
    drop(request);
    drop(client);
    assert_refused(&keeper, &events);
}
