//! Shelves: buffers of one length, kept for reuse.

use std::collections::VecDeque;

/// Buffers of one length.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    /// The buffers kept for reuse; the last one is the one freed last.
    pub(crate) kept: VecDeque<T>,
    /// How many there are, in use or kept.
    pub(crate) exist: u32,
    /// How many more times not to ask for memory for another one, since there was none lately.
    short: u8,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), exist: 0, short: 0 }
    }
}

impl<T> Shelf<T> {
    /// Takes a kept buffer; none when none is kept, or while fewer buffers exist than are to be rotated over.
    pub(crate) fn take(&mut self, rotation: u16) -> Option<T> {
        if rotation <= 1 {
            return self.kept.pop_back();
        }
        if self.exist < rotation.into() && self.short == 0 {
            return None;
        }
        self.short = self.short.saturating_sub(1);
        self.kept.pop_front()
    }

    /// Takes the buffer that has been free longest, because there is no memory for another one.
    pub(crate) fn take_oldest(&mut self) -> Option<T> {
        self.short = u8::MAX;
        self.kept.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_shortage_memory_for_one_more_is_asked_for_now_and_then() {
        let mut shelf = Shelf { kept: VecDeque::from([1, 2]), exist: 2, short: 0 };
        assert_eq!(shelf.take(3), None);
        assert_eq!(shelf.take_oldest(), Some(1));
        let mut last = 1;
        let taken = std::iter::from_fn(|| {
            shelf.kept.push_back(last);
            last = shelf.take(3)?;
            Some(last)
        });
        let taken: Vec<_> = taken.collect();
        assert_eq!(taken.len(), u8::MAX.into());
        assert_eq!(taken[..4], [2, 1, 2, 1]);
    }
}
