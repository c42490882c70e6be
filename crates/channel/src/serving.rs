//! Serving: a server that clients can reach, from its start to its end.
//!
//! How: a server runs in threads of its own, or of the program's: the control thread, which attends to clients, and workers,
//! which take requests. Or the program drives it from an event loop.

use std::ops::BitAnd;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use genie_io::Error;

use super::directory::Claim;
use super::shared::Shared;
use super::wire::control::{Status, Traffic};
use super::worker::Worker;
use super::{control, signals};
use crate::primitive::spawn;

/// A server that other processes can reach as soon as it runs. Dropping it gives the name up.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
}

/// A server that runs in threads of its own; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    stopper: Stopper,
}

/// Stops a server, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Shared>);

impl Serving {
    pub(super) fn new(shared: Shared, claim: Arc<Claim>) -> Self {
        Self { shared: Arc::new(shared), claim }
    }

    /// The name under which clients find it.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// A handle that stops the server later, from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Serves until the server is stopped. This thread takes requests; if
    /// [`ServeOptions::threads`](super::ServeOptions::threads) asks for more threads, those are started, and the control
    /// thread always is.
    ///
    /// To end cleanly, call [`Stopper::stop`] from another thread, or see [`Serving::run_until_signal`]. A signal that ends the
    /// process leaves the socket behind; the next server of that name replaces it.
    ///
    /// # Errors
    /// No thread can be started, or the limit on descriptors. [`Error::Inherited`] in a child made by fork; if the server's
    /// code has forked, the child gets it when it returns from that code.
    pub fn run(self) -> Result<(), Error> {
        let Self { shared, claim } = self;
        let mut running = start(&shared, claim, 1)?;
        Worker::new(&shared, 0).run();
        running.finish();
        if shared.is_inherited() { Err(Error::Inherited) } else { Ok(()) }
    }

    /// The same until the process gets SIGINT or SIGTERM: then the server is stopped, its clients are told, and this returns. From
    /// then on these signals end the process, as they do by default, unless another server still waits for them here. A child that the
    /// server's code forks meanwhile does not end at them, unless it gives them back their default.
    ///
    /// # Errors
    /// As [`Serving::run`]; or the signals cannot be waited for.
    pub fn run_until_signal(self) -> Result<(), Error> {
        let (wait, mut signals) = signals::wait()?;
        let (handle, stopper, on_signal) = (signals.handle(), self.stopper(), Arc::clone(&wait));
        let waiting = spawn("genie-signals", move || {
            if signals.forever().next().is_some() {
                on_signal.end();
                stopper.stop();
            }
        });
        let waiting = waiting.inspect_err(|_| wait.end())?;
        let served = self.run();
        if matches!(served, Err(Error::Inherited)) {
            // The thread is the parent's, and so is the wait.
            return served;
        }
        wait.end();
        handle.close();
        waiting.join();
        served
    }

    /// Serves in threads of its own.
    ///
    /// # Errors
    /// No thread can be started, or the limit on descriptors; [`Error::Inherited`] in a child made by fork.
    pub fn start(self) -> Result<Running, Error> {
        let Self { shared, claim } = self;
        start(&shared, claim, 0)
    }
}

/// A server that the program drives itself, from an event loop of its own: it has no threads.
#[derive(Debug)]
pub struct Driven {
    control: control::Control,
    workers: Vec<Worker>,
    /// Keeps the name claimed.
    _claim: Arc<Claim>,
}

impl Serving {
    /// Serves whenever the program calls [`Driven::serve`].
    ///
    /// # Errors
    /// The limit on descriptors; [`Error::Inherited`] in a child made by fork.
    pub fn drive(self) -> Result<Driven, Error> {
        let Self { shared, claim } = self;
        if shared.is_inherited() {
            return Err(Error::Inherited);
        }
        let control = control::Control::new(&shared, &claim)?;
        let workers = (0..shared.options.attending()).map(|index| Worker::new(&shared, index)).collect();
        Ok(Driven { control, workers, _claim: claim })
    }
}

impl Driven {
    /// Serves the requests and clients that are there, without waiting; returns whether there was anything to serve.
    pub fn serve(&mut self) -> bool {
        if self.control.is_inherited() {
            return false;
        }
        self.workers.iter().for_each(|worker| worker.post().attended.lock().disarm());
        let mut served = self.control.shared().collect();
        if self.control.is_inherited() {
            return false;
        }
        self.control.attend(Duration::ZERO);
        served |= self.control.may_have_more();
        let poller = self.control.poller();
        for worker in &self.workers {
            // If a ring can't be watched, each call of `serve` looks at it all the same.
            let attended = worker.post().attended.lock();
            let round = worker.serve(attended, |consumer, is_new| {
                let _ = if is_new { poller.add(consumer, control::RING) } else { poller.remove(consumer) };
            });
            served |= round.is_some_and(|(_, served)| served);
        }
        served
    }

    /// Prepares for waiting by the descriptor; returns false when there is something to serve already. If the server has a completer
    /// without a descriptor that can be waited for, it returns false as long as a client has a request pending.
    pub fn arm(&mut self) -> bool {
        if self.control.is_inherited() {
            return true;
        }
        let is_silent = self.control.shared().arm_bell().is_none();
        if self.control.is_inherited() {
            return true;
        }
        let arm =
            |worker: &Worker| worker.arm(&mut worker.post().attended.lock(), genie_ring::Mode::Descriptor);
        let armed = self.workers.iter().map(arm);
        armed.fold(is_silent, BitAnd::bitand)
    }

