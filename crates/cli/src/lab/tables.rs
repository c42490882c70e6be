//! Findings as tables, for people at a terminal.

use std::fmt::Write;

use genie_lab::conclude::Found;
use genie_lab::findings::{self, Verdict};
use owo_colors::OwoColorize;

use crate::tables;

/// The tables of experiments, their verdicts, and the notes for the reader; a smoke run's claims are not judged, which is said once.
pub(super) fn all(found: &[Found], smoke: bool, coloured: bool) -> String {
    let text: String = found.iter().map(|one| self::found(one, smoke, coloured)).collect();
    if !smoke {
        return text;
    }
    let claims: usize = found.iter().map(|one| one.declaration.claims.len()).sum();
    text + "\n"
        + &tables::fold(&format!(
            "a smoke run is too short to judge these experiments' {claims} claims; run them without --smoke"
        ))
}

/// An experiment's tables, its verdicts, and the notes for the reader.
fn found(found: &Found, smoke: bool, coloured: bool) -> String {
    let declaration = found.declaration;
    let heading = format!("{}: {}", declaration.id, declaration.title);
    let heading = tables::fold(&heading);
    let mut text = if coloured { format!("\n{}", heading.bold()) } else { format!("\n{heading}") };
    for table in &found.conclusion.tables {
        let _ = write!(text, "\n{}{}", tables::fold(&table.title), numbers(table));
    }
    text.push('\n');
    let judged = if smoke { &[] } else { declaration.claims };
    for (claim, finding) in judged.iter().zip(&found.conclusion.verdicts) {
        let words = verdict(finding.verdict, coloured);
        let claim = format!("{words}: {} ({})\n    here: {}", claim.text, claim.source, finding.found);
        text += &tables::fold(&claim);
    }
    let warnings = found.noise.warnings.iter().map(|warning| format!("noisy: {warning}"));
    let failed = found.failures.iter().map(|failed| format!("failed: {failed}"));
    let notes = found.conclusion.notes.iter().map(|note| format!("note: {note}"));
    for line in failed.chain(warnings).chain(notes) {
        text += &tables::fold(&line);
    }
    text
}

fn verdict(verdict: Verdict, coloured: bool) -> String {
    let words = verdict.words();
    match verdict {
        _ if !coloured => words.to_owned(),
        Verdict::Holds => words.green().to_string(),
        Verdict::DoesNotHold => words.red().to_string(),
        Verdict::CannotBeTested => words.yellow().to_string(),
    }
}

/// A table whose columns are aligned to the right where they hold numbers.
pub(super) fn numbers(table: &findings::Table) -> String {
    let is_number = |index: &usize| table.holds_numbers(*index);
    let mut drawn = tables::new(&table.columns, (0..table.columns.len()).filter(is_number));
    for row in &table.rows {
        drawn.add_row(row);
    }
    tables::text(&drawn)
}
