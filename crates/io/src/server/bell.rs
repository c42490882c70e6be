//! Bells: what ends the wait of a thread that looks for what a server has completed, when another thread replies.
//!
//! Why: such a thread waits by the completer's descriptor, which tells of what there is to collect. A reply that another thread gives,
//! say a continuation in a thread of its own, is nothing to collect.
//! How: a thread that is about to wait takes its server's bell with it ([`Bell::take_along`]), so that [`Completer::wait`](super::completer::Completer::wait)
//! finds it, and waits for the descriptor and for the bell. Every reply rings the bell, which costs a signal only while a thread waits.
//! Limits: a completer that waits in its own way does not hear the bell. Each server has one eventfd, made by the first wait; where the
//! process has no descriptors left, a wait lasts for [`MOMENT`].

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use genie_sys::event::Event;
use genie_sys::poll::{any_readable, readable};

use crate::primitive::{AtomicBool, Ordering, thread, thread_local};

/// How long a thread waits that nothing wakes.
pub(super) const MOMENT: Duration = Duration::from_millis(1);

thread_local! {
    /// The bell that this thread has taken along. There is none when the thread ends, and this needs no destructor.
    static TAKEN: ManuallyDrop<RefCell<Option<Arc<Bell>>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// What ends the wait at one server's completer.
#[derive(Debug, Default)]
pub(super) struct Bell {
    event: OnceLock<Event>,
    /// A thread is about to wait or waits, and nobody has rung since. Always exchanged: either the ringing thread sees that another one waits,
    /// or the waiting thread sees what was done before the bell was rung.
    is_awaited: AtomicBool,
}

impl Bell {
    /// Takes the bell along while `act` runs: from now on, a ring ends a [`wait`] in there.
    pub(super) fn take_along<T>(self: &Arc<Self>, act: impl FnOnce() -> T) -> T {
        self.is_awaited.swap(true, Ordering::AcqRel);
        let before = TAKEN.with(|taken| taken.replace(Some(Arc::clone(self))));
        let done = act();
        TAKEN.with(|taken| taken.replace(before));
        self.is_awaited.swap(false, Ordering::AcqRel);
        done
    }

    /// Ends the wait of the thread that has taken the bell along, if one has. That thread itself, which replies before it sleeps, needs no signal.
    pub(super) fn ring(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel)
            && !TAKEN.with(|taken| taken.borrow().as_deref().is_some_and(|bell| std::ptr::eq(bell, self)))
            && let Some(event) = self.event.get()
        {
            // Where the kernel has no memory for this, the wait ends by its time.
            let _ = event.signal();
        }
    }

    /// What is signalled; none if the process has no descriptors left.
    fn event(&self) -> Option<&Event> {
        self.event.get().or_else(|| Event::new().ok().map(|made| self.event.get_or_init(|| made)))
    }

    /// Whether nobody has rung since the bell was taken along.
    fn is_awaited(&self) -> bool {
        self.is_awaited.compare_exchange(true, true, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Waits until the descriptor is readable, if there is one, or the bell is rung that this thread has taken along; at most for `timeout`,
/// and for a moment where there is no bell to be heard. An error costs the caller one more look.
pub(super) fn wait(descriptor: Option<BorrowedFd<'_>>, timeout: Duration) {
    let taken = TAKEN.with(|taken| taken.borrow().clone());
    let heard = taken.as_ref().and_then(|bell| Some((bell, bell.event()?)));
    let short = timeout.min(MOMENT);
    match (heard, descriptor) {
        (Some((bell, event)), descriptor) => {
            // A ring before there was an event has signalled nothing.
            if bell.is_awaited()
                && let Ok([_, true]) =
                    any_readable([descriptor.unwrap_or(event.as_fd()), event.as_fd()], Some(timeout))
            {
                // A signal that is not cleared costs one more look.
                let _ = event.clear();
            }
        }
        (None, Some(descriptor)) => drop(readable(descriptor, Some(short))),
        (None, None) => thread::sleep(short),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thread that replied while it looked for a reply made a system call to wake itself, and looked once more for nothing.
    #[test]
    fn a_ring_signals_another_thread_and_not_its_own() {
        let bell = Arc::new(Bell::default());
        let is_signalled = || {
            let event = bell.event().expect("a descriptor");
            readable(event.as_fd(), Some(Duration::ZERO)).expect("a look")
        };
        assert!(!is_signalled());
        bell.take_along(|| {
            bell.ring();
            assert!(!bell.is_awaited() && !is_signalled());
        });
        bell.take_along(|| {
            thread::scope(|scope| scope.spawn(|| bell.ring()).join().expect("it rings"));
            assert!(!bell.is_awaited() && is_signalled());
        });
    }
}
