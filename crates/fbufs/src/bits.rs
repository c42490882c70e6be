//! Runs of ones in a word of the bit string.

/// How many pages a word of the bit string stands for.
pub(crate) const PER_WORD: usize = u64::BITS as usize;

/// Pages of one word that belong together: from `first` on, `count` of them, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) word: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Run {
    /// The bits of the pages.
    pub(crate) fn mask(self) -> u64 {
        mask(self.first, self.count)
    }

    /// The first page, counted from the pool's start.
    pub(crate) fn page(self) -> usize {
        self.word * PER_WORD + self.first
    }
}

/// The bits from `first` on, `count` of them, which lie in the word.
pub(crate) fn mask(first: usize, count: usize) -> u64 {
    (!0 >> (PER_WORD - count)) << first
}

/// Where in `bits` there are `count` ones in a row, the first such place; `count` is 1 to 64.
pub(crate) fn find(bits: u64, count: usize) -> Option<usize> {
    // After each step a one says that `len` ones start there.
    let (mut found, mut len) = (bits, 1);
    while len < count {
        let step = len.min(count - len);
        found &= found >> step;
        len += step;
    }
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// The runs, one in each word, that `count` pages from `first` on consist of.
pub(crate) fn runs(first: usize, count: usize) -> impl Iterator<Item = Run> {
    let end = first + count;
    (first / PER_WORD..end.div_ceil(PER_WORD)).map(move |word| {
        let from = first.max(word * PER_WORD);
        let to = end.min((word + 1) * PER_WORD);
        Run { word, first: from % PER_WORD, count: to - from }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slowly(bits: u64, count: usize) -> Option<usize> {
        (0..=PER_WORD - count).find(|at| (*at..at + count).all(|bit| bits >> bit & 1 == 1))
    }

    proptest! {
        #[test]
        fn the_first_run_that_is_long_enough_is_found(a: u64, b: u64, dense: bool, count in 1usize..=64) {
            let bits = if dense { a | b } else { a & b };
            prop_assert_eq!(find(bits, count), slowly(bits, count));
            prop_assert_eq!(find(bits | mask(0, count), count), Some(0));
        }

        #[test]
        fn runs_cover_the_pages_in_order(first in 0usize..300, count in 1usize..300) {
            let pages: Vec<usize> = runs(first, count).flat_map(|run| run.page()..run.page() + run.count).collect();
            prop_assert_eq!(pages, (first..first + count).collect::<Vec<_>>());
            prop_assert!(runs(first, count).all(|run| run.first + run.count <= PER_WORD));
        }
    }
}
