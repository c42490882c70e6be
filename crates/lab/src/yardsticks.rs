//! Yardsticks: figures of the machine itself, measured by programs that have nothing to do with passing data.
//!
//! Why: when costs on two machines are compared, these figures say which ratios to expect: table 8.1 of Brustoloni's thesis
//! has the peak rates of copying within the caches and in memory, and the SPECint95 rating of each machine.
//! How: copying is timed as the thesis did it, at user level. SPECint95 must be bought and is outdated. In its place a fixed
//! program of the same kind reads and changes a search tree, and writes and reads numbers as text. Like an operating system
//! it has branches, pointers and allocations, and makes few references to much memory.
//! Limits: the program's time is good only for ratios between machines that ran the same build. A last-level cache that
//! holds both buffers of the copy in memory makes memory look faster than it is.
//! Source: Brustoloni, table 8.1 and section 8.2.2, item 5.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;

/// How many keys the integer program puts into its tree.
const KEYS: u64 = 20_000;

/// A length that the second-level cache of any present machine holds twice.
pub const CACHED: usize = 64 << 10;

/// A length that few caches hold twice.
pub const UNCACHED: usize = 64 << 20;

/// Runs the integer program once.
pub fn integer_program() -> Duration {
    let begin = Instant::now();
    black_box(count_and_write(&mut Rng::with_seed(1)));
    begin.elapsed()
}

/// Counts pseudo-random numbers in a tree, takes some out again, and adds up the rest after converting each number to
/// decimal digits and back.
fn count_and_write(random: &mut Rng) -> u64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..KEYS {
        *counts.entry(random.u64(..KEYS)).or_default() += 1;
    }
    for _ in 0..KEYS / 4 {
        counts.remove(&(random.u64(..KEYS)));
    }
    let written = counts.iter().map(|(key, count)| format!("{key} {count}"));
    let read = written.filter_map(|text| {
        let (key, count) = text.split_once(' ')?;
        Some(key.parse::<u64>().ok()? * count.parse::<u64>().ok()?)
    });
    read.sum()
}

/// Two buffers between which to copy.
#[derive(Debug)]
pub struct Copying {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Copying {
    /// Allocates both buffers, and touches them.
    pub fn new(length: usize) -> Self {
        Self { from: vec![1; length], to: vec![2; length] }
    }

    /// Copies once.
    pub fn copy(&mut self) -> Duration {
        let begin = Instant::now();
        black_box(&mut self.to).copy_from_slice(black_box(&self.from));
        begin.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integer_program_does_the_same_work_each_time() {
        let [one, other] = [1, 1].map(|seed| count_and_write(&mut Rng::with_seed(seed)));
        assert_eq!(one, other);
        assert_ne!(one, count_and_write(&mut Rng::with_seed(2)));
    }

    #[test]
    fn copying_copies_everything() {
        let mut copying = Copying::new(10_000);
        copying.copy();
        assert_eq!(copying.from, copying.to);
    }
}
