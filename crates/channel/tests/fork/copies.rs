//! What a child made by fork does with its copies of handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Listener, ServeOptions, Serving};
use genie_io::servers::memory::{Memory, NULL};
use genie_io::{
    ClientId, Completions, Error, Incoming, Out, RequestId, Server, ServerHandle, Service, overruns,
};
use genie_memory::Direction;
use genie_passing::{Chain, Costs, Layout, Overlays, Passing, Scheme, Target, Thresholds};
use genie_sys::lock::Mutex;
use genie_sys::poll::readable;

use super::{Fixture, PATIENCE, connect, drop_copy, in_child, interface, store_and_fetch};

/// A child that dropped its copy of an interface said goodbye on the socket that it shared with its parent, and hung it up.
#[test]
fn a_child_drops_its_copies_and_its_parent_goes_on() {
    let fixture = Fixture::open();
    store_and_fetch(&fixture.interface, &fixture.server).expect("a reply");
    let mut buffer = fixture.interface.allocate(10_000).expect("memory");
    buffer.fill(3);
    let migrant = fixture.interface.allocate_migrant(10_000, true).expect("memory");
    let request = fixture.interface.request(&fixture.server, NULL).out(Out::emulated_copy(&buffer));
    let pending = request.timeout(PATIENCE).submit().expect("a request");
    in_child(|| {
        drop_copy(&pending);
        drop_copy(&buffer);
        drop_copy(&migrant);
        drop_copy(&fixture.server);
        drop_copy(&fixture.interface);
        Ok(())
    });
    pending.sync().expect("a reply");
    assert!(buffer.iter().all(|byte| *byte == 3), "the parent's buffer");
    drop((buffer, migrant));
    fixture.is_unharmed();
}

/// A child's copy of a server said goodbye to all clients, waited for threads that it did not have, and removed the name.
#[test]
fn a_childs_copy_of_a_server_harms_neither_its_clients_nor_its_name() {
    let kept = InheritedServer::default();
    let fixture = Fixture::serve(kept.clone());
    let buffer = fixture.interface.allocate(10_000).expect("memory");
    let request = fixture.interface.request(&fixture.server, NULL).out(Out::emulated_copy(&buffer));
    let pending = request.submit().expect("a request");
    let incoming = kept.take();
    in_child(|| {
        drop_copy(&incoming);
        fixture.running.stopper().stop();
        drop_copy(&fixture.running);
        Ok(())
    });
    assert!(!pending.wait(Duration::from_millis(50)), "the request was not replied to");
    incoming.reply(Ok(()));
    pending.sync().expect("a reply");
    connect(&fixture.interface, &fixture.directory).expect("the server is found");
}

/// The same of a server that the program drives, whose code was told in the child that its clients had left.
#[test]
fn a_childs_copy_of_a_driven_server_tells_no_server_that_its_clients_have_left() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let kept = InheritedServer::default();
    let serving = Listener::bind_in(&directory, "server", kept.clone(), ServeOptions::default());
    let mut driven = serving.and_then(Serving::drive).expect("a server");
    let interface = interface();
    let server = connect(&interface, &directory).expect("a connection");
    // From now on the server knows the client.
    let pending = interface.request(&server, NULL).submit().expect("a request");
    assert!(driven.attend(PATIENCE).expect("a server"));
    kept.take().reply(Ok(()));
    pending.sync().expect("a reply");
    in_child(|| {
        let refused = [driven.attend(Duration::ZERO), driven.attend(Duration::MAX)];
        if driven.arm() || refused != [Err(Error::Inherited), Err(Error::Inherited)] {
            return Err(2);
        }
        drop_copy(&driven);
        if kept.1.load(Ordering::Relaxed) { Err(1) } else { Ok(()) }
    });
    while !driven.arm() {
        driven.attend(Duration::ZERO).expect("a server");
    }
    let mut batch = interface.batch();
    let pending = interface.request(&server, NULL).batched(&mut batch).submit().expect("a request");
    in_child(|| {
        drop_copy(&batch);
        Ok(())
    });
    let is_woken = || readable(driven.descriptor(), Some(Duration::ZERO)).expect("an answer");
    assert!(!is_woken(), "the batch is the parent's");
    drop(batch);
    assert!(is_woken());
    while !driven.attend(Duration::ZERO).expect("a server") {
        std::thread::yield_now();
    }
    kept.take().reply(Ok(()));
    pending.sync().expect("a reply");
}

