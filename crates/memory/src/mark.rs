//! Region marks and the transitions between them.
//!
//! Why: the mark says whose a region is at this moment, and so what a client may do with it; an operation that finds
//! another mark than it expects has met a program error, which must show instead of losing data.
//! Source: thesis §3.3, §7.4.

use std::fmt;

/// Whose a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Allocated by the party for itself; it never migrates.
    Native,
    /// A migrant buffer in the client's hands.
    Immigrant,
    /// On its way to the client: an input is pending in it.
    Immigrating,
    /// On its way from the client: an output is pending from it.
    Emigrating,
    /// Passed on by (emulated) move: hidden from the client, kept for reuse.
    Emigrant,
    /// Passed on by (emulated) weak move: visible still, but no longer the client's; kept for reuse.
    WeakEmigrant,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Self; 6] = [
        Self::Native,
        Self::Immigrant,
        Self::Immigrating,
        Self::Emigrating,
        Self::Emigrant,
        Self::WeakEmigrant,
    ];

    /// The thesis's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Immigrant => "immigrant",
            Self::Immigrating => "immigrating",
            Self::Emigrating => "emigrating",
            Self::Emigrant => "emigrant",
            Self::WeakEmigrant => "weak emigrant",
        }
    }

    /// Whether a region so marked may become one marked `next`.
    pub const fn may_become(self, next: Self) -> bool {
        use Mark::{Emigrant, Emigrating, Immigrant, Immigrating, WeakEmigrant};
        matches!(
            (self, next),
            // An output takes the region; its reply hides or caches it, its failure gives it back.
            (Immigrant, Emigrating) | (Emigrating, Emigrant | WeakEmigrant | Immigrant)
            // An input takes a hidden or cached region (or a new one); its reply gives it, its failure puts it back.
            | (Emigrant | WeakEmigrant, Immigrating) | (Immigrating, Immigrant | Emigrant | WeakEmigrant)
            // Explicit allocation and deallocation of a migrant buffer.
            | (Emigrant | WeakEmigrant, Immigrant) | (Immigrant, Emigrant | WeakEmigrant)
        )
    }

    /// Whether the client may name the region in an output or an in-place input.
    pub const fn is_clients(self) -> bool {
        matches!(self, Self::Native | Self::Immigrant)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_region_never_migrates() {
        for mark in Mark::ALL {
            assert!(!Mark::Native.may_become(mark), "native became {mark}");
            assert!(!mark.may_become(Mark::Native), "{mark} became native");
        }
    }

    #[test]
    fn what_has_emigrated_comes_back_only_by_input_or_allocation() {
        for from in [Mark::Emigrant, Mark::WeakEmigrant] {
            let next: Vec<_> = Mark::ALL.into_iter().filter(|to| from.may_become(*to)).collect();
            assert_eq!(next, [Mark::Immigrant, Mark::Immigrating]);
        }
    }

    #[test]
    fn the_two_ends_of_a_migration_are_the_clients() {
        let clients: Vec<_> = Mark::ALL.into_iter().filter(|mark| mark.is_clients()).collect();
        assert_eq!(clients, [Mark::Native, Mark::Immigrant]);
    }
}
