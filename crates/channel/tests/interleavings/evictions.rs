//! A request is aborted while its server forwards it.

use std::sync::Arc;

use genie_io::{Error, In, Limits, Out};
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::scene::{FOR_EVER, Keeper, SERVICE, explore, forward, interface};

#[test]
fn what_a_request_originates_while_it_is_aborted_is_aborted_before_it_or_refused() {
    explore(|| {
        let (leaf, kept) = Keeper::open();
        let (contractor, contracted) = Keeper::deaf();
        let client = interface(Limits { abort_timeout: FOR_EVER, ..Limits::default() });
        let pending = client.request(&contractor, SERVICE).out(Out::copy(b"forwarded")).submit();
        let pending = pending.expect("it is admitted");
        let passes = thread::spawn({
            let contracted = Arc::clone(&contracted);
            move || forward(contracted.await_one(), &leaf)
        });
        // The leaf never replies: if what was originated were not aborted, no thread would go on.
        let failed = pending.abort().expect_err("nobody has served it");
        assert!(matches!(failed.error, Error::Aborted), "{}", failed.error);
        assert!(!passes.join().unwrap());
        assert!(kept.is_empty(), "what was originated is let go");
    });
}

#[test]
fn an_eviction_that_meets_the_subcontractors_reply_leaves_one_result_for_all() {
    explore(|| {
        let (leaf, kept) = Keeper::open();
        let (contractor, contracted) = Keeper::deaf();
        let client = interface(Limits { abort_timeout: FOR_EVER, ..Limits::default() });
        let mut input = [0; 4];
        let request =
            client.request(&contractor, SERVICE).out(Out::copy(b"forwarded")).input(In::copy(&mut input));
        let pending = request.submit().expect("it is admitted");
        let passes = thread::spawn(move || forward(contracted.await_one(), &leaf));
        let replies = thread::spawn({
            let kept = Arc::clone(&kept);
            move || kept.reply()
        });
        let came = pending.abort();
        let (is_passed, is_replied) = (passes.join().unwrap(), replies.join().unwrap());
        // A reply of success counts, also where it is that of a request that was to be aborted.
        assert_eq!(is_passed, is_replied, "the contractor hears what the leaf did");
        assert_eq!(came.is_ok(), is_passed, "the client hears what the contractor did");
        assert!(kept.is_empty());
    });
}

/// The second thread once found the list of what was originated taken, and asked the contractor before its subcontractor.
#[test]
fn two_threads_that_abort_a_request_have_each_server_asked_once_and_the_contractor_last() {
    explore(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (leaf, kept) = Keeper::noting("leaf", &order);
        let (contractor, contracted) = Keeper::noting("contractor", &order);
        let client = interface(Limits { abort_timeout: FOR_EVER, ..Limits::default() });
        let pending = client.request(&contractor, SERVICE).out(Out::copy(b"forwarded")).submit();
        let pending = Arc::new(pending.expect("it is admitted"));
        let fragment = contracted.fragment();
        let forwarded = client.request(&leaf, SERVICE).out(Out::fragment(fragment)).submit();
        let forwarded = forwarded.expect("it is admitted");
        // The contractor's reply takes effect when this has been taken.
        let takes = thread::spawn(move || forwarded.sync().is_err());
        let aborts = [0, 1].map(|_| {
            let pending = Arc::clone(&pending);
            thread::spawn(move || pending.give_up())
        });
        aborts.into_iter().for_each(|abort| abort.join().unwrap());
        assert_eq!(*order.lock().unwrap(), ["leaf", "contractor"]);
        assert!(takes.join().unwrap());
        assert!(kept.is_empty() && contracted.is_empty());
    });
}
