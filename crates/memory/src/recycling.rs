//! Recycling: which of the system buffers kept for reuse is handed out next.
//!
//! Why: a buffer that is used again at once is in the cache of the processor that used it last. Where one processor writes
//! a buffer and another one reads it, that is the wrong cache, and rotating over many buffers is better; where only few
//! buffers fit the caches together, rotating is worse. Which case applies depends on the machine, on how it copies and on
//! the length: calibration measures it.
//! Limits: lengths are told apart in eight classes.

/// How many buffers to rotate over, per class of lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recycling {
    /// For each class: 1 hands out the buffer that was freed last, a greater number rotates over as many buffers, as far as
    /// memory allows. 0 means 1.
    pub rotation: [u16; Recycling::CLASSES],
}

impl Recycling {
    /// How many classes there are.
    pub const CLASSES: usize = 8;
    /// The greatest length in bytes of each class but the last, which has no bound.
    pub const BOUNDS: [usize; Self::CLASSES - 1] =
        [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
    /// Hands out the buffer that was freed last, for every length.
    pub const LAST_FREED: Self = Self { rotation: [1; Self::CLASSES] };

    /// The class of buffers for `len` bytes.
    pub fn class(len: usize) -> usize {
        Self::BOUNDS.iter().position(|bound| len <= *bound).unwrap_or(Self::CLASSES - 1)
    }

    /// How many buffers for `len` bytes to rotate over; at least one.
    pub fn rotation(&self, len: usize) -> u16 {
        self.rotation[Self::class(len)].max(1)
    }
}

impl Default for Recycling {
    fn default() -> Self {
        Self::LAST_FREED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_is_in_the_class_of_the_least_bound_that_holds_it() {
        for (class, bound) in Recycling::BOUNDS.into_iter().enumerate() {
            assert_eq!((Recycling::class(bound), Recycling::class(bound + 1)), (class, class + 1));
        }
        assert_eq!((Recycling::class(0), Recycling::class(usize::MAX)), (0, Recycling::CLASSES - 1));
    }

    #[test]
    fn a_rotation_over_no_buffers_is_one_over_one() {
        let recycling = Recycling { rotation: [0; Recycling::CLASSES] };
        assert_eq!(recycling.rotation(1 << 20), 1);
    }
}
