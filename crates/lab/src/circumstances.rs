//! Circumstances of a machine that can change from one run to the next: its clock's frequency and the frequency's governor,
//! its caches, and which events may be counted, and what the kernel's interfaces allow.
//!
//! Limits: a virtual machine mostly tells none of this; unknown facts are absent.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::counter::{Counting, Event};
use crate::medium;

const CPU: &str = "/sys/devices/system/cpu/cpu0";

/// Circumstances that can change the results, besides the machine itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Circumstances {
    /// The frequency of the first CPU when the run began, in MHz.
    pub frequency_mhz: Option<u64>,
    /// The governor that chooses the frequency: `performance`, `schedutil`.
    pub governor: Option<String>,
    /// Whether the CPUs may run for a while faster than they can run permanently.
    pub turbo: Option<bool>,
    /// The caches of the first CPU, smallest first: `L1d 48K`.
    pub caches: Vec<String>,
    /// The source of the kernel's time: `tsc`.
    pub clock: Option<String>,
    /// Whether shared memory may have transparent huge pages: `advise`.
    pub transparent_huge_pages: Option<String>,
    /// Whether instructions can be counted; none in runs of versions that did not try.
    pub instructions: Option<Counting>,
    /// Why there is no AF_XDP here; none where there is, and in runs of versions that did not try.
    pub xdp_lack: Option<String>,
}

impl Circumstances {
    /// Asks the kernel.
    pub fn read() -> Self {
        let cpu = Path::new(CPU);
        let frequency = text(&cpu.join("cpufreq/scaling_cur_freq")).and_then(|khz| khz.parse::<u64>().ok());
        Self {
            frequency_mhz: frequency.map(|khz| khz / 1000).or_else(frequency_of_cpuinfo),
            governor: text(&cpu.join("cpufreq/scaling_governor")),
            turbo: text(Path::new("/sys/devices/system/cpu/intel_pstate/no_turbo")).map(|off| off == "0"),
            caches: caches(&cpu.join("cache")),
            clock: text(Path::new("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            transparent_huge_pages: text(Path::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
                .and_then(|modes| chosen(&modes)),
            instructions: Some(Counting::of(Event::Instructions)),
            xdp_lack: medium::xdp_lack().map(str::to_owned),
        }
    }
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn frequency_of_cpuinfo() -> Option<u64> {
    let cpuinfo = text(Path::new("/proc/cpuinfo"))?;
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    Some(mhz.round() as u64)
}

/// The word in brackets of a list such as `always [advise] never`.
fn chosen(modes: &str) -> Option<String> {
    Some(modes.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn caches(folder: &Path) -> Vec<String> {
    let one = |index: usize| {
        let cache = folder.join(format!("index{index}"));
        let kind = match text(&cache.join("type"))?.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        Some(format!("L{}{kind} {}", text(&cache.join("level"))?, text(&cache.join("size"))?))
    };
    (0..8).map_while(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_mode_is_the_one_in_brackets() {
        assert_eq!(chosen("always within_size [advise] never").as_deref(), Some("advise"));
        assert_eq!(chosen("always"), None);
    }
}
