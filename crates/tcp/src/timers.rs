//! The timers of a connection: times at which something is to be done.

/// A time: how long after an origin of the caller's choice, the same for all calls of one connection or table, and never going back.
pub type Time = std::time::Duration;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Something sent is not acknowledged (RFC 6298).
    Retransmit,
    /// The peer's window is shut, or too small to be worth a segment (RFC 9293 §3.8.6.1 and §3.8.6.2.1).
    Persist,
    /// The peer has acknowledged nothing for as long as it may (RFC 9293 §3.10.8).
    GiveUp,
    /// An acknowledgment was delayed (RFC 9293 §3.8.6.3).
    Acknowledge,
    /// Nothing has come from the peer for long (RFC 9293 §3.8.4).
    Idle,
    /// TIME-WAIT is over (RFC 9293 §3.6), or the peer of a client that has closed never sends its FIN.
    Linger,
}

const ALL: [Timer; 6] =
    [Timer::Retransmit, Timer::Persist, Timer::GiveUp, Timer::Acknowledge, Timer::Idle, Timer::Linger];

#[derive(Debug, Default)]
pub(crate) struct Timers([Option<Time>; ALL.len()]);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    /// Sets it unless it is set already.
    pub(crate) fn arm(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize].get_or_insert(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.iter().flatten().min().copied()
    }

    /// Stops and returns a timer that is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<Timer> {
        let timer = ALL.into_iter().find(|&it| self.0[it as usize].is_some_and(|at| at <= now))?;
        self.stop(timer);
        Some(timer)
    }
}
