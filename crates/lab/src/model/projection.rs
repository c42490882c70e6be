//! How much of the advantage of not copying remains when CPUs and copying become faster.
//!
//! How: a framework's cost for one write is CPU time, of which a part is copying. A faster system divides that part by its
//! copy speed-up M, and the rest by its CPU speed-up C. As long as the CPU is the bottleneck, throughput is the inverse.
//! Limits: at most as fast as the network: a cost below the network's latency says nothing about throughput.
//! Source: Thadani and Khalidi, section 6.3 and appendix A.

/// How much faster a system is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speedup {
    /// The speed-up of everything but copying: C.
    pub cpu: f64,
    /// The speed-up of copying: M.
    pub copy: f64,
}

/// CPU time for one write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The whole time.
    pub total: f64,
    /// The part of it that is copying.
    pub copying: f64,
}

/// How long `bits` take at a throughput, in the throughput's unit of time: EL and NL in the appendix.
pub fn latency(bits: f64, throughput: f64) -> f64 {
    bits / throughput
}

impl Cost {
    /// The cost from the measured throughput, and from how busy the CPU was meanwhile: CC in the appendix.
    pub fn measured(bits: f64, throughput: f64, utilization: f64, copying: f64) -> Self {
        Self { total: latency(bits, throughput) * utilization, copying }
    }

    /// The cost of the same work on a faster system: PC in the appendix.
    pub fn projected(self, speedup: Speedup) -> f64 {
        (self.total - self.copying) / speedup.cpu + self.copying / speedup.copy
    }
}

/// How much more throughput the framework that avoids copying has, as a fraction: 0.5 means 50 % more.
pub fn advantage(avoiding: Cost, copying: Cost, speedup: Speedup) -> f64 {
    copying.projected(speedup) / avoiding.projected(speedup) - 1.0
}

/// For a CPU speed-up, the copy speed-up at which nothing is left of the advantage; none if there is no such copy speed-up.
///
/// Assumes that the framework that avoids copying does not copy at all.
pub fn break_even(avoiding: Cost, copying: Cost, cpu: f64) -> Option<f64> {
    let left = avoiding.total - (copying.total - copying.copying);
    let break_even = copying.copying * cpu / left;
    (left > 0.0).then_some(break_even)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPYING: Cost = Cost { total: 739.0, copying: 280.0 };

    #[test]
    fn nothing_is_left_of_the_advantage_at_the_break_even() {
        let avoiding = Cost { total: 500.0, copying: 0.0 };
        let copy = break_even(avoiding, COPYING, 4.0).unwrap();
        assert!(advantage(avoiding, COPYING, Speedup { cpu: 4.0, copy }).abs() < 1e-12);
    }

    #[test]
    fn a_framework_that_is_cheaper_in_all_else_stays_ahead_whatever_copying_costs() {
        let avoiding = Cost { total: 400.0, copying: 0.0 };
        assert_eq!(break_even(avoiding, COPYING, 4.0), None);
        assert!(advantage(avoiding, COPYING, Speedup { cpu: 4.0, copy: 1e9 }) > 0.0);
    }
}
