//! `latency-short`: end-to-end latency of data no longer than about a granule.
//!
//! Why: below some length every scheme that avoids copying does better to copy; the thresholds decide whether it does.
//! How: once with 4 KiB granules, as the papers had, and once with those of the run, up to one granule. Thresholds are as
//! calibrated on this machine.
//! Source: J. C. Brustoloni's thesis, figure 8.2, §8.2.1.

mod verdicts;

use genie::Scheme;

use super::latency::{schemes, seating};
use super::reading::{Reading, headings};
use super::turns::{Subject, Turns, estimate, rounds, seconds};
use crate::error::{Error, Result};
use crate::experiment::{Claim, Declaration, Experiment, Options, Sitting, Step};
use crate::findings::{Conclusion, Figure, Scale, Table};
use crate::interface::Granule;
use crate::length;
use crate::measurement::{Measured, Measurements, Quantity};
use crate::parties::{Exchange, Parties};

/// The experiment.
#[derive(Debug)]
pub(super) struct LatencyShort;

const ID: &str = "latency-short";
const BASE_GRANULE: usize = 4 << 10;
const HUGE_GRANULE: usize = 2 << 20;
const LENGTHS_SMOKE: [usize; 2] = [64, 3072];
const SECONDS: f64 = 0.6;
const ROUNDS_LEAST: usize = 20;
const ROUNDS_SMOKE: usize = 3;

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "End-to-end latency of short data",
    source: "J. C. Brustoloni, Effects of Data Passing Semantics and Operating System Structure on Network I/O \
             Performance, §8.2.1, figure 8.2",
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

/// Which granules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Base,
    Run,
}

impl Setting {
    const ALL: [Self; 2] = [Self::Base, Self::Run];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4 KiB granules",
            Self::Run => "granules of the run",
        }
    }

    /// The length of a granule, as far as a run with huge pages has huge granules.
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
            (Self::Run, true, _) | (Self::Run, _, Granule::Base | Granule::Transparent) => Vec::new(),
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

/// What one step measures.
#[derive(Debug, Clone, Copy)]
struct Spot {
    setting: Setting,
    len: usize,
}

impl Spot {
    fn all(options: &Options) -> Vec<Self> {
        let of =
            |setting: Setting| setting.lengths(options).into_iter().map(move |len| Self { setting, len });
        Setting::ALL.into_iter().flat_map(of).collect()
    }

    fn name(self) -> String {
        format!("{}, {}", self.setting.name(), length::format(self.len))
    }

    fn rounds(self, options: &Options) -> usize {
        let operation = estimate(self.len, std::time::Duration::ZERO);
        let full = rounds(SECONDS, Scheme::ALL.len(), operation, ROUNDS_LEAST);
        if options.smoke { ROUNDS_SMOKE } else { full }
    }

    fn step(self, options: &Options) -> Step {
        let operation = estimate(self.len, std::time::Duration::ZERO);
        Step { name: self.name(), seconds: seconds(self.rounds(options), Scheme::ALL.len(), operation) }
    }
}

impl Experiment for LatencyShort {
    fn declaration(&self) -> &'static Declaration {
        &DECLARATION
    }

    fn steps(&self, options: &Options) -> Vec<Step> {
        Spot::all(options).into_iter().map(|spot| spot.step(options)).collect()
    }

    fn sit<'a>(&'a self, options: &'a Options) -> Result<Box<dyn Sitting + 'a>> {
        Ok(Box::new(Seated { options, open: None }))
    }

    fn conclude(&self, _options: &Options, measurements: &Measurements) -> Result<Conclusion> {
        let readings = Setting::ALL.map(|setting| reading(measurements, setting));
        let mut notes = seating(measurements, ID, &readings[0].setting);
        notes.push(
            "Thresholds are those that calibration found here: `genie calibrate` prints them. The papers' were 2048 bytes \
             for output by emulated copy and 2304 for its input."
                .to_owned(),
        );
        Ok(Conclusion {
            figures: readings.iter().filter_map(figure).collect(),
            tables: readings.iter().filter_map(table).collect(),
            verdicts: verdicts::all(&readings),
            notes,
        })
    }
}

/// The parties of one setting at a time.
struct Seated<'a> {
    options: &'a Options,
    open: Option<(Setting, Parties)>,
}

impl Seated<'_> {
    fn parties(&mut self, setting: Setting) -> Result<&mut Parties> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != setting) {
            self.open = None;
        }
        Ok(match &mut self.open {
            Some((_, parties)) => parties,
            none => {
                let longest = setting.lengths(self.options).last().copied().unwrap_or(0);
                &mut none.insert((setting, Parties::open(setting.granules(self.options), longest)?)).1
            }
        })
    }
}

impl Sitting for Seated<'_> {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let spot = Spot::all(self.options).into_iter().find(|spot| spot.name() == step.name);
        let spot = spot.ok_or_else(|| Error::NoSuchStep { experiment: ID, step: step.name.clone() })?;
        let subject = |scheme: Scheme| Subject {
            series: scheme.name().to_owned(),
            parties: 0,
            exchange: Exchange::of(scheme, spot.len),
        };
        let turns = Turns {
            setting: spot.setting.name().to_owned(),
            subjects: Scheme::ALL.into_iter().map(subject).collect(),
            rounds: spot.rounds(self.options),
            processing: false,
            seed: self.options.seed ^ spot.len as u64,
        };
        turns.take(std::slice::from_mut(self.parties(spot.setting)?))
    }
}

fn reading(measurements: &Measurements, setting: Setting) -> Reading<'_> {
    let setting = setting.name().to_owned();
    Reading { measurements, experiment: ID, setting, quantity: Quantity::Latency }
}

fn figure(reading: &Reading<'_>) -> Option<Figure> {
    let name = format!("latency-short-{}", super::reading::slug(&reading.setting));
    let title = format!("End-to-end latency of short data, {}", reading.setting);
    reading.figure(&name, &title, "end-to-end latency in µs", Scale::Linear, schemes())
}

fn table(reading: &Reading<'_>) -> Option<Table> {
    let lengths = reading.lengths(schemes());
    (!lengths.is_empty()).then(|| Table {
        title: format!("End-to-end latency in µs (medians), {}", reading.setting),
        columns: headings("scheme", &lengths),
        rows: reading.rows(&lengths, schemes()),
    })
}

#[cfg(test)]
mod tests;
