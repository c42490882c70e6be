//! Signals that ask for an end: the first one is heeded in the command's own time, a second one ends the process.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Has `heed` run, in a thread of its own, at the first interrupt or termination signal.
pub(crate) fn on_first(heed: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| refused(&error))?;
    let wait = move || {
        let mut received = signals.forever();
        if received.next().is_some() {
            heed();
        }
        if let Some(signal) = received.next() {
            // A user who asks twice wants it to end now; where even that fails, it ends by itself.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let started = std::thread::Builder::new().name("genie-signals".into()).spawn(wait);
    started.map(drop).map_err(|error| refused(&error))
}

/// Why signals are not heeded.
pub(crate) fn refused(error: &std::io::Error) -> Failure {
    Failure::could_not(format!("signals cannot be waited for: {error}"))
}
