//! Thresholds: the lengths below which copying is cheaper, and below which emulated copy therefore copies.
//!
//! How: a threshold is the shortest length at which avoiding the copy costs clearly less than copying, by the costs
//! measured. On one partially filled granule of p bytes this is the thesis's t_i: the l at which copying l bytes costs
//! as much as a swap and the reverse copyout of the other p - l bytes. Granules are swapped in runs here, and one call
//! maps a run, so a run of full granules has a threshold of its own, and so has a partial granule that joins a run. Where
//! the client's buffer ends (or begins) within the granule, fewer than p - l bytes have to be completed, or none. t_o
//! is the length at which referencing, protecting, unreferencing and reinstating cost as much as copying; below it, from the length
//! on at which a trial is not too dear, data that stays unchanged is protected once for many outputs. t_m is the l
//! at which copying l bytes into a granule that a server may see costs as much as zeroing the other p - l bytes of the
//! granule that they are in. For servers in other processes, all of these but that for runs and t_m are longer than what a
//! request carries in its record ([`CARRIED`]).
//! Source: thesis §4.1, §4.2, §4.3, §5.1.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::Costs;

/// When copying is avoided: for data as long as the threshold, or longer. All are bytes; with `usize::MAX`, copying is
/// never avoided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// t_o: data for output, whose granules are then protected.
    pub output: usize,
    /// Data for output that is shorter than t_o, and whose granules are left protected while the client does not store into
    /// them; they are then referenced and nothing else.
    pub unchanged: usize,
    /// Data for output that nobody can store into meanwhile, whose granules are then referenced and nothing else.
    pub held: usize,
    /// t_i: input data on a single partially filled granule, which is then completed and swapped.
    pub input: usize,
    /// Input data on a partially filled granule in which no other bytes are the client's, which is then swapped as it is.
    pub input_alone: usize,
    /// Input data on a run of full granules, which are then swapped: by emulated copy, and by migrant schemes from overlay buffers.
    pub input_run: usize,
    /// Input data on a partially filled granule next to a run that is swapped; the granule then joins the run.
    pub input_edge: usize,
    /// t_m: data in a system buffer that a server in another process sees and did not lend. The rest of the buffer's
    /// granules is then zeroed, and the server uses these granules. Shorter data goes through the server's own pool
    /// (§5.1).
    pub mapping: usize,
}

/// The longest data that a request to a server in another process carries in its record, in bytes, where the data would be copied. For
/// data of 256 bytes, that takes about half of the time that memory of a pool takes.
pub const CARRIED: usize = 256;
/// What avoiding a copy must save before it is tried: avoiding it costs at most this part of what copying costs.
const WORTH_IT: f64 = 0.75;
/// How many copies a failed trial may cost: finding out that a client does not store into its data. The first one comes after
/// eight times as many outputs, and a look at the region's tables with each.
const TRIAL: f64 = 32.0;
/// Longer data than this follows the same rule as data of this length.
const LONGEST: usize = 16 << 20;

impl Thresholds {
    /// Copying is avoided wherever it can be: for tests of mechanisms, and for programs that copy elsewhere enough.
    pub const ALWAYS: Self = Self::all(1);
    /// Emulated copy is copy, migrant inputs are copied from overlay buffers, and servers in other processes use memory of their own pools alone.
    pub const NEVER: Self = Self::all(usize::MAX);

    const fn all(len: usize) -> Self {
        Self {
            output: len,
            unchanged: len,
            held: len,
            input: len,
            input_alone: len,
            input_run: len,
            input_edge: len,
            mapping: len,
        }
    }

