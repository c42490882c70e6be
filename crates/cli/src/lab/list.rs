//! `genie lab list`: which experiments there are.

use genie_lab::experiments;

use crate::failure::Failure;
use crate::{output, tables};

/// List the experiments: their ids, what they measure, where it is in the papers, and which experiments they build on.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON document, with each experiment's claims.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let declarations = experiments::ALL.iter().map(|experiment| experiment.declaration());
    if args.json {
        return output::print_json(&declarations.collect::<Vec<_>>());
    }
    let mut table = tables::new(["id", "what it measures", "source", "needs"], []);
    let mut works = Vec::new();
    for one in declarations {
        let (work, place) = split(one.source);
        let number = works.iter().position(|known| *known == work).unwrap_or_else(|| {
            works.push(work);
            works.len() - 1
        });
        let source = format!("[{}] {place}", number + 1);
        table.add_row([one.id, one.title, &source, &one.needs.join(", ")]);
    }
    let works = works.iter().enumerate().map(|(index, work)| format!("[{}] {work}\n", index + 1));
    output::print(&format!("{}\n{}", tables::text(&table), tables::fold(&works.collect::<String>())))
}

/// A source's work, which several experiments have in common, and the place in it.
fn split(source: &str) -> (&str, &str) {
    let starts =
        [", §", ", chapter ", ", section ", ", table"].into_iter().filter_map(|mark| source.find(mark));
    starts.min().map_or((source, ""), |at| (&source[..at], &source[at + 2..]))
}
