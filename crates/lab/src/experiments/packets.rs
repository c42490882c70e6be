//! `packets`: end-to-end latency of transfers that come in several packets, with pooled buffers and with early demultiplexing.
//!
//! How: see [`super::transfers`]. Headers have 8 bytes, packets of 9,180 bytes so 9,172 bytes of data. By pooled buffers, client buffers
//! begin where the server prefers, or, misaligned, at 1 KiB; by early demultiplexing at 1 KiB. A first run with MTU tracking is the first
//! transfer at a port, where packets of 9,180 bytes are expected; later runs follow each other at one port.
//! Source: J. C. Brustoloni's thesis, §8.5, figures 8.7 and 8.8.

use genie::Scheme;
use genie_net::Rate;
use genie_net::adapter::Support;
use genie_net::transfer::{HEADER, Receiving, Shape};

use super::curves::Paper;
use super::described::{Described, Measuring};
use super::latency::PAPER_LEN;
use super::reading::Reading;
use super::transfers::{Course, Subject};
use crate::amounts::significant;
use crate::experiment::{Claim, Declaration};
use crate::findings::{Conclusion, Finding, Judgement};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::papers::brustoloni;

const POOLED: &str = "pooled";
const DEMULTIPLEXED: &str = "early demultiplexing";

const SPLIT: &str = "8 KiB, split";
const ALIGNED: &str = "8 KiB";
const CONTIGUOUS: &str = "9,180 contiguous";
const MISALIGNED: &str = "8 KiB, misaligned";
const KNOWN: &str = "9,180 known";
const MISMATCHED: &str = "18,360 sent, 9,180 known";
const FIRST: &str = "18,360 tracked, first run";
const LATER: &str = "18,360 tracked, later runs";
const COPY: &str = "copy";

/// Data of packets that fill two granules, and of packets of 9,180 bytes and of twice as many.
const TWO_GRANULES: usize = 8 << 10;
const SHORT: usize = 9180 - HEADER;
const LONG: usize = 18_360 - HEADER;
/// Where client buffers begin that are not laid out as the server prefers.
const OFFSET: usize = 1024;
/// The factor up to which times are the same.
const SAME: f64 = 1.1;

const COURSE: Course = Course { id: "packets", rate: Rate::Bits(155_000_000), subjects };

/// The experiment.
pub(super) static PACKETS: Described = Described {
    declaration: &DECLARATION,
    measuring: Measuring::Own { steps: |options| COURSE.steps(options), sit: |options| COURSE.sit(options) },
    conclude,
};

static DECLARATION: Declaration = Declaration {
    id: COURSE.id,
    title: "End-to-end latency of transfers in several packets",
    source: brustoloni!("§8.5, figures 8.7 and 8.8"),
    claims: &[
        Claim {
            id: "splitting-little",
            text: "Where client buffers are aligned, header/data splitting makes little difference: 122 and 119 Mbit/s for 60 KB at 155 \
                   Mbit/s.",
            source: "§8.5, figure 8.7",
        },
        Claim {
            id: "alignment-of-all",
            text: "Packets of 9,180 bytes into contiguous buffers, of which only the first one's data is aligned, take nearly as long (93 \
                   Mbit/s) as packets of 8 KB of which none is (90), and longer than such packets where all are (119).",
            source: "§8.5, figure 8.7",
        },
        Claim {
            id: "misaligned-beats-copy",
            text: "Even where all data is copied at the receiver, emulated copy takes less time than copy: 90 against 78 Mbit/s.",
            source: "§8.5, figure 8.7",
        },
        Claim {
            id: "any-buffer",
            text: "With early demultiplexing and a known MTU, client buffers at any offset take as little time (121 Mbit/s) as aligned ones with \
                   pooled buffers (119 to 122).",
            source: "§8.5, figure 8.8",
        },
        Claim {
            id: "mismatch",
            text: "With packets twice as long as expected throughput falls from 121 to 100 Mbit/s, since all but the first two pages are copied.",
            source: "§8.5, figure 8.8",
        },
        Claim {
            id: "tracking",
            text: "MTU tracking converges after one transfer: later runs take as little time as with a known MTU.",
            source: "§8.5, figure 8.8",
        },
    ],
    axes: &[
        "data length, 4 to 60 KiB",
        "length of packets, sent and expected",
        "alignment",
        "medium: a wire by its rate, or AF_XDP",
        "thresholds",
    ],
    needs: &[],
};

fn subjects(_: usize) -> Vec<Subject> {
    let pooled = |series: &str, data| Subject::pooled(POOLED, series, Scheme::EmulatedCopy, data);
    let demultiplexed = |series: &str, data: usize, tracks: bool| Subject {
        figure: DEMULTIPLEXED,
        support: Support::EarlyDemultiplexing,
        receiving: Receiving { tracks, ..Receiving::of(Shape::of(SHORT)) },
        offset: Some(OFFSET),
        ..pooled(series, data)
    };
    vec![
        Subject { support: Support::Splitting, ..pooled(SPLIT, TWO_GRANULES) },
        pooled(ALIGNED, TWO_GRANULES),
        pooled(CONTIGUOUS, SHORT),
        Subject { offset: Some(OFFSET), ..pooled(MISALIGNED, TWO_GRANULES) },
        Subject { scheme: Scheme::Copy, ..pooled(COPY, TWO_GRANULES) },
        demultiplexed(KNOWN, SHORT, false),
        demultiplexed(MISMATCHED, LONG, false),
        Subject { is_first: true, ..demultiplexed(FIRST, LONG, true) },
        demultiplexed(LATER, LONG, true),
        Subject { scheme: Scheme::Copy, ..demultiplexed(COPY, SHORT, false) },
    ]
}

