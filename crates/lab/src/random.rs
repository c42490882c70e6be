//! Pseudo-random numbers with a fixed seed, so that every run makes its measurements in the same order.

/// The generator called SplitMix64.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of numbers that follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Puts the items into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.number() % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_every_item_and_visits_many_orders() {
        let mut random = Random::new(1);
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [0, 1, 2, 3];
            random.shuffle(&mut items);
            orders.insert(items);
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3]);
        }
        assert_eq!(orders.len(), 24);
    }
}
