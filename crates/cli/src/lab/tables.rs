//! What was found, for people at a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use genie_lab::conclude::Found;
use genie_lab::findings::{self, Verdict};
use owo_colors::OwoColorize;

/// An experiment's tables, its verdicts, and what the reader must know besides.
pub(super) fn found(found: &Found, coloured: bool) -> String {
    let declaration = found.declaration;
    let heading = format!("{}: {}", declaration.id, declaration.title);
    let mut text = if coloured { format!("\n{}\n", heading.bold()) } else { format!("\n{heading}\n") };
    for table in &found.conclusion.tables {
        let _ = write!(text, "\n{}\n{}", table.title, numbers(table));
    }
    text.push('\n');
    for (claim, finding) in declaration.claims.iter().zip(&found.conclusion.verdicts) {
        let words = verdict(finding.verdict, coloured);
        let _ = writeln!(text, "{words}: {} ({})\n    here: {}", claim.text, claim.source, finding.found);
    }
    let warnings = found.noise.warnings.iter().map(|warning| format!("noisy: {warning}"));
    let failed = found
        .failures
        .iter()
        .map(|failed| format!("failed: {}, sitting {}: {}", failed.step, failed.sitting + 1, failed.error));
    let notes = found.conclusion.notes.iter().map(|note| format!("note: {note}"));
    for line in failed.chain(warnings).chain(notes) {
        let _ = writeln!(text, "{line}");
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

/// A table whose columns are set right where they hold numbers.
pub(super) fn numbers(table: &findings::Table) -> String {
    let mut drawn = plain(&table.columns);
    for row in &table.rows {
        drawn.add_row(row);
    }
    for (index, column) in drawn.column_iter_mut().enumerate() {
        if table.holds_numbers(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&drawn)
}

/// A table of words, which wraps at the terminal's width.
pub(super) fn wrapped(columns: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut drawn = plain(columns);
    drawn.set_content_arrangement(ContentArrangement::Dynamic);
    rows.for_each(|row| {
        drawn.add_row(row);
    });
    lines(&drawn)
}

fn plain(columns: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(columns);
    table
}

fn lines(table: &Table) -> String {
    table.to_string().lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}
