//! CPU time that the host of a virtual machine gave to others, as the kernel accounts for it.

/// The kernel's account of all CPUs' time since it started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    all: u64,
    steal: u64,
}

impl CpuTimes {
    /// Reads the account from the kernel.
    pub fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; the time of virtual
    /// machines, which follows, is part of user time.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).take(8).collect();
        Some(Self { all: ticks.iter().sum(), steal: *ticks.get(7)? })
    }

    /// The share, from 0 to 1, of the time between the two readings that was stolen; none where no tick has passed.
    pub fn steal_until(self, later: Self) -> Option<f64> {
        let all = later.all.saturating_sub(self.all);
        (all > 0).then(|| later.steal.saturating_sub(self.steal) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_time_between() {
        let before = CpuTimes::parse("cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1").unwrap();
        let after = CpuTimes::parse("cpu  20 0 20 140 0 0 0 20 9 0\ncpu0 1").unwrap();
        assert_eq!(before.steal_until(after), Some(0.1));
        assert_eq!(before.steal_until(before), None);
        assert_eq!(CpuTimes::parse("cpu  10 0 10"), None);
    }
}
