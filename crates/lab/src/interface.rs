//! The interface that the commands measure: the user chooses its granules, and its costs are remembered or measured.

use genie::mechanism::{Granularity, GranuleKind, Passing, Space};
use genie::{Interface, Limits};
use genie_memory::Config;
use genie_passing::Recorder;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// The granules that the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granule {
    /// 2 MiB huge pages where the machine has free ones, else transparent huge pages, else 4 KiB pages.
    Best,
    /// Reserved 2 MiB huge pages, or an error.
    Huge,
    /// 4 KiB pages.
    #[value(name = "4k")]
    Base,
    /// 4 KiB pages that the kernel may join to huge ones.
    Transparent,
}

impl Granule {
    fn granularity(self) -> Granularity {
        match self {
            Self::Best => Granularity::Best,
            Self::Huge => Granularity::Only(GranuleKind::Huge),
            Self::Base => Granularity::Only(GranuleKind::Base),
            Self::Transparent => Granularity::Only(GranuleKind::Transparent),
        }
    }

    /// Makes a space of such granules.
    pub fn space(self) -> Result<Space> {
        let config = Config { granularity: self.granularity(), ..Config::default() };
        Ok(Space::new(&config)?)
    }

    /// Opens an interface with such granules that lets one request be as large as the space. The first time on a
    /// machine, this measures costs for a fraction of a second.
    pub fn open(self) -> Result<Interface> {
        self.open_with(|passing| passing)
    }

    /// The same, with an engine that records the times of operations.
    pub fn open_recorded(self, recorder: &'static Recorder) -> Result<Interface> {
        self.open_with(|passing| passing.with_recorder(recorder))
    }

    fn open_with(self, adjust: impl FnOnce(Passing) -> Passing) -> Result<Interface> {
        let space = self.space()?;
        let costs = genie_passing::calibration::load_or_measure(&space)?;
        let limits = Limits { pending_bytes: usize::MAX, ..Limits::default() };
        Ok(Interface::new(adjust(Passing::new(space, costs)), limits))
    }
}

/// A granule kind in words.
pub fn describe(kind: GranuleKind) -> &'static str {
    match kind {
        GranuleKind::Huge => "2 MiB (huge pages)",
        GranuleKind::Transparent => "4 KiB (transparent huge pages)",
        GranuleKind::Base => "4 KiB",
    }
}

/// What is lost with small granules, and how to get large ones; none for large granules.
pub fn loss(kind: GranuleKind) -> Option<&'static str> {
    (kind != GranuleKind::Huge).then_some(
        "with 4 KiB granules, protecting and swapping cost about as much as copying, so that emulated copy gains little; \
         2 MiB granules make it many times cheaper: sudo sysctl vm.nr_hugepages=256, or sudo genie doctor --fix",
    )
}
