//! Batches: servers that sleep are woken once for several requests, and never too late for a thread that waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::Duration;

use genie_channel::{Driven, Layout, ServeOptions};
use genie_io::servers::memory::NULL;
use genie_io::{Batch, Error, Interface, Pending, ServerHandle};
use genie_sys::poll::readable;

use super::fixture::{FOR_EVER, Fixture, assert_idle, interface, memory, options};

/// A server that serves only when it is driven, and a client of it.
struct Pair {
    driven: Driven,
    interface: Interface,
    server: ServerHandle,
    _fixture: Fixture,
}

impl Pair {
    fn new(rings: Layout) -> Self {
        let fixture = Fixture::new();
        let interface = interface();
        let options = ServeOptions { rings, ..options() };
        let mut driven = fixture.bind("driven", memory(), options).drive().unwrap();
        let server = fixture.connect(&interface, "driven");
        // From now on the server knows the client.
        let pending = interface.request(&server, NULL).submit().unwrap();
        assert!(driven.attend(FOR_EVER).unwrap());
        pending.sync().unwrap();
        Self { driven, interface, server, _fixture: fixture }
    }

    /// Has the server wait by its descriptor.
    fn sleep(&mut self) {
        while !self.driven.arm() {
            self.driven.attend(Duration::ZERO).unwrap();
        }
        assert!(!self.is_woken(), "nothing has been asked");
    }

    /// The same, when it has served what is there.
    fn sleep_again(&mut self) {
        while self.driven.attend(Duration::ZERO).unwrap() {}
        self.sleep();
    }

    fn is_woken(&self) -> bool {
        readable(self.driven.descriptor(), Some(Duration::ZERO)).unwrap()
    }

    fn submit(&self, batch: &mut Batch) -> Result<Pending<'static>, Error> {
        let request = self.interface.request(&self.server, NULL).batched(batch);
        request.submit().map_err(|failed| failed.error)
    }

    /// Serves what was asked, and takes the replies.
    fn finish(mut self, pending: Vec<Pending<'_>>) {
        for pending in pending {
            // Arming it sends replies that had no room.
            while !pending.is_replied() {
                let _ = self.driven.arm();
                self.driven.attend(Duration::ZERO).unwrap();
            }
            pending.sync().unwrap();
        }
        assert_idle(&self.interface);
    }
}

#[test]
fn a_batch_wakes_its_server_when_it_ends_and_not_before() {
    let mut pair = Pair::new(Layout::default());
    pair.sleep();
    let mut batch = pair.interface.batch();
    let pending = (0..3).map(|_| pair.submit(&mut batch).unwrap()).collect();
    assert!(!pair.is_woken(), "the batch goes on");
    drop(batch);
    assert!(pair.is_woken());
    pair.finish(pending);
}

#[test]
fn a_server_that_is_awake_finds_a_batchs_requests_before_it_ends() {
    let mut pair = Pair::new(Layout::default());
    let mut batch = pair.interface.batch();
    let pending = pair.submit(&mut batch).unwrap();
    while !pair.driven.attend(Duration::ZERO).unwrap() {}
    assert!(pending.is_replied());
    drop(batch);
    pair.finish(vec![pending]);
}

#[test]
fn a_long_batch_wakes_its_server_after_so_many_requests() {
    let mut pair = Pair::new(Layout::default());
    pair.sleep();
    let mut batch = pair.interface.batch();
    let mut pending = Vec::new();
    for number in 1..=Batch::MOST {
        pending.push(pair.submit(&mut batch).unwrap());
        assert_eq!(pair.is_woken(), number == Batch::MOST, "after {number} requests");
    }
    pair.sleep_again();
    pending.push(pair.submit(&mut batch).unwrap());
    assert!(!pair.is_woken(), "the next batch goes on");
    batch.publish();
    assert!(pair.is_woken());
    pair.finish(pending);
}

/// Otherwise the thread would wait for a server that sleeps.
#[test]
fn a_thread_that_looks_for_a_reply_has_its_server_told_though_the_batch_goes_on() {
    let mut pair = Pair::new(Layout::default());
    let looks: [fn(&Interface, &Pending<'_>) -> bool; 5] = [
        |_, pending| pending.is_replied(),
        |_, pending| pending.poll(&mut Context::from_waker(Waker::noop())).is_ready(),
        |_, pending| pending.wait(Duration::from_millis(1)),
        |interface, _| interface.collect() > 0,
        |interface, _| {
            let _ = interface.arm();
            false
        },
    ];
    pair.interface.descriptor().unwrap();
    for (number, look) in looks.into_iter().enumerate() {
        pair.sleep_again();
        let mut batch = pair.interface.batch();
        let pending = pair.submit(&mut batch).unwrap();
        // No thread is told that the batch ends.
        std::mem::forget(batch);
        assert!(!pair.is_woken(), "look {number}");
        assert!(!look(&pair.interface, &pending), "look {number}: there is no reply yet");
        assert!(pair.is_woken(), "look {number}");
        while pair.driven.attend(Duration::ZERO).unwrap() {}
        pending.sync().unwrap();
    }
    pair.finish(Vec::new());
}

#[test]
fn a_batch_whose_thread_panics_is_under_way() {
    let mut pair = Pair::new(Layout::default());
    pair.sleep();
    let mut pending = Vec::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut batch = pair.interface.batch();
        pending.push(pair.submit(&mut batch).unwrap());
        std::panic::resume_unwind(Box::new("in the middle"));
    }));
    assert!(panicked.is_err());
    assert!(pair.is_woken());
    pair.finish(pending);
}

#[test]
fn where_the_ring_is_full_the_requests_before_are_under_way_and_the_batch_goes_on() {
    let mut pair = Pair::new(Layout { lines: 4, area: 512 });
    pair.sleep();
    let mut batch = pair.interface.batch();
    let mut pending = Vec::new();
    let refused = loop {
        match pair.submit(&mut batch) {
            Ok(submitted) => pending.push(submitted),
            Err(refused) => break refused,
        }
    };
    assert!(refused.is_congestion(), "{refused}");
    assert_eq!(pending.len(), 4, "one for each line");
    assert!(pair.is_woken());
    pair.sleep_again();
    pending.push(pair.submit(&mut batch).unwrap());
    assert!(!pair.is_woken());
    drop(batch);
    assert!(pair.is_woken());
    pair.finish(pending);
}

#[test]
fn one_batch_serves_several_servers_in_this_process_and_in_others() {
    let [mut one, mut two] = [(); 2].map(|()| Pair::new(Layout::default()));
    let here = ServerHandle::new(memory());
    [&mut one, &mut two].into_iter().for_each(Pair::sleep);
    let mut batch = one.interface.batch();
    let (first, second) = (one.submit(&mut batch).unwrap(), two.submit(&mut batch).unwrap());
    let third = one.interface.request(&here, NULL).batched(&mut batch).submit().unwrap();
    assert!(third.is_replied(), "a server in this process works at once");
    third.sync().unwrap();
    assert!(!one.is_woken() && !two.is_woken());
    drop(batch);
    assert!(one.is_woken() && two.is_woken());
    one.finish(vec![first]);
    two.finish(vec![second]);
}
