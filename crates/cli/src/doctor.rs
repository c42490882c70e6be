//! `genie doctor`: what this machine offers Genie, what each lack costs, and which command remedies it.
//!
//! How: the facts are read from the kernel, judged by a pure function, and printed. With `--fix` the remedies that are
//! settings of the running kernel are applied, and the facts are read anew, so that the printed findings are those that hold
//! afterwards.
//! Limits: a remedy lasts until the next boot. The doctor prints how to make a remedy last, and does not do it.

mod facts;
mod finding;
mod judgement;
mod remedy;
mod report;

use std::path::Path;

use crate::failure::Failure;
use crate::output;
use facts::Facts;
use finding::Finding;
use judgement::findings;
use remedy::Remedy;
use report::{Applied, Report};

/// What `genie doctor` is to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Apply the remedies until the next boot (as root), and say how to make them last.
    #[arg(long)]
    fix: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// Prints the findings; with `--fix`, applies the remedies first.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut facts = Facts::read();
    let applied = if args.fix {
        if !facts.root {
            return Err(not_root());
        }
        let applied = apply(&findings(&facts), Path::new("/"));
        facts = Facts::read();
        Some(applied)
    } else {
        None
    };
    let report = Report::new(&facts.kernel, facts.root, findings(&facts), applied);
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print_styled(&report.text(output::is_coloured()))?;
    }
    report.failed().map_or(Ok(()), Err)
}

fn not_root() -> Failure {
    Failure::could_not(
        "--fix changes settings of the kernel and needs root: run `sudo genie doctor --fix`, \
         or the commands that `genie doctor` prints",
    )
}

/// Applies each remedy that is a setting of the running kernel, below `root`.
fn apply(findings: &[Finding], root: &Path) -> Vec<Applied> {
    let remedies = findings.iter().filter_map(|finding| Some((finding.subject, finding.remedy.as_ref()?)));
    remedies
        .filter(|(_, remedy)| remedy.is_setting())
        .map(|(subject, remedy)| apply_one(subject, remedy, root))
        .collect()
}

fn apply_one(subject: &'static str, remedy: &Remedy, root: &Path) -> Applied {
    Applied {
        subject,
        command: remedy.command(true),
        lasting: remedy.lasting(true),
        error: remedy.apply(root).err().map(|error| error.to_string()),
    }
}
