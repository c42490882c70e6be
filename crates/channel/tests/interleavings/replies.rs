//! A reply comes at the same time as something else that ends a request: an abort, a timeout, a client that gives up,
//! departs, flushes, or is told.

use std::sync::Arc;
use std::time::Duration;

use genie_io::{Error, In};
use shuttle::thread;

use crate::scene::{FOR_EVER, Keeper, SERVICE, assert_agreed, assert_free, explore, interface, narrow};

#[test]
fn an_abort_and_a_reply_that_meet_leave_one_result_for_both_sides() {
    explore(|| {
        let (server, keeper) = Keeper::open();
        let interface = narrow(FOR_EVER);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let replies = thread::spawn({
            let keeper = Arc::clone(&keeper);
            move || keeper.reply()
        });
        let came = pending.abort();
        assert_agreed(&came, replies.join().unwrap());
        assert_free(&interface, &server);
    });
}

#[test]
fn a_client_that_gives_up_has_its_reply_or_the_server_its_work() {
    explore(|| {
        let (server, keeper) = Keeper::deaf();
        let interface = narrow(Duration::ZERO);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let replies = thread::spawn({
            let keeper = Arc::clone(&keeper);
            move || assert!(keeper.reply(), "nobody else takes it")
        });
        // The reply counts, or comes too late.
        if let Err(failed) = pending.abort() {
            assert!(matches!(failed.error, Error::Aborted), "{}", failed.error);
        }
        replies.join().unwrap();
        assert_free(&interface, &server);
    });
}

/// Whichever ends last gives the reply, and it is the device's error, unless the client has given up by then.
#[test]
fn a_transfer_that_fails_as_its_server_replies_and_its_client_gives_up_is_no_success() {
    explore(|| {
        let (server, keeper) = Keeper::deaf();
        let interface = narrow(FOR_EVER);
        let mut bytes = [7; 8];
        let request = interface.request(&server, SERVICE).input(In::copy(&mut bytes));
        let pending = request.submit().expect("it is admitted");
        let mut incoming = keeper.await_one();
        let transfers = [0..3, 3..8].map(|range| incoming.begin_transfer(0, range).expect("an input"));
        let ends = transfers.map(|transfer| {
            thread::spawn(move || {
                transfer.data().fill(1);
                let is_first = transfer.data().len() == 3;
                transfer.end(if is_first { Ok(()) } else { Err("damaged".into()) });
            })
        });
        let replies = thread::spawn(move || {
            incoming.set_actual(0, 8).expect("all of it");
            incoming.reply(Ok(()));
        });
        let error = pending.abort().map(drop).expect_err("it is no success").error;
        assert!(matches!(error, Error::Aborted | Error::Server(_)), "{error}");
        ends.into_iter().for_each(|end| end.join().unwrap());
        replies.join().unwrap();
        assert_eq!(bytes, [7; 8]);
        assert_free(&interface, &server);
    });
}

#[test]
fn a_reply_to_a_client_that_departs_lets_everything_go() {
    explore(|| {
        let (server, keeper) = Keeper::open();
        let interface = narrow(FOR_EVER);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let replies = thread::spawn({
            let keeper = Arc::clone(&keeper);
            move || assert!(keeper.reply(), "nobody aborts it")
        });
        drop(pending);
        replies.join().unwrap();
        assert_free(&interface, &server);
    });
}

#[test]
fn a_timeout_and_a_reply_that_meet_leave_one_result_for_both_sides() {
    explore(|| {
        let (server, keeper) = Keeper::open();
        let interface = narrow(FOR_EVER);
        let submitted = interface.request(&server, SERVICE).timeout(Duration::ZERO).submit();
        let pending = submitted.expect("it is admitted");
        let replies = thread::spawn({
            let keeper = Arc::clone(&keeper);
            move || keeper.reply()
        });
        let came = pending.sync();
        assert_agreed(&came, replies.join().unwrap());
        assert_free(&interface, &server);
    });
}

#[test]
fn a_task_that_asks_while_the_reply_comes_is_woken() {
    explore(|| {
        let (server, keeper) = Keeper::open();
        let interface = narrow(FOR_EVER);
        let pending = interface.request(&server, SERVICE).submit().expect("it is admitted");
        let replies = thread::spawn(move || keeper.reply());
        shuttle::future::block_on(std::future::poll_fn(|context| pending.poll(context)));
        pending.sync().expect("the reply is there");
        assert!(replies.join().unwrap());
    });
}

#[test]
fn a_flush_ends_when_the_last_reply_can_be_seen() {
    explore(|| {
        let (server, keeper) = Keeper::open();
        let interface = interface(genie_io::Limits::default());
        let submit = || interface.request(&server, SERVICE).submit().expect("it is admitted");
        let pending = [submit(), submit()];
        let repliers = [(); 2].map(|()| {
            let keeper = Arc::clone(&keeper);
            thread::spawn(move || assert!(keeper.reply()))
        });
        let flushes = thread::spawn({
            let (interface, server) = (interface.clone(), server.clone());
            move || assert!(interface.flush(&server, FOR_EVER))
        });
        assert!(interface.flush(&server, FOR_EVER));
        assert!(pending.iter().all(genie_io::Pending::is_replied), "a flush promises that");
        flushes.join().unwrap();
        repliers.into_iter().for_each(|replier| replier.join().unwrap());
    });
}
