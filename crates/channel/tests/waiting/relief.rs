//! Requests that take long: how many are served at a time, in which order, and who waits for whom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_channel::{Running, ServeOptions};
use genie_io::{
    ClientId, Error, Failed, Incoming, Interface, Pending, Reply, RequestId, Server, ServerHandle, Service,
};
use genie_series::PerClient;
use genie_sys::Condvar;
use genie_sys::lock::{Mutex, MutexGuard};

use super::fixture::{ASK, FOR_EVER, Finally, Fixture, SERVICES, await_clients, interface, options};

/// What a server has done, in order. A request is named by its argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Called(u8),
    Returned(u8),
    Aborted,
    Departed,
}

/// A server that is in its code with each request until the test lets it go, or the request is aborted.
#[derive(Clone, Default)]
struct Long(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// Requests that may go; those with argument 0 always may.
    free: Vec<u8>,
    all_free: bool,
    clients: Vec<ClientId>,
}

impl Long {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.1.notify_all();
    }

    fn let_go(&self, request: u8) {
        self.change(|state| state.free.push(request));
    }

    /// Waits until all of these have happened.
    #[track_caller]
    fn await_all(&self, events: &[Event]) {
        let have = |state: &State| events.iter().all(|event| state.events.contains(event));
        let (state, have_come) = self.0.1.wait_until(self.state(), Some(Instant::now() + FOR_EVER), have);
        assert!(have_come, "{events:?} were to come; there are {:?}", state.events);
    }

    fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }
}

impl Server for Long {
    fn name(&self) -> &str {
        "long"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let number = request.argument().first().copied().unwrap_or_default();
        self.change(|state| {
            state.events.push(Event::Called(number));
            state.clients.push(request.client().id);
        });
        let mut state = self.state();
        while number > 0 && !state.all_free && !state.free.contains(&number) && !request.is_aborted() {
            state = self.0.1.wait(state, Some(Instant::now() + Duration::from_millis(1)));
        }
        drop(state);
        self.change(|state| state.events.push(Event::Returned(number)));
        request.reply(Ok(()));
    }

    fn abort(&self, _request: RequestId) {
        self.change(|state| state.events.push(Event::Aborted));
    }

    fn departed(&self, _client: ClientId) {
        self.change(|state| state.events.push(Event::Departed));
    }
}

struct Scene {
    fixture: Fixture,
    server: Long,
    running: Running,
}

impl Scene {
    fn new(options: ServeOptions) -> Self {
        let (fixture, server) = (Fixture::new(), Long::default());
        let running = fixture.bind("long", server.clone(), options).start().expect("threads");
        Self { fixture, server, running }
    }

    fn client(&self) -> Client {
        let interface = interface();
        let server = self.fixture.connect(&interface, "long");
        Client { interface, server }
    }

    /// Lets everything go at the end, even if a test fails.
    fn finally(&self) -> Finally<impl Fn() + use<>> {
        let server = self.server.clone();
        Finally(move || server.change(|state| state.all_free = true))
    }
}

struct Client {
    interface: Interface,
    server: ServerHandle,
}

impl Client {
    fn submit(&self, number: u8) -> Pending<'static> {
        self.interface.request(&self.server, ASK).argument(&[number]).submit().expect("a request")
    }

    /// Has a request served that takes no time.
    fn ask(&self) -> Result<Reply, Failed> {
        self.interface.request(&self.server, ASK).argument(&[0]).timeout(FOR_EVER).send()
    }
}

/// Four threads served one client's four requests one after the other.
#[test]
fn one_clients_requests_are_served_by_as_many_threads_as_it_may_have() {
    for most_threads in [4, 16] {
        let scene = Scene::new(ServeOptions { threads: 4, most_threads, ..options() });
        let (_finally, client) = (scene.finally(), scene.client());
        let pending: Vec<_> = (1..=5).map(|number| client.submit(number)).collect();
        scene.server.await_all(&[1, 2, 3, 4].map(Event::Called));
        assert_eq!(scene.server.events().len(), 4, "the fifth request waits");
        scene.server.let_go(2);
        scene.server.await_all(&[Event::Called(5)]);
        scene.server.change(|state| state.all_free = true);
        pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    }
}

