//! Clocks: the machine's, or one that a test sets.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use genie_sys::lock::Mutex;
use genie_sys::machine;

/// The kernel wakes a thread that sleeps up to this late; so the rest of a wait is spun.
pub(super) const SPIN: Duration = Duration::from_micros(100);

/// The time by which frames arrive. By default it is the machine's ([`machine::monotonic_time`]), which is the same for all processes.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<Stepped>>);

/// A clock that goes on when it is told to.
#[derive(Default)]
struct Stepped {
    now: Mutex<Duration>,
    wires: Mutex<Vec<Weak<dyn Timed>>>,
}

/// What has something to do at some time.
pub(super) trait Timed: Send + Sync {
    /// When it has something to do next.
    fn next_due(&self) -> Option<Duration>;

    /// Does what is due.
    fn deliver_due(&self);
}

impl Clock {
    /// A clock for tests, at 0, which goes on when it is told to. All that happens by it happens in the calls of senders, and of
    /// [`Clock::advance`].
    pub fn stepped() -> Self {
        Self(Some(Arc::default()))
    }

    /// The time.
    pub fn now(&self) -> Duration {
        self.0.as_ref().map_or_else(machine::monotonic_time, |stepped| *stepped.now.lock())
    }

    /// When the next frame arrives, at any of the wires that go by this clock; known of a stepped clock alone.
    pub fn next_due(&self) -> Option<Duration> {
        self.0.as_ref()?.next().map(|(due, _)| due)
    }

    /// Lets time go on. The frames of all wires arrive meanwhile, each at its time: one that a station sends when another arrives does, too.
    ///
    /// # Panics
    /// When it is the machine's time.
    pub fn advance(&self, by: Duration) {
        let stepped = self.0.as_ref().expect("the machine's time goes on by itself");
        let until = stepped.now.lock().saturating_add(by);
        while let Some((due, wire)) = stepped.next().filter(|(due, _)| *due <= until) {
            stepped.go_on(due);
            wire.deliver_due();
        }
        stepped.go_on(until);
    }

    /// Waits until then; a stepped clock goes on until then.
    pub(crate) fn wait_until(&self, then: Duration) {
        let left = then.saturating_sub(self.now());
        match &self.0 {
            Some(_) => self.advance(left),
            None => {
                std::thread::sleep(left.saturating_sub(SPIN));
                while self.now() < then {
                    std::hint::spin_loop();
                }
            }
        }
    }

    pub(super) fn is_stepped(&self) -> bool {
        self.0.is_some()
    }

    /// A wire goes by this clock from now on.
    pub(super) fn attach(&self, wire: &Arc<dyn Timed>) {
        if let Some(stepped) = &self.0 {
            stepped.wires.lock().push(Arc::downgrade(wire));
        }
    }
}

impl Stepped {
    /// The wire that has something to do first, and when; of several the one that was attached first.
    fn next(&self) -> Option<(Duration, Arc<dyn Timed>)> {
        let mut wires = self.wires.lock();
        wires.retain(|wire| wire.strong_count() > 0);
        let wires: Vec<_> = wires.iter().filter_map(Weak::upgrade).collect();
        wires.into_iter().filter_map(|wire| Some((wire.next_due()?, wire))).min_by_key(|(due, _)| *due)
    }

    fn go_on(&self, to: Duration) {
        let mut now = self.now.lock();
        *now = to.max(*now);
    }
}

impl fmt::Debug for Stepped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped").field("now", &self.now).finish_non_exhaustive()
    }
}
