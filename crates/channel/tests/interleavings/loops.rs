//! An event loop waits by its interface's descriptor while other threads wait at the same channel, look, and take replies.

use std::sync::Arc;
use std::task::{Context, Waker};

use genie_io::{Interface, Pending};
use genie_sys::poll::readable;
use shuttle::thread;

use crate::leaders::channel;
use crate::scene::{FOR_EVER, SERVICE, explore};

/// Waits as an event loop does. One that is not woken never ends.
fn await_reply(interface: &Interface, pending: &Pending<'_>) {
    loop {
        interface.collect();
        if pending.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        if interface.arm() {
            readable(interface.descriptor().expect("a descriptor"), Some(FOR_EVER)).expect("a descriptor");
        }
    }
}

#[test]
fn a_loop_is_woken_for_its_reply_whoever_takes_it() {
    explore(|| {
        let (_elsewhere, keeper, interface, server) = channel(FOR_EVER);
        interface.descriptor().expect("a descriptor");
        let pending = Arc::new(interface.request(&server, SERVICE).submit().expect("it is admitted"));
        let looks = thread::spawn({
            let pending = Arc::clone(&pending);
            move || pending.is_replied()
        });
        let waits = thread::spawn({
            let (interface, server) = (interface.clone(), server.clone());
            move || interface.request(&server, SERVICE).send().map(drop)
        });
        let replies = thread::spawn(move || (0..2).for_each(|_| keeper.await_one().reply(Ok(()))));
        await_reply(&interface, &pending);
        waits.join().unwrap().unwrap_or_else(|failed| panic!("{}", failed.error));
        looks.join().unwrap();
        replies.join().unwrap();
    });
}
