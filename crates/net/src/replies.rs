//! Servers whose wire is in another process: who takes its replies.

use std::os::fd::BorrowedFd;

use genie_io::{Completer, Interface};

/// The replies to a server's own requests are taken by whoever waits for one of the server's, or serves it.
pub(crate) struct Replies(pub(crate) Interface);

impl Completer for Replies {
    fn collect(&self) -> usize {
        self.0.collect()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor().ok()
    }

    fn arm(&self) -> bool {
        self.0.collect();
        self.0.arm()
    }
}
