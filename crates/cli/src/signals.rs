//! Signals that ask the command to end: at the first signal it ends when it is ready to; a second signal ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Runs `heed`, in a thread of its own, at the first interrupt or termination signal.
pub(crate) fn on_first(heed: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| refused(&error))?;
    let wait = move || {
        let mut received = signals.forever();
        if received.next().is_some() {
            heed();
        }
        if let Some(signal) = received.next() {
            // A user who asks twice wants the process to end now. If even that fails, the process ends by itself.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let started = std::thread::Builder::new().name("genie-signals".into()).spawn(wait);
    started.map(drop).map_err(|error| refused(&error))
}

/// The failure to handle signals.
pub(crate) fn refused(error: &std::io::Error) -> Failure {
    Failure::could_not(format!("signals cannot be waited for: {error}"))
}

/// Whether the user has asked for the end.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that the first interrupt or termination signal sets.
    pub(crate) fn at_signal() -> Result<Self, Failure> {
        let stop = Self(Arc::default());
        let flag = Arc::clone(&stop.0);
        on_first(move || flag.store(true, Ordering::Relaxed))?;
        Ok(stop)
    }

    /// Whether that has been asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
