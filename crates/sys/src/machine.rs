//! The machine, and what this process is and may do on it: CPUs, CPU time, memory-lock limit, kernel, user.
//!
//! Why: measurements mean nothing without the CPUs that they ran on, and wiring fails where the limit is low.
//! Limits: CPU sets of at most 1024 CPUs.

mod others;
mod real_time;
mod turns;

use std::marker::PhantomData;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::ClockId;

use crate::inspect::read_text;
use crate::{Error, Result, cgroup};

pub use others::OtherPrograms;
pub use real_time::RealTime;
pub use turns::{Turns, on_two_cpus, ping_pong};

const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";

/// How many CPUs are online, whether or not this process may use them.
///
/// # Errors
/// What reading the kernel's list fails with.
pub fn cpu_count() -> Result<usize> {
    let text = read_text(ONLINE_CPUS)?;
    count_of_list(text.trim())
        .ok_or_else(|| Error::new("read", format!("{ONLINE_CPUS} ({:?})", text.trim()), Errno::INVAL))
}

/// Counts a kernel list like `0-3,8,10-11`.
fn count_of_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// The CPUs that the calling thread may run on, in order.
///
/// # Errors
/// EINVAL on a machine of more than 1024 CPUs.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let set = affinity()?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn affinity() -> Result<CpuSet> {
    sched_getaffinity(None).map_err(|errno| Error::new("sched_getaffinity", "this thread", errno))
}

/// Holds the calling thread on one CPU; dropping it gives back the CPUs that the thread had before.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
    /// The drop must run in the pinned thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // This fails only if all of those CPUs were meanwhile taken away; the thread then runs where it may.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Makes the calling thread run on `cpu` alone, as long as the result exists.
