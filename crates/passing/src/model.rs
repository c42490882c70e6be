//! The data passing model: what a scheme promises, apart from how it keeps the promise.
//!
//! Why: two schemes are interchangeable if they promise the same, whatever their mechanisms; programs come to be
//! corrupted by an optimization when mechanisms are compared instead of promises.
//! How: a scheme has a buffer allocation and a buffer integrity (together its [`Semantics`]) and optimization
//! [`Condition`]s (with the semantics, its [`Qualified`] semantics). [`compatible`] compares two of those.
//! [`Protection`] and [`Symmetry`] describe a scheme further and have no part in compatibility.
//! Source: thesis chapter 2, figure 2.1.

mod protection;

use std::fmt;

use thiserror::Error;

pub use protection::{Access, Granularity, Protection, Weakening};

/// Who allocates and frees the buffers that contain the data.
///
/// It decides the shape of the programming interface: a program tells a native-mode interface where an input buffer
/// lies, and a migrant-mode interface tells the program.
///
/// # Source
/// Thesis §2.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Allocation {
    /// The party: it chooses place and layout, and keeps its output buffers.
    Native,
    /// The I/O interface: it gives input buffers and takes output buffers.
    Migrant,
}

/// What is guaranteed while one party still has access to a buffer that the other works on.
///
/// Strong is greater than weak: it guarantees everything that weak does.
///
/// # Source
/// Thesis §2.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Integrity {
    /// Nothing: data may be passed in place.
    Weak,
    /// Overwriting an output buffer after the request doesn't change what the other party gets, and an input buffer is
    /// seen only as it was before the request or as it is after a successful reply.
    Strong,
}

/// The four data passing semantics: allocation × integrity.
///
/// # Source
/// Thesis §2.1.2 and §2.1.3, figure 2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Semantics {
    /// Native buffers, strong integrity.
    Copy,
    /// Native buffers, weak integrity.
    Share,
    /// Migrant buffers, strong integrity.
    Move,
    /// Migrant buffers, weak integrity.
    WeakMove,
}

impl Semantics {
    /// Gives the semantics that these two dimensions define.
    pub const fn new(allocation: Allocation, integrity: Integrity) -> Self {
        match (allocation, integrity) {
            (Allocation::Native, Integrity::Strong) => Self::Copy,
            (Allocation::Native, Integrity::Weak) => Self::Share,
            (Allocation::Migrant, Integrity::Strong) => Self::Move,
            (Allocation::Migrant, Integrity::Weak) => Self::WeakMove,
        }
    }

    /// Says who allocates the buffers.
    pub const fn allocation(self) -> Allocation {
        match self {
            Self::Copy | Self::Share => Allocation::Native,
            Self::Move | Self::WeakMove => Allocation::Migrant,
        }
    }

    /// Says what integrity the buffers have.
    pub const fn integrity(self) -> Integrity {
        match self {
            Self::Copy | Self::Move => Integrity::Strong,
            Self::Share | Self::WeakMove => Integrity::Weak,
        }
    }
}

/// What an optimization condition restricts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionKind {
    /// Where a buffer lies: its location, alignment or length.
    Spatial,
    /// When something happens: a request, or a party's access to its buffer.
    Temporal,
}

/// How likely a program that doesn't know of the optimization is to miss its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Restrictiveness {
    /// Some programs that don't know of the optimization meet it.
    Soft,
    /// Practically no program that doesn't know of the optimization meets it.
    Hard,
}

/// What missing the condition costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criticality {
    /// No substantial penalty relative to not having the optimization.
    Advisory,
    /// Data passing fails, or is penalized heavily.
    Mandatory,
}

/// A special condition under which an optimization works.
///
/// Restrictions that come with the semantics (an interface chooses where a migrant buffer lies; a client keeps away
/// from a shared buffer during the request) are not special, and are not listed.
///
/// # Source
/// Thesis §2.1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    /// What must hold, in words; conditions of one name are the same condition.
    pub name: &'static str,
    /// What it restricts.
    pub kind: ConditionKind,
    /// How likely an unaware program is to miss it.
    pub restrictiveness: Restrictiveness,
    /// What missing it costs.
    pub criticality: Criticality,
    /// Where it is described.
    pub source: &'static str,
}

