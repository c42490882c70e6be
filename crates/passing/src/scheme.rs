//! The eight data passing schemes: for each semantics, the plain one and the emulated one.
//!
//! Why: a program states per buffer what it relies on; everything else about the transfer may then be chosen for speed.
//! How: a scheme names its semantics and its protection; its operations are in [`crate::tables`].
//! Invariants: `emulated()` and `basic()` never change the semantics.
//! Source: thesis §2.1.3, §7.3, chapters 3 and 4.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::model::{Access, Allocation, Granularity, Integrity, Protection, Semantics};

/// How the data of one buffer, or one scatter-gather element, is passed.
///
/// The schemes are in the order of the rows of the thesis's tables.
///
/// # Source
/// Thesis §7.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Copies out of and into system buffers.
    Copy,
    /// Copy's meaning without the copy: TCOW on output, input alignment and page swapping on input.
    ///
    /// Its optimization conditions are all advisory: where one is missed, data is copied, and nothing else changes. All but
    /// the last are soft: many programs meet them that know nothing of Genie.
    /// - Input is swapped if it is requested before its data arrives, so that the server can lay out its buffer like the
    ///   client's, or else if the client lays out its buffer as the server prefers (§4.1).
    /// - Output copies nothing if the client does not overwrite the buffer, but by input, before the reply (§4.2, §4.3).
    /// - System buffers need neither zero completion nor a copy if the party that works on them has lent them (§5.2).
    /// - The client's buffer lies in a region of the interface. This is a condition on Linux, where no other memory can be
    ///   protected, swapped or handed to another process. The share schemes have it, too.
    EmulatedCopy,
    /// In place, in a wired region.
    Share,
    /// In place, held only by references to the granules.
    EmulatedShare,
    /// Takes the output region away and gives a new input region.
    Move,
    /// Hides the output region and gives a hidden one back for input.
    EmulatedMove,
    /// Takes the output region logically, in place and wired, and gives a cached one for input.
    WeakMove,
    /// Takes the output region logically, in place and referenced, and gives a cached one for input.
    EmulatedWeakMove,
    /// A part of a buffer of a request that the client, as a contractor, serves itself. The part has its system buffers
    /// already, and is forwarded with no operation (thesis §5.3, §7.5). Clients do not choose this scheme, so it is not
    /// among [`Scheme::ALL`].
    Fragment,
}

impl Scheme {
    /// The schemes that clients choose among, in the order of the thesis's tables.
    pub const ALL: [Self; 8] = [
        Self::Copy,
        Self::EmulatedCopy,
        Self::Share,
        Self::EmulatedShare,
        Self::Move,
        Self::EmulatedMove,
        Self::WeakMove,
        Self::EmulatedWeakMove,
    ];

