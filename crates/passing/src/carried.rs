//! Carried data: what is so short that a request to a server in another process carries it in its own record, as it carries an
//! argument.
//!
//! Why: to put 64 bytes into a system buffer, to name that to the server and to let it go takes ten times as long as to copy
//! them into the record.
//! How: native data is carried where its scheme would copy it, or where a copy means the same: emulated share of memory that
//! stays borrowed, below the threshold from which a reference pays. The receipt says that it was copied, as it would
//! have been, and why.
//! Limits: [`CARRIED`]. While a recorder measures the tables' operations, nothing is carried, since none of them runs.
//! Source: none in the thesis, whose messages carry no data; §5.1 has short data copied into the server's pool.

use crate::engine::Hold;
use crate::{CARRIED, Parties, Passing, Reason, Receipt, Scheme};

/// How one element's data is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    asked: Scheme,
    reason: Option<Reason>,
    copied: u16,
}

const _: () = assert!(CARRIED <= u16::MAX as usize, "lengths of carried data are kept in 16 bits");

impl Carried {
    /// Data for which the client asked for `asked`, and which is copied for this reason, if the scheme is not copy.
    pub const fn new(asked: Scheme, reason: Option<Reason>) -> Self {
        Self { asked, reason, copied: 0 }
    }

    /// Notes which scheme the client asked for, and why another one is used.
    pub fn note(&mut self, asked: Scheme, reason: Reason) {
        (self.asked, self.reason) = (asked, Some(reason));
    }

    /// Notes that so many bytes were copied from, or to, the client's memory.
    pub fn copied(&mut self, bytes: usize) {
        self.copied = u16::try_from(bytes).expect("no longer than CARRIED");
    }

    /// What was done so far.
    #[inline]
    pub const fn receipt(&self) -> Receipt {
        Receipt {
            effective: Scheme::Copy,
            copied: self.copied as usize,
            reason: self.reason,
            ..Receipt::new(self.asked)
        }
    }

    /// The scheme that the client asked for, and why another one is used.
    pub const fn asked(&self) -> (Scheme, Option<Reason>) {
        (self.asked, self.reason)
    }
}

impl Passing {
    /// Whether an output of `len` bytes of native memory at `addr`, to a server in another process, is carried.
    #[inline(always)]
    pub fn carry_output(
        &self,
        scheme: Scheme,
        place: (usize, usize),
        hold: Hold,
        parties: Parties,
    ) -> Option<Carried> {
        if !self.may_carry(place.1) {
            return None;
        }
        let reason = match scheme {
            Scheme::Copy => None,
            Scheme::EmulatedCopy | Scheme::Share | Scheme::EmulatedShare => {
                Some(self.reason_to_carry(scheme, place, hold, parties)?)
            }
            _ => return None,
        };
        Some(Carried::new(scheme, reason))
    }

    #[inline(never)]
    fn reason_to_carry(
        &self,
        scheme: Scheme,
        (addr, len): (usize, usize),
        hold: Hold,
        parties: Parties,
    ) -> Option<Reason> {
        let at = self.at(addr);
        let is_short = || {
            let is_emulated = scheme == Scheme::EmulatedShare && hold == Hold::Borrow;
            is_emulated && at.1.is_short(parties.server, len, |thresholds| thresholds.held)
        };
        let copied = self.copied_for(scheme, (addr, len), hold, parties, at);
        copied.or_else(|| is_short().then_some(Reason::Short))
    }

    /// Whether an input of `len` bytes to native memory at `addr`, from a server in another process, is carried. `is_borrowed` says
    /// whether the memory stays borrowed until the input is over.
    #[inline]
    pub fn carry_input(
        &self,
        scheme: Scheme,
        (addr, len): (usize, usize),
        is_borrowed: bool,
        parties: Parties,
    ) -> Option<Carried> {
        if !self.may_carry(len) {
            return None;
        }
        let reason = match scheme {
            Scheme::Copy => None,
            Scheme::EmulatedCopy | Scheme::Share | Scheme::EmulatedShare => {
                let (space, rules) = self.at(addr);
                let is_copy =
                    scheme == Scheme::EmulatedCopy || scheme == Scheme::EmulatedShare && is_borrowed;
                let is_short = || rules.is_short(parties.server, len, |t| t.input.min(t.input_alone));
                let foreign = (!space.may_hold(addr)).then_some(Reason::Foreign);
                Some(foreign.or_else(|| (is_copy && is_short()).then_some(Reason::Short))?)
            }
            _ => return None,
        };
        Some(Carried::new(scheme, reason))
    }

    #[inline]
    fn may_carry(&self, len: usize) -> bool {
        (1..=CARRIED).contains(&len) && self.recorder().is_none()
    }
}