    /// Derives thresholds from costs: for servers in other processes, from [`Costs::between`]. Operations that were not measured
    /// (no right to protect) are never used.
    pub fn derive(costs: &Costs, granule: usize) -> Self {
        let whole = |len: usize| len.next_multiple_of(granule);
        let copyin = |len: usize| costs.copyin.at(len) + costs.system_buffer.at(len);
        let copyout = |len: usize| costs.copyout.at(len) + costs.system_buffer.at(len);
        let swap = |len: usize| costs.swap.at(len) + costs.aligned_buffer.at(len);
        let complete = |len: usize| costs.guard.at(granule) + costs.copyout.at(granule - len);
        let joining = swap(2 * granule) - swap(granule);

        let protects = !costs.read_only.points.is_empty();
        let can_swap = !costs.swap.points.is_empty();
        let guards = !costs.guard.points.is_empty();
        let zeroes = !costs.zero.points.is_empty();
        Self {
            output: shortest(LONGEST, protects, |len| costs.protecting(whole(len)) < WORTH_IT * copyin(len)),
            unchanged: shortest(LONGEST, protects, |len| {
                costs.protecting(whole(len)) + costs.replacement.at(granule) < TRIAL * copyin(len)
            }),
            held: shortest(LONGEST, true, |len| costs.referencing(len) < WORTH_IT * copyin(len)),
            input: shortest(granule, can_swap && guards, |len| {
                swap(granule) + complete(len) < WORTH_IT * copyout(len)
            }),
            input_alone: shortest(granule, can_swap, |len| swap(granule) < WORTH_IT * copyout(len)),
            input_run: shortest(LONGEST / granule, can_swap, |count| {
                swap(count * granule) < WORTH_IT * copyout(count * granule)
            })
            .saturating_mul(granule),
            input_edge: shortest(granule, can_swap && guards, |len| {
                joining + complete(len) < WORTH_IT * costs.copyout.at(len)
            }),
            mapping: shortest(granule, zeroes, |len| {
                costs.zero.at(granule - len) < WORTH_IT * costs.copyin.at(len)
            }),
        }
    }

    /// The same for requests that carry short data in their records: what they carry ([`CARRIED`]) is copied, which then costs
    /// less than anything else.
    #[must_use]
    pub(crate) fn carrying(self) -> Self {
        let longer = |len: usize| len.max(CARRIED + 1);
        Self {
            output: longer(self.output),
            unchanged: longer(self.unchanged),
            held: longer(self.held),
            input: longer(self.input),
            input_alone: longer(self.input_alone),
            ..self
        }
    }

    fn exceeds_carried(&self) -> bool {
        let Self { output, unchanged, held, input, input_alone, .. } = *self;
        [output, unchanged, held, input, input_alone].into_iter().all(|len| len > CARRIED)
    }

    const fn to_array(self) -> [usize; 8] {
        let Self { output, unchanged, held, input, input_alone, input_run, input_edge, mapping } = self;
        [output, unchanged, held, input, input_alone, input_run, input_edge, mapping]
    }

    const fn from_array(values: [usize; 8]) -> Self {
        let [output, unchanged, held, input, input_alone, input_run, input_edge, mapping] = values;
        Self { output, unchanged, held, input, input_alone, input_run, input_edge, mapping }
    }

    /// Decides which granules of an input of `len` bytes, the first `offset` bytes into a granule, are swapped.
    ///
    /// `beside` says how many bytes of a granule (counted from the first) must be completed if it is swapped, since they are
    /// the client's and not data, or have to be hidden from it, and is never less than the rest of the granule where that is not
    /// known; `None` where they cannot be completed. `forced` says whether a
    /// granule must be swapped, because an output is pending from it (§4.3).
    pub fn swaps(
        &self,
        granule: usize,
        (offset, len): (usize, usize),
        beside: impl Fn(u32) -> Option<usize>,
        forced: impl Fn(u32) -> bool,
    ) -> Range<u32> {
        if len == 0 {
            return 0..0;
        }
        let end = offset + len;
        let count = end.div_ceil(granule) as u32;
        let full = offset.div_ceil(granule) as u32..(end / granule) as u32;
        let run = full.len() * granule;
        let run_swaps = run > 0 && (run >= self.input_run || (0..count).any(&forced));
        let threshold = if run_swaps { self.input_edge } else { self.input };
        let pays = |filled: usize, beside: usize| match beside {
            0 => filled >= self.input_alone.min(threshold),
            _ => filled >= threshold.saturating_sub(not_completed(granule.saturating_sub(filled + beside))),
        };
        let edge_swaps = |index: u32, filled: usize| {
            let is_forced = forced(index);
            // What lies beside is looked up only where it matters.
            if !is_forced && !pays(filled, 0) && !pays(filled, 1) {
                return false;
            }
            beside(index).is_some_and(|beside| is_forced || pays(filled, beside))
        };
        if run > 0 && !run_swaps {
            return 0..0;
        }
        if full.start > full.end {
            // All of it lies inside one granule.
            return 0..u32::from(edge_swaps(0, len));
        }
        let head = full.start > 0 && edge_swaps(0, granule - offset);
        let tail = full.end < count && edge_swaps(full.end, end % granule);
        full.start - u32::from(head)..full.end + u32::from(tail)
    }
}

/// Thresholds that change while transfers look at them: each one by itself, since transfers are right with any.
#[derive(Debug)]
pub(crate) struct Current {
    values: [AtomicUsize; 8],
    /// Whether all data that records carry is shorter than each threshold below which data is copied.
    exceeds_carried: AtomicBool,
}

