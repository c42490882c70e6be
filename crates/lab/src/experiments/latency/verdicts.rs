//! Verdicts on the claims of `latency`.
//!
//! How: the papers compared lengths that are multiples of the granule. Here only the longest length, 16 MiB, is compared,
//! without a limit of the rate, unless a claim is about the network. Tolerances are named where they are used.

use super::super::reading::{Reading, bytes, ends, findings, per_cent};
use super::{DECLARATION, PAPER_LEN, schemes};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};

/// Copy is apart if it takes at least this many times as long as the slowest other scheme (in the paper: 2.4 times).
const APART: f64 = 1.25;
/// The factor by which the paper's other schemes were apart.
const CLOSE: f64 = 1.16;
/// The share that the paper's emulated copy saved, and how much of that suffices for the claim to hold.
const SAVED: (f64, f64) = (0.60, 0.9);
/// The factor below which a difference does not count.
const TOLERANCE: f64 = 1.05;

/// A finding for each claim, in the order of the claims.
pub(super) fn all(readings: &[Reading<'_>]) -> Vec<Finding> {
    let judgements = Longest::of(&readings[0]).map(|longest| {
        vec![
            longest.copy_apart(),
            longest.others_close(),
            longest.emulated_copy_gains(readings),
            longest.emulated_copy_like_share(),
            longest.emulated_share_lowest(),
            network_levels(readings),
        ]
    });
    findings(&DECLARATION, judgements.ok_or("copy and emulated copy were not both measured"))
}

/// All schemes at the longest length that was measured.
struct Longest {
    length: String,
    copy: f64,
    emulated_copy: f64,
    /// The schemes other than copy, from the quickest to the slowest, in microseconds.
    others: Vec<(&'static str, f64)>,
}

impl Longest {
    fn of(reading: &Reading<'_>) -> Option<Self> {
        let len = reading.lengths(["copy", "emulated copy"]).last().copied()?;
        let mut others: Vec<_> = others().filter_map(|one| Some((one, reading.at(one, len)?))).collect();
        others.sort_by(|one, other| one.1.total_cmp(&other.1));
        Some(Self {
            length: bytes(len),
            copy: reading.at("copy", len)?,
            emulated_copy: reading.at("emulated copy", len)?,
            others,
        })
    }

    fn at(&self, scheme: &str) -> Option<f64> {
        self.others.iter().find(|(one, _)| *one == scheme).map(|(_, us)| *us)
    }

    /// The quickest and the slowest of the other schemes.
    fn ends(&self) -> [(&'static str, f64); 2] {
        [self.others[0], self.others[self.others.len() - 1]]
    }

    fn copy_apart(&self) -> Judgement {
        let [_, (name, slowest)] = self.ends();
        let (length, factor) = (&self.length, self.copy / slowest);
        let [copy, times, slowest] = [self.copy, factor, slowest].map(significant);
        let found = format!(
            "{length} take {copy} µs by copy, {times} times as long as by the slowest other scheme ({name}, {slowest} µs)."
        );
        Ok((factor >= APART, found))
    }

    fn others_close(&self) -> Judgement {
        let [(quick, least), (slow, most)] = self.ends();
        let (length, spread) = (&self.length, most / least);
        let [least, most, factor] = [least, most, spread].map(significant);
        let found =
            format!("{length} take {least} µs by {quick} and {most} µs by {slow}, a factor of {factor}.");
        Ok((spread <= CLOSE, found))
    }

    fn emulated_copy_gains(&self, readings: &[Reading<'_>]) -> Judgement {
        let saved = 1.0 - self.emulated_copy / self.copy;
        let papers = readings.iter().find(|reading| reading.setting == "512 Mbit/s");
        let at_paper = papers.and_then(|reading| {
            let [copy, emulated] = ["copy", "emulated copy"].map(|one| reading.at(one, PAPER_LEN));
            Some(format!("; of 60 KiB at 512 Mbit/s {}", per_cent(1.0 - emulated? / copy?)))
        });
        let found = format!(
            "Of copy's time for {} emulated copy saves {} without limit{}.",
            self.length,
            per_cent(saved),
            at_paper.unwrap_or_default()
        );
        Ok((saved >= SAVED.0 * SAVED.1, found))
    }

    fn emulated_copy_like_share(&self) -> Judgement {
        let both = self.at("move").zip(self.at("share"));
        let (moved, shared) = both.ok_or("move and share wire memory, which this process may not")?;
        let holds = self.emulated_copy < moved && self.emulated_copy <= shared * TOLERANCE;
        let [emulated_copy, moved, shared] = [self.emulated_copy, moved, shared].map(significant);
        let length = &self.length;
        let found = format!(
            "{length} take {emulated_copy} µs by emulated copy, {moved} µs by move and {shared} µs by share."
        );
        Ok((holds, found))
    }

    fn emulated_share_lowest(&self) -> Judgement {
        let shared = self.at("emulated share").ok_or("emulated share was not measured")?;
        let [(name, least), _] = self.ends();
        let holds = shared <= least * TOLERANCE;
        let (length, [shared, least]) = (&self.length, [shared, least].map(significant));
        let found =
            format!("{length} take {shared} µs by emulated share; the quickest is {name} with {least} µs.");
        Ok((holds, found))
    }
}

/// The schemes other than copy.
fn others() -> impl Iterator<Item = &'static str> {
    schemes().filter(|one| *one != "copy")
}

/// How far the schemes other than copy are apart, at the same length with and without a network.
fn network_levels(readings: &[Reading<'_>]) -> Judgement {
    let spread = |reading: &Reading<'_>| {
        let (least, most) = ends(others().filter_map(|one| reading.at(one, PAPER_LEN)))?;
        Some((reading.setting.clone(), most / least))
    };
    let spreads: Vec<_> = readings.iter().filter_map(spread).collect();
    let [(_, unlimited), (_, slowest), ..] = &spreads[..] else { return Err("no rate was measured".into()) };
    let all: Vec<_> =
        spreads.iter().map(|(rate, factor)| format!("{} ({rate})", significant(*factor))).collect();
    let found = format!("Schemes other than copy differ at 60 KiB by factors of {}.", all.join(", "));
    Ok((slowest < unlimited, found))
}