/// A child served clients under the name, too, as its parent did.
#[test]
fn a_child_cannot_serve_under_a_name_that_its_parent_has_claimed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a directory");
    let claim = || Listener::claim_in(&directory, "server", ServeOptions::default()).expect("a name");
    let mut listener = Some(claim());
    in_child(|| match listener.take().expect("the claim").serve(InheritedServer::default()) {
        Err(Error::Inherited) => Ok(()),
        _ => Err(1),
    });
    let serving = listener.take().expect("the claim").serve(InheritedServer::default()).expect("a server");
    let _running = serving.start().expect("a server that runs");
    connect(&interface(), &directory).expect("the parent's server");
}

/// A child that read a buffer, or made a request, died by SIGSEGV, by safe code alone.
#[test]
fn a_childs_handles_refuse_and_its_buffers_are_zeros() {
    let fixture = Fixture::open();
    let mut buffer = fixture.interface.allocate(10_000).expect("memory");
    buffer.fill(3);
    let bytes = [1; 100];
    let system = fixture.interface.space().system_buffer(10_000).expect("memory");
    let is_named = || system.data().backings().any(|backing| backing.object().is_some());
    assert!(is_named(), "the parent's system buffer is in an object");
    let pending = fixture.interface.request(&fixture.server, NULL).submit().expect("a request");
    let refused = |number, result: Result<(), Error>| match result {
        Err(Error::Inherited) => Ok(()),
        _ => Err(number),
    };
    in_child(|| {
        if buffer.iter().any(|byte| *byte != 0) {
            return Err(1);
        }
        let Fixture { interface, server, directory, .. } = &fixture;
        let request = || interface.request(server, NULL).out(Out::copy(&bytes));
        refused(2, request().send().map(drop).map_err(|failed| failed.error))?;
        refused(3, request().submit().map(drop).map_err(|failed| failed.error))?;
        refused(4, connect(interface, directory).map(drop))?;
        refused(5, interface.allocate(100).map(drop))?;
        refused(6, interface.allocate_migrant(100, true).map(drop))?;
        refused(7, interface.descriptor().map(drop))?;
        refused(8, server.adjust(1, 1).map(drop))?;
        if interface.flush(server, PATIENCE) || interface.collect() > 0 {
            return Err(9);
        }
        // SAFETY: as in `drop_copy`; it is forgotten with the child.
        let pending = unsafe { std::ptr::read(&raw const pending) };
        if !pending.is_replied() || !pending.wait(PATIENCE) {
            return Err(10);
        }
        refused(11, pending.sync().map(drop).map_err(|failed| failed.error))?;
        if is_named() { Err(12) } else { Ok(()) }
    });
    pending.sync().expect("a reply");
    assert!(buffer.iter().all(|byte| *byte == 3), "the parent's buffer");
    drop((buffer, system));
    fixture.is_unharmed();
}

#[test]
fn a_child_can_store_into_its_zeros_and_its_parent_does_not_see_it() {
    let fixture = Fixture::open();
    let mut buffer = fixture.interface.allocate(10_000).expect("memory");
    buffer.fill(3);
    in_child(|| {
        // SAFETY: as in `drop_copy`; it is forgotten with the child.
        let mut copy = std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw const buffer) });
        copy.fill(4);
        if copy.iter().all(|byte| *byte == 4) { Ok(()) } else { Err(1) }
    });
    assert!(buffer.iter().all(|byte| *byte == 3), "the parent's buffer");
}

#[test]
#[cfg_attr(sanitized, ignore = "ThreadSanitizer allows no new thread in the child of a process with several")]
fn a_child_opens_an_interface_of_its_own_and_connects() {
    let fixture = Fixture::open();
    store_and_fetch(&fixture.interface, &fixture.server).expect("a reply");
    in_child(|| {
        let interface = interface();
        let server = connect(&interface, &fixture.directory).map_err(|_| 1)?;
        store_and_fetch(&interface, &server).map_err(|_| 2)?;
        let refused = interface.request(&fixture.server, NULL).send();
        if !refused.is_err_and(|failed| matches!(failed.error, Error::Inherited)) {
            return Err(3);
        }
        drop((server, interface));
        Ok(())
    });
    fixture.is_unharmed();
}

