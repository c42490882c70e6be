//! Where costs are remembered.

use std::fs;
use std::io;
use std::path::PathBuf;

use genie_memory::{GranuleKind, Protection, Space};
use genie_sys::{inspect, machine};
use serde::{Deserialize, Serialize};

use super::{Circumstances, Measured};

/// Raised whenever the meaning of a cost changes.
const VERSION: u32 = 7;

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    kernel: String,
    cpu: String,
    granule: String,
    #[serde(flatten)]
    measured: Measured,
}

impl Stored {
    fn of(space: &Space, measured: Measured) -> Self {
        Self {
            version: VERSION,
            kernel: machine::kernel_release(),
            cpu: cpu(),
            granule: name(space),
            measured,
        }
    }

    /// Whether they were measured here, by the same kind of build.
    fn hold_for(&self, space: &Space) -> bool {
        let here = (VERSION, &machine::kernel_release(), &cpu(), &name(space));
        (self.version, &self.kernel, &self.cpu, &self.granule) == here
            && self.measured.circumstances.optimized == Circumstances::of_this_build(0.0).optimized
    }
}

/// The file that holds the costs for a space like this one: in `$GENIE_CACHE_DIR`, else `$XDG_CACHE_HOME/genie`, else
/// `~/.cache/genie`.
pub fn path(space: &Space) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("GENIE_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("genie")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/genie")))?;
    // A build without optimizations runs at other costs, and another version counts others: none rules the others' thresholds.
    let build = if cfg!(debug_assertions) { "-debug" } else { "" };
    Some(folder.join(format!("costs-{VERSION}-{}{build}.json", name(space))))
}

/// Loads the costs stored for this machine, granule kind and kind of build; none when none are stored, or the stored ones are of
/// another machine or do not say how they were measured.
pub fn load(space: &Space) -> Option<Measured> {
    let text = fs::read_to_string(path(space)?).ok()?;
    let stored: Stored = serde_json::from_str(&text).ok()?;
    stored.hold_for(space).then_some(stored.measured)
}

/// Stores costs; a reader finds the old file or the new one, never half of one. Returns where they are.
///
/// # Errors
/// The folder cannot be made or written, or there is no home to put it in.
pub fn store(space: &Space, measured: &Measured) -> io::Result<PathBuf> {
    let path = path(space).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "HOME is not set"))?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(&Stored::of(space, measured.clone()))?;
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, &path).inspect_err(|_| drop(fs::remove_file(&draft)))?;
    Ok(path)
}

/// The number and model of the processors, as far as the machine says.
fn cpu() -> String {
    let count = machine::cpu_count().unwrap_or_default();
    format!("{count} x {}", machine::cpu_model().unwrap_or_default())
}

/// What the space's granules are made of. Where granules of reserved huge pages are wanted, but there are none, and none are
/// free, the space's own objects are made of collapsed pages.
pub(super) fn kind(space: &Space) -> GranuleKind {
    match space.granule_kind() {
        GranuleKind::Huge if space.made_of().reserved == 0 && !are_huge_pages_free() => {
            GranuleKind::Collapsed
        }
        kind => kind,
    }
}

fn are_huge_pages_free() -> bool {
    inspect::huge_pages().is_ok_and(|pages| pages.free > pages.reserved)
}

fn name(space: &Space) -> String {
    let granule = match kind(space) {
        GranuleKind::Huge => "2m",
        GranuleKind::Collapsed => "2m-collapsed",
        GranuleKind::Base => "4k",
    };
    let unprotected = matches!(space.protection(), Protection::None(_));
    if unprotected { format!("{granule}-unprotected") } else { granule.to_owned() }
}