    /// Gives the scheme's name, as in the thesis.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::EmulatedCopy => "emulated copy",
            Self::Share => "share",
            Self::EmulatedShare => "emulated share",
            Self::Move => "move",
            Self::EmulatedMove => "emulated move",
            Self::WeakMove => "weak move",
            Self::EmulatedWeakMove => "emulated weak move",
            Self::Fragment => "fragment",
        }
    }

    /// Gives what the scheme promises.
    pub const fn semantics(self) -> Semantics {
        match self {
            Self::Copy | Self::EmulatedCopy => Semantics::Copy,
            // A fragment has these semantics towards the contractor (thesis §5.3).
            Self::Share | Self::EmulatedShare | Self::Fragment => Semantics::Share,
            Self::Move | Self::EmulatedMove => Semantics::Move,
            Self::WeakMove | Self::EmulatedWeakMove => Semantics::WeakMove,
        }
    }

    /// Says who allocates the buffers.
    pub const fn allocation(self) -> Allocation {
        self.semantics().allocation()
    }

    /// Says what integrity the buffers have.
    pub const fn integrity(self) -> Integrity {
        self.semantics().integrity()
    }

    /// Says whether this is the optimized scheme of its pair.
    pub const fn is_emulated(self) -> bool {
        matches!(self, Self::EmulatedCopy | Self::EmulatedShare | Self::EmulatedMove | Self::EmulatedWeakMove)
    }

    /// Gives the optimized scheme with the same semantics.
    pub const fn emulated(self) -> Self {
        match self.semantics() {
            Semantics::Copy => Self::EmulatedCopy,
            Semantics::Share => Self::EmulatedShare,
            Semantics::Move => Self::EmulatedMove,
            Semantics::WeakMove => Self::EmulatedWeakMove,
        }
    }

    /// Gives the plain scheme with the same semantics.
    pub const fn basic(self) -> Self {
        match self.semantics() {
            Semantics::Copy => Self::Copy,
            Semantics::Share => Self::Share,
            Semantics::Move => Self::Move,
            Semantics::WeakMove => Self::WeakMove,
        }
    }

    /// Describes what a server in another process can reach of the client's data, if access is granted and withdrawn
    /// per granule as in the thesis.
    ///
    /// Where a descriptor grants the access, [`Protection::by_descriptor`] of this applies; for a server in the
    /// client's process it is [`Protection::NONE`] under every scheme.
    ///
    /// # Source
    /// Thesis §2.2, §5.1 (output is mapped read-only; buffers are unpageable), §5.2.
    pub const fn protection(self) -> Protection {
        let in_place_output = Protection {
            granularity: Granularity::Granule,
            server_reads_output: Access::DuringRequest,
            ..Protection::FULL
        };
        match self {
            Self::Copy => Protection::FULL,
            // A swap leaves the server the client's old granules, as of the reply.
            Self::EmulatedCopy => Protection { server_reads_input: Access::Once, ..in_place_output },
            // The new input region is made of the system's granules: none of the client's data was in them.
            Self::Move => in_place_output,
            Self::Share
            | Self::EmulatedShare
            | Self::EmulatedMove
            | Self::WeakMove
            | Self::EmulatedWeakMove
            | Self::Fragment => Protection {
                server_reads_input: Access::DuringRequest,
                server_writes_input: Access::DuringRequest,
                ..in_place_output
            },
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no scheme has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no data passing scheme is called \"{name}\"; the schemes are {}", Scheme::ALL.map(Scheme::name).join(", "))]
pub struct UnknownScheme {
    /// What was given.
    pub name: String,
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    /// Accepts the scheme's name in large or small letters, its words separated by a space, a hyphen or an underscore.
    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        let spaced = name.trim().to_ascii_lowercase().replace(['-', '_'], " ");
        let found = Self::ALL.into_iter().find(|scheme| scheme.name() == spaced);
        found.ok_or_else(|| UnknownScheme { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: the scheme that is offered. Columns: the scheme that the program was written for.
    const COMPATIBILITY: &str = "
        copy               ok ok ok ok -  -  -  -
        emulated copy      ok ok ok ok -  -  -  -
        share              -  -  ok ok -  -  -  -
        emulated share     -  -  ok ok -  -  -  -
        move               -  -  -  -  ok ok ok ok
        emulated move      -  -  -  -  ok ok ok ok
        weak move          -  -  -  -  -  -  ok ok
        emulated weak move -  -  -  -  -  -  ok ok";

    #[test]
    fn schemes_are_compatible_exactly_as_the_model_says() {
        let rows: Vec<&str> = COMPATIBILITY.trim().lines().map(str::trim).collect();
        assert_eq!(rows.len(), 8);
        for (offered, row) in Scheme::ALL.into_iter().zip(rows) {
            let cells: Vec<&str> = row.strip_prefix(offered.name()).unwrap().split_whitespace().collect();
            assert_eq!(cells.len(), 8);
            for (expected, cell) in Scheme::ALL.into_iter().zip(cells) {
                let is_compatible = offered.semantics().is_compatible_with(expected.semantics());
                assert_eq!(
                    is_compatible,
                    cell == "ok",
                    "{offered} offered to a program written for {expected}"
                );
            }
        }
    }

    #[test]
    fn pairs_share_their_semantics() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.emulated().semantics(), scheme.semantics());
            assert_eq!(scheme.basic().semantics(), scheme.semantics());
            assert!(scheme.emulated().is_emulated() && !scheme.basic().is_emulated());
            assert_eq!(scheme, if scheme.is_emulated() { scheme.emulated() } else { scheme.basic() });
        }
    }

    #[test]
    fn names_are_read_back_with_spaces_hyphens_or_underscores() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
            assert_eq!(scheme.name().replace(' ', "-").parse(), Ok(scheme));
            assert_eq!(scheme.name().replace(' ', "_").to_uppercase().parse(), Ok(scheme));
        }
        let error = "emulated".parse::<Scheme>().unwrap_err().to_string();
        assert_eq!(
            error,
            "no data passing scheme is called \"emulated\"; the schemes are copy, emulated copy, share, \
             emulated share, move, emulated move, weak move, emulated weak move"
        );
    }

    #[test]
    fn only_copy_is_fully_protected_and_no_scheme_lets_a_server_change_output() {
        for scheme in Scheme::ALL {
            let protection = scheme.protection();
            assert_eq!(protection == Protection::FULL, scheme == Scheme::Copy, "{scheme}");
            assert_eq!(protection.server_writes_output, Access::Never, "{scheme}");
            assert!(!protection.client_supplied_pager, "{scheme}");
            assert!(
                Protection::FULL.at_least(&protection) && protection.at_least(&Protection::NONE),
                "{scheme}"
            );
        }
    }

    #[test]
    fn a_server_reaches_of_a_clients_data_what_the_thesis_says() {
        use Access::{DuringRequest, Never, Once};
        use Scheme::{
            Copy, EmulatedCopy, EmulatedMove, EmulatedShare, EmulatedWeakMove, Fragment, Move, Share,
            WeakMove,
        };
        // Granularity; when the server reads output, reads input, and writes input.
        for (schemes, expected) in [
            (&[Copy][..], (Granularity::Byte, Once, Never, Once)),
            (&[EmulatedCopy], (Granularity::Granule, DuringRequest, Once, Once)),
            (&[Move], (Granularity::Granule, DuringRequest, Never, Once)),
            (
                &[Share, EmulatedShare, EmulatedMove, WeakMove, EmulatedWeakMove, Fragment],
                (Granularity::Granule, DuringRequest, DuringRequest, DuringRequest),
            ),
        ] {
            for scheme in schemes {
                let it = scheme.protection();
                let found =
                    (it.granularity, it.server_reads_output, it.server_reads_input, it.server_writes_input);
                assert_eq!(found, expected, "{scheme}");
            }
        }
    }

    #[test]
    fn native_strong_input_changes_a_buffer_only_at_the_reply() {
        // Integrity and protection are different things, but for a native buffer they agree on this.
        for scheme in [Scheme::Copy, Scheme::EmulatedCopy, Scheme::Share, Scheme::EmulatedShare] {
            let only_at_reply = scheme.protection().server_writes_input == Access::Once;
            assert_eq!(only_at_reply, scheme.integrity() == Integrity::Strong, "{scheme}");
        }
    }
}
