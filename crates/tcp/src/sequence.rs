//! Sequence numbers, which wrap.
//!
//! Invariants: two numbers are compared only where they are less than 2^31 apart, as windows of at most 1 GiB guarantee.
//! Source: RFC 9293 §3.4, RFC 7323 §2.2.

use std::ops::{Add, Sub};

/// A sequence number. It has no order of its own: `before` and `after` are modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether this one comes before the other.
    pub fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this one comes after the other.
    pub fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// How far this one is behind `earlier`, which does not come after it.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// How far this one is behind `earlier`; zero where it comes before it.
    pub(crate) fn saturating_since(self, earlier: Self) -> u32 {
        if self.before(earlier) { 0 } else { self.since(earlier) }
    }

    /// The later of two.
    pub(crate) fn latest(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two.
    pub(crate) fn earliest(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    fn add(self, by: u32) -> Self {
        Self(self.0.wrapping_add(by))
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    fn sub(self, by: u32) -> Self {
        Self(self.0.wrapping_sub(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_across_the_wrap() {
        let (early, late) = (Seq(u32::MAX - 1), Seq(3));
        assert!(early.before(late) && late.after(early) && !late.before(early));
        assert!(!early.before(early));
        assert_eq!(late.since(early), 5);
        assert_eq!(early.saturating_since(late), 0);
        assert_eq!((early.latest(late), early.earliest(late)), (late, early));
        assert_eq!(early + 5, late);
        assert_eq!(late - 5, early);
    }
}
