//! The fault handler: the thread that reads the userfaultfd.
//!
//! Why a thread and not a signal handler: only a userfaultfd with a handler catches the kernel's own stores (a `read`
//! into a protected buffer), and a handler may take locks.
//! How: it sleeps in poll until a thread stores into a protected granule; `tcow` then does what is needed.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::thread::{Thread, spawn};
use genie_sys::userfault::Wait;

use crate::Result;
use crate::registrars::quiet;
use crate::space::core::Core;

/// How long the fault handler waits before it tries again to get what a waiting store needs. That is a resource of the
/// process or the machine, so nothing in the space can tell when it is there.
const RETRY: Duration = Duration::from_millis(10);

/// A running fault thread; it ends when this is dropped.
pub(crate) struct Handler {
    maker: Maker,
    stop: Arc<Event>,
    thread: Option<Thread>,
}

impl Handler {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self> {
        let stop = Arc::new(Event::new()?);
        let (core, signal) = (Arc::clone(core), Arc::clone(&stop));
        let thread = spawn("genie-faults", move || serve(&core, &signal))?;
        Ok(Self { maker: Maker::this_process(), stop, thread: Some(thread) })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // A child shares the signal with its parent, and the thread exists in the parent alone.
        if self.maker.is_this_process() {
            // Signalling fails only for a descriptor that is closed; then the thread has ended.
            let _ = self.stop.signal();
            self.thread.take().into_iter().for_each(Thread::join);
        }
    }
}

fn serve(core: &Core, stop: &Event) {
    let Some(userfault) = &core.userfault else { return };
    // This thread's own memory must not be in a window: nobody else handles its faults.
    #[cfg(feature = "allocator")]
    let _inside = crate::allocator::Inside::enter();
    let _quiet = quiet();
    let mut faults = Vec::with_capacity(16);
    let mut tried = Instant::now();
    loop {
        let retry = core.has_waiters();
        if retry && tried.elapsed() >= RETRY {
            core.retry_waiters();
            tried = Instant::now();
        }
        match userfault.wait(stop.as_fd(), retry.then_some(RETRY), &mut faults) {
            Ok(Wait::Faults) => faults.drain(..).for_each(|fault| core.store_faulted(fault.addr)),
            Ok(Wait::TimedOut) => {}
            Ok(Wait::Stopped) => return,
            Err(error) => {
                // Every later store into protected memory would hang for ever; better to die and say why.
                eprintln!("genie: the fault thread cannot go on: {error}");
                std::process::abort();
            }
        }
    }
}
