//! Clocks: the machine's, by which frames arrive by themselves or when somebody looks, or one that a test sets.

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

/// A clock by which frames arrive when it is told to have them arrive.
#[derive(Default)]
struct Stepped {
    /// The time, where it goes on when it is told to; none where it is the machine's.
    now: Option<Mutex<Duration>>,
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
        Self(Some(Arc::new(Stepped { now: Some(Mutex::default()), ..Stepped::default() })))
    }

    /// The machine's time, for a program that looks at the wires itself, and has no other thread do so: frames that are late arrive in its
    /// calls of [`Clock::poll`].
    pub fn polled() -> Self {
        Self(Some(Arc::default()))
    }

    /// The time.
    pub fn now(&self) -> Duration {
        self.own().map_or_else(machine::monotonic_time, |now| *now.lock())
    }

    /// When the next frame arrives, at any of the wires that go by this clock; not known where they arrive by themselves.
    pub fn next_due(&self) -> Option<Duration> {
        self.0.as_ref()?.next().map(|(due, _)| due)
    }

    /// Lets time go on. The frames of all wires arrive meanwhile, each at its time: one that a station sends when another arrives does, too.
    ///
    /// # Panics
    /// When it is the machine's time.
    pub fn advance(&self, by: Duration) {
        let now = self.own().expect("the machine's time goes on by itself");
        let until = now.lock().saturating_add(by);
        self.deliver(until);
        go_on(now, until);
    }

    /// Has the frames arrive that are due.
    pub fn poll(&self) {
        self.deliver(self.now());
    }

    fn deliver(&self, until: Duration) {
        let next = || self.0.as_ref()?.next().filter(|(due, _)| *due <= until);
        while let Some((due, wire)) = next() {
            self.own().into_iter().for_each(|now| go_on(now, due));
            wire.deliver_due();
        }
    }

    /// The time, where it goes on when it is told to.
    fn own(&self) -> Option<&Mutex<Duration>> {
        self.0.as_ref()?.now.as_ref()
    }

    /// Waits until then; a stepped clock goes on until then.
    pub(crate) fn wait_until(&self, then: Duration) {
        let left = then.saturating_sub(self.now());
        match self.own() {
            Some(_) => self.advance(left),
            None => {
                std::thread::sleep(left.saturating_sub(SPIN));
                while self.now() < then {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// Whether frames that are late arrive in its calls alone.
    pub(super) fn is_called(&self) -> bool {
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
}

fn go_on(now: &Mutex<Duration>, to: Duration) {
    let mut now = now.lock();
    *now = to.max(*now);
}

impl fmt::Debug for Stepped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped").field("now", &self.now).finish_non_exhaustive()
    }
}
