//! Turns at one channel, in every order of threads and of their memory accesses that loom can tell apart.
//!
//!     RUSTFLAGS="--cfg interleaved" CARGO_TARGET_DIR=target/interleaved cargo test -p genie-io --release --test turns
//!
//! How: this compiles the file under test once more, with loom's locks and atomics. loom's waits have no timeouts, so that a
//! thread that is not woken is a deadlock, which loom reports. What is waited for is stored and loaded without any order of its
//! own: that the one who is told sees it is what turns promise.
#![cfg(interleaved)]

/// What the file under test takes from the crate.
mod primitive {
    pub(crate) use std::sync::atomic::Ordering;

    pub(crate) use loom::sync::atomic::AtomicU32;
    pub(crate) use loom::sync::{Condvar, Mutex};
}

#[path = "../src/channel/turn.rs"]
mod turn;

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use primitive::Ordering::Relaxed;
use turn::Turn;

/// A turn, and what is waited for.
struct Scene {
    turn: Turn,
    is_over: AtomicBool,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self { turn: Turn::default(), is_over: AtomicBool::new(false) })
    }

    fn sleep(&self) {
        while !self.is_over.load(Relaxed) {
            self.turn.sleep(|| self.is_over.load(Relaxed), None);
        }
    }

    fn end(&self) -> bool {
        self.is_over.store(true, Relaxed);
        self.turn.pass()
    }
}

fn explore(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn whoever_sleeps_when_the_turn_is_passed_is_woken_or_has_seen_why() {
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
fn whoever_watches_is_to_be_told_or_has_seen_why() {
    explore(|| {
        let scene = Scene::new();
        let watches = loom::thread::spawn({
            let scene = Arc::clone(&scene);
            move || {
                scene.turn.watch();
                scene.is_over.load(Relaxed)
            }
        });
        let is_told = scene.end();
        assert!(watches.join().unwrap() || is_told, "a watcher saw nothing, and is not told");
    });
}
