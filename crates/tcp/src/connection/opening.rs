//! How a connection begins: by a SYN of its own, of the peer's, or by an acknowledgment that carries a cookie.
//!
//! Source: RFC 9293 §3.5 and §3.10.1; options of the handshake: RFC 7323 §2.2 and §3.2, RFC 2018 §2, RFC 9293 §3.7.1.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Connection, Counters, Due, State};
use crate::config::Config;
use crate::congestion::Congestion;
use crate::event::Event;
use crate::options::Options;
use crate::payload::Payload;
use crate::receive::Receiving;
use crate::recovery::Recovery;
use crate::rtt::RoundTrip;
use crate::segment::{Header, Segment};
use crate::send::Sending;
use crate::sequence::Seq;
use crate::timers::{Time, Timer, Timers};
use crate::timestamps::Clock;

/// What a connection is made of besides its configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Whether its packets are IPv6's.
    pub(crate) v6: bool,
    /// Its first sequence number.
    pub(crate) iss: Seq,
    /// By how much its timestamps are ahead of the time.
    pub(crate) timestamp_offset: u32,
}

impl<P: Payload> Connection<P> {
    /// Opens a connection: a SYN is sent next.
    pub(crate) fn connect(config: Arc<Config>, origin: Origin, now: Time) -> Self {
        let mut it = Self::new(config, origin, State::SynSent, now);
        it.due.syn = true;
        it
    }

    /// Takes a SYN that a listener has had: a SYN with an acknowledgment is sent next.
    pub(crate) fn accept(config: Arc<Config>, origin: Origin, syn: &Segment<P>, now: Time) -> Self {
        let mut it = Self::new(config, origin, State::SynReceived, now);
        it.passive = true;
        it.due.syn = true;
        it.take_syn(&syn.header, now);
        it.take_first_data(syn);
        it
    }

    /// Takes the acknowledgment of a SYN that was answered by a cookie: the connection is established. `peer` is what the peer's SYN had
    /// for options.
    pub(crate) fn restore(
        config: Arc<Config>,
        origin: Origin,
        peer: Options,
        ack: &Header,
        now: Time,
    ) -> Self {
        let mut it = Self::new(config, origin, State::SynReceived, now);
        it.passive = true;
        it.take_syn(&Header { seq: ack.seq - 1, options: peer, ..*ack }, now);
        it.send.nxt = origin.iss + 1;
        it.receive.offer(it.send.mss, true);
        it
    }

    fn new(config: Arc<Config>, origin: Origin, state: State, now: Time) -> Self {
        let mss = u32::from(config.send_mss(origin.v6, None));
        let mut receive = Receiving::new(&config);
        receive.shift = config.window_shift();
        Self {
            v6: origin.v6,
            state,
            passive: false,
            deaf: false,
            peer_finished: false,
            syn_sent_again: false,
            scaled: false,
            send: Sending::new(origin.iss, mss),
            receive,
            recovery: Recovery::new(origin.iss),
            congestion: Congestion::new(config.algorithm, mss),
            rtt: RoundTrip::new(&config),
            timers: Timers::default(),
            clock: None,
            timestamp_offset: origin.timestamp_offset,
            due: Due::default(),
            events: VecDeque::new(),
            ended: None,
            timed: None,
            sent_at: now,
            unanswered: 0,
            probes: 0,
            challenged_at: None,
            window_was_full: false,
            unverified: VecDeque::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// The options of this side's SYN: what it can do, or, as an answer, what both can.
    pub(super) fn syn_options(&self, now: Time) -> Options {
        let answer = self.state == State::SynReceived;
        let config = &self.config;
        let timestamps = match self.clock {
            Some(clock) => Some(clock.option(now)),
            None if answer || !config.timestamps => None,
            None => Some(Clock::new(self.timestamp_offset, 0, now).option(now)),
        };
        let scaling = if answer { self.scaled } else { config.window_scaling };
        Options {
            mss: Some(config.mss(self.v6)),
            window_scale: scaling.then_some(self.receive.shift),
            sack_permitted: if answer { self.recovery.uses_sack() } else { config.sack },
            timestamps,
            ..Options::default()
        }
    }

    /// Takes what a SYN of the peer's says, with or without an acknowledgment.
    pub(super) fn take_syn(&mut self, syn: &Header, now: Time) {
        let options = &syn.options;
        self.receive.begin(syn.seq + 1);
        self.send.mss = u32::from(self.config.send_mss(self.v6, options.mss));
        self.scaled = self.config.window_scaling && options.window_scale.is_some();
        self.send.shift = if self.scaled { options.window_scale.unwrap_or(0).min(14) } else { 0 };
        self.receive.scale(if self.scaled { self.config.window_shift() } else { 0 });
        self.recovery.use_sack(self.config.sack && options.sack_permitted);
        let timestamps = options.timestamps.filter(|_| self.config.timestamps);
        self.clock = timestamps.map(|it| Clock::new(self.timestamp_offset, it.value, now));
        // The window of a SYN is never scaled.
        self.send.set_window(syn.seq, syn.ack, u32::from(syn.window));
    }

    /// Keeps the data and the FIN that have come along with a SYN, until the handshake is done.
    pub(super) fn take_first_data(&mut self, syn: &Segment<P>) {
        self.receive.take(syn.header.seq + 1, &syn.payload, syn.header.flags.fin);
    }

    /// This side's SYN was acknowledged: the handshake is done.
    pub(super) fn establish(&mut self, header: &Header, window: u32, now: Time) {
        if self.syn_sent_again {
            self.rtt.begin_after_loss();
        }
        self.measure(header, now);
        self.send.advance(self.send.iss + 1);
        self.send.set_window(header.seq, header.ack, window);
        self.congestion.begin(self.smss(), self.syn_sent_again);
        self.state = if self.send.fin { State::FinWait1 } else { State::Established };
        self.due.syn = false;
        self.unanswered = 0;
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::GiveUp);
        self.heard(now);
        self.tell(Event::Connected);
        if self.receive.readable() > 0 {
            self.tell(Event::Readable);
        }
        self.take_fin(now);
    }
}
