//! Serving: a server that clients can reach, from its start to its end.
//!
//! How: a thread of the server's own, the control thread, attends to clients. Workers, which take requests, are threads of its own,
//! or one of them is the thread that calls [`Serving::run`]. Or the program drives the server (`driven.rs`), and there are no workers.

use std::sync::Arc;

use genie_io::Error;
use genie_sys::poll::Poller;

use super::directory::Claim;
use super::driven::Driven;
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

    /// Serves requests in the program's thread, whenever that calls [`Driven::attend`]. From now on a thread of the server's own lets
    /// clients in, answers what they ask about the server, and notices when they go.
    ///
    /// # Errors
    /// No thread can be started, or the limit on descriptors; [`Error::Inherited`] in a child made by fork.
    pub fn drive(self) -> Result<Driven, Error> {
        let Self { shared, claim } = self;
        Driven::new(shared, claim)
    }
}

/// Starts the control thread, and the workers from `first` on.
fn start(shared: &Arc<Shared>, claim: Arc<Claim>, first: usize) -> Result<Running, Error> {
    shared.relieve();
    let running = start_control(shared, claim, None)?;
    (first..shared.options.attending()).try_for_each(|index| Worker::start(shared, index))?;
    Ok(running)
}

/// Starts the control thread. `driven` is what a program waits by that drives the server.
pub(super) fn start_control(
    shared: &Arc<Shared>,
    claim: Arc<Claim>,
    driven: Option<Arc<Poller>>,
) -> Result<Running, Error> {
    if shared.is_inherited() {
        return Err(Error::Inherited);
    }
    let running = Running { stopper: Stopper(Arc::clone(shared)) };
    let control = control::Control::new(shared, &claim, driven)?;
    shared.start_thread("genie-control", move || control.run())?;
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
    use std::time::{Duration, Instant};

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