/// Qualified semantics: the semantics and the special optimization conditions of a scheme.
///
/// # Source
/// Thesis §2.1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qualified {
    /// What the scheme promises.
    pub semantics: Semantics,
    /// What it asks for in return.
    pub conditions: &'static [Condition],
}

impl Qualified {
    /// Says whether the scheme demands this condition.
    pub fn mandates(&self, name: &str) -> bool {
        self.conditions.iter().any(|c| c.name == name && c.criticality == Criticality::Mandatory)
    }
}

/// A reason why programs written for one scheme cannot run under another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Incompatibility {
    /// The schemes disagree on who allocates the buffers.
    #[error(
        "the scheme has {offered} buffers but the program expects {expected} ones: their interfaces differ"
    )]
    Allocation {
        /// Of the scheme that is offered.
        offered: Allocation,
        /// Of the scheme that the program was written for.
        expected: Allocation,
    },
    /// The offered scheme guarantees less.
    #[error(
        "the scheme has {offered} integrity but the program expects {expected}: its data could be corrupted"
    )]
    Integrity {
        /// Of the scheme that is offered.
        offered: Integrity,
        /// Of the scheme that the program was written for.
        expected: Integrity,
    },
    /// The offered scheme demands what the program was never told to do.
    #[error("the scheme demands \"{}\" ({}), which the program was not written to meet", condition.name, condition.source)]
    Condition {
        /// The condition that only the offered scheme mandates.
        condition: Condition,
    },
}

/// Says whether programs written for `expected` run correctly under `offered`.
///
/// The three rules: the same allocation, at least the same integrity, and no mandatory condition that `expected`
/// doesn't mandate too. Advisory conditions, soft or hard, never matter.
///
/// # Errors
/// Every rule that is broken, in the order of the rules; one entry per condition.
///
/// # Source
/// Thesis §2.4.
pub fn compatible(offered: &Qualified, expected: &Qualified) -> Result<(), Vec<Incompatibility>> {
    let mut reasons = Vec::new();
    let (is, wanted) = (offered.semantics, expected.semantics);
    if is.allocation() != wanted.allocation() {
        let (offered, expected) = (is.allocation(), wanted.allocation());
        reasons.push(Incompatibility::Allocation { offered, expected });
    }
    if is.integrity() < wanted.integrity() {
        let (offered, expected) = (is.integrity(), wanted.integrity());
        reasons.push(Incompatibility::Integrity { offered, expected });
    }
    let demanded = offered.conditions.iter().filter(|c| c.criticality == Criticality::Mandatory);
    let new = demanded.filter(|c| !expected.mandates(c.name));
    reasons.extend(new.map(|&condition| Incompatibility::Condition { condition }));
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

/// How a server is given its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerSide {
    /// A server in the client's process (the thesis's kernel-level server): it is handed system buffers and can still
    /// reach them afterwards, though it should not.
    InProcess,
    /// A server in another process whose mapping lasts only while it serves the request.
    TransientMapping,
    /// A server in another process that keeps its mapping of the client's object.
    CachedMapping,
}

/// The semantics that the two sides of one request have.
///
/// Clients choose theirs; servers always get migrant buffers, whatever the client chose. That asymmetry is what lets
/// input be passed by page swapping: the server's buffer is spoilt at the moment when it is freed anyway.
///
/// # Source
/// Thesis §2.3, §5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Symmetry {
    /// What the client sees.
    pub client: Semantics,
    /// What the server sees.
    pub server: Semantics,
}

impl Symmetry {
    /// Describes data passing between a client that chose `client` and a server.
    pub const fn new(client: Semantics, side: ServerSide) -> Self {
        let server = match side {
            ServerSide::InProcess | ServerSide::CachedMapping => Semantics::WeakMove,
            ServerSide::TransientMapping => Semantics::Move,
        };
        Self { client, server }
    }

    /// Says whether both sides see the same semantics.
    pub fn is_symmetrical(&self) -> bool {
        self.client == self.server
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Migrant => "migrant",
        })
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weak => "weak",
            Self::Strong => "strong",
        })
    }
}

impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Share => "share",
            Self::Move => "move",
            Self::WeakMove => "weak move",
        })
    }
}

#[cfg(test)]
mod tests;
