//! A connection: the state machine of RFC 9293.
//!
//! How: each file is a part of it: how it begins ([`opening`]), what a segment does that arrives ([`arrival`]) and what its acknowledgment
//! does ([`acknowledgment`]), what is sent next ([`output`]), what happens as time passes ([`timeouts`]), how it ends ([`ending`]), and data
//! whose checksum is verified as the client takes it ([`weak`]). What these share is here.

mod acknowledgment;
mod arrival;
#[cfg(any(test, feature = "fuzzing"))]
mod check;
mod ending;
mod opening;
mod output;
mod timeouts;
mod weak;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::opening::Origin;
use crate::config::Config;
use crate::congestion::Congestion;
use crate::event::{Ended, Event};
use crate::payload::Payload;
use crate::receive::Receiving;
use crate::recovery::Recovery;
use crate::rtt::RoundTrip;
use crate::segment::Header;
use crate::send::{QUEUE_MOST, Sending};
use crate::sequence::Seq;
use crate::timers::{Time, Timer, Timers};
use crate::timestamps::Clock;

/// How long after a challenge another one may follow (RFC 5961 §7), and after an answer to a stray segment another answer.
const BETWEEN_CHALLENGES: Duration = Duration::from_millis(500);

/// The states of RFC 9293 §3.3.2. LISTEN is a listener's, not a connection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "these are the names of the states")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl State {
    /// Whether the handshake is done, and the connection not yet deleted.
    pub fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether the peer can still send.
    fn receives(self) -> bool {
        matches!(
            self,
            Self::SynSent | Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2
        )
    }

    /// Whether the client can still send.
    pub(crate) fn sends(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }
}

/// Why something was not taken, with what was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NotTaken<T> {
    /// Why.
    pub why: Closing,
    /// What.
    pub it: T,
}

/// Why data is not taken for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closing {
    /// This side has said that it sends no more, or the connection is over.
    #[error("the connection sends no more: it was finished, closed or lost")]
    Finished,
    /// A gigabyte is queued.
    #[error("1 GiB is queued: wait until some of it is acknowledged")]
    Full,
}

/// What a connection has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Segments that have come.
    pub segments_in: u64,
    /// Segments that were sent.
    pub segments_out: u64,
    /// Of these, those that were sent again.
    pub retransmitted: u64,
    /// Bytes of data that the peer has acknowledged.
    pub acknowledged: u64,
    /// Losses that were found by acknowledgments.
    pub losses: u64,
    /// Losses that were found by timeouts.
    pub timeouts: u64,
    /// Segments that were dropped since they were old, outside of the window, or made up.
    pub dropped: u64,
    /// Challenges, and answers to stray segments.
    pub challenges: u64,
}

/// What is to be sent apart from data.
#[derive(Debug, Default)]
struct Due {
    reset: Option<Header>,
    syn: bool,
    probe: bool,
    keep_alive: bool,
}

/// A connection, from its first SYN to the end of TIME-WAIT.
///
/// Shape: it owns references to what is under way and to what has come, and gives them back or on. Less than 1 KiB; whatever is rarely in use
/// is on the heap while it is.
///
/// # Cost
/// A segment in order, and an acknowledgment that finds nothing missing, cost some comparisons and additions.
#[derive(Debug)]
pub struct Connection<P> {
    config: Arc<Config>,
    v6: bool,
    state: State,
    /// Whether it began with a SYN of the peer's, at a listener (MUST-11).
    passive: bool,
    /// Whether the client takes no more.
    deaf: bool,
    peer_finished: bool,
    syn_sent_again: bool,
    /// Whether windows are scaled (RFC 7323 §2).
    scaled: bool,
    send: Sending<P>,
    receive: Receiving<P>,
    recovery: Recovery,
    congestion: Congestion,
    rtt: RoundTrip,
    timers: Timers,
    clock: Option<Clock>,
    timestamp_offset: u32,
    due: Due,
    events: VecDeque<Event>,
    ended: Option<Ended>,
    /// What is timed, until which acknowledgment, and since when. Nothing that was sent twice (RFC 6298 §3).
    timed: Option<(Seq, Time)>,
    /// When something was sent last.
    sent_at: Time,
    /// Retransmissions by timeout, or probes, without an answer.
    unanswered: u32,
    /// Probes of a shut window since it was shut.
    probes: u32,
    challenged_at: Option<Time>,
    /// Whether the congestion window kept data from being sent.
    window_was_full: bool,
    /// Headers of data that is not yet verified, and where that data ends.
    unverified: VecDeque<(Seq, Header)>,
    counters: Counters,
}

