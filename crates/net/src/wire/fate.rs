//! What becomes of a frame.

use fastrand::Rng;

use super::options::Options;
use crate::Flip;

/// What becomes of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fate {
    /// How often it arrives; 0 times if it is lost.
    pub(super) copies: u32,
    /// Behind how many of the frames that follow.
    pub(super) displacement: u64,
    /// How much of it.
    pub(super) len: usize,
    /// Whether that is less than was sent.
    pub(super) is_truncated: bool,
    /// With which bits turned over.
    pub(super) flips: Vec<Flip>,
}

impl Fate {
    /// The fate of a frame of `len` bytes; `random` is of its own, so that no frame's fate depends on another one's.
    pub(super) fn of(len: usize, options: &Options, mut random: Rng) -> Self {
        let mut happens = |probability: f64| random.f64() < probability;
        // All are drawn always: what happens does not depend on what else may.
        let is_lost = happens(options.loss);
        let is_duplicated = happens(options.duplication);
        let is_reordered = happens(options.reordering) && !is_lost;
        let is_truncated = happens(options.truncation) && len > 0;
        let is_damaged = happens(options.damage);
        let copies = if is_lost { 0 } else { 1 + u32::from(is_duplicated) };
        let (place, cut) = (random.u64(1..=options.displacement), random.usize(0..len.max(1)));
        let len = if is_truncated { cut } else { len };
        let flips = if is_damaged { flips(len, options.damaged_bits, random) } else { Vec::new() };
        Self { copies, displacement: if is_reordered { place } else { 0 }, len, is_truncated, flips }
    }
}

/// One bit or more, up to `most`, of `len` bytes, no bit twice.
fn flips(len: usize, most: usize, mut random: Rng) -> Vec<Flip> {
    let mut flips = Vec::new();
    if len > 0 {
        for _ in 0..random.usize(1..=most) {
            let flip = (random.usize(0..len), 1 << random.u8(0..8));
            if !flips.contains(&flip) {
                flips.push(flip);
            }
        }
    }
    flips
}
