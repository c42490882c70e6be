//! Data whose checksum is verified while it is copied to the client: a single copy, as in Afterburner, with the integrity that this has.
//!
//! Why: where the adapter does not verify checksums, verifying is a pass over the data; done while copying, it costs next to nothing. But then
//! the client has had the data before it is known to be right. If it is wrong, the client's buffer holds garbage until the peer has sent the
//! data again: its integrity is weak.
//! How: such data is handed out as other data is, and acknowledged only when the client says that it was right. What is wrong is as if it had
//! not come, with all that came behind it. The rest of its header, which may be as wrong, is heeded when the data is confirmed.
//! Source: Afterburner, "single copy"; J. C. Brustoloni's thesis, §6.7.

use super::{Connection, State};
use crate::event::Event;
use crate::payload::Payload;
use crate::receive::Arrival;
use crate::segment::{Header, Segment};
use crate::sequence::Seq;
use crate::timers::Time;

impl<P: Payload> Connection<P> {
    /// Takes a segment whose checksum is yet to be verified, if it is data that comes next, in a connection that acknowledges on
    /// confirmation ([`Config::acknowledge_on_confirmation`](crate::Config::acknowledge_on_confirmation)).
    ///
    /// Returns whether it was taken. If not, it has changed nothing: verify it, and give it to [`on_segment`](Self::on_segment).
    pub fn on_unverified(&mut self, segment: &Segment<P>, now: Time) -> bool {
        let Header { seq, flags, options, .. } = segment.header;
        let state = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        let plain = flags.ack && !(flags.syn || flags.fin || flags.rst) && !segment.payload.is_empty();
        let stamps = match (&self.clock, options.timestamps) {
            (Some(clock), Some(stamps)) => !clock.is_old(stamps.value, now),
            (clock, _) => clock.is_none(),
        };
        let len = segment.data_len().min(1 << 30) as u32;
        let next =
            seq == self.receive.next() && !self.receive.has_gaps() && self.receive.accepts(seq + len - 1, 1);
        if !self.config.acknowledge_on_confirmation || self.deaf || !(state && plain && stamps && next) {
            return false;
        }
        if self.receive.take(seq, &segment.payload, false) == Arrival::Nothing {
            return false;
        }
        self.counters.segments_in += 1;
        self.unverified.push_back((self.receive.next(), segment.header));
        self.tell(Event::Readable);
        true
    }

    /// The next `bytes` that were received are right, and safe with the client: they are acknowledged, in a connection that acknowledges on
    /// confirmation.
    ///
    /// # Panics
    /// When fewer bytes were received and not confirmed.
    pub fn confirm(&mut self, bytes: usize, now: Time) {
        let confirmed = self.receive.confirm(u32::try_from(bytes).expect("at most 1 GiB"));
        if self.state == State::Closed {
            return;
        }
        while let Some((end, header)) = self.unverified.pop_front() {
            if end.after(confirmed) {
                self.unverified.push_front((end, header));
                break;
            }
            self.on_verified(header, end, now);
        }
        self.acknowledge_soon(now);
        self.take_fin(now);
    }

    /// Heeds what is left of the header of data that was confirmed up to `end`.
    fn on_verified(&mut self, header: Header, end: Seq, now: Time) {
        if !self.accepts_acknowledgment(&Segment::bare(header), now) {
            return self.drop_segment();
        }
        if let (Some(clock), Some(stamps)) = (&mut self.clock, header.options.timestamps) {
            clock.note(stamps.value, header.seq, self.receive.acknowledged, now);
        }
        self.heard(now);
        self.on_acknowledgment(&Header { seq: end, ..header }, true, now);
        self.acknowledge_fin(now);
    }

    /// How many bytes were received and not confirmed.
    pub fn unconfirmed(&self) -> u32 {
        if self.config.acknowledge_on_confirmation { self.receive.unconfirmed() } else { 0 }
    }

    /// What was received and not confirmed is wrong: it, and what is readable behind it, is dropped, and the peer sends it again.
    pub fn reject(&mut self) {
        if self.config.acknowledge_on_confirmation {
            self.receive.reject();
            self.unverified.clear();
            self.receive.ack_now = self.state.is_synchronized();
        }
    }
}
