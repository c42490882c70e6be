//! The data with which the report's template is filled.

use minijinja::Value;
use serde::Serialize;

use crate::conclude::Found;
use crate::counter::Counting;
use crate::experiment::{Claim, Declaration};
use crate::figure::{self, Ink};
use crate::findings::{Figure, Finding, Table, Verdict};
use crate::length;
use crate::store::Record;

/// Tables of more rows than this are folded up.
const ROWS: usize = 10;

/// How many claims hold, and what makes the results doubtful.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    holds: usize,
    does_not_hold: usize,
    cannot_be_tested: usize,
    /// Experiments with warnings.
    noisy: Vec<&'static str>,
}

impl Summary {
    pub(super) fn of(found: &[Found]) -> Self {
        let verdicts = || found.iter().flat_map(|one| &one.conclusion.verdicts);
        let count = |verdict| verdicts().filter(|finding| finding.verdict == verdict).count();
        let noisy = found.iter().filter(|one| !one.noise.warnings.is_empty());
        Self {
            holds: count(Verdict::Holds),
            does_not_hold: count(Verdict::DoesNotHold),
            cannot_be_tested: count(Verdict::CannotBeTested),
            noisy: noisy.map(|one| one.declaration.id).collect(),
        }
    }
}

/// One experiment.
#[derive(Debug, Serialize)]
pub(super) struct Section<'f> {
    declaration: &'static Declaration,
    claims: Vec<Judged<'f>>,
    figures: Vec<Drawing<'f>>,
    tables: Vec<View<'f>>,
    notes: &'f [String],
    warnings: Vec<String>,
    failures: Vec<String>,
}

/// A claim beside what was found.
#[derive(Debug, Serialize)]
struct Judged<'f> {
    claim: &'static Claim,
    finding: &'f Finding,
    words: &'static str,
    sign: &'static str,
}

/// A figure, drawn for two widths.
#[derive(Debug, Serialize)]
struct Drawing<'f> {
    title: &'f str,
    wide: Value,
    narrow: Value,
    file: String,
    /// Whether the drawing has estimates, or spread, which the caption explains.
    estimates: bool,
    spread: bool,
}

/// A table, and how it is laid out.
#[derive(Debug, Serialize)]
struct View<'f> {
    table: &'f Table,
    /// Whether each column holds numbers.
    numbers: Vec<bool>,
    long: bool,
}

impl<'f> Section<'f> {
    pub(super) fn of(found: &'f Found) -> Self {
        let (declaration, conclusion) = (found.declaration, &found.conclusion);
        let claims = declaration.claims.iter().zip(&conclusion.verdicts).map(|(claim, finding)| Judged {
            claim,
            finding,
            words: finding.verdict.words(),
            sign: sign(finding.verdict),
        });
        let mut warnings = found.noise.warnings.clone();
        if !found.noisy_needs.is_empty() {
            warnings.push(format!("It rests on noisy measurements: {}.", found.noisy_needs.join(", ")));
        }
        Self {
            declaration,
            claims: claims.collect(),
            figures: conclusion.figures.iter().map(|figure| Drawing::of(declaration.id, figure)).collect(),
            tables: conclusion.tables.iter().map(View::of).collect(),
            notes: &conclusion.notes,
            warnings,
            failures: found.failures.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The sign for a verdict; signs differ in form, not only in colour.
fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✓",
        Verdict::DoesNotHold => "✕",
        Verdict::CannotBeTested => "–",
    }
}

impl<'f> Drawing<'f> {
    fn of(id: &str, figure: &'f Figure) -> Self {
        // Within a page, a drawing needs no XML name space, and must not be escaped as text.
        let draw = |shape| {
            let svg = figure::draw(figure, shape, Ink::OfPage);
            Value::from_safe_string(svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1))
        };
        Self {
            title: &figure.title,
            wide: draw(figure::WIDE),
            narrow: draw(figure::NARROW),
            file: figure::file(id, figure),
            estimates: figure.curves.iter().any(|curve| !curve.measured),
            spread: figure.curves.iter().flat_map(|curve| &curve.points).any(|point| point.low.is_some()),
        }
    }
}

impl<'f> View<'f> {
    fn of(table: &'f Table) -> Self {
        let numbers = (0..table.columns.len()).map(|column| table.holds_numbers(column)).collect();
        Self { table, numbers, long: table.rows.len() > ROWS }
    }
}

/// Facts about the machine, each with its name.
pub(super) fn machine(record: &Record) -> Vec<(&'static str, String)> {
    let (machine, circumstances) = (&record.machine, &record.circumstances);
    let told = |fact: Option<String>| fact.unwrap_or_else(|| "not told".to_owned());
    let pages = machine.huge_pages;
    let caches = Some(circumstances.caches.join(", ")).filter(|caches| !caches.is_empty());
    let frequency = circumstances.frequency_mhz.map(|mhz| format!("{mhz} MHz at the beginning"));
    let faults = machine.userfaultfd.as_deref().unwrap_or("nothing: stores into output are not caught");
    vec![
        ("CPU", machine.cpu.clone()),
        ("CPUs to use", machine.cpus.to_string()),
        ("Caches of one", told(caches)),
        ("Clock frequency", told(frequency)),
        ("Frequency governor", told(circumstances.governor.clone())),
        ("Turbo", told(circumstances.turbo.map(|on| if on { "on" } else { "off" }.to_owned()))),
        ("Memory", length::approximate(machine.memory)),
        ("Kernel", format!("Linux {}", machine.kernel)),
        ("Granules", machine.granules.clone()),
        ("Huge pages", format!("{} of {} free at the beginning", pages.free, pages.total)),
        ("Transparent huge pages", told(circumstances.transparent_huge_pages.clone())),
        ("Faults caught by", faults.to_owned()),
        ("Instructions", told(circumstances.instructions.as_ref().map(counted))),
        ("Clock", told(circumstances.clock.clone())),
        ("Load at the beginning", format!("{:.2}", machine.load)),
    ]
}

fn counted(instructions: &Counting) -> String {
    instructions
        .modes
        .map_or_else(|| "cannot be counted".to_owned(), |modes| format!("counted {}", modes.words()))
}
