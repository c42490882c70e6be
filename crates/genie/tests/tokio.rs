//! Requests awaited on tokio.

use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use genie::channel::{ConnectOptions, Directory, Listener, Running, ServeOptions};
use genie::mechanism::{Config, Costs, Faults, Granularity, GranuleKind, Passing, Space, Thresholds};
use genie::{
    Completer, Connect, Error, In, Incoming, Interface, Limits, Out, Reconnecting, RequestId, Scheme, Server,
    ServerHandle, Service, ServiceId, memory,
};
use genie_sys::lock::Mutex;
use genie_sys::poll::readable;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// No wait of these tests takes as long, unless it never ends.
const FOR_EVER: Duration = Duration::from_secs(60);

/// A client and a place for servers.
struct Stage {
    client: Arc<genie::tokio::Interface>,
    directory: Directory,
    _scratch: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let config = Config {
            granularity: Granularity::Only(GranuleKind::Base),
            limit: 64 << 20,
            faults: Faults::Best,
            ..Config::default()
        };
        let passing =
            Passing::new(Space::new(&config).unwrap(), Costs::default()).with_thresholds(Thresholds::ALWAYS);
        let client = genie::tokio::Interface::new(Interface::new(passing, limits)).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let directory = Directory::at(scratch.path().join("run")).unwrap();
        Self { client: Arc::new(client), directory, _scratch: scratch }
    }

    fn genie(&self) -> &Interface {
        self.client.genie()
    }

    fn serve(&self, name: &str, server: impl Server) -> Running {
        let options =
            ServeOptions { pool: 8 << 20, private_pool: 1 << 20, threads: 2, ..ServeOptions::default() };
        Listener::bind_in(&self.directory, name, server, options).unwrap().start().unwrap()
    }

    fn connect(&self, name: &str) -> ServerHandle {
        self.genie().connect_with(&self.directory, name, &ConnectOptions::default()).unwrap()
    }
}

/// A server that keeps every request until it is told, or aborted if it minds.
#[derive(Clone, Default)]
struct Keeper {
    kept: Arc<Mutex<Vec<Incoming>>>,
    minds_aborts: bool,
    aborted: Arc<AtomicBool>,
}

