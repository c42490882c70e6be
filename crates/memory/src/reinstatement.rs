//! Reinstatement: when granules get their write permission back, and whether an output is worth protecting that is too short for
//! protecting and reinstating it each time.
//!
//! Why: taking protection off a whole run costs a few microseconds, and a fault costs some forty. So a region whose
//! owner stores into it between outputs is unprotected as soon as its last output completes, or, where that costs more than
//! copying, is copied. A region that is output again and again unchanged stays protected: its next output need neither protect
//! it nor copy it.
//! How: whether the owner stored cannot be seen on an unprotected region, so there are trials: now and then an output's granules
//! stay protected when it completes. If an output finds its granules still protected, no store has come, and the region is left
//! protected until one does. If a fault comes first, the next trial is put off for twice as long.
//! Where outputs are copied otherwise, a failed trial may cost as much as several copies: trials are rarer by that factor, so that
//! the first one costs an eighth of what the copies before it have cost, and all of them less and less. An output that needed no
//! copy pays for as much of a trial as 8 copies.
//! Source: thesis §4.2 and §4.4 reinstate lazily, since a region may have changed meanwhile; here reference counts and
//! region marks are consulted, so that eager reinstatement is safe.

const FIRST_TRIAL: u32 = 16;
const LAST_TRIAL: u32 = 4096;

/// What is known of an owner's stores between outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stores {
    /// The owner stores, as far as is known.
    Expected,
    /// Some granules are left protected to see whether the owner stores.
    Tried,
    /// The owner did not store during the last trial.
    Absent,
}

/// What is known of one region's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reinstatement {
    stores: Stores,
    /// Outputs since the last trial; those that might have been copied count twice, those that were spared it sixteen times.
    waited: u32,
    interval: u32,
}

impl Default for Reinstatement {
    fn default() -> Self {
        Self { stores: Stores::Expected, waited: 0, interval: FIRST_TRIAL }
    }
}

impl Reinstatement {
    /// An output is about to protect its granules; `unchanged` says that all of them are protected still.
    pub(crate) fn output(&mut self, unchanged: bool) {
        if unchanged && self.stores == Stores::Tried {
            self.stores = Stores::Absent;
            self.interval = (self.interval / 2).max(FIRST_TRIAL);
        }
    }

    /// An output comes that is copied unless it is `unchanged` or on trial: whether it is not copied. What copying it costs, and
    /// what a failed trial does, are in nanoseconds.
    pub(crate) fn spares_copy(&mut self, unchanged: bool, copying: u64, failed: u64) -> bool {
        self.waited = self.waited.saturating_add(if unchanged { FIRST_TRIAL } else { 2 });
        if unchanged {
            return true;
        }
        let needed = u64::from(self.interval).saturating_mul(failed.max(copying));
        let is_due = u64::from(self.waited).saturating_mul(copying) >= needed;
        if is_due {
            self.try_now();
        }
        is_due
    }

    /// The last output completed: whether to unprotect now.
    pub(crate) fn completed(&mut self) -> bool {
        if self.stores != Stores::Expected {
            return false;
        }
        self.waited = self.waited.saturating_add(1);
        if self.waited >= self.interval {
            self.try_now();
        }
        self.stores == Stores::Expected
    }

    fn try_now(&mut self) {
        self.stores = Stores::Tried;
        self.waited = 0;
    }

    /// The owner's store faulted.
    pub(crate) fn faulted(&mut self) {
        if self.stores == Stores::Tried {
            self.interval = (self.interval * 2).min(LAST_TRIAL);
            self.waited = 0;
        }
        self.stores = Stores::Expected;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `count` outputs, after how many the region was unprotected, and how many faults were taken, when its owner
    /// stores before each output (`stores`) or never.
    fn run(state: &mut Reinstatement, count: u32, stores: bool) -> (u32, u32) {
        let (mut unprotected, mut faults, mut protected) = (0, 0, false);
        for _ in 0..count {
            if stores && protected {
                faults += 1;
                protected = false;
                state.faulted();
            }
            state.output(protected);
            protected = !state.completed();
            unprotected += u32::from(!protected);
        }
        (unprotected, faults)
    }

    /// Of `count` outputs that are copied where nothing else is known, how many were, and how many faults were taken, when the
    /// owner stores before each output for which `stores` says so.
    fn run_short(
        state: &mut Reinstatement,
        price: u64,
        count: u32,
        stores: impl Fn(u32) -> bool,
    ) -> (u32, u32) {
        let (mut copied, mut faults, mut protected) = (0, 0, false);
        for at in 0..count {
            if protected && stores(at) {
                faults += 1;
                protected = false;
                state.faulted();
            }
            if !state.spares_copy(protected, 10, 10 * price) {
                copied += 1;
                continue;
            }
            state.output(protected);
            protected = !state.completed();
        }
        (copied, faults)
    }

    #[test]
    fn a_region_that_is_stored_into_faults_rarely() {
        let (unprotected, faults) = run(&mut Reinstatement::default(), 10_000, true);
        assert!(faults <= 10, "{faults} faults");
        assert!(unprotected >= 9_990);
    }

    #[test]
    fn a_region_at_rest_stays_protected() {
        let (unprotected, faults) = run(&mut Reinstatement::default(), 10_000, false);
        assert_eq!((unprotected, faults), (FIRST_TRIAL - 1, 0));
    }

    #[test]
    fn a_region_that_wakes_up_is_unprotected_again() {
        let mut state = Reinstatement::default();
        run(&mut state, 100, false);
        state.faulted();
        let (unprotected, _) = run(&mut state, 100, true);
        assert!(unprotected > 90);
    }

    #[test]
    fn an_unchanged_region_is_copied_until_its_first_trial_and_never_again() {
        for price in [1, 8] {
            let state = &mut Reinstatement::default();
            let copied = 8 * price as u32 - 1;
            assert_eq!(run_short(state, price, 10_000, |_| false), (copied, 0), "{price}");
        }
    }

    #[test]
    fn trials_of_a_region_that_is_always_stored_into_become_rare() {
        for price in [1, 8] {
            let state = &mut Reinstatement::default();
            for (outputs, trials) in [(16, 1), (100, 2), (1_000, 4), (10_000, 20_000 / LAST_TRIAL + 4)] {
                let (_, faults) = run_short(state, price, outputs * price as u32, |_| true);
                assert!(faults <= trials, "{faults} of {outputs} at {price}");
            }
        }
    }

    #[test]
    fn a_region_that_is_stored_into_after_each_third_output_is_copied_rarely() {
        let (copied, _) = run_short(&mut Reinstatement::default(), 1, 3_000, |at| at % 3 == 0);
        assert!(copied < 30, "{copied} outputs were copied");
    }
}
