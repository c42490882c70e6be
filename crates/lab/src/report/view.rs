//! What the template is filled with.

use minijinja::Value;
use serde::Serialize;

use crate::conclude::Found;
use crate::counter::Counting;
use crate::figure::{self, Ink};
use crate::findings::{Figure, Table, Verdict};
use crate::length;
use crate::store::Record;

/// Tables of more rows than these are folded up.
const ROWS: usize = 10;

/// How many claims hold, and what makes results doubtful.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    holds: usize,
    does_not_hold: usize,
    cannot_be_tested: usize,
    /// Experiments with warnings.
    noisy: Vec<&'static str>,
    failures: usize,
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
            failures: found.iter().map(|one| one.failures.len()).sum(),
        }
    }
}

/// One experiment.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    id: &'static str,
    title: &'static str,
    source: &'static str,
    axes: String,
    claims: Vec<Claim>,
    figures: Vec<Drawing>,
    tables: Vec<View>,
    notes: Vec<String>,
    warnings: Vec<String>,
    failures: Vec<String>,
    rests_on: &'static [&'static str],
}

/// A claim beside what was found.
#[derive(Debug, Serialize)]
struct Claim {
    text: &'static str,
    source: &'static str,
    found: String,
    verdict: Verdict,
    words: &'static str,
    sign: &'static str,
}

/// A figure, drawn for two widths.
#[derive(Debug, Serialize)]
struct Drawing {
    title: String,
    wide: Value,
    narrow: Value,
    file: String,
    /// Whether there are estimates in it, or spread, which the caption explains.
    estimates: bool,
    spread: bool,
}

/// A table, and how its columns are set.
#[derive(Debug, Serialize)]
struct View {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    long: bool,
}

#[derive(Debug, Serialize)]
struct Column {
    heading: String,
    number: bool,
}

impl Section {
    pub(super) fn of(found: &Found) -> Self {
        let (declaration, conclusion) = (found.declaration, &found.conclusion);
        let claims = declaration.claims.iter().zip(&conclusion.verdicts).map(|(claim, finding)| Claim {
            text: claim.text,
            source: claim.source,
            found: finding.found.clone(),
            verdict: finding.verdict,
            words: finding.verdict.words(),
            sign: sign(finding.verdict),
        });
        let failure = |failed: &crate::store::Failed| {
            format!("{}, sitting {}: {}", failed.step, failed.sitting + 1, failed.error)
        };
        let mut warnings = found.noise.warnings.clone();
        if !found.noisy_needs.is_empty() {
            warnings.push(format!("It rests on noisy measurements: {}.", found.noisy_needs.join(", ")));
        }
        Self {
            id: declaration.id,
            title: declaration.title,
            source: declaration.source,
            axes: declaration.axes.join("; "),
            claims: claims.collect(),
            figures: conclusion.figures.iter().map(|figure| Drawing::of(declaration.id, figure)).collect(),
            tables: conclusion.tables.iter().map(View::of).collect(),
            notes: conclusion.notes.clone(),
            warnings,
            failures: found.failures.iter().map(failure).collect(),
            rests_on: declaration.needs,
        }
    }
}

/// A sign that differs in form, not in colour alone.
fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✓",
        Verdict::DoesNotHold => "✕",
        Verdict::CannotBeTested => "–",
    }
}

impl Drawing {
    fn of(id: &str, figure: &Figure) -> Self {
        // Within the page, the name space goes without saying; and its drawing is nobody's text to be escaped.
        let draw = |shape| {
            let svg = figure::draw(figure, shape, Ink::OfPage);
            Value::from_safe_string(svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1))
        };
        Self {
            title: figure.title.clone(),
            wide: draw(figure::WIDE),
            narrow: draw(figure::NARROW),
            file: figure::file(id, figure),
            estimates: figure.curves.iter().any(|curve| !curve.measured),
            spread: figure.curves.iter().flat_map(|curve| &curve.points).any(|point| point.low.is_some()),
        }
    }
}

impl View {
    fn of(table: &Table) -> Self {
        let column = |(index, heading): (usize, &String)| Column {
            heading: heading.clone(),
            number: table.holds_numbers(index),
        };
        Self {
            title: table.title.clone(),
            columns: table.columns.iter().enumerate().map(column).collect(),
            rows: table.rows.clone(),
            long: table.rows.len() > ROWS,
        }
    }
}

/// Facts about the machine, each with its name.
pub(super) fn machine(record: &Record) -> Vec<(&'static str, String)> {
    let (machine, circumstances) = (&record.machine, &record.circumstances);
    let unknown = || "not told".to_owned();
    let pages = machine.huge_pages;
    vec![
        ("CPU", machine.cpu.clone()),
        ("CPUs to use", machine.cpus.to_string()),
        ("Caches of one", some(circumstances.caches.join(", "))),
        (
            "Clock frequency",
            circumstances.frequency_mhz.map_or_else(unknown, |mhz| format!("{mhz} MHz at the beginning")),
        ),
        ("Frequency governor", circumstances.governor.clone().unwrap_or_else(unknown)),
        ("Turbo", circumstances.turbo.map_or_else(unknown, |on| if on { "on" } else { "off" }.to_owned())),
        ("Memory", length::approximate(machine.memory)),
        ("Kernel", format!("Linux {}", machine.kernel)),
        ("Granules", machine.granules.clone()),
        ("Huge pages", format!("{} of {} free at the beginning", pages.free, pages.total)),
        ("Transparent huge pages", circumstances.transparent_huge_pages.clone().unwrap_or_else(unknown)),
        (
            "Faults caught by",
            machine.userfaultfd.as_deref().unwrap_or("nothing: stores into output are not caught").to_owned(),
        ),
        ("Instructions", circumstances.instructions.as_ref().map_or_else(unknown, counted)),
        ("Clock", circumstances.clock.clone().unwrap_or_else(unknown)),
        ("Load at the beginning", format!("{:.2}", machine.load)),
    ]
}

fn counted(instructions: &Counting) -> String {
    instructions
        .modes
        .map_or_else(|| "cannot be counted".to_owned(), |modes| format!("counted {}", modes.words()))
}

fn some(text: String) -> String {
    if text.is_empty() { "not told".to_owned() } else { text }
}
