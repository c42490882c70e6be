//! What the doctor prints: a table and the commands below it, or one JSON document.
//!
//! Commands are printed below the table, one to a line and never wrapped, so that they can be copied.

use std::fmt::Write;

use comfy_table::Table;
use owo_colors::OwoColorize;

use super::finding::{Finding, State};
use crate::failure::Failure;
use crate::tables;

/// The beginnings of the lines that start a row; continued lines begin otherwise.
const FIRST_COLUMN: [&str; 2] = ["", " "];

/// A remedy that `--fix` applied, or tried to.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Applied {
    pub(super) subject: &'static str,
    pub(super) command: String,
    pub(super) lasting: Option<String>,
    /// Why it could not be applied.
    pub(super) error: Option<String>,
}

/// One finding with its commands.
#[derive(Debug, Clone, serde::Serialize)]
struct Entry {
    #[serde(flatten)]
    finding: Finding,
    command: Option<String>,
    lasting: Option<String>,
}

/// Everything that one call of the doctor says.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Report {
    kernel: String,
    /// Whether root asked.
    root: bool,
    findings: Vec<Entry>,
    /// What `--fix` did; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<Vec<Applied>>,
}

impl Report {
    /// Makes a report of the findings that hold now and the remedies that were applied before.
    pub(super) fn new(
        kernel: &str,
        root: bool,
        findings: Vec<Finding>,
        applied: Option<Vec<Applied>>,
    ) -> Self {
        let findings = findings.into_iter().map(|finding| Entry::new(finding, root)).collect();
        Self { kernel: kernel.to_owned(), root, findings, applied }
    }

    /// The failure that names the remedies that could not be applied.
    pub(super) fn failed(&self) -> Option<Failure> {
        let applied = self.applied.iter().flatten();
        let failed: Vec<_> = applied
            .filter_map(|applied| Some(format!("{} ({})", applied.command, applied.error.as_deref()?)))
            .collect();
        (!failed.is_empty()).then(|| Failure::could_not(format!("not applied: {}", failed.join("; "))))
    }

    /// The report for people.
    pub(super) fn text(&self, coloured: bool) -> String {
        let who = if self.root { "root" } else { "an ordinary user" };
        let mut text = format!("Linux {}, for you as {who}\n\n", self.kernel);
        for line in tables::text(&self.table()).lines() {
            text.push_str(&paint(line, coloured));
            text.push('\n');
        }
        self.write_applied(&mut text);
        let remedies = self.commands(|entry| entry.command.as_deref());
        write_commands(&mut text, "To remedy, until the next boot:", &remedies);
        self.write_lasting(&mut text);
        text
    }

    fn table(&self) -> Table {
        let mut table = tables::new(["state", "facility", "found", "what it means"], []);
        for Entry { finding, .. } in &self.findings {
            table.add_row([finding.state.name(), finding.subject, &finding.found, &finding.meaning]);
        }
        table
    }

    fn write_applied(&self, text: &mut String) {
        let Some(applied) = &self.applied else { return };
        text.push_str("\nApplied, until the next boot:\n");
        if applied.is_empty() {
            text.push_str("  nothing: no setting of the kernel stands in the way\n");
        }
        for one in applied {
            let outcome =
                one.error.as_deref().map_or("done".to_owned(), |error| format!("not done: {error}"));
            let _ = writeln!(text, "  {}  # {}, {outcome}", one.command, one.subject);
        }
    }

    /// Prints how to make remedies last, for applied remedies and for those still to be applied.
    fn write_lasting(&self, text: &mut String) {
        let applied = self.applied.iter().flatten().filter(|one| one.error.is_none());
        let mut commands: Vec<_> =
            applied.filter_map(|one| Some((one.subject, one.lasting.as_deref()?))).collect();
        for command in self.commands(|entry| entry.lasting.as_deref()) {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        write_commands(text, "To make that last:", &commands);
    }

    fn commands<'a>(&'a self, of: impl Fn(&'a Entry) -> Option<&'a str>) -> Vec<(&'static str, &'a str)> {
        self.findings.iter().filter_map(|entry| Some((entry.finding.subject, of(entry)?))).collect()
    }
}

impl Entry {
    fn new(finding: Finding, root: bool) -> Self {
        let remedy = finding.remedy.as_ref();
        let command = remedy.map(|remedy| remedy.command(root));
        let lasting = remedy.and_then(|remedy| remedy.lasting(root));
        Self { finding, command, lasting }
    }
}

fn write_commands(text: &mut String, heading: &str, commands: &[(&str, &str)]) {
    if commands.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}");
    for (subject, command) in commands {
        let _ = writeln!(text, "  {command}  # {subject}");
    }
}

/// Colours the state at the start of a row.
fn paint(line: &str, coloured: bool) -> String {
    if !coloured {
        return line.to_owned();
    }
    for state in [State::Ok, State::Degraded, State::Missing] {
        let word = state.name();
        if let Some((before, after)) = line.split_once(word)
            && FIRST_COLUMN.contains(&before)
        {
            let painted = match state {
                State::Ok => word.green().to_string(),
                State::Degraded => word.yellow().to_string(),
                State::Missing => word.red().to_string(),
            };
            return format!("{before}{painted}{after}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests;
