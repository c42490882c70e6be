//! Event loops that wait by an interface's descriptor for servers in this process.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use genie_io::{Error, Interface, Limits, Out, ServerHandle};
use genie_sys::lock::Mutex;
use genie_sys::poll::{Poller, readable};

use super::fixture::{ASK, Deaf, FOR_EVER, Finally, Fixture, Keeper, assert_idle, interface, interface_with};
use super::rings::{Gives, Middle, Ring, is_over, is_readable_when_armed, lock, run_until, submit};

/// A loop slept for ever: the descriptor became readable for channels alone, and the loop looked at a server of this process
/// with a completer only when it happened to be awake.
#[test]
fn a_ring_makes_the_descriptor_readable_from_the_first_request_to_the_last() {
    for is_asked_first in [true, false] {
        let (ring, interface) = (Ring::new(Gives::Bell), interface());
        let server = ServerHandle::new(ring.clone());
        if is_asked_first {
            interface.descriptor().expect("a descriptor");
        }
        ring.ring();
        let pending = [submit(&interface, &server), submit(&interface, &server)];
        // A loop that has armed before it asks for the descriptor is not left asleep, either.
        assert!(interface.arm());
        let descriptor = interface.descriptor().expect("a descriptor");
        assert!(readable(descriptor, Some(FOR_EVER)).expect("a descriptor"));
        assert!(!is_readable_when_armed(&interface), "nothing is done, and what was signalled is taken");
        let worker = std::thread::spawn({
            let ring = ring.clone();
            move || {
                std::thread::sleep(Duration::from_millis(5));
                ring.work();
            }
        });
        run_until(&interface, || pending.iter().all(is_over));
        worker.join().expect("no panic");
        for pending in pending {
            pending.sync().expect("a reply");
        }
        assert!(!is_readable_when_armed(&interface));
        ring.ring();
        assert!(!is_readable_when_armed(&interface), "no request is outstanding at the ring");
        let again = submit(&interface, &server);
        assert!(interface.arm() && readable(interface.descriptor().unwrap(), Some(FOR_EVER)).unwrap());
        ring.work();
        run_until(&interface, || is_over(&again));
        again.sync().expect("a reply");
        assert_idle(&interface);
    }
}

#[test]
fn a_loop_that_sleeps_is_woken_for_a_request_that_another_thread_makes() {
    let (ring, interface) = (Ring::new(Gives::Bell), interface());
    let (server, keeper) = (ServerHandle::new(ring.clone()), Keeper::default());
    let kept = ServerHandle::new(keeper.clone());
    interface.descriptor().expect("a descriptor");
    let made = Mutex::new(None);
    let first = submit(&interface, &kept);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The loop sleeps by now, or makes an end of it without.
            std::thread::sleep(Duration::from_millis(5));
            *lock(&made) = Some(submit(&interface, &server));
            std::thread::sleep(Duration::from_millis(5));
            ring.work();
        });
        run_until(&interface, || lock(&made).as_ref().is_some_and(is_over));
    });
    lock(&made).take().expect("a request").sync().expect("a reply");
    drop(keeper.take(1));
    first.sync().expect_err("it was dropped");
    assert_idle(&interface);
}

#[test]
fn a_reply_by_a_thread_of_the_servers_makes_the_descriptor_readable() {
    let interface = interface();
    let keeper = Keeper::default();
    let server = ServerHandle::new(keeper.clone());
    interface.descriptor().expect("a descriptor");
    let is_over_for_the_loop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over_for_the_loop.load(Ordering::Relaxed) {
                if keeper.count() > 0 {
                    keeper.take(1).remove(0).reply(Ok(()));
                }
                std::thread::yield_now();
            }
        });
        let _over = Finally(|| is_over_for_the_loop.store(true, Ordering::Relaxed));
        for _ in 0..2_000 {
            let pending = submit(&interface, &server);
            run_until(&interface, || is_over(&pending));
            pending.sync().expect("a reply");
        }
    });
    assert_idle(&interface);
}

#[test]
fn a_timeout_at_a_server_here_makes_the_descriptor_readable() {
    let limits = Limits { abort_timeout: Duration::from_millis(5), ..Limits::default() };
    let interface = interface_with(limits);
    let keeper = Keeper::default();
    let deaf = ServerHandle::new(Deaf(keeper.clone()));
    interface.descriptor().expect("a descriptor");
    let timeout = Duration::from_millis(10);
    let pending = interface.request(&deaf, ASK).timeout(timeout).submit().expect("a request");
    run_until(&interface, || is_over(&pending));
    assert_eq!(pending.sync().expect_err("no reply").error, Error::TimedOut { timeout });
    drop(keeper.take(1));
    assert!(interface.flush(&deaf, FOR_EVER));
    let pending = interface.request(&deaf, ASK).out(Out::copy(b"asked")).submit().expect("a request");
    let anticipated = keeper.take(1).remove(0).anticipate().ok();
    run_until(&interface, || is_over(&pending));
    assert!(pending.sync().expect("a reply").anticipated);
    drop(anticipated);
    assert!(interface.flush(&deaf, FOR_EVER));
    assert_idle(&interface);
}