impl Keeper {
    fn kept(&self) -> genie_sys::lock::MutexGuard<'_, Vec<Incoming>> {
        self.kept.lock()
    }

    async fn has(&self, count: usize) {
        while self.kept().len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn is_asked_to_let_go(&self) {
        while !self.aborted.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

const KEEP: ServiceId = ServiceId(0);

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 1] = [Service::new("keep", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.kept().push(request);
    }

    fn abort(&self, request: RequestId) {
        self.aborted.store(true, Ordering::Release);
        if self.minds_aborts {
            self.kept().retain(|kept| kept.id() != request);
        }
    }
}

/// Stores and fetches under a name of its own, some times over.
async fn store_and_fetch(client: &genie::tokio::Interface, server: &ServerHandle, number: u32) {
    let name = number.to_le_bytes();
    for round in 0..20u32 {
        let len = 1 + (number * 1_313 + round * 7_919) as usize % 60_000;
        let bytes: Vec<u8> = (0..len).map(|at| (at as u32 * 31 + number + round) as u8).collect();
        let mut buffer = client.genie().allocate(len).unwrap();
        buffer.copy_from_slice(&bytes);
        let store = client.genie().request(server, memory::STORE).out(Out::emulated_copy(&buffer));
        client.send(store.argument(&name)).await.unwrap();
        buffer.fill(0);
        let fetch = client.genie().request(server, memory::FETCH).input(In::emulated_copy(&mut buffer));
        let reply = client.send(fetch.argument(&name)).await.unwrap();
        assert_eq!(reply.actual(), len);
        assert!(*buffer == *bytes, "task {number}, round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_pass_data_both_ways_at_once() {
    let stage = Stage::new();
    let (_near, _far) =
        (stage.serve("near", memory::Memory::customized()), stage.serve("far", memory::Memory::customized()));
    let servers =
        [stage.connect("near"), stage.connect("far"), ServerHandle::new(memory::Memory::customized())];
    let mut tasks = JoinSet::new();
    for number in 0..48 {
        let (client, server) = (Arc::clone(&stage.client), servers[number as usize % 3].clone());
        tasks.spawn(async move { store_and_fetch(&client, &server, number).await });
    }
    timeout(FOR_EVER, tasks.join_all()).await.expect("every task is woken");
    stage.genie().space().check().unwrap();
    assert_eq!(stage.genie().pending_bytes(), 0);
}

#[tokio::test]
async fn one_thread_is_enough_for_all_tasks() {
    let stage = Stage::new();
    let _running = stage.serve("memory", memory::Memory::customized());
    let server = stage.connect("memory");
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let (client, server) = (Arc::clone(&stage.client), server.clone());
        tasks.spawn(async move { store_and_fetch(&client, &server, number).await });
    }
    timeout(FOR_EVER, tasks.join_all()).await.expect("every task is woken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_a_blocking_thread_takes_wake_their_tasks() {
    let stage = Stage::new();
    let _running = stage.serve("memory", memory::Memory::customized());
    let server = stage.connect("memory");
    let is_over = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicUsize::new(0));
    let blocking = {
        let (genie, server) = (stage.genie().clone(), server.clone());
        let (is_over, sent) = (Arc::clone(&is_over), Arc::clone(&sent));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                genie.request(&server, memory::NULL).send().unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (client, server) = (Arc::clone(&stage.client), server.clone());
        tasks.spawn(async move { store_and_fetch(&client, &server, number).await });
    }
    timeout(FOR_EVER, tasks.join_all()).await.expect("every task is woken");
    is_over.store(true, Ordering::Relaxed);
    blocking.join().unwrap();
    assert!(sent.load(Ordering::Relaxed) > 0, "the thread was there at the same time");
}

#[tokio::test]
async fn a_late_reply_of_a_server_in_this_process_wakes_its_task() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let server = ServerHandle::new(keeper.clone());
    let replying = async {
        keeper.has(1).await;
        keeper.kept().pop().unwrap().reply(Ok(()));
    };
    let request = stage.genie().request(&server, KEEP);
    let (reply, ()) = timeout(FOR_EVER, async { tokio::join!(stage.client.send(request), replying) })
        .await
        .expect("the task is woken");
    reply.unwrap();
}

#[tokio::test]
async fn tasks_learn_that_their_server_is_gone_and_others_go_on() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let running = stage.serve("keeper", keeper.clone());
    let _other = stage.serve("memory", memory::Memory::customized());
    let (lost, server) = (stage.connect("keeper"), stage.connect("memory"));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (client, lost) = (Arc::clone(&stage.client), lost.clone());
        tasks.spawn(async move { client.send(client.genie().request(&lost, KEEP)).await.map(drop) });
    }
    keeper.has(4).await;
    tokio::task::spawn_blocking(move || drop(running)).await.unwrap();
    for outcome in timeout(FOR_EVER, tasks.join_all()).await.expect("no task hangs") {
        let error = outcome.unwrap_err().error;
        assert!(matches!(error, Error::Gone { .. } | Error::Aborted | Error::Dropped), "{error}");
    }
    let again = stage.client.send(stage.genie().request(&lost, KEEP)).await.unwrap_err().error;
    assert!(matches!(again, Error::Gone { .. }), "{again}");
    // With the dead server's handle still there, waiting for the living one sleeps and is woken.
    store_and_fetch(&stage.client, &server, 1).await;
}

#[tokio::test]
async fn a_request_times_out_whether_its_server_lets_it_go_or_not() {
    for minds_aborts in [true, false] {
        let stage =
            Stage::with_limits(Limits { abort_timeout: Duration::from_millis(20), ..Limits::default() });
        let keeper = Keeper { minds_aborts, ..Keeper::default() };
        let _running = stage.serve("keeper", keeper.clone());
        let server = stage.connect("keeper");
        let time = Duration::from_millis(30);
        let request = stage.genie().request(&server, KEEP).timeout(time);
        let error = timeout(FOR_EVER, stage.client.send(request)).await.expect("no hang").unwrap_err().error;
        assert_eq!(error, Error::TimedOut { timeout: time }, "minds aborts: {minds_aborts}");
        timeout(FOR_EVER, keeper.is_asked_to_let_go()).await.expect("the server is asked to let it go");
        keeper.kept().clear();
    }
}