#[test]
fn one_clients_requests_are_served_in_their_order_by_default() {
    let scene = Scene::new(options());
    let (_finally, client, other) = (scene.finally(), scene.client(), scene.client());
    let pending: Vec<_> = (1..=4).map(|number| client.submit(number)).collect();
    for number in 1..=4 {
        scene.server.await_all(&[Event::Called(number)]);
        // By then another thread attends to the clients, and could have taken the next request.
        other.ask().expect("a reply");
        scene.server.let_go(number);
    }
    pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    let mut events = scene.server.events();
    events.retain(|event| !matches!(event, Event::Called(0) | Event::Returned(0)));
    let in_order: Vec<_> =
        (1..=4).flat_map(|number| [Event::Called(number), Event::Returned(number)]).collect();
    assert_eq!(events, in_order);
}

/// One client's long requests kept all others waiting.
#[test]
fn long_requests_keep_no_other_client_waiting() {
    for threads in [1, 2] {
        // One thread less than clients, but one client's requests never get the last thread.
        let scene = Scene::new(ServeOptions { threads, most_threads: 3, ..options() });
        let (_finally, slow) = (scene.finally(), scene.client());
        let pending: Vec<_> = (1..=8).map(|number| slow.submit(number)).collect();
        scene.server.await_all(&[Event::Called(1)]);
        let others: Vec<_> = (0..3).map(|_| scene.client()).collect();
        for _ in 0..20 {
            others.iter().for_each(|other| drop(other.ask().expect("a reply")));
        }
        assert!(!scene.server.events().iter().any(|event| matches!(event, Event::Returned(1..))));
        scene.server.change(|state| state.all_free = true);
        pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    }
}

/// A client had up to 16 requests served before another client had its turn.
#[test]
fn where_there_is_one_thread_clients_take_turns_at_long_requests() {
    let scene = Scene::new(ServeOptions { most_threads: 1, ..options() });
    let (_finally, first, second) = (scene.finally(), scene.client(), scene.client());
    // A client is connected before the server looks at its ring.
    scene.server.let_go(7);
    drop(second.submit(7).sync().expect("a reply"));
    let held = first.submit(1);
    scene.server.await_all(&[Event::Called(1)]);
    let pending: Vec<_> = (2..=6).flat_map(|number| [first.submit(number), second.submit(number)]).collect();
    // Longer than a tick of any kernel's.
    let pace = Duration::from_millis(25);
    scene.server.let_go(1);
    for number in 2..=6 {
        for _ in 0..2 {
            std::thread::sleep(pace);
            scene.server.let_go(number);
        }
    }
    drop(held.sync().expect("a reply"));
    pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    let clients = scene.server.state().clients.clone();
    let longest = clients.chunk_by(|one, next| one == next).map(<[_]>::len).max();
    // Two, or one more where a busy machine has held this thread up and then let two go at once.
    assert!(longest <= Some(3), "{clients:?}");
}

/// The server learnt of an abort only when it had returned from its code.
#[test]
fn a_busy_server_sees_that_its_request_is_aborted() {
    let scene = Scene::new(options());
    let (_finally, client) = (scene.finally(), scene.client());
    let timeout = Duration::from_millis(30);
    let request = || client.interface.request(&client.server, ASK).argument(&[1]).timeout(timeout);
    assert_eq!(request().send().expect_err("late").error, Error::TimedOut { timeout });
    scene.server.await_all(&[Event::Returned(1), Event::Aborted]);
    // A server that keeps requests may keep this one only at the end of the call.
    assert_eq!(scene.server.events(), [Event::Called(1), Event::Returned(1), Event::Aborted]);
    let pending = client.submit(2);
    scene.server.await_all(&[Event::Called(2)]);
    drop((pending, client));
    scene.server.await_all(&[Event::Returned(2), Event::Departed]);
}

