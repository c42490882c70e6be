//! The contents of `run.json`: how a run is made, and on which machine.

use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::SCHEMA;
use crate::circumstances::Circumstances;
use crate::error::Result;
use crate::experiment::Options;
use crate::machine::{Before, Machine};

/// How a run is made, and on which machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The version of the schema.
    pub schema: u64,
    /// The time when it began, in UTC, to the second: `2026-11-21T13:40:12Z`.
    pub started: String,
    /// The version of the library.
    pub version: String,
    /// The revision of the sources, where they are at hand.
    pub revision: Option<String>,
    /// The command that began it.
    pub command: String,
    /// The experiments that it consists of, in order.
    pub experiments: Vec<String>,
    /// How the experiments are made.
    pub options: Options,
    /// How often each experiment is made.
    pub sittings: usize,
    /// The machine on which the run is made.
    pub machine: Machine,
    /// Other circumstances of the machine that can change the results.
    pub circumstances: Circumstances,
}

impl Record {
    /// Describes a run that begins now, by looking at the machine.
    ///
    /// # Errors
    /// There is no memory with such granules.
    pub fn begin(
        command: String,
        experiments: Vec<String>,
        options: Options,
        sittings: usize,
    ) -> Result<Self> {
        let before = Before::read();
        // Where raising the limit fails, wiring fails later, and its error says why.
        let _ = genie_sys::machine::raise_memory_lock_limit();
        let space = options.granule.space()?;
        Ok(Self {
            schema: SCHEMA,
            started: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: revision(),
            command,
            experiments,
            options,
            sittings,
            machine: Machine::describe(&space, before),
            circumstances: Circumstances::read(),
        })
    }

    /// The name of its folder: `2026-11-21T13-40-12`, with `-smoke` after it for a smoke run.
    pub fn name(&self) -> String {
        let time = self.started.trim_end_matches('Z').replace(':', "-");
        if self.options.smoke { time + "-smoke" } else { time }
    }

    /// The time when it began, for people: `21 November 2026, 13:40 UTC`.
    pub fn when(&self) -> String {
        let time: std::result::Result<Timestamp, _> = self.started.parse();
        time.map_or_else(|_| self.started.clone(), |time| time.strftime("%-d %B %Y, %H:%M UTC").to_string())
    }
}

/// The revision of the sources: as the build was told; otherwise as git tells, if the sources are still in place.
fn revision() -> Option<String> {
    if let Some(revision) = option_env!("GENIE_REVISION") {
        return Some(revision.to_owned());
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = ["describe", "--always", "--dirty", "--abbrev=12"];
    let output = Command::new("git").arg("-C").arg(sources).args(git).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