    /// The descriptor to wait for: after [`Driven::arm`] it is readable when there is something for [`Driven::serve`] to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.control.poller().as_fd()
    }
}

/// Starts the control thread, and the workers from `first` on.
fn start(shared: &Arc<Shared>, claim: Arc<Claim>, first: usize) -> Result<Running, Error> {
    if shared.is_inherited() {
        return Err(Error::Inherited);
    }
    let running = Running { stopper: Stopper(Arc::clone(shared)) };
    shared.relieve();
    let control = control::Control::new(shared, &claim)?;
    shared.start_thread("genie-control", move || control.run())?;
    (first..shared.options.attending()).try_for_each(|index| Worker::start(shared, index))?;
    Ok(running)
}

impl Running {
    /// A handle that stops the server, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The server's status.
    pub fn status(&self) -> Status {
        self.stopper.0.status().0
    }

    /// What was passed for the clients that are there now, in the order of [`Running::status`], and for those that have left.
    pub fn traffic(&self) -> Traffic {
        self.stopper.0.status().1
    }

    /// Waits until the server has stopped.
    pub fn wait(mut self) {
        self.join();
    }

    fn finish(&mut self) {
        self.stopper.stop();
        self.join();
    }

    fn join(&mut self) {
        if self.stopper.0.is_inherited() {
            // The threads are the parent's alone.
            return;
        }
        let next = || self.stopper.0.threads.lock().pop();
        let mut is_inside = false;
        while let Some(thread) = next() {
            // The server's code may drop this in one of these threads, which then ends by itself.
            if thread.is_current() {
                is_inside = true;
            } else {
                thread.join();
            }
        }
        // Clients that were given to workers that had left already.
        if !is_inside {
            self.stopper.0.posts.iter().for_each(|post| drop(post.take_all()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Stopper {
    /// Stops the server: its clients see it hang up, and the name is free again as soon as the thread that attends to clients has
    /// ended.
    pub fn stop(&self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use crate::directory::Directory;
    use crate::primitive::{Mutex, Ordering};
    use crate::{Listener, ServeOptions, connect};
    use genie_io::servers::memory::Memory;

    #[test]
    fn a_server_that_loses_a_thread_stops() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::at(folder.path()).unwrap();
        let listener = Listener::claim_in(&directory, "one", ServeOptions::default()).unwrap();
        let running = listener.serve(Memory::customized()).and_then(Serving::start).unwrap();
        running.stopper.0.start_thread("genie-test", || panic!("this panic is part of the test")).unwrap();
        running.wait();
        Listener::claim_in(&directory, "one", ServeOptions::default()).unwrap();
    }

    /// Each message made the control thread compare calls once more, and take a short one that it saw twice for a long one.
    #[test]
    fn messages_do_not_make_short_calls_look_long() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::at(folder.path()).unwrap();
        let listener = Listener::claim_in(&directory, "one", ServeOptions::default()).unwrap();
        let running = listener.serve(Memory::customized()).and_then(Serving::start).unwrap();
        let looks = || running.stopper.0.looks.load(Ordering::Relaxed);
        let (start, before) = (Instant::now(), looks());
        for _ in 0..200 {
            let asked = connect::query(&directory, "one").unwrap();
            connect::hear_status(&asked, "one", Duration::from_secs(60)).unwrap();
        }
        let (looks, most) = (looks() - before, 2 + start.elapsed().as_millis() / 2);
        assert!(u128::from(looks) <= most, "{looks} looks, and time for {most}");
    }

    /// Until the `Running` was dropped, the name stayed taken, and clients that connected waited for seconds.
    #[test]
    fn a_name_is_free_when_its_server_has_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::at(folder.path()).unwrap();
        let claim = || Listener::claim_in(&directory, "one", ServeOptions::default());
        let running = claim().unwrap().serve(Memory::customized()).and_then(Serving::start).unwrap();
        running.stopper().stop();
        let deadline = Instant::now() + Duration::from_secs(60);
        while claim().is_err() {
            assert!(Instant::now() < deadline, "the name is still taken");
            std::thread::yield_now();
        }
        drop(running);
    }

    /// When a server's code stopped its own server by dropping the `Running`, its thread waited for itself, and panicked.
    #[test]
    fn a_server_may_be_dropped_in_one_of_its_threads() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::at(folder.path()).unwrap();
        let listener = Listener::claim_in(&directory, "one", ServeOptions::default()).unwrap();
        let running = listener.serve(Memory::customized()).and_then(Serving::start).unwrap();
        let held = Arc::new(Mutex::new(None));
        let (theirs, (dropped, drops)) = (Arc::clone(&held), mpsc::channel());
        let drop_it = move || {
            while theirs.lock().take().map(drop::<Running>).is_none() {
                std::thread::yield_now();
            }
            dropped.send(()).unwrap();
        };
        running.stopper.0.start_thread("genie-test", drop_it).unwrap();
        *held.lock() = Some(running);
        drops.recv_timeout(Duration::from_secs(60)).expect("the thread goes on");
        Listener::claim_in(&directory, "one", ServeOptions::default()).unwrap();
    }
}
