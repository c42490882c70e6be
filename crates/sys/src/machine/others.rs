//! How busy other programs keep the CPUs while this one measures something.
//!
//! Why: a measurement beside busy programs says little. The average load does not tell: it still counts a compiler that ended a
//! minute ago, and hardly counts a program that has just begun.
//! How: the kernel counts how long each CPU worked and idled. What this process did not work itself, others did. A hypervisor
//! that gave the CPU to another machine counts as another program.
//! Limits: the kernel counts in ticks of some milliseconds, so that shorter times say nothing. Threads of this process that do
//! something else count as its own.

use std::time::{Duration, Instant};

use super::{allowed_cpus, process_cpu_time};
use crate::inspect::read_text;

const STAT: &str = "/proc/stat";

/// Watches the CPUs that the calling thread may use.
#[derive(Debug)]
pub struct OtherPrograms {
    cpus: Vec<usize>,
    times: Times,
    own: Duration,
    begun: Instant,
}

impl OtherPrograms {
    /// Begins to watch.
    pub fn watch() -> Self {
        let cpus = allowed_cpus().unwrap_or_default();
        let times = Times::read(&cpus);
        Self { cpus, times, own: process_cpu_time(), begun: Instant::now() }
    }

    /// The part of the CPUs' time that other programs have had since [`OtherPrograms::watch`], from 0 to 1; 0 where the kernel does
    /// not say.
    pub fn share(&self) -> f64 {
        let own = (process_cpu_time() - self.own).as_secs_f64();
        let whole = self.begun.elapsed().as_secs_f64() * self.cpus.len() as f64;
        Times::read(&self.cpus).since(self.times, own / whole)
    }
}

/// Ticks of some CPUs.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    busy: u64,
    all: u64,
}

impl Times {
    fn read(cpus: &[usize]) -> Self {
        read_text(STAT).map(|text| Self::of(&text, cpus)).unwrap_or_default()
    }

    /// Adds up the lines of these CPUs: user, nice, system, idle, iowait, irq, softirq and steal; guests are in user and nice.
    fn of(stat: &str, cpus: &[usize]) -> Self {
        let mut sum = Self::default();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if !number.is_some_and(|number| cpus.contains(&number)) {
                continue;
            }
            let ticks: Vec<u64> = words.take(8).map(|word| word.parse().unwrap_or(0)).collect();
            let all: u64 = ticks.iter().sum();
            let idle: u64 = ticks.iter().skip(3).take(2).sum();
            sum = Self { busy: sum.busy + all - idle, all: sum.all + all };
        }
        sum
    }

    /// The part of the time since `before` that was neither idle nor this process's `own` part.
    fn since(self, before: Self, own: f64) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 {
            return 0.0;
        }
        (self.busy.saturating_sub(before.busy) as f64 / all as f64 - own).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::pin_thread;
    use super::*;

    const BEFORE: &str =
        "cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 0\ncpu1 0 0 0 100 0 0 0 0 0 0\nintr 7\n";
    const AFTER: &str =
        "cpu  9 9 9 9 9 9 9 9\ncpu0 60 0 20 100 20 0 0 0 55 0\ncpu1 0 5 5 150 0 5 5 30 0 0\nintr 9\n";

    #[test]
    fn time_that_was_neither_idle_nor_our_own_was_others() {
        let since = |cpus: &[usize], own| Times::of(AFTER, cpus).since(Times::of(BEFORE, cpus), own);
        assert_eq!(since(&[0], 0.0), 0.6, "60 of 100 ticks; a guest's are not counted twice");
        assert_eq!(since(&[1], 0.0), 0.5, "what a hypervisor took is others'");
        assert!((since(&[0, 1], 0.3) - 0.25).abs() < 1e-9, "110 of 200 ticks, and 60 of them our own");
        assert_eq!(since(&[0], 0.9), 0.0, "never less than nothing");
        assert_eq!(since(&[7], 0.0), 0.0, "a CPU that the kernel does not show");
    }

    #[test]
    fn a_kernel_that_says_nothing_shows_no_others() {
        assert_eq!(Times::of("", &[0]).since(Times::default(), 0.0), 0.0);
        assert_eq!(Times::of("cpu0 x y\n", &[0]).since(Times::default(), 0.0), 0.0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "runs a process")]
    fn a_program_that_works_on_our_cpu_is_seen() {
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        let _pinned = pin_thread(cpu).unwrap();
        let mut other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let share = || {
            let others = OtherPrograms::watch();
            std::thread::sleep(Duration::from_millis(400));
            others.share()
        };
        // What tests in other threads take counts as our own, so it is not seen while they work.
        let is_seen = (0..20).any(|_| share() > 0.5);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(is_seen);
    }
}
