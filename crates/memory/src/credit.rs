//! Credit: whether output copy-on-write still pays for a region, judged by what it saved and what its faults cost.
//!
//! Why: emulated copy must never be slower than copy by more than the noise of measurements. A client that overwrites
//! its buffer while the output is pending pays a fault and a replaced granule each time; such a region is better
//! copied.
//! How: each protected output earns what it saved, each replacement costs what it took. When the balance falls below
//! the bound, the next 8 outputs are copied, then 16, 32 and so on; when protecting has paid again, the count falls.
//! Limits: balances are bounded both ways, so that a region's history does not outweigh its present.
//! Source: thesis §4.3 (criticality of TCOW).

/// In nanoseconds: a balance below minus this suspends protection; a balance of this proves that protection pays.
const BOUND: i64 = 500_000;
const FIRST_SUSPENSION: u32 = 8;
const LONGEST_SUSPENSION: u32 = 1024;

/// One region's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credit {
    balance: i64,
    suspended: u32,
    next_suspension: u32,
}

impl Default for Credit {
    fn default() -> Self {
        Self { balance: 0, suspended: 0, next_suspension: FIRST_SUSPENSION }
    }
}

impl Credit {
    /// Whether to protect one output. Each refusal brings the end of the suspension nearer.
    pub(crate) fn allows(&mut self) -> bool {
        if self.suspended == 0 {
            return true;
        }
        self.suspended -= 1;
        if self.suspended == 0 {
            self.balance = 0;
        }
        false
    }

    /// Adds what a protected output saved.
    pub(crate) fn earn(&mut self, nanoseconds: u64) {
        self.balance = self.balance.saturating_add_unsigned(nanoseconds).min(BOUND);
        if self.balance == BOUND && self.next_suspension > FIRST_SUSPENSION {
            self.next_suspension /= 2;
            self.balance = 0;
        }
    }

    /// Subtracts what a fault cost.
    pub(crate) fn spend(&mut self, nanoseconds: u64) {
        self.balance = self.balance.saturating_sub_unsigned(nanoseconds);
        if self.balance < -BOUND && self.suspended == 0 {
            self.suspended = self.next_suspension;
            self.next_suspension = (self.next_suspension * 2).min(LONGEST_SUSPENSION);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1000 outputs were protected, when each protected one earns `gain` and costs `loss`.
    fn protected(credit: &mut Credit, gain: u64, loss: u64) -> usize {
        (0..1000)
            .filter(|_| {
                let allowed = credit.allows();
                if allowed {
                    credit.earn(gain);
                    credit.spend(loss);
                }
                allowed
            })
            .count()
    }

    #[test]
    fn a_region_that_always_faults_is_copied_nearly_always() {
        let mut credit = Credit::default();
        protected(&mut credit, 100_000, 250_000);
        assert!(protected(&mut credit, 100_000, 250_000) < 20);
    }

    #[test]
    fn a_region_that_never_faults_is_never_copied() {
        assert_eq!(protected(&mut Credit::default(), 100_000, 0), 1000);
    }

    #[test]
    fn a_region_that_mends_its_ways_is_protected_again() {
        let mut credit = Credit::default();
        protected(&mut credit, 100_000, 250_000);
        protected(&mut credit, 100_000, 0);
        protected(&mut credit, 100_000, 0);
        assert_eq!(protected(&mut credit, 100_000, 0), 1000);
    }
}
