//! The atomics, fences and ways to sleep that the rings are built of: the machine's, or loom's model of them.
//!
//! Why: loom explores interleavings only of accesses through its own types. With `--cfg loom` this module names these
//! types, and nothing else in the crate changes.

#[cfg(not(loom))]
pub(crate) use machine::{AtomicU32, AtomicU64, Event, Ordering, Word, fence};
#[cfg(loom)]
pub use model::Event;
#[cfg(loom)]
pub(crate) use model::{AtomicU32, AtomicU64, Ordering, Word, fence};

#[cfg(not(loom))]
mod machine {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) use genie_sys::event::Event;
    use genie_sys::futex::Wait;

    /// A word that one side sleeps on.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Word(pub(crate) AtomicU32);

    impl Word {
        pub(crate) fn new() -> Self {
            Self(AtomicU32::new(0))
        }

        pub(crate) fn wait(
            &self,
            expected: u32,
            timeout: Option<std::time::Duration>,
        ) -> genie_sys::Result<Wait> {
            genie_sys::futex::wait(&self.0, expected, timeout)
        }

        pub(crate) fn wake(&self) {
            // This fails only where the word is not mapped, but it is mapped as long as it is borrowed.
            let _ = genie_sys::futex::wake(&self.0, 1);
        }
    }
}

#[cfg(loom)]
mod model {
    use genie_sys::futex::Wait;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// A word that one side sleeps on. A sleeper that nobody wakes is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Word(pub(crate) AtomicU32, loom::sync::Notify);

    impl Word {
        pub(crate) fn new() -> Self {
            Self(AtomicU32::new(0), loom::sync::Notify::new())
        }

        pub(crate) fn wait(
            &self,
            expected: u32,
            _timeout: Option<std::time::Duration>,
        ) -> genie_sys::Result<Wait> {
            if self.0.load(Ordering::SeqCst) != expected {
                return Ok(Wait::Changed);
            }
            self.1.wait();
            Ok(Wait::Woken)
        }

        pub(crate) fn wake(&self) {
            self.1.notify();
        }
    }

    /// Stands for an event descriptor: signalled until cleared.
    #[derive(Debug)]
    pub struct Event {
        signalled: AtomicU32,
        sleeper: loom::sync::Notify,
    }

    impl Event {
        /// An event that is not signalled.
        pub fn new() -> Self {
            Self { signalled: AtomicU32::new(0), sleeper: loom::sync::Notify::new() }
        }

        pub(crate) fn signal(&self) -> genie_sys::Result<()> {
            self.signalled.swap(1, Ordering::AcqRel);
            self.sleeper.notify();
            Ok(())
        }

        pub(crate) fn clear(&self) -> genie_sys::Result<()> {
            self.signalled.swap(0, Ordering::AcqRel);
            Ok(())
        }

        /// Sleeps until the event is signalled, as `poll` would.
        pub fn wait(&self) {
            while self.signalled.swap(0, Ordering::AcqRel) == 0 {
                self.sleeper.wait();
            }
            self.signalled.swap(1, Ordering::AcqRel);
        }
    }
}