#[test]
fn a_request_that_is_aborted_while_it_waits_is_never_served() {
    let scene = Scene::new(options());
    let (_finally, client) = (scene.finally(), scene.client());
    let [first, second, third] = [1, 2, 3].map(|number| client.submit(number));
    scene.server.await_all(&[Event::Called(1)]);
    let begun = Instant::now();
    assert_eq!(second.abort().expect_err("aborted").error, Error::Aborted);
    assert!(begun.elapsed() < FOR_EVER && scene.server.events() == [Event::Called(1)]);
    scene.server.let_go(1);
    scene.server.let_go(3);
    [first, third].into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
    assert!(!scene.server.events().contains(&Event::Called(2)));
    scene.running.stopper().stop();
}

/// Says how often its client has asked, and with which number it was made.
struct Own {
    number: u8,
    asked: Mutex<u8>,
    gone: Arc<Mutex<Vec<u8>>>,
}

impl Server for Own {
    fn name(&self) -> &str {
        "own"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let asked = {
            let mut asked = self.asked.lock();
            *asked += 1;
            *asked
        };
        let told = request.set_argument(&[self.number, asked]);
        request.reply(told.map_err(Into::into));
    }

    fn abort(&self, _request: RequestId) {}
}

impl Drop for Own {
    fn drop(&mut self) {
        self.gone.lock().push(self.number);
    }
}

#[test]
fn each_client_has_a_server_of_its_own_until_it_leaves() {
    let (fixture, gone) = (Fixture::new(), Arc::<Mutex<Vec<u8>>>::default());
    let (made, theirs) = (std::sync::atomic::AtomicU8::new(0), Arc::clone(&gone));
    let make = move |_: &genie_io::Client| Own {
        number: made.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        asked: Mutex::default(),
        gone: Arc::clone(&theirs),
    };
    let running = fixture.bind("own", PerClient::new(make), options()).start().expect("threads");
    let ask = |interface: &Interface, server: &ServerHandle| {
        interface.request(server, ASK).room(2).send().expect("a reply").argument().to_vec()
    };
    let [first, second] = [(); 2].map(|()| {
        let interface = interface();
        let server = fixture.connect(&interface, "own");
        (interface, server)
    });
    assert_eq!(ask(&first.0, &first.1), [1, 1]);
    assert_eq!(ask(&second.0, &second.1), [2, 1]);
    assert_eq!(ask(&first.0, &first.1), [1, 2]);
    drop(first);
    await_clients(&running, 1);
    let begun = Instant::now();
    while *gone.lock() != [1] {
        assert!(begun.elapsed() < FOR_EVER, "the first client's server is still there");
        std::thread::yield_now();
    }
    assert_eq!(ask(&second.0, &second.1), [2, 2]);
}

/// With one thread for each client's requests and as many threads as clients waited for, the others slept.
#[test]
fn a_long_request_keeps_nobody_waiting_while_a_thread_sleeps() {
    let scene = Scene::new(ServeOptions { threads: 2, most_threads: 2, ..options() });
    let (_finally, slow) = (scene.finally(), scene.client());
    // Some of these share the thread of the slow one.
    let others: Vec<_> = (0..3).map(|_| scene.client()).collect();
    others.iter().for_each(|other| drop(other.ask().expect("a reply")));
    for number in [1, 2] {
        let pending = slow.submit(number);
        scene.server.await_all(&[Event::Called(number)]);
        for _ in 0..20 {
            others.iter().for_each(|other| drop(other.ask().expect("a reply")));
        }
        scene.server.let_go(number);
        pending.sync().expect("a reply");
    }
}

