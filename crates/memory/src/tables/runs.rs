//! Free runs: which numbers of a range are free, kept as maximal runs.
//!
//! Why: neighbouring granules share one mapping and move with one system call, so both granules and addresses are
//! handed out in runs that are as long as possible.
//! Invariants: runs are disjoint, not empty, and never adjacent (they would be one run).
//! Limits: numbers are 32 bits wide; taking scans the runs, so it belongs on no data path (pools keep what is reused).

use std::collections::BTreeMap;

/// `len` consecutive numbers from `start` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Run {
    pub(crate) fn end(self) -> u32 {
        self.start + self.len
    }

    pub(crate) fn numbers(self) -> std::ops::Range<u32> {
        self.start..self.end()
    }
}

/// A set of numbers, as runs.
#[derive(Debug, Default)]
pub(crate) struct FreeRuns {
    runs: BTreeMap<u32, u32>,
    total: u32,
}

impl FreeRuns {
    /// How many numbers are free.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Takes the lowest run of exactly `len` whose start is a multiple of `align`.
    pub(crate) fn take(&mut self, len: u32, align: u32) -> Option<Run> {
        self.take_chosen(len, |run| {
            let at = run.start.checked_next_multiple_of(align)?;
            (at.checked_add(len)? <= run.end()).then_some(at)
        })
    }

    /// Takes `len` numbers in a row, where `choose` finds them in the lowest free run in which it finds any.
    pub(crate) fn take_chosen(&mut self, len: u32, choose: impl Fn(Run) -> Option<u32>) -> Option<Run> {
        let run = |(start, len): (&u32, &u32)| Run { start: *start, len: *len };
        let (around, at) = self.runs.iter().map(run).find_map(|run| Some((run, choose(run)?)))?;
        assert!(at >= around.start && at + len <= around.end(), "{len} from {at} on leave {around:?}");
        self.runs.remove(&around.start);
        self.total -= around.len;
        self.give(Run { start: around.start, len: at - around.start });
        self.give(Run { start: at + len, len: around.end() - at - len });
        Some(Run { start: at, len })
    }

    /// Takes all numbers of `range` that are free, as runs.
    pub(crate) fn take_within(&mut self, range: Run) -> Vec<Run> {
        let before = self.runs.range(..range.start).next_back();
        let around: Vec<Run> = before
            .into_iter()
            .chain(self.runs.range(range.numbers()))
            .map(|(start, len)| Run { start: *start, len: *len })
            .filter(|run| run.end() > range.start)
            .collect();
        let mut taken = Vec::with_capacity(around.len());
        for run in around {
            self.runs.remove(&run.start);
            self.total -= run.len;
            let (start, end) = (run.start.max(range.start), run.end().min(range.end()));
            self.give(Run { start: run.start, len: start - run.start });
            self.give(Run { start: end, len: run.end() - end });
            taken.push(Run { start, len: end - start });
        }
        taken
    }

    /// Takes all numbers, as runs.
    pub(crate) fn take_all(&mut self) -> Vec<Run> {
        self.take_within(Run { start: 0, len: u32::MAX })
    }

    /// Takes up to `len` numbers: a run that holds them all if there is one, else the longest run.
    pub(crate) fn take_up_to(&mut self, len: u32) -> Option<Run> {
        if let Some(run) = self.take(len, 1) {
            return Some(run);
        }
        let (start, longest) = self.runs.iter().max_by_key(|(_, free)| **free).map(|(s, l)| (*s, *l))?;
        self.runs.remove(&start);
        self.total -= longest;
        Some(Run { start, len: longest })
    }

    /// Frees a run; does nothing for an empty run.
    ///
    /// # Panics
    /// When a part of it is free already.
    pub(crate) fn give(&mut self, run: Run) {
        if run.len == 0 {
            return;
        }
        let (mut start, mut end) = (run.start, run.end());
        if let Some((before, len)) = self.runs.range(..=run.start).next_back().map(|(s, l)| (*s, *l)) {
            assert!(before + len <= start, "run {run:?} is free already");
            if before + len == start {
                self.runs.remove(&before);
                start = before;
            }
        }
        if let Some((after, len)) = self.runs.range(run.start..).next().map(|(s, l)| (*s, *l)) {
            assert!(end <= after, "run {run:?} is free already");
            if end == after {
                self.runs.remove(&after);
                end = after + len;
            }
        }
        self.runs.insert(start, end - start);
        self.total += run.len;
    }

    /// The free numbers, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(start, len)| *start..start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn take_prefers_the_lowest_aligned_run() {
        let mut free = FreeRuns::default();
        free.give(Run { start: 3, len: 20 });
        assert_eq!(free.take(4, 8), Some(Run { start: 8, len: 4 }));
        assert_eq!(free.take(4, 8), Some(Run { start: 16, len: 4 }));
        assert_eq!(free.take(4, 8), None);
        assert_eq!(free.take(5, 1), Some(Run { start: 3, len: 5 }));
        assert_eq!(free.total(), 7);
    }

    #[test]
    fn take_up_to_falls_back_to_the_longest_run() {
        let mut free = FreeRuns::default();
        free.give(Run { start: 0, len: 2 });
        free.give(Run { start: 4, len: 3 });
        assert_eq!(free.take_up_to(9), Some(Run { start: 4, len: 3 }));
        assert_eq!(free.take_up_to(9), Some(Run { start: 0, len: 2 }));
        assert_eq!(free.take_up_to(9), None);
    }

    #[test]
    fn what_is_free_within_a_range_is_taken_and_nothing_else() {
        let mut free = FreeRuns::default();
        for run in [Run { start: 0, len: 4 }, Run { start: 6, len: 2 }, Run { start: 10, len: 5 }] {
            free.give(run);
        }
        let taken = free.take_within(Run { start: 2, len: 10 });
        assert_eq!(taken, [Run { start: 2, len: 2 }, Run { start: 6, len: 2 }, Run { start: 10, len: 2 }]);
        assert!(free.numbers().eq([0, 1, 12, 13, 14]));
        assert_eq!(free.total(), 5);
        assert_eq!(free.take_within(Run { start: 2, len: 10 }), []);
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn giving_twice_is_a_bug_that_shows() {
        let mut free = FreeRuns::default();
        free.give(Run { start: 4, len: 4 });
        free.give(Run { start: 6, len: 1 });
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn runs_agree_with_a_set(ops in proptest::collection::vec((proptest::bool::ANY, 1u32..6, 1u32..4), 1..60)) {
            let mut free = FreeRuns::default();
            free.give(Run { start: 0, len: 64 });
            let mut model: BTreeSet<u32> = (0..64).collect();
            let mut taken = Vec::new();
            for (take, len, align) in ops {
                if take {
                    let run = free.take(len, align);
                    let expected = (0..64)
                        .find(|s| s % align == 0 && (*s..s + len).all(|n| model.contains(&n)));
                    proptest::prop_assert_eq!(run.map(|r| r.start), expected);
                    if let Some(run) = run {
                        run.numbers().for_each(|n| { model.remove(&n); });
                        taken.push(run);
                    }
                } else if let Some(run) = taken.pop() {
                    model.extend(run.numbers());
                    free.give(run);
                }
                proptest::prop_assert!(free.numbers().eq(model.iter().copied()));
                proptest::prop_assert_eq!(free.total() as usize, model.len());
            }
        }
    }
}
