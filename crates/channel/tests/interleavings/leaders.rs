//! Several threads wait at one channel: one of them leads, and takes the replies for all.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use genie_io::{Interface, Limits, ServerHandle};
use shuttle::thread;

use crate::scene::{Elsewhere, FOR_EVER, Keeper, SERVICE, assert_agreed, explore, interface};

/// A channel to a server that replies only when it is told to.
pub(crate) fn channel(abort_timeout: Duration) -> (Elsewhere, Arc<Keeper>, Interface, ServerHandle) {
    let (_, keeper) = Keeper::open();
    let elsewhere = Elsewhere::open(&keeper);
    let interface = interface(Limits { abort_timeout, ..Limits::default() });
    let server = elsewhere.connect(&interface);
    (elsewhere, keeper, interface, server)
}

#[test]
fn each_thread_that_waits_at_a_channel_has_its_reply_whichever_takes_it() {
    explore(|| {
        let (_elsewhere, keeper, interface, server) = channel(FOR_EVER);
        let waiters = [(); 3].map(|()| {
            let (interface, server) = (interface.clone(), server.clone());
            thread::spawn(move || interface.request(&server, SERVICE).send().map(drop))
        });
        // The last one first.
        let kept: Vec<_> = (0..3).map(|_| keeper.await_one()).collect();
        kept.into_iter().rev().for_each(|incoming| incoming.reply(Ok(())));
        for waiter in waiters {
            waiter.join().unwrap().unwrap_or_else(|failed| panic!("{}", failed.error));
        }
    });
}

/// A task that makes a request, and waits for the reply, when it is woken.
struct Asks(Interface, ServerHandle);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        self.0.request(&self.1, SERVICE).send().unwrap_or_else(|failed| panic!("{}", failed.error));
    }
}

#[test]
fn a_task_that_waits_at_the_channel_when_it_is_woken_has_its_reply_whichever_thread_wakes_it() {
    explore(|| {
        let (_elsewhere, keeper, interface, server) = channel(FOR_EVER);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let task = Waker::from(Arc::new(Asks(interface.clone(), server.clone())));
        assert!(pending.poll(&mut Context::from_waker(&task)).is_pending(), "nobody takes replies yet");
        let waits = thread::spawn(move || interface.request(&server, SERVICE).send().map(drop));
        let replies = thread::spawn(move || (0..3).for_each(|_| keeper.await_one().reply(Ok(()))));
        pending.sync().expect("a reply");
        waits.join().unwrap().unwrap_or_else(|failed| panic!("{}", failed.error));
        replies.join().unwrap();
    });
}

#[test]
fn threads_that_wait_go_on_when_their_leader_departs() {
    explore(|| {
        let (_elsewhere, keeper, interface, server) = channel(FOR_EVER);
        let patient = interface.request(&server, SERVICE).submit().expect("it is admitted");
        // This one leaves without a reply, whenever it leads.
        let hasty = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let leaves = thread::spawn(move || hasty.abort().is_ok());
        let waits = thread::spawn(move || patient.sync().map(drop));
        let first = keeper.await_one();
        let is_second_replied = keeper.reply();
        first.reply(Ok(()));
        waits.join().unwrap().unwrap_or_else(|failed| panic!("{}", failed.error));
        // It may not have been there yet when the server looked.
        assert!(leaves.join().unwrap() || !is_second_replied || keeper.is_empty());
    });
}

#[test]
fn an_abort_and_a_reply_that_meet_on_a_channel_leave_one_result_for_both_sides() {
    explore(|| {
        let (_elsewhere, keeper, interface, server) = channel(FOR_EVER);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let replies = thread::spawn({
            let keeper = Arc::clone(&keeper);
            move || {
                let incoming = keeper.take();
                incoming.map(|incoming| incoming.reply(Ok(()))).is_some()
            }
        });
        let came = pending.abort();
        assert_agreed(&came, replies.join().unwrap());
        assert!(keeper.is_empty());
        assert!(interface.flush(&server, FOR_EVER));
    });
}

#[test]
fn a_request_that_is_given_up_at_a_channel_leaves_its_place_to_another() {
    explore(|| {
        let (_elsewhere, keeper, interface, server) = channel(Duration::ZERO);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let _ = pending.abort();
        // Whether or not the server has had it, it is to hear of the abort, and nothing is pending then.
        assert!(interface.flush(&server, FOR_EVER));
        assert!(keeper.is_empty());
        assert_eq!(interface.pending_bytes(), 0);
    });
}