/// Those functions that change a space panicked in a child, or were made to by `Passing::new`.
#[test]
fn what_a_child_asks_of_its_copy_of_a_space_is_refused_or_does_nothing() {
    let fixture = Fixture::open();
    let space = fixture.interface.space();
    let buffer = fixture.interface.allocate(4096).expect("memory");
    let [weak, strong] =
        [false, true].map(|strong| fixture.interface.allocate_migrant(100, strong).expect("memory"));
    let reference = space.reference(buffer.as_ptr().addr(), 4096, Direction::Out).expect("a reference");
    in_child(|| {
        let lender = space.add_lender();
        space.on_loss(lender, || ());
        space.on_shortage(lender, |_| ());
        space.remove_lender(lender);
        drop(Passing::new(space.clone(), Costs::default()));
        if !matches!(space.read_only(&reference), Err(genie_memory::Error::Inherited)) {
            return Err(1);
        }
        // SAFETY: as in `drop_copy`; they are forgotten with the child.
        let [weak, strong] = unsafe { [std::ptr::read(&raw const weak), std::ptr::read(&raw const strong)] };
        if !matches!(weak.emigrate(), Err(genie_memory::Error::Inherited)) {
            return Err(2);
        }
        if !matches!(strong.emigrate_referenced(), Err(genie_memory::Error::Inherited)) {
            return Err(3);
        }
        Ok(())
    });
    drop((reference, buffer, weak, strong));
    fixture.is_unharmed();
}

