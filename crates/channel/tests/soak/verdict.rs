//! Verdicts: whether a request failed for a reason that really existed.

use std::time::{Duration, Instant};

use genie_io::{Error, ServerError};
use genie_memory::Error as Memory;

use crate::order::{Manner, ORDERED};
use crate::panics;
use crate::traces::is_dead;

/// How long a killed process may take to be gone, after another one has noticed.
const DEATH: Duration = Duration::from_secs(10);

/// Codes from here on are reasons that a relay had, in the order of [`REASONS`].
const RELAYED: i32 = 1000;

/// Why requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Gone,
    TimedOut,
    Aborted,
    Dropped,
    Refused,
    NoMemory,
    NoDescriptors,
    Ordered,
    Panicked,
}

const REASONS: [(Reason, &str); 9] = [
    (Reason::Gone, "its server was dead"),
    (Reason::TimedOut, "its time was over"),
    (Reason::Aborted, "it was aborted"),
    (Reason::Dropped, "it was dropped"),
    (Reason::Refused, "a limit was reached"),
    (Reason::NoMemory, "memory was held by others"),
    (Reason::NoDescriptors, "there were no descriptors"),
    (Reason::Ordered, "it was to fail"),
    (Reason::Panicked, "its server panicked"),
];

/// What is known of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// The server's process, or one that had its name before.
    pub(crate) pid: u32,
    pub(crate) manner: Manner,
    pub(crate) is_relayed: bool,
    pub(crate) is_timed: bool,
    pub(crate) is_aborted: bool,
    /// Whether it asks for more than can ever be pending.
    pub(crate) is_too_large: bool,
    /// Whether this process has all descriptors that it may have.
    pub(crate) is_scarce: bool,
}

impl Reason {
    /// Why the request failed.
    ///
    /// # Panics
    /// When there was no reason.
    pub(crate) fn of(error: &Error, about: &Circumstances) -> Self {
        let is_right = |is_right: bool| assert!(is_right, "{error}, for no reason: {about:?}");
        match error {
            // That is so also for a living server that has no descriptor left for the announced memory.
            Error::Gone { .. } if names_descriptors(error) => Self::NoDescriptors,
            Error::Gone { .. } => {
                is_right(dies(about.pid));
                Self::Gone
            }
            Error::TimedOut { .. } => {
                is_right(about.is_timed);
                Self::TimedOut
            }
            Error::Aborted => {
                is_right(about.is_aborted);
                Self::Aborted
            }
            Error::Dropped => {
                is_right(about.manner == Manner::Drop && !about.is_relayed);
                Self::Dropped
            }
            Error::TooLarge { .. } => {
                is_right(about.is_too_large);
                Self::Refused
            }
            Error::Exhausted { .. }
            | Error::TooMany { .. }
            | Error::ChannelFull { .. }
            | Error::NoRoom { .. } => Self::Refused,
            Error::Server(ServerError { code: ORDERED, .. }) => {
                is_right(about.manner == Manner::Fail);
                Self::Ordered
            }
            Error::Server(ServerError { code: RELAYED.., .. }) => {
                is_right(about.is_relayed);
                Self::decode(error)
            }
            Error::Panicked { message } => {
                is_right(about.manner == Manner::Panic && panics::is_message(message));
                Self::Panicked
            }
            Error::Passing(genie_passing::Error::Memory(memory)) if is_short(memory) => Self::NoMemory,
            error if about.is_scarce && names_descriptors(error) => Self::NoDescriptors,
            other => panic!("{other}, which must never be: {about:?}"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        REASONS[self as usize].1
    }

    /// The reply of a relay that failed for this reason.
    pub(crate) fn encode(self) -> ServerError {
        ServerError { code: RELAYED + self as i32, message: format!("the relay's request: {}", self.name()) }
    }

    fn decode(error: &Error) -> Self {
        let Error::Server(ServerError { code, .. }) = error else { panic!("{error} is no relay's") };
        REASONS[(code - RELAYED) as usize].0
    }
}

/// Whether the error says that the limit on descriptors was reached.
pub(crate) fn names_descriptors(error: &Error) -> bool {
    error.to_string().contains("`ulimit -n`")
}

/// Whether memory is short, as it is while others hold it.
pub(crate) fn is_short(error: &Memory) -> bool {
    match error {
        Memory::Limit { .. } | Memory::Addresses { .. } | Memory::Lender { .. } | Memory::Room { .. } => true,
        // Huge pages are everybody's on this machine.
        Memory::Kernel(error) => error.errno == genie_sys::Errno::NOMEM,
        _ => false,
    }
}

/// Whether the process is dead, or is about to be.
pub(crate) fn dies(pid: u32) -> bool {
    let deadline = Instant::now() + DEATH;
    while !is_dead(pid) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