///
/// # Errors
/// EINVAL: the CPU doesn't exist, or isn't this process's to use.
pub fn pin_thread(cpu: usize) -> Result<Pinned> {
    let failed = |errno| {
        Error::new("sched_setaffinity", format!("this thread to CPU {cpu}"), errno)
            .with_remedy("choose one of the CPUs that `taskset -p $$` allows")
    };
    let before = affinity()?;
    if cpu >= CpuSet::MAX_CPU {
        return Err(failed(Errno::INVAL));
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(failed)?;
    Ok(Pinned { before, not_send: PhantomData })
}

/// The CPU time that the calling thread has used, its system calls included.
pub fn thread_cpu_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// The CPU time that all threads of this process have used.
pub fn process_cpu_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

/// The time since the machine was started, which is the same for all processes.
#[doc(alias = "CLOCK_MONOTONIC")]
pub fn monotonic_time() -> Duration {
    time_of(ClockId::Monotonic)
}

/// The time since the machine was started, as of the kernel's last tick: a cheap clock that stands still for milliseconds.
pub fn coarse_time() -> Duration {
    time_of(ClockId::MonotonicCoarse)
}

fn time_of(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A resource limit in bytes; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What holds now.
    pub soft: Option<u64>,
    /// What the process may raise it to.
    pub hard: Option<u64>,
}

/// How much memory this process may lock.
#[doc(alias = "RLIMIT_MEMLOCK")]
pub fn memory_lock_limit() -> Limit {
    let limit = rustix::process::getrlimit(Resource::Memlock);
    Limit { soft: limit.current, hard: limit.maximum }
}

/// Raises the memory-lock limit as far as this process may: the soft limit to the hard limit. Returns the limits that
/// then hold.
///
/// # Errors
/// None is expected: no right is needed.
pub fn raise_memory_lock_limit() -> Result<Limit> {
    let hard = memory_lock_limit().hard;
    rustix::process::setrlimit(Resource::Memlock, Rlimit { current: hard, maximum: hard })
        .map_err(|errno| Error::new("setrlimit", format!("RLIMIT_MEMLOCK to {hard:?}"), errno))?;
    Ok(memory_lock_limit())
}

/// Whether the memory-lock limit doesn't hold for the calling thread, which then has CAP_IPC_LOCK.
///
/// In a user namespace the capability doesn't count, but is shown all the same.
///
/// # Errors
/// None is expected.
#[doc(alias = "CAP_IPC_LOCK")]
pub fn can_lock_without_limit() -> Result<bool> {
    rustix::thread::capabilities(None)
        .map(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
        .map_err(|errno| Error::new("capget", "this thread", errno))
}

/// How many descriptors this process may have open at once.
#[doc(alias = "RLIMIT_NOFILE")]
pub fn descriptors_max() -> usize {
    rustix::process::getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
}

/// The user that this process acts as.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process acts as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The kernel's release, like `6.18.44`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The CPU's name; `unknown` where the kernel gives none.
///
/// # Errors
/// What reading /proc/cpuinfo fails with.
pub fn cpu_model() -> Result<String> {
    Ok(model_of(&read_text("/proc/cpuinfo")?).to_owned())
}

fn model_of(cpuinfo: &str) -> &str {
    let named = |name: &str| {
        cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
    };
    named("model name").or_else(|| named("CPU part")).filter(|name| !name.is_empty()).unwrap_or("unknown")
}

/// The machine's memory in bytes.
pub fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel's numbers have the width of the machine's word.
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// The memory that this process may use, in bytes: the machine's, or three quarters of what its memory cgroup allows, if that
/// is less. The rest of a cgroup's is for the programs themselves.
pub fn usable_memory() -> u64 {
    usable(total_memory(), cgroup::memory_limit())
}

fn usable(total: u64, limit: Option<u64>) -> u64 {
    limit.map_or(total, |limit| total.min(limit / 4 * 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_of_list("0"), Some(1));
        assert_eq!(count_of_list("0-3,8,10-11"), Some(7));
        assert_eq!(count_of_list("3-1"), None);
        assert_eq!(count_of_list(""), None);
    }

    #[test]
    fn allowed_cpus_are_some_of_those_online() {
        let allowed = allowed_cpus().unwrap();
        assert!(!allowed.is_empty() && allowed.len() <= cpu_count().unwrap(), "{allowed:?}");
    }

    #[test]
    fn a_pinned_thread_runs_on_its_cpu_and_is_then_let_go() {
        let before = allowed_cpus().unwrap();
        for &cpu in &before {
            let pinned = pin_thread(cpu).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
            assert_eq!(rustix::thread::sched_getcpu(), cpu);
            drop(pinned);
            assert_eq!(allowed_cpus().unwrap(), before);
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named() {
        for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            if allowed_cpus().unwrap().contains(&cpu) {
                continue;
            }
            let error = pin_thread(cpu).unwrap_err();
            assert!(error.to_string().contains(&format!("CPU {cpu}")), "{error}");
        }
    }

    #[test]
    fn cpu_time_counts_work_and_not_sleep() {
        let start = thread_cpu_time();
        std::thread::sleep(Duration::from_millis(30));
        assert!(thread_cpu_time() - start < Duration::from_millis(30));
        let (process, thread) = (process_cpu_time(), thread_cpu_time());
        while thread_cpu_time() - thread < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        // The process's clock may lag behind its threads' by a tick.
        assert!(process_cpu_time() - process >= Duration::from_millis(25));
    }

    #[test]
    fn the_memory_lock_limit_can_be_raised_to_the_hard_one() {
        let before = memory_lock_limit();
        let after = raise_memory_lock_limit().unwrap();
        assert_eq!(after, Limit { soft: before.hard, hard: before.hard });
        assert_eq!(memory_lock_limit(), after);
    }

    #[test]
    fn the_lock_capability_is_the_one_that_proc_shows() {
        let status = read_text("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let effective = u64::from_str_radix(line.trim(), 16).unwrap();
        assert_eq!(can_lock_without_limit().unwrap(), effective >> 14 & 1 == 1);
    }

    #[test]
    fn a_cpu_is_named_by_model_or_part() {
        assert_eq!(model_of("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n"), "A CPU @ 2 GHz");
        assert_eq!(model_of("processor\t: 0\nCPU part\t: 0xd0c\n"), "0xd0c");
        assert_eq!(model_of(""), "unknown");
        assert!(!cpu_model().unwrap().is_empty());
    }

    #[test]
    fn a_cgroup_with_a_low_limit_leaves_less_of_the_memory_to_use() {
        assert_eq!(usable(64 << 30, None), 64 << 30);
        assert_eq!(usable(64 << 30, Some(32 << 20)), 24 << 20);
        assert_eq!(usable(1 << 30, Some(64 << 30)), 1 << 30);
        assert!(usable_memory() <= total_memory());
    }

    #[test]
    fn the_kernel_and_the_memory_are_known() {
        assert!(kernel_release().starts_with(|c: char| c.is_ascii_digit()));
        assert!(total_memory() > 1 << 24);
        assert_eq!(is_root(), effective_uid() == 0);
    }
}
