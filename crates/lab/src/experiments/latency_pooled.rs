//! `latency-pooled`: end-to-end latency of single packets with pooled buffers, by scheme, with client buffers that are aligned with them
//! or not.
//!
//! How: see [`super::transfers`]. Each transfer is one packet with a header of 8 bytes. Aligned client buffers begin as many bytes into
//! their granule, as the server prefers; others at 1 KiB. Migrant schemes have no client buffer to be aligned.
//! Source: J. C. Brustoloni's thesis, §8.2.1, figures 8.3 and 8.4.

use genie::Scheme;
use genie::mechanism::model::Allocation;
use genie_net::Rate;

use super::curves::Paper;
use super::described::{Described, Measuring};
use super::latency::{PAPER_LEN, schemes};
use super::reading::{Reading, ends};
use super::transfers::{Course, Subject};
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration};
use crate::findings::{Conclusion, Finding, Judgement};
use crate::measurement::{Measurements, Quantity};
use crate::papers::Printed;
use crate::papers::brustoloni::{self, EquivalentThroughput};

const ALIGNED: &str = "aligned";
const UNALIGNED: &str = "unaligned";
/// Where client buffers begin that are not aligned.
const OFFSET: usize = 1024;
/// The factor by which the paper's schemes other than copy were apart where client buffers were aligned.
const ALIKE: f64 = 1.09;
/// The factor up to which times are the same.
const SAME: f64 = 1.1;

const COURSE: Course = Course { id: "latency-pooled", rate: Rate::Bits(512_000_000), subjects };

/// The experiment.
pub(super) static LATENCY_POOLED: Described = Described {
    declaration: &DECLARATION,
    measuring: Measuring::Own { steps: |options| COURSE.steps(options), sit: |options| COURSE.sit(options) },
    conclude,
};

static DECLARATION: Declaration = Declaration {
    id: COURSE.id,
    title: "End-to-end latency by scheme and length, with pooled buffers, aligned and not",
    source: brustoloni!("§8.2.1, figures 8.3 and 8.4"),
    claims: &[
        Claim {
            id: "aligned-alike",
            text: "With aligned client buffers native schemes other than copy take about as little time as migrant ones: 312 to 339 \
                   Mbit/s for 60 KB at 512 Mbit/s, a factor of 1.09; copy 133.",
            source: "§8.2.1, figure 8.3",
        },
        Claim {
            id: "three-groups",
            text: "With unaligned ones the schemes are in three groups by the number of copies: none (migrant ones, 313 to 336 Mbit/s), one \
                   (native ones, 170 to 181), two (copy, 135).",
            source: "§8.2.1, figure 8.4",
        },
        Claim {
            id: "alignment-decides",
            text: "Alignment nearly doubles the throughput of emulated copy, 170 to 332 Mbit/s, and makes no difference to copy and to \
                   migrant schemes.",
            source: "§8.2.1, figures 8.3 and 8.4",
        },
    ],
    axes: &[
        "data length, 4 to 60 KiB",
        "scheme, the same at both ends",
        "alignment",
        "medium: a wire by its rate, or AF_XDP",
        "thresholds",
    ],
    needs: &[],
};

fn subjects(len: usize) -> Vec<Subject> {
    let of = |(figure, offset): (&'static str, Option<usize>)| {
        Scheme::ALL.map(|scheme| Subject { offset, ..Subject::pooled(figure, scheme.name(), scheme, len) })
    };
    [(ALIGNED, None), (UNALIGNED, Some(OFFSET))].into_iter().flat_map(of).collect()
}

fn papers() -> [Paper; 2] {
    let of = |figure, title, curve: fn(EquivalentThroughput) -> (String, Option<Printed>)| Paper {
        figure,
        title,
        curves: brustoloni::equivalent_throughputs().into_iter().map(curve).collect(),
    };
    [
        of(ALIGNED, "Single packets, aligned", |paper| (paper.scheme, Some(paper.aligned))),
        of(UNALIGNED, "Single packets, unaligned", |paper| (paper.scheme, Some(paper.unaligned))),
    ]
}

fn conclude(measurements: &Measurements) -> Conclusion {
    COURSE.conclude(measurements, &papers(), |name| name == "emulated copy", verdicts(measurements))
}

fn is_migrant(scheme: &str) -> bool {
    Scheme::ALL.into_iter().any(|one| one.name() == scheme && one.allocation() == Allocation::Migrant)
}

/// Verdicts by the time that 60 KiB take.
fn verdicts(measurements: &Measurements) -> Vec<Finding> {
    COURSE.findings(&DECLARATION, measurements, |reading| {
        let [aligned, unaligned] = [ALIGNED, UNALIGNED].map(|figure| reading(figure, Quantity::Latency));
        vec![aligned_alike(&aligned), three_groups(&unaligned), alignment_decides([&aligned, &unaligned])]
    })
}

/// The least and the greatest time of some schemes.
fn group(reading: &Reading<'_>, is_in: impl Fn(&str) -> bool) -> Result<(f64, f64), String> {
    let names = schemes().filter(|name| is_in(name));
    ends(names.filter_map(|name| reading.at(name, PAPER_LEN)))
        .ok_or_else(|| "the schemes were not measured".to_owned())
}

fn aligned_alike(reading: &Reading<'_>) -> Judgement {
    let (least, most) = group(reading, |name| name != "copy")?;
    let (copy, _) = group(reading, |name| name == "copy")?;
    let found = format!(
        "60 KiB take {} to {} µs by the schemes other than copy, and {} µs by copy.",
        significant(least),
        significant(most),
        significant(copy)
    );
    Ok((most / least <= ALIKE && copy > most, found))
}

fn three_groups(reading: &Reading<'_>) -> Judgement {
    let (none, most_of_none) = group(reading, is_migrant)?;
    let (one, most_of_one) = group(reading, |name| !is_migrant(name) && name != "copy")?;
    let (two, _) = group(reading, |name| name == "copy")?;
    let found = format!(
        "60 KiB take {} to {} µs by migrant schemes, {} to {} µs by native ones other than copy, and {} µs by copy.",
        significant(none),
        significant(most_of_none),
        significant(one),
        significant(most_of_one),
        significant(two)
    );
    Ok((most_of_none < one && most_of_one < two, found))
}

fn alignment_decides(readings: [&Reading<'_>; 2]) -> Judgement {
    let factor = |scheme: &str| {
        let [aligned, unaligned] = readings.map(|reading| reading.at(scheme, PAPER_LEN));
        Some(unaligned? / aligned?)
    };
    let missing = "the schemes were not measured";
    let emulated = factor("emulated copy").ok_or(missing)?;
    let same = schemes().filter(|name| is_migrant(name) || *name == "copy").filter_map(factor);
    let (least, most) = ends(same).ok_or(missing)?;
    let found = format!(
        "Without alignment emulated copy takes {} times as long, copy and migrant schemes {} to {} times.",
        significant(emulated),
        significant(least),
        significant(most)
    );
    Ok((emulated > most && most <= SAME && least >= 1.0 / SAME, found))
}

#[cfg(test)]
mod tests;
