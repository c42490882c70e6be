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
    /// Reserved 2 MiB huge pages where the machine has free ones, else collapsed ones, else 4 KiB pages.
    Best,
    /// Reserved 2 MiB huge pages, or an error.
    Huge,
    /// 4 KiB pages.
    #[value(name = "4k")]
    Base,
    /// Granules of 2 MiB, whose pages the kernel collapses to huge ones where it can.
    Collapsed,
}

impl Granule {
    fn granularity(self) -> Granularity {
        match self {
            Self::Best => Granularity::Best,
            Self::Huge => Granularity::Only(GranuleKind::Huge),
            Self::Base => Granularity::Only(GranuleKind::Base),
            Self::Collapsed => Granularity::Only(GranuleKind::Collapsed),
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
        let passing = Passing::over(self.space()?);
        let limits = Limits { pending_bytes: usize::MAX, ..Limits::default() };
        Ok(Interface::new(adjust(passing), limits))
    }
}

/// A space's granules in words: their sizes, and of large ones the pages that they are made of.
pub fn describe(space: &Space) -> String {
    match space.granule_kind() {
        GranuleKind::Huge | GranuleKind::Collapsed => {
            let small = if space.small().is_some() { " and 4 KiB" } else { "" };
            format!("2 MiB{small} ({})", space.made_of())
        }
        GranuleKind::Base => "4 KiB".to_owned(),
    }
}

/// What is lost with small granules, and how to get large ones; none for large granules.
pub fn loss(kind: GranuleKind) -> Option<&'static str> {
    (kind == GranuleKind::Base).then_some(
        "with 4 KiB granules, swapping, and protecting data that changes, cost about as much as copying it; \
         2 MiB granules make that many times cheaper: sudo sysctl vm.nr_hugepages=400, or sudo genie doctor --fix",
    )
}
