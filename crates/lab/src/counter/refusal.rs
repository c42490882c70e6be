//! Why events can't be counted, and what to do about it.

use std::io;

use super::{Event, Modes};

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// The greatest values of `kernel.perf_event_paranoid` at which a user without rights may count in the kernel, and in user
/// mode.
const IN_KERNEL: i32 = 1;
const IN_USER_MODE: i32 = 2;

/// Why an event can't be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Neither the processor nor the kernel has a counter for it.
    #[error(
        "the kernel finds no counter of {} on this machine ({source}); a virtual machine has those that its host gives it: \
         measure on the host, or have the host give them",
        event.name()
    )]
    Absent {
        /// What was to be counted.
        event: Event,
        /// The kernel's answer.
        source: io::Error,
    },
    /// This process has no right to count the event.
    #[error(
        "this process may not count {} {} ({source}; {}); {}",
        event.name(), modes.words(), setting(*paranoid), remedy(*modes, *paranoid)
    )]
    Forbidden {
        /// What was to be counted.
        event: Event,
        /// In which modes.
        modes: Modes,
        /// What `kernel.perf_event_paranoid` is, where that can be read.
        paranoid: Option<i32>,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel counts nothing.
    #[error(
        "this kernel has no perf_event_open ({source}); use one built with CONFIG_PERF_EVENTS, and a container whose seccomp \
         profile allows the call"
    )]
    NoCall {
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something else failed.
    #[error("{} cannot be counted {}: {source}", event.name(), modes.words())]
    Failed {
        /// What was to be counted.
        event: Event,
        /// In which modes.
        modes: Modes,
        /// The system's reason.
        source: io::Error,
    },
}

impl Refusal {
    /// The refusal that the kernel's answer means.
    pub(super) fn new(event: Event, modes: Modes, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => Self::Absent { event, source },
            Some(libc::EACCES | libc::EPERM) => {
                Self::Forbidden { event, modes, paranoid: paranoid(), source }
            }
            Some(libc::ENOSYS) => Self::NoCall { source },
            _ => Self::Failed { event, modes, source },
        }
    }
}

fn paranoid() -> Option<i32> {
    std::fs::read_to_string(PARANOID).ok()?.trim().parse().ok()
}

fn setting(paranoid: Option<i32>) -> String {
    paranoid.map_or("kernel.perf_event_paranoid cannot be read".to_owned(), |paranoid| {
        format!("kernel.perf_event_paranoid is {paranoid}")
    })
}

fn remedy(modes: Modes, paranoid: Option<i32>) -> String {
    let most = if modes == Modes::UserAndKernel { IN_KERNEL } else { IN_USER_MODE };
    match paranoid {
        Some(paranoid) if paranoid <= most => {
            "use a container whose seccomp profile allows perf_event_open, or add CAP_PERFMON".to_owned()
        }
        _ => format!("run `sudo sysctl kernel.perf_event_paranoid={most}`, or add CAP_PERFMON"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(errno: i32) -> Refusal {
        Refusal::new(Event::Instructions, Modes::UserAndKernel, io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn what_the_kernel_answers_is_told_apart() {
        for (errno, words) in [
            (
                libc::ENOENT,
                "finds no counter of instructions on this machine (No such file or directory (os error 2))",
            ),
            (libc::EOPNOTSUPP, "finds no counter of instructions"),
            (libc::EACCES, "may not count instructions in user mode and in the kernel (Permission denied"),
            (libc::EPERM, "may not count instructions"),
            (libc::ENOSYS, "this kernel has no perf_event_open"),
            (
                libc::EMFILE,
                "instructions cannot be counted in user mode and in the kernel: Too many open files",
            ),
        ] {
            let sentence = refusal(errno).to_string();
            assert!(sentence.contains(words), "{sentence}");
        }
    }

    #[test]
    fn the_remedy_names_the_setting_that_suffices() {
        for (modes, paranoid, words) in [
            (Modes::UserAndKernel, Some(2), "sysctl kernel.perf_event_paranoid=1`"),
            (Modes::User, Some(4), "sysctl kernel.perf_event_paranoid=2`"),
            (Modes::User, None, "sysctl kernel.perf_event_paranoid=2`"),
            (Modes::User, Some(2), "seccomp profile allows perf_event_open"),
            (Modes::UserAndKernel, Some(-1), "seccomp profile"),
        ] {
            assert!(remedy(modes, paranoid).contains(words), "{modes:?} at {paranoid:?}");
        }
    }
}