#[tokio::test]
async fn a_request_that_aborts_on_drop_is_let_go_and_its_buffer_is_the_servers_until_then() {
    for minds_aborts in [true, false] {
        let stage = Stage::new();
        let keeper = Keeper { minds_aborts, ..Keeper::default() };
        let _running = stage.serve("keeper", keeper.clone());
        let server = stage.connect("keeper");
        let given = stage.genie().allocate(10_000).unwrap();
        let request = stage.genie().request(&server, KEEP).input(In::owned(Scheme::EmulatedShare, given));
        let mut sending = Box::pin(stage.client.send(request.abort_on_drop()));
        tokio::select! {
            biased;
            reply = &mut sending => panic!("nobody replies: {reply:?}"),
            () = keeper.has(1) => drop(sending),
        }
        timeout(FOR_EVER, keeper.is_asked_to_let_go()).await.expect("the server is asked to let it go");
        if !minds_aborts {
            assert_eq!(stage.genie().pending_bytes(), 10_000, "the server has the buffer");
            let mut kept = keeper.kept().pop().unwrap();
            kept.ready(0).unwrap().fill(9);
            drop(kept);
        }
        assert!(stage.genie().flush(&server, FOR_EVER));
        assert_eq!(stage.genie().pending_bytes(), 0);
        stage.genie().space().check().expect("no granule is lost");
    }
}

#[tokio::test]
async fn a_request_whose_future_is_dropped_runs_on() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let _running = stage.serve("keeper", keeper.clone());
    let server = stage.connect("keeper");
    let mut buffer = stage.genie().allocate(10_000).unwrap();
    buffer.fill(7);
    let request = stage.genie().request(&server, KEEP).input(In::emulated_copy(&mut buffer));
    let dropped = timeout(Duration::from_millis(20), stage.client.send(request)).await;
    assert!(dropped.is_err(), "the server has not replied");
    keeper.has(1).await;
    let mut kept = keeper.kept().pop().unwrap();
    assert!(!keeper.aborted.load(Ordering::Acquire), "it was not aborted");
    kept.fill(0, |room| room.fill(9)).unwrap();
    kept.reply(Ok(()));
    // The task that waits next does not need it.
    let request = stage.genie().request(&server, KEEP);
    let replying = async {
        keeper.has(1).await;
        keeper.kept().pop().unwrap().reply(Ok(()));
    };
    let (reply, ()) = timeout(FOR_EVER, async { tokio::join!(stage.client.send(request), replying) })
        .await
        .expect("the task is woken");
    reply.unwrap();
    assert!(buffer.iter().all(|byte| *byte == 7), "nobody took the data");
    assert!(stage.genie().flush(&server, FOR_EVER));
    assert_eq!(stage.genie().pending_bytes(), 0, "the reply that nobody awaited was taken all the same");
}

/// A server in this process whose requests are over some time after they came: a thread of its own says so by an eventfd, and
/// the thread that looks replies.
#[derive(Clone)]
struct Ring(Arc<Clock>);

struct Clock {
    asked: Mutex<Vec<Incoming>>,
    done: Mutex<Vec<Incoming>>,
    bell: genie_sys::event::Event,
}

impl Ring {
    fn new() -> Self {
        let bell = genie_sys::event::Event::new().unwrap();
        Self(Arc::new(Clock { asked: Mutex::default(), done: Mutex::default(), bell }))
    }

    fn work_until(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
            let asked = std::mem::take(&mut *self.0.asked.lock());
            if !asked.is_empty() {
                self.0.done.lock().extend(asked);
                self.0.bell.signal().unwrap();
            }
        }
    }
}

impl Server for Ring {
    fn name(&self) -> &str {
        "ring"
    }

    fn services(&self) -> &[Service] {
        static SERVICES: [Service; 1] = [Service::new("ask", true, true)];
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.asked.lock().push(request);
    }

    fn abort(&self, _request: RequestId) {
        // All are soon over.
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }
}

impl Completer for Ring {
    fn collect(&self) -> usize {
        self.0.bell.clear().unwrap();
        let done = std::mem::take(&mut *self.0.done.lock());
        let count = done.len();
        done.into_iter().for_each(|request| request.reply(Ok(())));
        count
    }

    fn wait(&self, timeout: Duration) {
        readable(&self.0.bell, Some(timeout)).unwrap();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.bell.as_fd())
    }
}

