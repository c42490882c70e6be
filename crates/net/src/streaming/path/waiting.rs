//! What a path waits for when it can move nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_sys::Errno;
use rustix::event::{PollFd, PollFlags};

use super::super::how::{Style, WhenFull};
use super::super::lane::Polled;
use super::{Path, Role};

/// How long a flow waits whose sink does not tell when it has room.
const TICK: Duration = Duration::from_millis(1);
/// How often it is seen whether a source is there still whose descriptor does not tell.
const THERE: Duration = Duration::from_secs(1);

/// When a thread is to look at a path again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::streaming) enum Look {
    Now,
    /// After this time, if nothing wakes the thread.
    After(Duration),
    /// When something wakes the thread.
    WhenWoken,
}

impl Path {
    /// Adds the descriptors that are to wake the thread, and says when it is to look again.
    pub(in crate::streaming) fn wait_for<'p>(&'p self, role: Role, polled: &mut Polled<'p>) -> Look {
        self.guarded(|| self.look(role, polled)).unwrap_or_else(|error| {
            self.end(Err(error));
            Look::Now
        })
    }

    fn look<'p>(&'p self, role: Role, polled: &mut Polled<'p>) -> Look {
        let is_synchronous = self.how.style == Style::Synchronous;
        match role {
            Role::Reaper if is_synchronous => {
                let holds = self.how.when_full == WhenFull::Hold || self.source.lock().is_over();
                match holds.then(|| self.wait_for_sink(role, polled)).flatten() {
                    Some(look) => look,
                    None => self.wait_for_source(polled),
                }
            }
            Role::Reaper if self.how.when_full == WhenFull::Hold && self.free() == 0 => Look::WhenWoken,
            Role::Reaper => self.wait_for_source(polled),
            Role::Scheduler => {
                let is_idle = self.free() == self.how.queue && !self.has_ended.load(Ordering::Acquire);
                let look = if is_idle { Look::WhenWoken } else { Look::Now };
                if is_idle { look } else { self.wait_for_sink(role, polled).unwrap_or(look) }
            }
        }
    }

    /// Waits for room in the sink; none if it has some.
    fn wait_for_sink<'p>(&'p self, role: Role, polled: &mut Polled<'p>) -> Option<Look> {
        let mut sink = self.sink.lock();
        if sink.room().is_ok_and(|room| room > 0) {
            return None;
        }
        let is_armed = sink.arm();
        if role == Role::Scheduler && self.sink.is_source() {
            // Its bell may have rung for what comes from there.
            self.reaper.wake();
        }
        match sink.room() {
            Ok(0) if self.sink.is_file() => {
                polled.push(PollFd::from_borrowed_fd(self.sink.descriptor(), PollFlags::OUT));
                Some(Look::WhenWoken)
            }
            Ok(0) if is_armed => {
                if !sink.has_frames() {
                    polled.push(PollFd::from_borrowed_fd(self.sink.descriptor(), PollFlags::IN));
                }
                Some(Look::After(TICK))
            }
            Ok(0) | Err(_) => Some(Look::Now),
            Ok(_) => None,
        }
    }

    fn wait_for_source<'p>(&'p self, polled: &mut Polled<'p>) -> Look {
        if self.has_ended.load(Ordering::Relaxed) {
            return Look::WhenWoken;
        }
        let mut source = self.source.lock();
        if source.is_over() {
            return Look::Now;
        }
        if !source.arm() || source.has_frames() {
            return Look::Now;
        }
        polled.push(PollFd::from_borrowed_fd(self.source.descriptor(), PollFlags::IN));
        if source.tells_of_its_end() { Look::WhenWoken } else { Look::After(THERE) }
    }

    /// What tells that the sink is gone, whatever else is waited for.
    pub(in crate::streaming) fn sink_gone(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.sink.descriptor(), PollFlags::empty())
    }

    /// The sink has told that it is gone.
    pub(in crate::streaming) fn lose_sink(&self) {
        let errno = self.guarded(|| {
            let mut sink = self.sink.lock();
            sink.arm();
            sink.room().err().unwrap_or(Errno::PIPE)
        });
        self.end(Err(errno.map_or_else(|error| error, |errno| self.sink_failed(errno))));
    }
}
