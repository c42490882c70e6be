//! Reinstatement: when a run of granules gets its write permission back.
//!
//! Why: taking protection off a whole run costs a few microseconds, and a fault costs some forty. So a region whose
//! owner stores into it between outputs is unprotected as soon as its last output completes. A region that is output
//! again and again unchanged stays protected, and the next output need not protect it again.
//! How: whether the owner stored cannot be seen on an unprotected region, so there are trials: now and then a run stays
//! protected when its last output completes. If no fault comes before the next output, the region is left protected
//! until a store faults. If a fault comes, the next trial is put off for twice as long.
//! Source: thesis §4.2 and §4.4 reinstate lazily, since a region may have changed meanwhile; here reference counts and
//! region marks are consulted, so that eager reinstatement is safe.

const FIRST_TRIAL: u32 = 16;
const LAST_TRIAL: u32 = 4096;

/// What is known of one region's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reinstatement {
    /// The region is left protected at the moment to see whether its owner stores.
    trying: bool,
    /// The owner did not store during the last trial.
    resting: bool,
    until_trial: u32,
    interval: u32,
}

impl Default for Reinstatement {
    fn default() -> Self {
        Self { trying: false, resting: false, until_trial: FIRST_TRIAL, interval: FIRST_TRIAL }
    }
}

impl Reinstatement {
    /// An output is about to protect the region.
    pub(crate) fn output(&mut self) {
        if self.trying {
            self.trying = false;
            self.resting = true;
        }
    }

    /// The last output completed: whether to unprotect now.
    pub(crate) fn completed(&mut self) -> bool {
        if self.resting {
            return false;
        }
        self.until_trial = self.until_trial.saturating_sub(1);
        if self.until_trial == 0 {
            self.trying = true;
            self.until_trial = self.interval;
            return false;
        }
        true
    }

    /// The owner's store faulted.
    pub(crate) fn faulted(&mut self) {
        if self.trying {
            self.interval = (self.interval * 2).min(LAST_TRIAL);
            self.until_trial = self.interval;
        }
        self.trying = false;
        self.resting = false;
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
                state.faulted();
            }
            state.output();
            protected = !state.completed();
            unprotected += u32::from(!protected);
        }
        (unprotected, faults)
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
}
