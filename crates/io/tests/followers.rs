//! The threads that follow a channel's leader, in every order of threads and of memory accesses that loom can tell apart.
//!
//!     RUSTFLAGS="--cfg interleaved" CARGO_TARGET_DIR=target/interleaved cargo test -p genie-io --release --test followers
//!
//! How: this compiles the files under test once more, with loom's locks and atomics. loom's waits have no timeouts, so a
//! thread that is not woken is a deadlock, which loom reports. The value for which threads wait is stored and loaded without
//! any order of its own: `Followers` promises that a woken thread sees it.
#![cfg(interleaved)]

#[path = "../../sys/src/condvar.rs"]
#[allow(unreachable_pub, dead_code, reason = "followers use a part of what condition variables can do")]
mod condvar;

/// What the files under test take from the crate.
mod primitive {
    pub(crate) use crate::condvar::Condvar;
    pub(crate) use crate::raw::{AtomicU32, Ordering};

    /// A lock of loom's, which is not made at compile time, as `genie_sys::lock::Mutex` can be.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no thread panics")
        }
    }
}

mod raw {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{Condvar, MutexGuard};
}

#[path = "../src/followers.rs"]
#[allow(unreachable_pub, reason = "the file is a public part of `genie_io::carrier`")]
mod followers;

use std::sync::Arc;

use followers::Followers;
use loom::sync::atomic::AtomicBool;
use primitive::Ordering::Relaxed;

/// Followers, and what they wait for.
struct Scene {
    followers: Followers,
    is_over: AtomicBool,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self { followers: Followers::default(), is_over: AtomicBool::new(false) })
    }

    fn sleep(&self) {
        while !self.is_over.load(Relaxed) {
            self.followers.sleep(|| self.is_over.load(Relaxed), None);
        }
    }

    fn end(&self) -> bool {
        self.is_over.store(true, Relaxed);
        self.followers.wake()
    }
}

fn explore(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_thread_that_sleeps_when_followers_are_woken_is_woken_or_has_seen_why() {
    explore(|| {
        let scene = Scene::new();
        let sleepers = [(); 2].map(|()| {
            let scene = Arc::clone(&scene);
            loom::thread::spawn(move || scene.sleep())
        });
        assert!(!scene.end(), "nobody watches");
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

#[test]
fn a_loop_that_watches_is_told_or_has_seen_why() {
    explore(|| {
        let scene = Scene::new();
        let watches = loom::thread::spawn({
            let scene = Arc::clone(&scene);
            move || {
                scene.followers.watch();
                scene.is_over.load(Relaxed)
            }
        });
        let is_told = scene.end();
        assert!(watches.join().unwrap() || is_told, "a watcher saw nothing, and is not told");
    });
}
