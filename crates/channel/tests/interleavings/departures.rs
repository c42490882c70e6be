//! One side of a channel goes while the other is at work.

use std::sync::Arc;

use genie_io::{Error, Out};
use shuttle::thread;

use crate::leaders::channel;
use crate::scene::{FOR_EVER, Keeper, SERVICE, explore, forward};

#[test]
fn a_client_that_departs_has_all_that_is_pending_let_go() {
    explore(|| {
        let (elsewhere, keeper, interface, server) = channel(FOR_EVER);
        let pending = [(); 2].map(|()| interface.request(&server, SERVICE).submit().expect("it is admitted"));
        let replies = thread::spawn({
            let keeper = Arc::clone(&keeper);
            move || keeper.reply()
        });
        drop(pending);
        drop((server, interface));
        replies.join().unwrap();
        // What the server had of it, and what was still on the ring.
        elsewhere.await_departure();
        drop(elsewhere);
        assert!(keeper.is_empty(), "a request of a client that is gone is kept");
    });
}

#[test]
fn what_a_request_originates_while_its_client_departs_is_aborted_or_refused() {
    explore(|| {
        let (leaf, kept) = Keeper::open();
        let (elsewhere, contracted, interface, server) = channel(FOR_EVER);
        let request = interface.request(&server, SERVICE);
        let pending = request.out(Out::copy(b"forwarded")).submit().expect("it is admitted");
        let incoming = contracted.await_one();
        let passes = thread::spawn(move || forward(incoming, &leaf));
        drop((pending, server, interface));
        // The leaf never replies: if what was originated were not aborted, this would never end.
        assert!(!passes.join().unwrap());
        elsewhere.await_departure();
        drop(elsewhere);
        assert!(kept.is_empty() && contracted.is_empty());
    });
}

#[test]
fn a_thread_that_waits_at_a_server_that_ends_has_its_reply_or_an_error() {
    explore(|| {
        let (elsewhere, keeper, interface, server) = channel(FOR_EVER);
        let waiters = [(); 2].map(|()| {
            let (interface, server) = (interface.clone(), server.clone());
            thread::spawn(move || interface.request(&server, SERVICE).send().map(drop))
        });
        let is_replied = keeper.reply();
        drop(elsewhere);
        let came = waiters.map(|waiter| waiter.join().unwrap());
        let replied = came.iter().filter(|came| came.is_ok()).count();
        assert!(replied <= usize::from(is_replied), "no reply comes that was not given");
        for failed in came.into_iter().filter_map(Result::err) {
            assert!(matches!(failed.error, Error::Gone { .. }), "{}", failed.error);
        }
        drop(keeper);
    });
}