/// Tasks slept for ever when nothing but a ring had something for them: the descriptor stood for channels alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_woken_by_a_ring_that_completes_requests_when_somebody_looks() {
    let stage = Stage::new();
    let ring = Ring::new();
    let server = ServerHandle::new(ring.clone());
    let is_over = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || ring.work_until(&is_over)
    });
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (client, server) = (Arc::clone(&stage.client), server.clone());
        tasks.spawn(async move {
            for _ in 0..50 {
                client.send(client.genie().request(&server, KEEP).out(Out::copy(b"asked"))).await.unwrap();
            }
        });
    }
    timeout(FOR_EVER, tasks.join_all()).await.expect("every task is woken");
    is_over.store(true, Ordering::Relaxed);
    worker.join().unwrap();
    assert_eq!(stage.genie().pending_bytes(), 0);
}

/// One task took replies for all that waited. A program that put its future aside without dropping it, as `select!` does, hung
/// with its next request.
#[tokio::test]
async fn a_request_that_is_put_aside_holds_up_no_other_one() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let _running = stage.serve("keeper", keeper.clone());
    let server = stage.connect("keeper");
    let mut first = pin!(stage.client.send(stage.genie().request(&server, KEEP)));
    tokio::select! {
        _ = &mut first => panic!("nobody has replied"),
        () = keeper.has(1) => {}
    }
    let replying = async {
        keeper.has(2).await;
        keeper.kept().pop().unwrap().reply(Ok(()));
    };
    let second = stage.client.send(stage.genie().request(&server, KEEP));
    let (reply, ()) = timeout(FOR_EVER, async { tokio::join!(second, replying) })
        .await
        .expect("the second request needs no help of the first one");
    reply.unwrap();
    keeper.kept().pop().unwrap().reply(Ok(()));
    timeout(FOR_EVER, first).await.expect("the first one goes on").unwrap();
}

#[tokio::test]
async fn a_task_that_has_its_reply_leaves_no_other_one_asleep() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let (_keeping, _storing) =
        (stage.serve("keeper", keeper.clone()), stage.serve("memory", memory::Memory::customized()));
    let (slow, fast) = (stage.connect("keeper"), stage.connect("memory"));
    let (client, at) = (Arc::clone(&stage.client), slow.clone());
    let waiting = tokio::spawn(async move { client.send(client.genie().request(&at, KEEP)).await.map(drop) });
    keeper.has(1).await;
    store_and_fetch(&stage.client, &fast, 1).await;
    keeper.kept().pop().unwrap().reply(Ok(()));
    timeout(FOR_EVER, waiting).await.expect("the task is woken").unwrap().unwrap();
}

/// Otherwise the task would wait for a server that sleeps.
#[tokio::test(flavor = "current_thread")]
async fn a_task_that_waits_has_its_server_told_of_a_batch_that_goes_on() {
    let stage = Stage::new();
    let memory = memory::Memory::customized();
    let serving = Listener::bind_in(&stage.directory, "driven", memory, ServeOptions::default());
    let mut driven = serving.unwrap().drive().unwrap();
    let server = stage.connect("driven");
    // From now on the server knows the client.
    let known = stage.genie().request(&server, memory::NULL).submit().unwrap();
    assert!(driven.attend(Duration::MAX).unwrap());
    known.sync().unwrap();
    while !driven.arm() {
        driven.attend(Duration::ZERO).expect("a server");
    }
    let mut batch = stage.genie().batch();
    let request = stage.genie().request(&server, memory::NULL).batched(&mut batch);
    let pending = stage.client.submit(request).await.unwrap();
    assert!(!readable(driven.descriptor(), Some(Duration::ZERO)).unwrap(), "the batch goes on");
    timeout(Duration::ZERO, stage.client.replied(&pending)).await.unwrap_err();
    assert!(readable(driven.descriptor(), Some(Duration::ZERO)).unwrap());
    while driven.attend(Duration::ZERO).expect("a server") {}
    timeout(FOR_EVER, stage.client.replied(&pending)).await.unwrap().unwrap();
    pending.sync().unwrap();
}

/// Such a request was made, and never found replied to: its replies were nobody's to take.
#[tokio::test]
async fn a_request_of_another_interface_is_refused() {
    let (stage, other) = (Stage::new(), Stage::new());
    let _running = other.serve("memory", memory::Memory::customized());
    let server = other.connect("memory");
    let request = other.genie().request(&server, memory::NULL);
    let refused = timeout(FOR_EVER, stage.client.send(request)).await.expect("it is refused").unwrap_err();
    assert_eq!(refused.error, Error::OtherInterface { server: "memory".to_owned() });
    assert_eq!(other.genie().pending_bytes(), 0);
}