/// Where more clients made long requests than there were threads, the last ones never had their turn.
#[test]
fn clients_with_long_requests_take_turns_at_the_threads() {
    const CLIENTS: usize = 5;
    let scene = Scene::new(ServeOptions { most_threads: 2, ..options() });
    let (_finally, clients) = (scene.finally(), (0..CLIENTS).map(|_| scene.client()).collect::<Vec<_>>());
    let mut pending: Vec<_> =
        (1..).zip(&clients).map(|(number, client)| (number, client.submit(number))).collect();
    for next in (CLIENTS as u8 + 1..).take(4 * CLIENTS) {
        let begun = Instant::now();
        let called = loop {
            let events = scene.server.events();
            let is_called = |(number, _): &(u8, _)| events.contains(&Event::Called(*number));
            match pending.iter().position(is_called) {
                Some(called) => break called,
                None => assert!(begun.elapsed() < FOR_EVER, "no request is served: {events:?}"),
            }
            std::thread::yield_now();
        };
        // Longer than a tick of any kernel's: a call that is shorter does not end its client's turn.
        std::thread::sleep(Duration::from_millis(25));
        // The client asks again before others can have their turn.
        let again = (next, clients[called].submit(next));
        let (number, over) = std::mem::replace(&mut pending[called], again);
        scene.server.let_go(number);
        over.sync().expect("a reply");
    }
    let served: std::collections::HashSet<_> = scene.server.state().clients.iter().copied().collect();
    assert_eq!(served.len(), CLIENTS, "not all were served");
    scene.server.change(|state| state.all_free = true);
    pending.into_iter().for_each(|(_, pending)| drop(pending.sync().expect("a reply")));
}

/// The code of one client's server that took long to let a request go kept all other clients from being served.
#[test]
fn a_clients_server_that_aborts_slowly_keeps_no_other_client_waiting() {
    struct Slow(Mutex<std::sync::mpsc::Receiver<()>>, Mutex<Vec<Incoming>>);
    impl Server for Slow {
        fn name(&self) -> &str {
            "slow"
        }
        fn services(&self) -> &[Service] {
            &SERVICES
        }
        fn request(&self, request: Incoming) {
            match request.argument() {
                [] => request.reply(Ok(())),
                _ => self.1.lock().push(request),
            }
        }
        fn abort(&self, _: RequestId) {
            self.0.lock().recv().expect("the test lets it go");
            self.1.lock().clear();
        }
    }
    let (let_go, gates) = std::sync::mpsc::channel();
    let senders = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&senders);
    let server = ServerHandle::new(PerClient::new(move |_: &genie_io::Client| {
        let (sender, receiver) = std::sync::mpsc::channel();
        made.lock().push(sender);
        Slow(Mutex::new(receiver), Mutex::default())
    }));
    let first = interface();
    let pending = first.request(&server, ASK).argument(b"keep").submit().expect("a request");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let aborted = pending.abort().expect_err("aborted").error;
            let_go.send(aborted).expect("the test hears");
        });
        let waiting = Instant::now();
        while gates.try_recv().is_err() && waiting.elapsed() < Duration::from_millis(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A new client, and one that is known.
        for _ in 0..2 {
            let second = interface();
            second.request(&server, ASK).send().expect("a reply");
            second.request(&server, ASK).send().expect("a reply");
        }
        for sender in senders.lock().iter() {
            // Only one client's server waits for it.
            let _ = sender.send(());
        }
    });
}

#[test]
fn a_client_learns_of_a_server_that_is_stopped_that_it_has_gone() {
    let scene = Scene::new(ServeOptions { threads: 1, most_threads: 4, ..options() });
    let (_finally, client, other) = (scene.finally(), scene.client(), scene.client());
    let first = client.submit(1);
    scene.server.await_all(&[Event::Called(1)]);
    let waiting: Vec<_> = (2..6).map(|number| client.submit(number)).collect();
    // Another thread has relieved the one that is in the server's code, and has taken what waits off the ring.
    other.ask().expect("a reply");
    std::thread::sleep(Duration::from_millis(20));
    scene.running.stopper().stop();
    scene.server.change(|state| state.all_free = true);
    let Scene { running, fixture: _fixture, .. } = scene;
    drop(running);
    drop(first.sync()); // it may have been done
    for pending in waiting {
        if let Err(failed) = pending.sync() {
            assert!(matches!(failed.error, Error::Gone { .. }), "{failed}");
        }
    }
}
