//! `adapters`: under which conditions data is passed without a copy, for each level of support by the network adapter.
//!
//! How: a trial has a level and a set of conditions that hold; all others are broken. Transfers come in packets from a wire, clients
//! receive them by emulated copy, with all thresholds off, and the bytes that the host has copied are counted: those of the clients'
//! receipts, and those of the server. What the wire copies stands for DMA and does not count. For each level there is a trial in which
//! those conditions hold that the thesis says it needs, and nothing else; and for each condition one in which that one is broken, too.
//! Copying is *avoided* where no more than edges are copied: at the beginning and at the end of a packet's data as many bytes as a header
//! has, since they lie on granules with headers. At the edges of a request nothing needs to be copied: there is nothing else on the
//! granules of the client's buffer.
//! Differs: lengths that are to break conditions 5 and 6 are no multiples of a granule. The thesis requires multiples of L, but what is
//! aligned stays so with any multiples of a granule.
//! Source: J. C. Brustoloni's thesis, chapter 6, table 6.1.

mod conditions;
mod trial;

use genie_net::adapter::Support;

use self::conditions::{ALL, Held, Mark, TEXTS, marks, needed};
use self::trial::Trial;
use super::described::{Described, Measuring};
use super::link::name;
use super::reading::{MISSING, Reading, findings};
use crate::amounts::significant;
use crate::error::{Error, Result};
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use crate::findings::{Conclusion, Judgement, Table, row};
use crate::measurement::{Measured, Measurements, Quantity};

const ID: &str = "adapters";

/// The levels, as the thesis has them. It has no column for the second one.
const LEVELS: [Support; 5] =
    [Support::Pooled, Support::Splitting, Support::EarlyDemultiplexing, Support::SnapOff, Support::Outboard];

/// How often a trial is made: in a smoke run, and otherwise.
const TRIALS: (usize, usize) = (1, 3);

/// The experiment.
pub(super) static ADAPTERS: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "What each level of support by the adapter needs for data to be passed without a copy",
    source: brustoloni!("chapter 6, table 6.1"),
    claims: &[
        Claim {
            id: "pooled",
            text: "Pooled in-host buffering needs client buffers of preferred alignment, headers of fixed length, packets of a known \
                   length of data, and either transfers and client buffers that are multiples of that length, or known transfer \
                   lengths.",
            source: "§6.1, table 6.1",
        },
        Claim {
            id: "splitting",
            text: "Header/data splitting needs no less than that.",
            source: "§6.2, §8.6",
        },
        Claim {
            id: "early-demultiplexing",
            text: "Early demultiplexing needs requests before the data comes, known transfer lengths, and predictable lengths of headers, \
                   data and trailers.",
            source: "§6.4, table 6.1",
        },
        Claim {
            id: "snap-off",
            text: "Buffer snap-off needs requests before the data comes, and nothing else.",
            source: "§6.5, table 6.1",
        },
        Claim { id: "outboard", text: "Outboard buffering needs nothing.", source: "§6.6, table 6.1" },
    ],
    axes: &["level of support by the adapter", "conditions that hold"],
    needs: &[],
};

fn steps(options: &Options) -> Vec<Step> {
    let seconds = |support| trials(support).len() as f64 * trials_each(options) as f64 * 5e-3;
    LEVELS.map(|support| Step { name: name(support).to_owned(), seconds: seconds(support) }).to_vec()
}

fn trials_each(options: &Options) -> usize {
    if options.smoke { TRIALS.0 } else { TRIALS.1 }
}

/// The trials of a level.
fn trials(support: Support) -> Vec<Trial> {
    conditions::sets(support).into_iter().map(|held| Trial { support, held }).collect()
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    Ok(Box::new(Seated(trials_each(options))))
}

/// A sitting, in which each trial is made so often.
struct Seated(usize);

impl Sitting for Seated {
    fn measure(&mut self, step: &Step) -> Result<Vec<Measured>> {
        let level = LEVELS.into_iter().find(|level| name(*level) == step.name);
        let unknown = || Error::NoSuchStep { experiment: ID, step: step.name.clone() };
        let mut measured = Vec::new();
        for trial in trials(level.ok_or_else(unknown)?) {
            let copied = (0..self.0).map(|_| trial.make()).collect::<Result<Vec<_>>>()?;
            let (setting, series) = (trial.held.name(), name(trial.support));
            measured.push(Measured::new(setting, series, trial.passed(), Quantity::Bytes, copied));
        }
        Ok(measured)
    }
}

fn conclude(measurements: &Measurements) -> Conclusion {
    let found = Found(measurements);
    let judgements = LEVELS.map(|support| found.judge(support)).to_vec();
    Conclusion {
        figures: Vec::new(),
        tables: vec![found.matrix(), found.shares()],
        verdicts: findings(&DECLARATION, Ok(judgements)),
        notes: vec![
            format!(
                "L is {} bytes of data, two granules; headers have {} bytes where they are fixed. Copying counts as avoided where no more than {} bytes of \
                 each packet are copied.",
                trial::L,
                genie_net::transfer::HEADER,
                trial::EDGES
            ),
            found.multiples(),
        ],
    }
}

