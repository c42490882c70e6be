//! Signals that end servers in good order: SIGINT and SIGTERM.
//!
//! How: the process counts its servers that wait for these signals. While there are any, a signal ends no more than these; where
//! there are none, it ends the process, as it does by default.
//! Invariants: a server whose signal has come waits no more, even if its code never returns.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_io::Error;
use genie_sys::Errno;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;

const ENDING: [i32; 2] = [SIGINT, SIGTERM];

/// The servers of this process that wait; none before the first one has.
static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);

struct Waiting {
    /// A child made by fork has none that waits.
    maker: Maker,
    count: usize,
    /// Whether a signal ends the process.
    ends_process: Arc<AtomicBool>,
}

/// A server's wait for a signal.
#[derive(Debug)]
pub(super) struct Wait {
    is_over: AtomicBool,
}

/// Waits for signals from now on. The signals come by the second value.
pub(super) fn wait() -> Result<(Arc<Wait>, Signals), Error> {
    let refused = |error: io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
        genie_sys::Error::new("sigaction", "SIGINT and SIGTERM", errno)
    };
    let mut waiting = WAITING.lock();
    if waiting.is_none() {
        let ends_process = Arc::new(AtomicBool::new(true));
        for signal in ENDING {
            register_conditional_default(signal, Arc::clone(&ends_process)).map_err(refused)?;
        }
        *waiting = Some(Waiting { maker: Maker::this_process(), count: 0, ends_process });
    }
    let signals = Signals::new(ENDING).map_err(refused)?;
    let waiting = waiting.as_mut().expect("it was made above");
    if !waiting.maker.is_this_process() {
        (waiting.maker, waiting.count) = (Maker::this_process(), 0);
    }
    waiting.change(|count| count + 1);
    Ok((Arc::new(Wait { is_over: AtomicBool::new(false) }), signals))
}

impl Wait {
    /// Ends the wait, if it is not over yet.
    pub(super) fn end(&self) {
        if !self.is_over.swap(true, Ordering::SeqCst)
            && let Some(waiting) = WAITING.lock().as_mut()
        {
            waiting.change(|count| count - 1);
        }
    }
}

impl Waiting {
    fn change(&mut self, change: impl FnOnce(usize) -> usize) {
        self.count = change(self.count);
        self.ends_process.store(self.count == 0, Ordering::SeqCst);
    }
}
