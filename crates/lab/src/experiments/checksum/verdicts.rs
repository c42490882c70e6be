//! Verdicts on the claims of `checksum`, at the longest length. The papers' checksum is that of the Internet, and the
//! verdicts are about it; CRC32C is reported beside it.

use super::super::reading::{Reading, bytes, findings};
use super::{Check, DECLARATION, Kind, name};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};

/// The factor below which a difference does not count.
const TOLERANCE: f64 = 1.05;

/// The latencies at the longest length, in microseconds.
struct Longest {
    len: u64,
    copy: f64,
    emulated: f64,
    with: Vec<With>,
}

/// The latencies with one kind of checksum.
struct With {
    kind: Kind,
    copy: f64,
    emulated: f64,
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
        let at = |scheme, check| reading.at(&name(scheme, check), len);
        let with = |kind| {
            Some(With {
                kind,
                copy: at("copy", Check::Separate(kind))?,
                emulated: at("emulated copy", Check::Separate(kind))?,
                integrated: at("copy", Check::Integrated(kind))?,
            })
        };
        let with: Option<Vec<_>> = Kind::ALL.into_iter().map(with).collect();
        let (copy, emulated) = (at("copy", Check::None)?, at("emulated copy", Check::None)?);
        Some(Self { len, copy, emulated, with: with? })
    }

    /// Judges the Internet checksum, and puts the findings on each kind into one sentence.
    fn judge(&self, holds: impl Fn(&With) -> bool, found: impl Fn(&With) -> String) -> Judgement {
        let all: Vec<_> =
            self.with.iter().map(|with| format!("{}: {}.", with.kind.name(), found(with))).collect();
        let internet = self.with.iter().find(|with| with.kind == Kind::Internet);
        Ok((internet.is_some_and(holds), format!("{}. {}", bytes(self.len), all.join(" "))))
    }

    fn with_checksum(&self) -> Judgement {
        let found = |with: &With| {
            format!(
                "emulated copy with it takes {} µs, copy without {} µs",
                significant(with.emulated),
                significant(self.copy)
            )
        };
        self.judge(|with| with.emulated < self.copy, found)
    }

    fn cheaper_after_copy(&self) -> Judgement {
        let added = |with: &With| (with.copy - self.copy, with.emulated - self.emulated);
        let found = |with: &With| {
            let (copy, emulated) = added(with);
            format!(
                "it adds {} µs to copy and {} µs to emulated copy",
                significant(copy),
                significant(emulated)
            )
        };
        let holds = |with: &With| added(with).0 < added(with).1;
        self.judge(holds, found)
    }

    fn integrated_in_between(&self) -> Judgement {
        let found = |with: &With| {
            format!(
                "copy takes {} µs, with it integrated {} µs, with it in a pass of its own {} µs",
                significant(self.copy),
                significant(with.integrated),
                significant(with.copy)
            )
        };
        let holds = |with: &With| {
            with.integrated * TOLERANCE >= self.copy && with.integrated <= with.copy * TOLERANCE
        };
        self.judge(holds, found)
    }

    fn below_the_integrated(&self) -> Judgement {
        let found = |with: &With| {
            format!(
                "emulated copy and checksum take {} µs, copy with it integrated {} µs",
                significant(with.emulated),
                significant(with.integrated)
            )
        };
        self.judge(|with| with.emulated < with.integrated, found)
    }
}
