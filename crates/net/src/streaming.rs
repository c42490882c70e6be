//! In-path streaming: data goes from one driver to another without a thread of the application's.
//!
//! Why: a program that only moves packets from one driver to another pays for two more copies and a wake-up for each, and adds its own
//! scheduling to their delay.
//! How: each driver is an [`End`]. A [`Flow`] takes packets from one end and puts them into another. Control is apart from data: flows are
//! connected, started, stopped and asked by calls, and data is seen by a callback in the path ([`Tap`]). Two threads do all the work:
//!
//! ```text
//!   synchronous    source --- the reaper: one copy -----------------------------> sink
//!   asynchronous   source --- the reaper: a copy --> queue --- the scheduler: a copy --> sink
//! ```
//!
//! Each turn of a flow moves at most its quantum; then the flows of higher priority are looked at again, and those of its own first. So a flow
//! waits for at most one quantum of another one of lower priority. A thread that finds nothing spins for a while, and then sleeps in `poll` on
//! the descriptors of those flows alone that can go on.
//! Invariants: an end is the source of at most one flow. A packet that was taken from a source goes to the sink, waits in the flow's queue, or
//! is counted as dropped. A flow that holds takes nothing for which it has no room.
//! Trust: packets are anybody's. A tap or a driver that panics ends its flow, and so does a failing end; other flows go on.
//! Limits: a packet that the sink never takes, since it is too long, is dropped and counted. Checksums that a sender's kernel has left to a
//! device stay undone. Threads sleep by `poll`, not epoll, since what is waited for changes with each sleep, and files are allowed.
//! Source: Murphy, Zeadally, Adams, *An Analysis of Process and Memory Models* (USENIX 1996), "Context-Switch Avoidance" (kproc). Differs: the
//! interrupt handler is a thread that polls; the discipline is not first come, first served.

mod alarm;
mod descriptor;
mod end;
mod error;
mod how;
mod lane;
mod path;
mod tray;

use std::sync::Arc;
use std::time::Duration;

use genie_sys::fork::Maker;

use lane::Lane;
use path::{Path, Role};

pub use end::End;
pub use error::Error;
pub use how::{How, Statistics, Style, Tap, WhenFull};
pub use tray::Tray;

/// Threads that have flows. Clones are handles of the same threads, which end with the last handle and the last flow.
#[derive(Debug, Clone)]
pub struct Streaming(Arc<Lanes>);

#[derive(Debug)]
struct Lanes {
    reaper: Arc<Lane>,
    scheduler: Arc<Lane>,
    maker: Maker,
}

/// A flow of packets. Dropping it stops it for good, with what waits in its queue.
#[derive(Debug)]
pub struct Flow {
    path: Arc<Path>,
    lanes: Arc<Lanes>,
}

impl Streaming {
    /// Threads that look for `spin` before they sleep; they are started with the first flow that needs them.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(spin: Duration) -> Result<Self, Error> {
        let lane = |role| Lane::new(role, spin).map(Arc::new).map_err(|error| Error::Thread(error.errno));
        let (reaper, scheduler) = (lane(Role::Reaper)?, lane(Role::Scheduler)?);
        Ok(Self(Arc::new(Lanes { reaper, scheduler, maker: Maker::this_process() })))
    }

    /// A flow from one end to another, which is not started yet. Each packet is shown to the tap, if there is one.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::Thread`], [`Error::Child`].
    pub fn connect(&self, from: &End, to: &End, how: How, tap: Option<Tap>) -> Result<Flow, Error> {
        let lanes = &self.0;
        lanes.ensure_own()?;
        let path = Path::new([from, to], how, tap, [lanes.reaper.alarm(), lanes.scheduler.alarm()])?;
        let flow = Flow { path: Arc::new(path), lanes: Arc::clone(lanes) };
        lanes.reaper.add(&flow.path)?;
        if flow.path.style() == Style::Asynchronous {
            lanes.scheduler.add(&flow.path)?;
        }
        Ok(flow)
    }
}

impl Flow {
    /// Has packets flow from now on, those first that wait in the queue.
    ///
    /// # Errors
    /// The flow has failed, as this says; [`Error::Child`].
    pub fn start(&self) -> Result<(), Error> {
        self.lanes.ensure_own()?;
        self.path.start()
    }

    /// Has nothing flow from now on: when this returns, no packet is on its way, but for those in the queue. In a tap it does not wait.
    ///
    /// # Errors
    /// As [`Flow::start`].
    pub fn stop(&self) -> Result<(), Error> {
        self.lanes.ensure_own()?;
        self.path.stop()
    }

    /// What it has done so far, up to its latest turn.
    pub fn statistics(&self) -> Statistics {
        self.path.statistics(self.lanes.maker)
    }

    /// Waits until the flow is over, for at most `timeout`; returns whether it is. It is over without an error when its source has ended,
    /// and all is in its sink.
    ///
    /// # Errors
    /// Why the flow has failed; [`Error::Child`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        self.lanes.ensure_own()?;
        self.path.wait(timeout)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if self.lanes.ensure_own().is_ok() {
            self.path.close();
            self.lanes.reaper.remove(&self.path);
            self.lanes.scheduler.remove(&self.path);
        }
    }
}

impl Lanes {
    fn ensure_own(&self) -> Result<(), Error> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Error::Child) }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        if self.ensure_own().is_ok() {
            self.reaper.end();
            self.scheduler.end();
        }
    }
}