impl Current {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        let exceeds_carried = AtomicBool::new(thresholds.exceeds_carried());
        Self { values: thresholds.to_array().map(AtomicUsize::new), exceeds_carried }
    }

    #[inline]
    pub(crate) fn get(&self) -> Thresholds {
        Thresholds::from_array(std::array::from_fn(|index| self.values[index].load(Ordering::Relaxed)))
    }

    #[inline]
    pub(crate) fn exceeds_carried(&self) -> bool {
        self.exceeds_carried.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, thresholds: Thresholds) {
        for (current, wanted) in self.values.iter().zip(thresholds.to_array()) {
            current.store(wanted, Ordering::Relaxed);
        }
        self.exceeds_carried.store(thresholds.exceeds_carried(), Ordering::Relaxed);
    }
}

impl Clone for Current {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

impl Costs {
    /// What an output costs, in nanoseconds, if it is protected instead of copied.
    pub fn protecting(&self, len: usize) -> f64 {
        self.referencing(len) + self.read_only.at(len) + self.reinstate.at(len)
    }

    /// What an output costs, in nanoseconds, if it is neither copied nor protected.
    pub fn referencing(&self, len: usize) -> f64 {
        self.reference.at(len) + self.unreference.at(len)
    }
}

/// By how much a threshold for a granule that has to be completed falls if `len` of the granule's bytes need not be. At the
/// threshold t, (1 + `WORTH_IT`) * t bytes cost as much to copy as the swap and all of the granule's bytes; `len` bytes fewer
/// to complete lower t by `len` / (1 + `WORTH_IT`).
fn not_completed(len: usize) -> usize {
    (len as f64 / (1.0 + WORTH_IT)) as usize
}

/// The smallest number in 1..=`longest` for which `pays` is true; it is taken to be true for all larger numbers, too.
/// `usize::MAX` when it is true for none, or the operations cannot be used.
fn shortest(longest: usize, usable: bool, pays: impl Fn(usize) -> bool) -> usize {
    if !usable || !pays(longest) {
        return usize::MAX;
    }
    let (mut fails, mut holds) = (0, longest);
    while holds - fails > 1 {
        let middle = fails.midpoint(holds);
        if pays(middle) { holds = middle } else { fails = middle }
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cost;

    const P: usize = 4096;

    /// A machine of table 8.2's kind (Micron P166), in nanoseconds; `c` is the cost of copying a byte.
    fn micron() -> Costs {
        let line = |per_byte: f64, fixed: f64| {
            Cost::measured([1, P, 16 << 20].map(|len| (len, per_byte * len as f64 + fixed)).into())
        };
        Costs {
            copyin: line(18.0, 0.0),
            copyout: line(22.0, 0.0),
            reference: line(0.363, 5_000.0),
            read_only: line(0.367, 2_000.0),
            unreference: line(0.1, 2_000.0),
            swap: line(1.63, 15_000.0),
            guard: line(0.0, 0.0),
            zero: line(9.0, 0.0),
            ..Costs::default()
        }
    }

    /// All of the granules' bytes that are not data are the client's.
    fn shared(offset: usize, len: usize) -> impl Fn(u32) -> usize {
        let data = offset..offset + len;
        move |index| {
            let (start, end) = (index as usize * P, (index as usize + 1) * P);
            P - (end.min(data.end) - start.max(data.start))
        }
    }

    /// All of the client's bytes can be kept.
    fn kept(beside: impl Fn(u32) -> usize) -> impl Fn(u32) -> Option<usize> {
        move |index| Some(beside(index))
    }

    /// None can, for want of a guard.
    fn unguarded(beside: impl Fn(u32) -> usize) -> impl Fn(u32) -> Option<usize> {
        move |index| (beside(index) == 0).then_some(0)
    }

    #[test]
    fn t_i_is_slightly_more_than_half_a_page_on_the_thesiss_machine() {
        // (s/c + p) / 2 with s = 15 us + 1.63 ns * p and c = 22 ns is 2541 bytes, before the margin.
        let t_i = Thresholds::derive(&micron(), P).input;
        assert!((2541..P * 3 / 4).contains(&t_i), "t_i = {t_i}");
    }

    #[test]
    fn t_m_is_where_zeroing_the_rest_of_a_page_costs_what_copying_does() {
        // 9 * (p - l) = 0.75 * 18 * l, where zeroing a byte costs half of copying it.
        let t_m = Thresholds::derive(&micron(), P).mapping;
        assert!((1638..=1639).contains(&t_m), "t_m = {t_m}");
        let costs = Costs { zero: Cost::default(), ..micron() };
        assert_eq!(Thresholds::derive(&costs, P).mapping, usize::MAX, "zeroing was not measured");
    }

    #[test]
    fn each_operations_cost_moves_the_thresholds_that_depend_on_it() {
        let line = |per_byte: f64, fixed: f64| {
            Cost::measured([1, P, 16 << 20].map(|len| (len, per_byte * len as f64 + fixed)).into())
        };
        let costs = Costs {
            copyin: line(1.0, 0.0),
            copyout: line(2.0, 0.0),
            system_buffer: line(0.0, 1_000.0),
            aligned_buffer: line(0.1, 300.0),
            reference: line(0.25, 600.0),
            read_only: line(0.0, 700.0),
            unreference: line(0.0, 800.0),
            reinstate: line(0.0, 900.0),
            replacement: line(0.0, 100_000.0),
            swap: line(0.5, 500.0),
            guard: line(0.0, 200.0),
            zero: line(0.5, 0.0),
            ..Costs::default()
        };
        // What has no cost was not measured, and is not used.
        let never = usize::MAX;
        let derived = |costs: Costs| {
            let Thresholds { output, unchanged, held, input, input_alone, input_run, input_edge, mapping } =
                Thresholds::derive(&costs, P);
            [output, unchanged, held, input, input_alone, input_run, input_edge, mapping]
        };
        // Two granules: 0.25 * 2p + 3000 = 0.75 * (l + 1000), where one granule is too short to pay. A failed trial of one:
        // 0.25p + 3000 + 100000 = 32 * (l + 1000). If held: 0.25 * l + 1400 = 0.75 * (l + 1000).
        // One: 0.5p + 500 + 0.1p + 300 + 200 + 2 * (p - l) = 0.75 * (2l + 1000).
        // One in which nothing is to be completed: 0.5p + 500 + 0.1p + 300 = 0.75 * (2l + 1000).
        // An edge: 0.5p + 0.1p + 200 + 2 * (p - l) = 0.75 * 2l. Zeros: 0.5 * (p - l) = 0.75 * l.
        let all = [5_731, 2_251, 1_301, 3_115, 1_672, P, 3_100, 1_639];
        let [output, unchanged, held, input, alone, run, edge, mapping] = all;
        assert_eq!(derived(costs.clone()), all);
        let unprotected = Costs { read_only: Cost::default(), ..costs.clone() };
        assert_eq!(derived(unprotected), [never, never, held, input, alone, run, edge, mapping]);
        let unguarded = Costs { guard: Cost::default(), ..costs.clone() };
        assert_eq!(derived(unguarded), [output, unchanged, held, never, alone, run, never, mapping]);
        let unswapped = Costs { swap: Cost::default(), ..costs.clone() };
        assert_eq!(derived(unswapped), [output, unchanged, held, never, never, never, never, mapping]);
        // A run of n granules: 0.5np + 20000 + 0.1np + 300 = 0.75 * (2np + 1000), for n between 5 and 6.
        let slow_to_begin = Costs { swap: line(0.5, 20_000.0), ..costs };
        assert_eq!(derived(slow_to_begin), [output, unchanged, held, never, never, 6 * P, edge, mapping]);
    }

    #[test]
    fn between_cpus_what_copying_costs_there_counts_where_it_was_measured() {
        let line =
            |per_byte: f64| Cost::measured([1, P, 16 << 20].map(|len| (len, per_byte * len as f64)).into());
        let near = Costs { copyin: line(1.0), reference: line(0.0), ..micron() };
        let far = Costs { copyin_between: line(10.0), ..near.clone() };
        let held = |costs: &Costs| Thresholds::derive(costs, P).held;
        assert_eq!(held(&near.between()), held(&near), "one CPU");
        assert_eq!(held(&far), held(&near), "in one process");
        // Unreferencing costs 0.1 * l + 2000.
        assert_eq!((held(&near), held(&far.between())), (3_077, 271));
        let busy = Costs { copyin_between: line(0.0), ..near };
        assert_eq!(held(&busy.between()), 22_858, "a copy costs at least a quarter of the near one");
    }

    #[test]
    fn full_granules_are_swapped_and_short_edges_copied() {
        let thresholds = Thresholds { input: 3000, input_run: P, input_edge: 2200, ..Thresholds::ALWAYS };
        let swaps = |offset, len| thresholds.swaps(P, (offset, len), kept(shared(offset, len)), |_| false);
        assert_eq!(swaps(0, 3 * P), 0..3);
        assert_eq!(swaps(P - 10, 2 * P + 20), 1..3, "edges of ten bytes");
        assert_eq!(swaps(10, 3 * P - 20), 0..3, "edges of nearly a granule");
        assert_eq!(swaps(10, 2999), 0..0);
        assert_eq!(swaps(10, 3000), 0..1);
        assert_eq!(swaps(0, 3000), 0..1);
        assert_eq!(swaps(P - 10, 3010), 1..2, "two edges, one of them long enough");
        assert_eq!(swaps(P - 10, 20), 1..1);
        assert_eq!(swaps(100, 0), 0..0);
    }

    #[test]
    fn without_a_guard_partial_granules_are_copied() {
        let swaps = |offset, len| {
            Thresholds::ALWAYS.swaps(P, (offset, len), unguarded(shared(offset, len)), |_| false)
        };
        assert_eq!(swaps(10, 3 * P - 20), 1..2);
        assert_eq!(swaps(10, 20), 0..0);
        let alone = |offset, len| Thresholds::ALWAYS.swaps(P, (offset, len), unguarded(|_| 0), |_| false);
        assert_eq!(alone(10, 3 * P - 20), 0..3, "nothing has to be completed");
        assert_eq!(alone(10, 20), 0..1);
    }

    #[test]
    fn fewer_bytes_to_complete_make_shorter_data_worth_a_swap() {
        let thresholds =
            Thresholds { input: 3000, input_alone: 1000, input_edge: 2200, ..Thresholds::ALWAYS };
        let swaps = |len, beside| thresholds.swaps(P, (0, len), kept(|_| beside), |_| false);
        assert_eq!((swaps(999, 0), swaps(1000, 0)), (0..0, 0..1));
        // 2000 bytes of the granule are nobody's: 2000 / 1.75 = 1142.
        assert_eq!((swaps(1857, P - 3857), swaps(1858, P - 3858)), (0..0, 0..1));
        assert_eq!((swaps(2999, P - 2999), swaps(3000, P - 3000)), (0..0, 0..1));
    }

    #[test]
    fn what_lies_beside_is_looked_up_only_where_it_matters() {
        let thresholds = Thresholds { input: 3000, input_alone: 2000, ..Thresholds::ALWAYS };
        let never = |index| panic!("granule {index} is looked up");
        assert_eq!(thresholds.swaps(P, (0, 100), never, |_| false), 0..0);
        assert_eq!(thresholds.swaps(P, (0, 3 * P), never, |_| false), 0..3);
    }

    #[test]
    fn an_output_pending_forces_the_swap_whatever_the_length() {
        let swaps = |len, pending| {
            Thresholds::NEVER.swaps(P, (0, len), kept(shared(0, len)), |index| pending == Some(index))
        };
        assert_eq!(swaps(64, None), 0..0);
        assert_eq!(swaps(64, Some(0)), 0..1);
        assert_eq!(swaps(2 * P, Some(1)), 0..2);
    }

    #[test]
    fn a_run_that_costs_more_than_the_copy_is_not_swapped() {
        let thresholds = Thresholds { input_run: 11 * P, ..Thresholds::ALWAYS };
        assert_eq!(thresholds.swaps(P, (0, 10 * P), kept(|_| 0), |_| false), 0..0);
        assert_eq!(thresholds.swaps(P, (0, 11 * P), kept(|_| 0), |_| false), 0..11);
    }

    #[test]
    fn every_swap_is_of_granules_that_hold_data() {
        for thresholds in [Thresholds::ALWAYS, Thresholds::NEVER, Thresholds::derive(&micron(), P)] {
            for offset in [0, 1, 2000, P - 1] {
                for len in [1, 100, 2095, 2096, P - 1, P, P + 1, 2 * P, 3 * P + 5] {
                    let swap = thresholds.swaps(P, (offset, len), kept(shared(offset, len)), |_| false);
                    let count = (offset + len).div_ceil(P) as u32;
                    assert!(swap.start <= swap.end && swap.end <= count, "{offset} {len}: {swap:?}");
                }
            }
        }
    }

    #[test]
    fn output_is_copied_for_ever_where_protecting_costs_more_a_byte() {
        let mut costs = micron();
        assert!(Thresholds::derive(&costs, P).output < P);
        costs.reinstate = Cost::measured(vec![(P, 1e6), (16 << 20, 1e10)]);
        assert_eq!(Thresholds::derive(&costs, P).output, usize::MAX);
    }
}
