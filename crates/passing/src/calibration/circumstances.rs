//! What can make measured costs wrong: other programs that ran meanwhile, and a build that was not optimized.

use serde::{Deserialize, Serialize};

use crate::Costs;

/// The part of the CPUs' time from which on other programs disturb a measurement.
const DISTURBING: f64 = 0.25;

/// How costs were measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// The part of the CPUs' time that other programs had meanwhile, from 0 to 1; 0 where the kernel does not say.
    pub load: f64,
    /// Whether by a build with optimizations, and not by a debug build.
    pub optimized: bool,
}

/// Costs, and how they were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The costs.
    pub costs: Costs,
    /// What can make them wrong.
    pub circumstances: Circumstances,
}

impl Circumstances {
    /// Those of this build, under this load.
    pub(super) fn of_this_build(load: f64) -> Self {
        Self { load, optimized: !cfg!(debug_assertions) }
    }

    /// Whether other programs had so much of the CPUs' time that the costs may be wrong.
    pub fn is_loaded(&self) -> bool {
        self.load >= DISTURBING
    }

    /// Whether costs measured like this are worth more than costs that are measured `later`, on the same machine by the same kind
    /// of build. If not, the later costs replace them.
    pub fn outdoes(&self, later: &Self) -> bool {
        later.is_loaded() && self.load < later.load
    }

    /// The worse of both, in each respect.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self { load: self.load.max(other.load), optimized: self.optimized && other.optimized }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_load_the_costs_measured_under_less_load_stay_and_else_the_newer_ones() {
        let under = Circumstances::of_this_build;
        for (stored, later, stays) in
            [(0.0, 0.9, true), (0.5, 0.9, true), (0.9, 0.5, false), (0.9, 0.9, false), (0.0, 0.1, false)]
        {
            assert_eq!(under(stored).outdoes(&under(later)), stays, "{stored} {later}");
        }
    }

    #[test]
    fn of_two_the_worse_counts() {
        let [idle, debug] =
            [(0.1, true), (0.0, false)].map(|(load, optimized)| Circumstances { load, optimized });
        assert_eq!(idle.worse(debug), Circumstances { load: 0.1, optimized: false });
    }
}
