//! A reply comes at the same time as something else that ends a request: an abort, a timeout, a client that gives up,
//! departs, flushes, or is told.

use std::sync::Arc;
use std::time::Duration;

use genie_io::Error;
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
