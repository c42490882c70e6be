//! Verdicts on the claims of `checksum`, at the longest length, with thresholds off.

use super::super::reading::{Reading, bytes, findings};
use super::{DECLARATION, Summing, name};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};

/// The factor below which a difference does not count.
const TOLERANCE: f64 = 1.05;

/// The latencies at the longest length, in microseconds.
struct Longest {
    len: u64,
    copy: f64,
    emulated: f64,
    copy_summed: f64,
    emulated_summed: f64,
    integrated: f64,
}

/// A finding for each claim, in the order of the claims.
pub(super) fn all(reading: &Reading<'_>) -> Vec<Finding> {
    let judgements = Longest::of(reading).map(|longest| {
        vec![
            longest.with_checksum(),
            longest.cheaper_after_copy(),
            longest.integrated_in_between(),
            longest.below_the_integrated(),
        ]
    });
    findings(&DECLARATION, judgements.ok_or("not everything that it compares was measured"))
}

impl Longest {
    fn of(reading: &Reading<'_>) -> Option<Self> {
        let len = reading.lengths(["copy", "emulated copy"]).last().copied()?;
        let at = |scheme, summing| reading.at(&name(scheme, summing), len);
        Some(Self {
            len,
            copy: at("copy", Summing::None)?,
            emulated: at("emulated copy", Summing::None)?,
            copy_summed: at("copy", Summing::Separate)?,
            emulated_summed: at("emulated copy", Summing::Separate)?,
            integrated: at("copy", Summing::Integrated)?,
        })
    }

    fn with_checksum(&self) -> Judgement {
        let found = format!(
            "{} take {} µs by emulated copy with it, {} µs by copy without.",
            bytes(self.len),
            significant(self.emulated_summed),
            significant(self.copy)
        );
        Ok((self.emulated_summed < self.copy, found))
    }

    fn cheaper_after_copy(&self) -> Judgement {
        let (copy, emulated) = (self.copy_summed - self.copy, self.emulated_summed - self.emulated);
        let found = format!(
            "At {} it adds {} µs to copy and {} µs to emulated copy.",
            bytes(self.len),
            significant(copy),
            significant(emulated)
        );
        Ok((copy < emulated, found))
    }

    fn integrated_in_between(&self) -> Judgement {
        let found = format!(
            "{} take {} µs by copy, {} µs with it integrated, {} µs with it in a pass of its own.",
            bytes(self.len),
            significant(self.copy),
            significant(self.integrated),
            significant(self.copy_summed)
        );
        let is_between =
            self.integrated * TOLERANCE >= self.copy && self.integrated <= self.copy_summed * TOLERANCE;
        Ok((is_between, found))
    }

    fn below_the_integrated(&self) -> Judgement {
        let found = format!(
            "{} take {} µs by emulated copy and checksum, {} µs by copy with it integrated.",
            bytes(self.len),
            significant(self.emulated_summed),
            significant(self.integrated)
        );
        Ok((self.emulated_summed < self.integrated, found))
    }
}
