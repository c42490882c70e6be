//! Crowds: many clients of one server, many servers of one client, many threads of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use genie_channel::ServeOptions;
use genie_io::{Incoming, Interface, RequestId, Server, ServerHandle, Service};
use genie_memory::Mapping;
use genie_sys::lock::Mutex;

use super::fixture::{
    ASK, FOR_EVER, Fixture, SERVICES, assert_idle, await_clients, interface, memory, options, store_and_fetch,
};

/// Has so many threads store and fetch, each at the next of the servers.
fn crowd(interface: &Interface, servers: &[ServerHandle], threads: u32, rounds: u32, first: u32) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..rounds {
                    let server = &servers[(thread + round) as usize % servers.len()];
                    // One name for each thread, client and server.
                    store_and_fetch(interface, server, first + thread, round);
                }
            });
        }
    });
}

#[test]
fn eight_clients_of_four_threads_share_a_server_of_two() {
    let fixture = Fixture::new();
    let serving = fixture.bind("memory", memory(), ServeOptions { threads: 2, ..options() });
    let running = serving.start().unwrap();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let interface = interface();
            let server = fixture.connect(&interface, "memory");
            (interface, server)
        })
        .collect();
    await_clients(&running, 8);
    std::thread::scope(|scope| {
        for (number, (interface, server)) in (0..).zip(&clients) {
            scope.spawn(move || crowd(interface, std::slice::from_ref(server), 4, 60, number * 4));
        }
    });
    clients.iter().for_each(|(interface, _)| assert_idle(interface));
}

/// Sleeps with each request, and counts those with which it sleeps at the same time.
#[derive(Debug, Clone, Default)]
struct Sleepy(Arc<(AtomicU32, AtomicU32)>);

impl Server for Sleepy {
    fn name(&self) -> &str {
        "sleepy"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(300));
        now.fetch_sub(1, Ordering::SeqCst);
        request.reply(Ok(()));
    }

    fn abort(&self, _: RequestId) {}
}

/// The control thread did not notice calls that were over when it looked, and served them one after the other.
#[test]
fn requests_of_less_than_a_millisecond_are_served_at_the_same_time_too() {
    for (threads, expected) in [(1, 1..=1), (3, 2..=3)] {
        let (fixture, sleepy, interface) = (Fixture::new(), Sleepy::default(), interface());
        let serving = fixture.bind("sleepy", sleepy.clone(), ServeOptions { threads, ..options() });
        let _running = serving.start().unwrap();
        let server = fixture.connect(&interface, "sleepy");
        let pending: Vec<_> =
            (0..200).map(|_| interface.request(&server, ASK).submit().expect("a request")).collect();
        pending.into_iter().for_each(|pending| drop(pending.sync().expect("a reply")));
        let most = sleepy.0.1.load(Ordering::SeqCst);
        assert!(expected.contains(&most), "{most} at the same time");
    }
}

#[test]
fn one_client_of_four_threads_has_eight_servers() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..8).map(|number| format!("memory-{number}")).collect();
    let _running: Vec<_> = names.iter().map(|name| fixture.serve(name, memory())).collect();
    let interface = interface();
    let servers: Vec<_> = names.iter().map(|name| fixture.connect(&interface, name)).collect();
    crowd(&interface, &servers, 4, 80, 0);
    assert_idle(&interface);
}

#[test]
fn clients_come_and_go_while_others_are_served() {
    let fixture = Fixture::new();
    let options = ServeOptions { threads: 2, mapping: Mapping::Transient, ..options() };
    let running = fixture.bind("memory", memory(), options).start().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..15 {
                    let interface = interface();
                    let server = fixture.connect(&interface, "memory");
                    crowd(&interface, std::slice::from_ref(&server), 1, 4, number * 100 + round);
                    assert_idle(&interface);
                }
            });
        }
    });
    await_clients(&running, 0);
}

/// Does not come back from its first request while a test holds the lock.
#[derive(Clone, Default)]
struct Hanging(Arc<(AtomicU32, Mutex<()>)>);

impl Server for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let (asked, lock) = &*self.0;
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            drop(lock.lock());
        }
        request.reply(Ok(()));
    }

    fn abort(&self, _: RequestId) {}
}

/// The thread that hung had no client any more. So it had the fewest of all threads, and got each new client; of clients
/// that came at the same time it got half.
#[test]
fn clients_of_a_thread_that_hangs_are_served_by_others() {
    for stays in [false, true] {
        let (fixture, server) = (Fixture::new(), Hanging::default());
        let hung = server.0.1.lock();
        let serving = fixture.bind("hanging", server.clone(), ServeOptions { threads: 2, ..options() });
        let running = serving.start().unwrap();
        let client = || {
            let interface = interface();
            let handle = fixture.connect(&interface, "hanging");
            (interface, handle)
        };
        let first = client();
        let pending = first.0.request(&first.1, ASK).submit().unwrap();
        let begun = Instant::now();
        while server.0.0.load(Ordering::SeqCst) == 0 {
            assert!(begun.elapsed() < FOR_EVER, "no request has come");
            std::thread::yield_now();
        }
        let first = stays.then_some((first, pending));
        let mut others = Vec::new();
        for _ in 0..4 {
            if !stays {
                others.clear();
                await_clients(&running, 0);
            }
            let (interface, handle) = client();
            interface.request(&handle, ASK).timeout(FOR_EVER).send().expect("the other thread replies");
            others.push((interface, handle));
        }
        drop(hung);
        drop(first);
    }
}

/// Knows how many clients' first requests each thread has taken.
#[derive(Clone, Default)]
struct Counting(Arc<Mutex<HashMap<ThreadId, u32>>>);

impl Server for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        *self.0.lock().entry(std::thread::current().id()).or_default() += 1;
        request.reply(Ok(()));
    }

    fn abort(&self, _: RequestId) {}
}

/// Threads that had not been woken yet were taken for threads that hang, so one of two threads got up to eleven of twelve
/// clients.
#[test]
fn clients_are_spread_over_threads_that_wait_for_them() {
    let fixture = Fixture::new();
    for round in 0..8 {
        let (name, server) = (format!("counting-{round}"), Counting::default());
        let serving = fixture.bind(&name, server.clone(), ServeOptions { threads: 2, ..options() });
        let _running = serving.start().unwrap();
        let client = |_| {
            let interface = interface();
            let handle = fixture.connect(&interface, &name);
            (interface, handle)
        };
        let clients: Vec<_> = (0..12).map(client).collect();
        for (interface, handle) in &clients {
            interface.request(handle, ASK).timeout(FOR_EVER).send().expect("a reply");
        }
        let counts: Vec<u32> = server.0.lock().values().copied().collect();
        assert_eq!(counts.iter().sum::<u32>(), 12);
        // On a busy machine a call may take so long that a third thread gets the clients of its thread.
        assert!(counts.iter().all(|count| *count <= 9), "{counts:?} clients");
    }
}
