//! Tallies: how often each thing happened.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts by what was counted.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: &str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: &str, count: u64) {
        match self.0.get_mut(what) {
            Some(counted) => *counted += count,
            None => drop(self.0.insert(what.to_owned(), count)),
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// How often things were counted whose names begin so.
    pub(crate) fn sum(&self, prefix: &str) -> u64 {
        self.0.iter().filter(|(what, _)| what.starts_with(prefix)).map(|(_, count)| count).sum()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "  {count:>10} {what}"))
    }
}
