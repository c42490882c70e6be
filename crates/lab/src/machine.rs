//! The machine that a measurement ran on, as far as its numbers depend on it.

use std::fs;

use genie::mechanism::Space;
use genie_sys::userfault::Way;
use genie_sys::{inspect, machine};
use serde::{Deserialize, Serialize};

use crate::interface;
use crate::length;

/// Facts for the reader of a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The CPUs' model.
    pub cpu: String,
    /// How many of them this process may use.
    pub cpus: usize,
    /// Its memory in bytes.
    pub memory: u64,
    /// The granules in words.
    pub granules: String,
    /// How stores into protected memory are caught; none where they cannot be.
    pub userfaultfd: Option<String>,
    /// Reserved huge pages, before the measurement took any.
    pub huge_pages: HugePages,
    /// Runnable threads, averaged over the last minute, before the measurement began.
    pub load: f64,
}

/// Reserved huge pages.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct HugePages {
    /// How many are reserved.
    pub total: usize,
    /// How many of them are unused.
    pub free: usize,
}

impl HugePages {
    /// Asks the kernel; if the kernel says nothing, there are none.
    pub fn read() -> Self {
        inspect::huge_pages()
            .map_or(Self { total: 0, free: 0 }, |pages| Self { total: pages.total, free: pages.free })
    }
}

/// Facts that must be read before the comparison changes them.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Reserved huge pages.
    pub huge_pages: HugePages,
    /// Runnable threads, averaged over the last minute.
    pub load: f64,
}

impl Before {
    /// Asks the kernel.
    pub fn read() -> Self {
        let cpus = machine::allowed_cpus().map_or(1, |cpus| cpus.len());
        Self { cpus, huge_pages: HugePages::read(), load: load() }
    }
}

impl Machine {
    /// Describes the machine as `space` uses it.
    pub fn describe(space: &Space, before: Before) -> Self {
        Self {
            kernel: machine::kernel_release(),
            cpu: machine::cpu_model().unwrap_or_else(|_| "unknown".to_owned()),
            cpus: before.cpus,
            memory: machine::total_memory(),
            granules: interface::describe(space),
            userfaultfd: space.fault_way().map(|used| way(used).to_owned()),
            huge_pages: before.huge_pages,
            load: before.load,
        }
    }

    /// The kernel and the granules.
    pub fn name(&self) -> String {
        format!("Linux {}, granules of {}", self.kernel, self.granules)
    }

    /// The facts in one line.
    pub fn line(&self) -> String {
        format!(
            "Linux {}, {} ({}), {}, load {:.2}; granules of {}, {} of {} huge pages free; userfaultfd: {}",
            self.kernel,
            if self.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.cpus) },
            self.cpu,
            length::approximate(self.memory),
            self.load,
            self.granules,
            self.huge_pages.free,
            self.huge_pages.total,
            self.userfaultfd.as_deref().unwrap_or("none"),
        )
    }
}

fn way(way: Way) -> &'static str {
    match way {
        Way::SystemCall => "system call",
        Way::Device => "device",
        Way::UserModeOnly => "user mode only",
    }
}

/// Runnable threads, averaged over the last minute; 0 where the kernel does not say.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default()
}