const _: () = assert!(size_of::<Connection<crate::Shared>>() < 1024);

impl<P: Payload> Connection<P> {
    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// What it was told when it began.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The smoothed round-trip time, once it was measured.
    pub fn round_trip_time(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// How many bytes may be under way before one is acknowledged, by what is known of the network.
    pub fn congestion_window(&self) -> u32 {
        self.congestion.window()
    }

    /// Queues data to be sent.
    ///
    /// Shape: the connection holds the reference until the peer has acknowledged all of it, and then gives it back by
    /// [`poll_released`](Self::poll_released). Until then the bytes must not change: they may be sent again.
    ///
    /// # Errors
    /// When no more can be sent: gives the reference back.
    pub fn send(&mut self, payload: P) -> Result<(), NotTaken<P>> {
        let full = payload.len() > (QUEUE_MOST - self.send.queued().min(QUEUE_MOST)) as usize;
        if !self.state.sends() || self.send.fin {
            return Err(NotTaken { why: Closing::Finished, it: payload });
        } else if full {
            return Err(NotTaken { why: Closing::Full, it: payload });
        }
        self.send.push(payload);
        Ok(())
    }

    /// How many bytes are queued, sent or not, and not acknowledged.
    pub fn queued(&self) -> u32 {
        self.send.queued()
    }

    /// A reference that was given to [`send`](Self::send) and is no longer needed: acknowledged, or, when the connection has
    /// [ended](Self::ended), given up. They come in the order in which they were sent.
    ///
    /// Shape: a segment that was polled earlier, and that the link has not sent yet, has references of its own.
    pub fn poll_released(&mut self) -> Option<P> {
        self.send.pop_released()
    }

    /// A reference to the next bytes that have come, at most `most` of them; this opens the window again.
    pub fn receive(&mut self, most: usize) -> Option<P> {
        let readable = self.state == State::Closed || self.state.is_synchronized();
        readable.then(|| self.receive.receive(most)).flatten()
    }

    /// How many bytes can be received.
    pub fn readable(&self) -> u32 {
        self.receive.readable()
    }

    /// Whether everything that the peer will ever send was received.
    pub fn at_end(&self) -> bool {
        self.receive.at_end()
    }

    /// What has happened since.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    fn tell(&mut self, event: Event) {
        if !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }

    /// Whether a challenge, or the answer to a stray segment, may be sent now.
    fn may_challenge(&mut self, now: Time) -> bool {
        let may = self.challenged_at.is_none_or(|at| now.saturating_sub(at) >= BETWEEN_CHALLENGES);
        if may {
            self.challenged_at = Some(now);
            self.counters.challenges += 1;
        }
        may
    }

    /// Answers by an acknowledgment, unless one was challenged shortly before (RFC 5961 §7).
    fn challenge(&mut self, now: Time) {
        if self.may_challenge(now) {
            self.receive.ack_now = true;
        }
    }

    /// The longest data of a segment with the options that go along with it.
    fn segment_room(&self, options: usize) -> u32 {
        self.send.mss.saturating_sub(options as u32).max(1)
    }

    /// The segments' length that congestion control counts by.
    fn smss(&self) -> u32 {
        self.segment_room(if self.clock.is_some() { 12 } else { 0 })
    }

    /// Something that is to be acknowledged was sent.
    fn await_acknowledgment(&mut self, now: Time) {
        self.timers.arm(Timer::Retransmit, now + self.rtt.timeout());
        let limit = match self.state {
            State::SynSent | State::SynReceived => self.config.connect_timeout,
            _ => self.config.user_timeout,
        };
        self.timers.arm(Timer::GiveUp, now + limit);
    }
}
