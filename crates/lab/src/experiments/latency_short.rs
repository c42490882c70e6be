//! `latency-short`: end-to-end latency of data no longer than about a granule.
//!
//! Why: below some length every scheme that avoids copying is faster if it copies after all; the thresholds decide whether
//! it does.
//! How: lengths up to one granule are measured once with 4 KiB granules, as the papers had, and once with the granules of
//! the run. Thresholds are those calibrated on this machine.
//! Source: J. C. Brustoloni's thesis, figure 8.2, §8.2.1.

mod verdicts;

use super::described::{Described, Measuring};
use super::latency::{schemes, seating, shown};
use super::reading::Reading;
use super::sweep::{Setting, Sweep};
use super::turns::Subject;
use crate::experiment::{Claim, Declaration, Options};
use crate::findings::{Conclusion, Scale};
use crate::interface::Granule;
use crate::measurement::{Measurements, Quantity};
use crate::parties::Route;
use genie_net::Rate;

const ID: &str = "latency-short";
const BASE_GRANULE: usize = 4 << 10;
const HUGE_GRANULE: usize = 2 << 20;
const LENGTHS_SMOKE: [usize; 2] = [64, 3072];
const SECONDS: f64 = 0.6;
/// The number of rounds in a smoke run, and the least number otherwise.
const ROUNDS: (usize, usize) = (3, 20);

/// The experiment.
pub(super) static LATENCY_SHORT: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Sweep(sweep), conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "End-to-end latency of short data",
    source: brustoloni!("§8.2.1, figure 8.2"),
    claims: &[
        Claim {
            id: "copy-below-half",
            text: "Up to half a page emulated copy takes about as long as copy, since it copies, too.",
            source: "§8.2.1, figure 8.2",
        },
        Claim {
            id: "never-worse",
            text: "Emulated copy is never worse than copy.",
            source: "§8.2.1, figure 8.2",
        },
        Claim {
            id: "better-above-half",
            text: "Above half a page emulated copy takes less time than copy, since it swaps pages instead.",
            source: "§8.2.1, figure 8.2",
        },
        Claim {
            id: "share-lowest",
            text: "Emulated share takes the least time at every length; emulated copy's lag is greatest at half a page (220 \
                   against 154 µs).",
            source: "§8.2.1, figure 8.2",
        },
        Claim {
            id: "move-highest",
            text: "Move takes by far the longest, since it fills the rest of the page with zeros; emulated move works in \
                   place, and takes much less.",
            source: "§8.2.1, figure 8.2",
        },
        Claim {
            id: "wiring-costs",
            text: "Share and weak move take longer than their emulated counterparts, which wire nothing.",
            source: "§8.2.1, figure 8.2",
        },
    ],
    axes: &[
        "data length, 64 B to two pages or one granule",
        "scheme, the same at both ends",
        "size of the granules",
    ],
    needs: &[],
};

/// The granules of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Granules {
    Base,
    Run,
}

impl Granules {
    const ALL: [Self; 2] = [Self::Base, Self::Run];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4 KiB granules",
            Self::Run => "granules of the run",
        }
    }

    /// The length of a granule, assuming that a run with huge pages has huge granules.
    fn granule(self) -> usize {
        match self {
            Self::Base => BASE_GRANULE,
            Self::Run => HUGE_GRANULE,
        }
    }

    fn lengths(self, options: &Options) -> Vec<usize> {
        match (self, options.smoke, options.granule) {
            (Self::Base, true, _) => LENGTHS_SMOKE.to_vec(),
            (Self::Base, false, _) => [64].into_iter().chain((512..=8192).step_by(512)).collect(),
            (Self::Run, true, _) | (Self::Run, _, Granule::Base) => Vec::new(),
            (Self::Run, false, _) => {
                let eighth = HUGE_GRANULE / 8;
                [64, 4 << 10, 32 << 10, 64 << 10, 128 << 10]
                    .into_iter()
                    .chain((1..=8).map(|n| n * eighth))
                    .collect()
            }
        }
    }

    fn granules(self, options: &Options) -> Granule {
        if self == Self::Base { Granule::Base } else { options.granule }
    }
}

fn sweep(options: &Options) -> Sweep {
    let setting = |of: Granules| Setting {
        name: of.name().to_owned(),
        granule: of.granules(options),
        routes: vec![Route::Device(Rate::Unlimited)],
        lengths: of.lengths(options),
        seconds: SECONDS,
    };
    Sweep::new(ID, options, Granules::ALL.map(setting).to_vec(), Subject::schemes(), ROUNDS)
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let reading = |of: Granules| Reading::of(measurements, ID, of.name(), Quantity::Latency);
    let readings = Granules::ALL.map(reading);
    let mut notes = seating(measurements, ID, &readings[0].setting);
    notes.push(
        "Thresholds are those that calibration found here: `genie calibrate` prints them. The papers' were 2048 bytes \
         for output by emulated copy and 2304 for its input."
            .to_owned(),
    );
    let titles = ["End-to-end latency of short data, ", "End-to-end latency in µs (medians), "];
    let (figures, tables) = shown(&readings, ID, titles, Scale::Linear, schemes());
    Conclusion { figures, tables, verdicts: verdicts::all(&readings), notes }
}

#[cfg(test)]
mod tests;
