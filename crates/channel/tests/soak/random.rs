//! Random numbers that a seed repeats.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A generator (splitmix64): any seed will do, and one drawn from another is as good.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random seed.
    pub(crate) fn fresh_seed() -> u64 {
        RandomState::new().build_hasher().finish() >> 16
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Whether something happens that does so once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn choose<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }
}