/// What was found.
struct Found<'m>(&'m Measurements);

impl Found<'_> {
    /// The share of the bytes passed that was copied.
    fn share(&self, support: Support, held: Held) -> Option<f64> {
        let reading = Reading::of(self.0, ID, held.name(), Quantity::Bytes);
        let (passed, copied) = reading.medians(name(support)).first().copied()?;
        Some(copied / passed as f64)
    }

    /// Whether copying was avoided.
    fn avoids(&self, support: Support, held: Held) -> Option<bool> {
        let bound = Trial { support, held }.bound();
        self.share(support, held).map(|share| share <= bound)
    }

    /// The level's column of table 6.1.
    fn marks(&self, support: Support) -> Option<[Mark; 7]> {
        marks(support, |held| self.avoids(support, held))
    }

    fn judge(&self, support: Support) -> Judgement {
        let missing = || format!("{} was not tried", name(support));
        let marks = self.marks(support).ok_or_else(missing)?;
        let base = self.share(support, needed(support)).ok_or_else(missing)?;
        let is_avoided = self.avoids(support, needed(support)).ok_or_else(missing)?;
        let list = |mark| {
            let numbers = ALL.into_iter().zip(marks).filter(|(_, one)| *one == mark);
            numbers.map(|(number, _)| number.to_string()).collect::<Vec<_>>()
        };
        let (required, either) = (list(Mark::Required), list(Mark::Either));
        let needs = match (required.is_empty(), either.is_empty()) {
            (true, true) => "none of the conditions is required".to_owned(),
            (_, true) => format!("required: {}", required.join(", ")),
            (true, _) => format!("required: {}", either.join(" or ")),
            _ => format!("required: {}, and {}", required.join(", "), either.join(" or ")),
        };
        let found = format!(
            "Where these hold and no others, {} % of the bytes are copied; {needs} (numbers of table 6.1).",
            significant(base * 100.0)
        );
        Ok((is_avoided && marks == conditions::thesis(support), found))
    }

    fn matrix(&self) -> Table {
        let cells = |index: usize| {
            LEVELS.map(|support| {
                self.marks(support).map_or_else(|| MISSING.to_owned(), |marks| marks[index].text().to_owned())
            })
        };
        let rows =
            TEXTS.iter().enumerate().map(|(index, text)| row(format!("{} {text}", index + 1), cells(index)));
        let is_equal =
            LEVELS.iter().all(|support| self.marks(*support) == Some(conditions::thesis(*support)));
        let title = format!(
            "Conditions for input without copying (x: required, y: either is required): {} table 6.1",
            if is_equal { "equal to" } else { "not equal to" }
        );
        Table::new(title, columns("condition"), rows)
    }

    fn shares(&self) -> Table {
        let cell = |support, held: Held| {
            let share = self.share(support, held)?;
            Some(significant(share * 100.0))
        };
        let cells = |of: &dyn Fn(Support) -> Option<Held>| {
            LEVELS.map(|support| {
                of(support).and_then(|held| cell(support, held)).unwrap_or_else(|| MISSING.to_owned())
            })
        };
        let mut rows =
            vec![row("what it needs holds, and nothing else", cells(&|support| Some(needed(support))))];
        rows.extend(ALL.map(|number| {
            row(
                format!("and {number} is broken"),
                cells(&|support| Some(conditions::broken(support, number))),
            )
        }));
        rows.push(row("and 5 and 6 are broken", cells(&conditions::neither)));
        Table::new("Bytes that the host copied, in per cent of those passed", columns("conditions"), rows)
    }

    /// Whether for early demultiplexing condition 5 serves in place of 6.
    fn multiples(&self) -> String {
        let support = Support::EarlyDemultiplexing;
        let shares = conditions::MULTIPLES.map(|held| self.share(support, held));
        let [Some(with), Some(without)] = shares else { return "Multiples of L were not tried.".to_owned() };
        format!(
            "With early demultiplexing, condition 5 serves in place of 6 where 3 and 4 hold, too: {} % of the bytes are copied, and {} % \
             where 3 and 4 are broken.",
            significant(with * 100.0),
            significant(without * 100.0)
        )
    }
}

fn columns(first: &str) -> Vec<String> {
    row(first, LEVELS.map(|support| name(support).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::synthetic;
    use crate::interface::Granule;

    #[test]
    fn each_level_needs_what_table_6_1_says() {
        let options = Options { smoke: true, granule: Granule::Base, seed: 1 };
        let mut sitting = sit(&options).expect("a sitting");
        let steps = steps(&options).into_iter();
        let measured = steps.flat_map(|step| sitting.measure(&step).expect("trials")).collect();
        let steps = vec![synthetic::step(ID, measured)];
        let conclusion = conclude(&Measurements { steps, ..Measurements::default() });
        conclusion.check_tables();
        assert!(conclusion.tables[0].title.ends_with(": equal to table 6.1"), "{conclusion:#?}");
    }
}