/// A request that exceeded limits failed, so that each program had to wait for room by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_room() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::at(scratch.path().join("run")).unwrap();
    let narrow = Limits { pending_requests: 3, ..Limits::default() };
    for (limits, pending_requests) in [(Limits::default(), 2), (narrow, 256)] {
        let options = ServeOptions { pending_requests, ..ServeOptions::default() };
        let server = memory::Memory::customized();
        let _running = Listener::bind_in(&directory, "memory", server, options).unwrap().start().unwrap();
        let client = Arc::new(genie::tokio::Interface::new(Interface::open_with(limits).unwrap()).unwrap());
        let options = ConnectOptions { wait: Duration::from_secs(60), ..ConnectOptions::default() };
        let server = client.connect_with(&directory, "memory", &options).await.unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let (client, server) = (Arc::clone(&client), server.clone());
            tasks.spawn(async move {
                for _ in 0..50 {
                    let store = client.genie().request(&server, memory::STORE);
                    client.send(store.out(Out::copy(b"text")).argument(b"name")).await.unwrap();
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_waits_for_a_server_that_comes_late_and_comes_again() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::at(scratch.path().join("run")).unwrap();
    let genie = Interface::open().unwrap();
    let client = genie::tokio::Interface::new(genie.clone()).unwrap();
    let options = ConnectOptions { wait: Duration::from_secs(60), ..ConnectOptions::default() };
    let letters = Arc::new(Reconnecting::new_in(&genie, &directory, "letters", options));
    for _ in 0..2 {
        let serve = || {
            let server = memory::Memory::customized();
            Listener::bind_in(&directory, "letters", server, ServeOptions::default())
                .unwrap()
                .start()
                .unwrap()
        };
        let (server, running) = tokio::join!(client.handle(&letters), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            serve()
        });
        let server = server.unwrap();
        let store = genie.request(&server, memory::STORE).out(Out::copy(b"text")).argument(b"name");
        client.send(store).await.unwrap();
        drop(running);
        while !server.is_gone() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Long arguments that the ring had no room for were refused, though other tasks' requests were all that was in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_with_long_arguments_wait_for_the_rings_room() {
    let stage = Stage::new();
    let _running = stage.serve("memory", memory::Memory::customized());
    let server = stage.connect("memory");
    let mut tasks = JoinSet::new();
    for len in [60_000, 130_000, 100].into_iter().cycle().take(48) {
        let (client, server) = (Arc::clone(&stage.client), server.clone());
        tasks.spawn(async move {
            let argument = vec![7; len];
            let request = client.genie().request(&server, memory::NULL).argument(&argument);
            timeout(FOR_EVER, client.send(request)).await.expect("it ends").map(drop)
        });
    }
    while let Some(sent) = tasks.join_next().await {
        sent.unwrap().unwrap();
    }
}

/// With `use genie::*` the name of Genie's module takes the place of the crate's.
mod everything {
    use genie::prelude::*;

    #[tokio::test]
    async fn the_prelude_leaves_tokio_what_it_is() {
        let client = genie::tokio::Interface::new(Interface::open().unwrap()).unwrap();
        let pending = tokio::spawn(async move { client.genie().pending_bytes() });
        assert_eq!(pending.await.unwrap(), 0);
    }
}

/// Nobody took the reply while no task waited.
#[tokio::test]
async fn a_continuation_runs_while_no_task_waits_if_one_attends() {
    let stage = Stage::new();
    let keeper = Keeper::default();
    let _running = stage.serve("keeper", keeper.clone());
    let server = stage.connect("keeper");
    let client = Arc::clone(&stage.client);
    let attends = tokio::spawn(async move { client.attend().await });
    let (sender, came) = tokio::sync::oneshot::channel();
    let pending = stage.genie().request(&server, KEEP).submit().unwrap();
    pending.then(Duration::from_micros(20), move |came| sender.send(came.is_ok()).expect("a test"));
    keeper.has(1).await;
    keeper.kept().remove(0).reply(Ok(()));
    assert!(timeout(FOR_EVER, came).await.expect("somebody takes the reply").unwrap());
    attends.abort();
}
