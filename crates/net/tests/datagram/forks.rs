//! Handles that a child made by fork inherits.

use std::sync::{Arc, Barrier};

use genie_net::adapter::{self, Dropped, Support};
use genie_net::datagram::{Counters, Datagrams};
use genie_net::transfer::{Receiving, Shape, Totals, Transfers};
use genie_net::wire::Station;
use genie_net::{Adapter, Frame, Received};

use crate::child::{ExitOutcome, fork_child};
use crate::hosts::{open, options};

/// An adapter that is inside, under its server's lock, from one meeting to the next.
struct Slow(Arc<Barrier>);

impl Adapter for Slow {
    fn support(&self) -> Support {
        Support::Pooled
    }

    fn arrive(&mut self, _frame: &Frame<'_>) -> Result<Received, Dropped> {
        self.0.wait();
        self.0.wait();
        Err(Dropped::NoBuffers)
    }

    fn counters(&self) -> adapter::Counters {
        adapter::Counters { packets: 1, ..adapter::Counters::default() }
    }
}

#[test]
#[allow(unsafe_code, reason = "forks beside a thread that has a lock, which is what is tested")]
fn counters_are_had_in_a_child_whatever_the_threads_were_at() {
    let inside = Arc::new(Barrier::new(2));
    let server = Datagrams::new(open(), Box::new(Slow(Arc::clone(&inside))), options(0));
    let station = server.station();
    let thread = std::thread::spawn(move || station.arrive(&Frame::new([0; 64][..].into())));
    inside.wait();
    let seen = || {
        // SAFETY: a child that hangs is killed.
        unsafe { libc::alarm(20) };
        u8::from(server.adapter().packets != 0 || server.counters() != Counters::default())
    };
    // SAFETY: the child makes loads and a system call, and waits for no lock.
    let child = unsafe { fork_child(seen) }.expect("a child");
    assert_eq!(child.wait().expect("it ends"), ExitOutcome::Code(0));
    let arrives = || {
        // SAFETY: a child that hangs is killed.
        unsafe { libc::alarm(20) };
        server.station().arrive(&Frame::new([0; 64][..].into()));
        0
    };
    // SAFETY: the child waits for no lock.
    let child = unsafe { fork_child(arrives) }.expect("a child");
    assert_eq!(child.wait().expect("it ends"), ExitOutcome::Code(0), "a frame arrives in a child");
    inside.wait();
    thread.join().expect("the frame was dropped");
    // SAFETY: as above; no thread is inside now.
    let child = unsafe { fork_child(|| server.adapter().packets as u8) }.expect("a child");
    assert_eq!(child.wait().expect("it ends"), ExitOutcome::Code(1));
}

#[test]
#[allow(unsafe_code, reason = "forks beside a thread that has a lock, which is what is tested")]
fn packets_of_transfers_are_nothing_in_a_child() {
    let inside = Arc::new(Barrier::new(2));
    let receiving = Receiving::of(Shape::of(1000));
    let server = Transfers::new(open(), Box::new(Slow(Arc::clone(&inside))), receiving);
    let station = server.clone();
    let thread = std::thread::spawn(move || station.arrive(&Frame::new([0; 64][..].into())));
    inside.wait();
    let arrives = || {
        // SAFETY: a child that hangs is killed.
        unsafe { libc::alarm(20) };
        server.arrive(&Frame::new([0; 64][..].into()));
        u8::from(server.totals() != Totals::default())
    };
    // SAFETY: the child waits for no lock.
    let child = unsafe { fork_child(arrives) }.expect("a child");
    assert_eq!(child.wait().expect("it ends"), ExitOutcome::Code(0));
    inside.wait();
    thread.join().expect("the frame was dropped");
}