#[test]
fn loops_of_several_interfaces_at_two_rings_are_all_woken() {
    let rings = [Ring::new(Gives::Bell), Ring::new(Gives::Bell)];
    // One ring by two names, which give the same descriptor.
    let servers = [&rings[0], &rings[1], &rings[0]].map(|ring| ServerHandle::new(ring.clone()));
    const LOOPS: usize = 3;
    const ROUNDS: usize = 100;
    let left = AtomicU32::new(LOOPS as u32 + 1);
    let is_over_for_all = || left.load(Ordering::Relaxed) == 0;
    let ends = || {
        Finally(|| {
            left.fetch_sub(1, Ordering::Relaxed);
        })
    };
    std::thread::scope(|scope| {
        for ring in &rings {
            scope.spawn(move || ring.work_until(is_over_for_all));
        }
        for _ in 0..LOOPS {
            scope.spawn(|| {
                let _end = ends();
                let interface = interface();
                for _ in 0..ROUNDS {
                    let pending = servers.each_ref().map(|server| submit(&interface, server));
                    run_until(&interface, || pending.iter().all(is_over));
                    for pending in pending {
                        pending.sync().expect("a reply");
                    }
                }
                assert_idle(&interface);
            });
        }
        // One that blocks has the rings looked at, too.
        scope.spawn(|| {
            let _end = ends();
            let interface = interface();
            for round in 0..ROUNDS {
                interface.request(&servers[round % 3], ASK).send().expect("a reply");
            }
        });
    });
}

#[test]
fn a_completer_behind_completers_and_a_channel_makes_the_descriptor_readable() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let ring = Ring::new(Gives::Bell);
    let reply = || keeper.take(1).remove(0).reply(Ok(()));
    let work = || assert_eq!(ring.work(), 1);
    let far = interface();
    let channel = fixture.connect(&far, "keeper");
    let behind: [(ServerHandle, Interface, &(dyn Fn() + Sync)); 2] =
        [(channel, far, &reply), (ServerHandle::new(ring.clone()), interface(), &work)];
    for (last, inner, complete) in behind {
        let middle = Middle::serve(Middle::serve(last, inner), interface());
        let interface = interface();
        for round in 0..20 {
            let pending = submit(&interface, &middle);
            assert!(!is_readable_when_armed(&interface), "round {round}: nothing is done");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(200 * (round % 3)));
                    complete();
                });
                run_until(&interface, || is_over(&pending));
            });
            pending.sync().expect("a reply");
        }
        assert_idle(&interface);
    }
}

#[test]
fn a_completer_that_is_a_client_of_its_clients_interface_is_waited_for_by_that() {
    let (fixture, keeper, _running) = Fixture::with_keeper();
    let interface = interface();
    for behind in [fixture.connect(&interface, "keeper"), ServerHandle::new(keeper.clone())] {
        let middle = Middle::serve(behind, interface.clone());
        for _ in 0..20 {
            let pending = submit(&interface, &middle);
            std::thread::scope(|scope| {
                scope.spawn(|| keeper.take(1).remove(0).reply(Ok(())));
                run_until(&interface, || is_over(&pending));
            });
            pending.sync().expect("a reply");
        }
    }
    assert_idle(&interface);
}

#[test]
fn a_completer_that_can_not_be_waited_for_keeps_the_loop_looking() {
    for gives in [Gives::Nothing, Gives::File, Gives::PanicForDescriptor, Gives::PanicForArm] {
        let (ring, interface) = (Ring::new(gives), interface());
        let server = ServerHandle::new(ring.clone());
        interface.descriptor().expect("a descriptor");
        let pending = submit(&interface, &server);
        for _ in 0..5 {
            interface.collect();
            assert!(!interface.arm(), "there may be something");
        }
        assert_eq!(ring.0.asks.load(Ordering::Relaxed), 1, "it is asked once");
        assert_eq!(ring.0.arms.load(Ordering::Relaxed), u32::from(gives == Gives::PanicForArm));
        ring.work();
        run_until(&interface, || is_over(&pending));
        pending.sync().expect("a reply");
        assert!(!is_readable_when_armed(&interface), "it is forgotten with its last request");
        assert_idle(&interface);
    }
}

#[test]
fn a_server_is_dropped_with_its_last_request_though_a_loop_has_waited_for_it() {
    let (ring, interface) = (Ring::new(Gives::Bell), interface());
    let server = ServerHandle::new(ring.clone());
    let pending = submit(&interface, &server);
    let poller = Poller::new().expect("a poller");
    poller.add(interface.descriptor().expect("a descriptor"), 7).expect("sets in sets");
    assert!(!is_readable_when_armed(&interface));
    ring.work();
    let mut events = Vec::new();
    poller.wait(Some(FOR_EVER), &mut events).expect("a poller");
    assert_eq!(events.len(), 1);
    run_until(&interface, || is_over(&pending));
    pending.sync().expect("a reply");
    drop(server);
    assert_eq!(Arc::strong_count(&ring.0), 1, "nobody holds the server");
    assert!(!is_readable_when_armed(&interface));
}

/// When threads armed at the same time, each added one more descriptor for the same ring, which stayed until nothing was
/// outstanding there.
#[test]
fn threads_that_arm_at_once_wait_for_a_ring_by_one_descriptor() {
    let (genie, ring) = (interface(), ServerHandle::new(Ring::new(Gives::Bell)));
    let descriptor = genie.descriptor().expect("a descriptor").as_raw_fd();
    let _pending = genie.request(&ring, ASK).submit().expect("room");
    let watched = || {
        let set =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).expect("/proc is mounted");
        set.lines().filter(|line| line.starts_with("tfd:")).count()
    };
    genie.arm();
    let alone = watched();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..10_000 {
                    genie.arm();
                }
            });
        }
    });
    genie.arm();
    assert_eq!(watched(), alone);
}
