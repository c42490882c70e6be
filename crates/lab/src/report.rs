//! One page about a run: what holds and what does not, figures, tables, and the machine.
//!
//! How: a template is filled with the findings. Each figure is drawn twice, for wide and for narrow screens, and the page
//! shows the drawing that fits. Colours are variables of the page, so that figures follow its light or dark theme.
//! Invariants: the page is one file, and nothing in it makes a browser fetch another file.

mod view;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value};

use crate::conclude::Found;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::figure::palette;
use crate::store::{Entry, Record, Run};
use view::{Section, Summary};

/// The ending of this name tells the template engine to escape the text that it fills in.
const NAME: &str = "report.html";
const TEMPLATE: &str = include_str!("report/report.html");
const STYLE: &str = include_str!("report/report.css");

/// How much of a run is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Progress {
    /// Steps that were measured.
    pub measured: usize,
    /// Steps in all.
    pub steps: usize,
}

/// The data with which the template is filled.
#[derive(serde::Serialize)]
struct Page<'p> {
    style: String,
    name: String,
    when: String,
    run: &'p Record,
    progress: Progress,
    summary: Summary,
    machine: Vec<(&'static str, String)>,
    sections: Vec<Section<'p>>,
}

/// The page.
///
/// # Errors
/// The measurements are damaged.
pub fn page(run: &Run, experiments: &[&dyn Experiment], found: &[Found]) -> Result<String> {
    let page = Page {
        style: palette::variables() + STYLE,
        name: run.name(),
        when: run.record.when(),
        run: &run.record,
        progress: progress(run, experiments)?,
        summary: Summary::of(found),
        machine: view::machine(&run.record),
        sections: found.iter().map(Section::of).collect(),
    };
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template(NAME, TEMPLATE)?;
    Ok(environment.get_template(NAME)?.render(Value::from(Serde(page)))?)
}

/// How much of a run is done.
///
/// # Errors
/// The measurements are damaged.
pub fn progress(run: &Run, experiments: &[&dyn Experiment]) -> Result<Progress> {
    let mut progress = Progress { measured: 0, steps: 0 };
    for experiment in experiments {
        let id = experiment.declaration().id;
        if run.record.experiments.iter().any(|other| other == id) {
            progress.steps += experiment.steps(&run.record.options).len() * run.record.sittings;
            let entries = run.entries(id)?;
            progress.measured += entries.iter().filter(|entry| matches!(entry, Entry::Measured(_))).count();
        }
    }
    Ok(progress)
}