fn papers() -> [Paper; 2] {
    let of = |figure, title| {
        let curves = brustoloni::packet_throughputs().into_iter().filter(|curve| curve.figure == figure);
        Paper { figure, title, curves: curves.map(|curve| (curve.series, curve.throughput)).collect() }
    };
    [of(POOLED, "Several packets, pooled"), of(DEMULTIPLEXED, "Several packets, early demultiplexing")]
}

fn conclude(measurements: &Measurements) -> Conclusion {
    COURSE.conclude(measurements, &papers(), |_| true, verdicts(measurements))
}

/// The two figures over one medium.
struct Found<'m> {
    pooled: Reading<'m>,
    demultiplexed: Reading<'m>,
    /// The bytes copied for the same.
    copied: Reading<'m>,
}

fn verdicts(measurements: &Measurements) -> Vec<Finding> {
    COURSE.findings(&DECLARATION, measurements, |reading| {
        let found = Found {
            pooled: reading(POOLED, Quantity::Latency),
            demultiplexed: reading(DEMULTIPLEXED, Quantity::Latency),
            copied: reading(DEMULTIPLEXED, Quantity::Bytes),
        };
        vec![
            found.splitting_little(),
            found.alignment_of_all(),
            found.misaligned_beats_copy(),
            found.any_buffer(),
            found.mismatch(),
            found.tracking(),
        ]
    })
}

/// The median at 60 KiB.
fn at(reading: &Reading<'_>, series: &str) -> Result<f64, String> {
    reading.at(series, PAPER_LEN).ok_or_else(|| format!("{series} was not measured"))
}

impl Found<'_> {
    /// How much is copied for 60 KiB at both ends.
    fn copied(&self, series: &str) -> Result<String, String> {
        at(&self.copied, series).map(|bytes| length::approximate(bytes as u64))
    }

    fn splitting_little(&self) -> Judgement {
        let (split, whole) = (at(&self.pooled, SPLIT)?, at(&self.pooled, ALIGNED)?);
        let found = format!(
            "60 KiB take {} µs with splitting, and {} µs without.",
            significant(split),
            significant(whole)
        );
        Ok((whole.max(split) / whole.min(split) <= SAME, found))
    }

    fn alignment_of_all(&self) -> Judgement {
        let [aligned, contiguous, misaligned] =
            [at(&self.pooled, ALIGNED)?, at(&self.pooled, CONTIGUOUS)?, at(&self.pooled, MISALIGNED)?];
        let found = format!(
            "60 KiB take {} µs in packets of 9,180 bytes, {} µs in misaligned ones of 8 KiB and {} µs in aligned ones.",
            significant(contiguous),
            significant(misaligned),
            significant(aligned)
        );
        let is_near = contiguous.max(misaligned) / contiguous.min(misaligned) <= SAME;
        Ok((is_near && contiguous > aligned, found))
    }

    fn misaligned_beats_copy(&self) -> Judgement {
        let (misaligned, copy) = (at(&self.pooled, MISALIGNED)?, at(&self.pooled, COPY)?);
        let found = format!(
            "60 KiB take {} µs by emulated copy, misaligned, and {} µs by copy.",
            significant(misaligned),
            significant(copy)
        );
        Ok((misaligned < copy, found))
    }

    fn any_buffer(&self) -> Judgement {
        let (known, aligned) = (at(&self.demultiplexed, KNOWN)?, at(&self.pooled, ALIGNED)?);
        let found = format!(
            "60 KiB take {} µs with early demultiplexing at 1 KiB, {} copied, and {} µs with pooled buffers, aligned.",
            significant(known),
            self.copied(KNOWN)?,
            significant(aligned)
        );
        Ok((known <= aligned * SAME, found))
    }

    fn mismatch(&self) -> Judgement {
        let (known, mismatched) = (at(&self.demultiplexed, KNOWN)?, at(&self.demultiplexed, MISMATCHED)?);
        let found = format!(
            "60 KiB take {} µs in packets of 18,360 bytes where 9,180 are expected, {} copied, and {} µs as expected.",
            significant(mismatched),
            self.copied(MISMATCHED)?,
            significant(known)
        );
        Ok((mismatched > known, found))
    }

    fn tracking(&self) -> Judgement {
        let [first, later, known] = [
            at(&self.demultiplexed, FIRST)?,
            at(&self.demultiplexed, LATER)?,
            at(&self.demultiplexed, KNOWN)?,
        ];
        let found = format!(
            "60 KiB take {} µs the first time, {} copied, {} µs later, {} copied, and {} µs with a known MTU.",
            significant(first),
            self.copied(FIRST)?,
            significant(later),
            self.copied(LATER)?,
            significant(known)
        );
        let converges = at(&self.copied, LATER)? < at(&self.copied, FIRST)?;
        Ok((converges && later <= known * SAME, found))
    }
}

#[cfg(test)]
mod tests;