/// Threads of the parent's hold any of its locks when it forks.
#[test]
fn no_lock_that_a_thread_of_the_parent_holds_hangs_a_child() {
    let fixture = Fixture::open();
    let is_over = AtomicBool::new(false);
    let buffer = fixture.interface.allocate(10_000).expect("memory");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    store_and_fetch(&fixture.interface, &fixture.server).expect("a reply");
                }
            });
        }
        for _ in 0..50 {
            in_child(|| {
                let request =
                    fixture.interface.request(&fixture.server, NULL).out(Out::emulated_copy(&buffer));
                let sent = request.send();
                drop_copy(&buffer);
                drop_copy(&fixture.server);
                drop_copy(&fixture.interface);
                if sent.is_err() { Ok(()) } else { Err(1) }
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(buffer);
    fixture.is_unharmed();
}

/// A pool looked for its frames under its lock, and making some looked how many bytes can be lent under the space's.
#[test]
fn no_lock_of_a_pool_of_frames_hangs_a_child() {
    const COUNT: usize = 64;
    let fixture = Fixture::open();
    let space = fixture.interface.space();
    let frames = space.make_frames(4096, COUNT).expect("memory for the frames");
    let pool = Overlays::framed(frames, Layout { headroom: 0, len: 4096, away: COUNT });
    // All of them are a client's.
    let mut buffer = fixture.interface.allocate(COUNT * 4096).expect("memory");
    let target = Target::Native { addr: buffer.as_ptr().addr(), len: buffer.len() };
    let passing = Passing::new(space.clone(), Costs::default()).with_thresholds(Thresholds::ALWAYS);
    // SAFETY: nobody uses the bytes until the delivery.
    let mut input = unsafe { passing.input(Scheme::EmulatedCopy, target) }.expect("an input");
    input.overlay(std::iter::from_fn(|| pool.allocate()).collect::<Chain>());
    input.deliver(buffer.len(), Some(&mut buffer)).expect("a delivery");
    assert_eq!(input.receipt().swapped as usize, COUNT);
    drop(input);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(pool.free() == 0 && space.check().is_ok());
                }
            });
        }
        for _ in 0..20 {
            in_child(|| {
                if pool.allocate().is_some() || pool.free() != 0 {
                    return Err(1);
                }
                let made = space.make_frames(4096, usize::MAX / 8192);
                if matches!(made, Err(genie_memory::Error::Inherited)) { Ok(()) } else { Err(2) }
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(buffer);
    assert_eq!(pool.free(), COUNT);
    fixture.is_unharmed();
}

/// A child that asked whether there were requests left waited for ever for a lock that its parent had when it forked.
#[test]
fn completions_hold_nothing_in_a_child_and_take_no_lock() {
    let fixture = Fixture::open();
    let submit = || fixture.interface.request(&fixture.server, NULL).submit().expect("a request");
    let belonging = Arc::new(());
    let completions = Completions::default();
    completions.add(submit(), Arc::clone(&belonging));
    assert!(completions.wait(&fixture.server, PATIENCE), "a reply");
    let other = submit();
    let fork = || {
        in_child(|| {
            if !completions.is_empty() || completions.has_next() || completions.next().is_some() {
                return Err(1);
            }
            // SAFETY: as in `drop_copy`.
            completions.add(unsafe { std::ptr::read(&raw const other) }, Arc::new(()));
            if !completions.remove(|_| true).is_empty() || completions.wait(&fixture.server, PATIENCE) {
                return Err(2);
            }
            if !format!("{completions:?}").contains("inherited") {
                return Err(3);
            }
            drop_copy(&completions);
            // Its parent may have been changing the table of them.
            if Arc::strong_count(&belonging) == 2 { Ok(()) } else { Err(4) }
        });
    };
    // The requests are locked while it looks for those to be removed.
    let removed = completions.remove(|_| {
        fork();
        false
    });
    assert!(removed.is_empty(), "none was to be removed");
    let (pending, _) = completions.next().expect("the parent's request");
    pending.sync().expect("its reply");
    other.sync().expect("a reply");
    fixture.is_unharmed();
}

#[test]
fn a_child_runs_no_continuation_of_its_parents() {
    let kept = InheritedServer::default();
    let fixture = Fixture::serve(kept.clone());
    let (cost, has_run) = (Duration::from_micros(20), Arc::new(AtomicBool::new(false)));
    let submit = || fixture.interface.request(&fixture.server, NULL).submit().expect("a request");
    let runs = Arc::clone(&has_run);
    submit().then(cost, move |_| runs.store(true, Ordering::Release));
    kept.take().reply(Ok(()));
    let other = submit();
    in_child(|| {
        let taken = fixture.interface.collect_from(&fixture.server) + fixture.interface.collect();
        let refused = Arc::new(AtomicBool::new(false));
        let refuses = Arc::clone(&refused);
        // SAFETY: as in `drop_copy`.
        unsafe { std::ptr::read(&raw const other) }.then(cost, move |came| {
            refuses.store(came.is_err_and(|failed| failed.error == Error::Inherited), Ordering::Release);
        });
        match (taken, has_run.load(Ordering::Acquire), refused.load(Ordering::Acquire)) {
            (0, false, true) => Ok(()),
            (1.., ..) => Err(1),
            (_, true, _) => Err(2),
            _ => Err(3),
        }
    });
    assert!(!has_run.load(Ordering::Acquire), "its reply is not taken");
    assert_eq!(fixture.interface.collect_from(&fixture.server), 1);
    assert!(has_run.load(Ordering::Acquire), "it is the parent's");
    kept.take().reply(Ok(()));
    other.sync().expect("a reply");
}

/// In a child, no other thread has continuations that would be counted, too.
#[test]
#[cfg_attr(sanitized, ignore = "ThreadSanitizer allows no new thread in the child of a process with several")]
fn a_continuation_that_takes_longer_than_it_said_is_counted() {
    in_child(|| {
        let (interface, server) = (interface(), ServerHandle::new(Memory::customized()));
        let submit = || interface.request(&server, NULL).submit().expect("a request");
        // Other tests may have had some before the fork.
        let before = overruns();
        submit().then(Duration::from_micros(1), |_| std::thread::sleep(Duration::from_millis(1)));
        if overruns() != before + 1 {
            return Err(1);
        }
        // One that waits in a thread of its own holds nobody up.
        let (sender, ran) = std::sync::mpsc::channel();
        submit().then(Duration::from_secs(1), move |_| sender.send(overruns()).expect("a test"));
        match ran.recv_timeout(PATIENCE / 2) {
            Ok(count) if count == before + 1 => Ok(()),
            Ok(_) => Err(2),
            Err(_) => Err(3),
        }
    });
}

/// A server of which a child inherits a copy: it keeps its requests, and notes that a client has left.
#[derive(Clone, Default)]
struct InheritedServer(Arc<Mutex<Vec<Incoming>>>, Arc<AtomicBool>);

static SERVICES: [Service; 1] = [Service::new("keep", true, true)];

impl InheritedServer {
    /// Takes the next one out, when it is there.
    fn take(&self) -> Incoming {
        loop {
            if let Some(kept) = self.0.lock().pop() {
                return kept;
            }
            std::thread::yield_now();
        }
    }
}

impl Server for InheritedServer {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        self.0.lock().push(request);
    }

    fn abort(&self, _request: RequestId) {}

    fn departed(&self, _client: ClientId) {
        self.1.store(true, Ordering::Relaxed);
    }
}
