//! Unwanted descriptors: descriptors that a peer must not send.
//!
//! Why: closing a file asks its file system, and a peer's own file system (FUSE) need never answer: the thread that closes
//! the descriptor then waits for ever. A server's control thread must not do that.
//! How: the descriptors of a message are examined by system calls that the kernel answers itself. If the message can't be
//! used, sockets of the Unix family and memory are closed at once, and all other descriptors by a separate thread.
//! Limits: while a file system keeps that thread waiting, further descriptors stay open. Each message with an unwanted
//! descriptor ends its channel; a user who connects again and again can use up descriptors in this way.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{SendError, Sender};
use std::time::Duration;

use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::machine;
use genie_sys::socket::Received;
use genie_sys::thread::spawn;
use rustix::net::{AddressFamily, sockopt};

/// How long the thread stays when there is nothing to close.
const IDLE: Duration = Duration::from_secs(1);

/// Why a message can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// Its sender is to blame.
    #[error("{0}")]
    Wrong(&'static str),
    /// This process may have no more descriptors, so some of the message's descriptors were lost.
    #[error(
        "process {} has all of the {} descriptors that it may have, and lost what was sent to it; raise its limit on open files: \
         `ulimit -n`",
        std::process::id(),
        machine::descriptors_max()
    )]
    Short,
}

impl From<Unusable> for String {
    fn from(unusable: Unusable) -> Self {
        unusable.to_string()
    }
}

/// Returns the message if it came complete and with no unwanted descriptor; otherwise the error says what is wrong.
pub(super) fn sift(received: Received) -> Result<Received, Unusable> {
    let wrong = if received.truncated {
        Unusable::Wrong("it sent more than a message can hold")
    } else if !received.descriptors.iter().all(is_harmless) {
        Unusable::Wrong("it sent a descriptor that is neither memory nor a socket")
    } else if received.is_short {
        Unusable::Short
    } else {
        return Ok(received);
    };
    let (harmless, others): (Vec<_>, Vec<_>) = received.descriptors.into_iter().partition(is_harmless);
    drop(harmless);
    others.into_iter().for_each(dismiss);
    Err(wrong)
}

/// Whether closing this descriptor never waits.
fn is_harmless(descriptor: &OwnedFd) -> bool {
    let is_socket = sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX);
    // Only files in memory have seals.
    is_socket || rustix::fs::fcntl_get_seals(descriptor).is_ok()
}

/// Has a descriptor closed by a thread that may wait.
fn dismiss(descriptor: OwnedFd) {
    static CLOSER: Mutex<Option<(Maker, Sender<OwnedFd>)>> = Mutex::new(None);
    let mut closer = CLOSER.lock();
    let unsent = match closer.as_ref() {
        // A child made by fork does not have its parent's thread.
        Some((maker, closer)) if maker.is_this_process() => closer.send(descriptor),
        _ => Err(SendError(descriptor)),
    };
    let Err(SendError(descriptor)) = unsent else { return };
    let (sender, unwanted) = std::sync::mpsc::channel();
    let close = move || while unwanted.recv_timeout(IDLE).map(drop::<OwnedFd>).is_ok() {};
    let spawned = spawn("genie-closer", close);
    match spawned {
        Ok(_) => {
            // The new thread waits for the descriptor.
            let _ = sender.send(descriptor);
            let before = closer.replace((Maker::this_process(), sender));
            // The parent's thread may have held the channel's lock when it forked.
            std::mem::forget(before.filter(|(maker, _)| !maker.is_this_process()));
        }
        // The descriptor stays open: closing it could block the control thread.
        Err(_) => std::mem::forget(descriptor),
    }
}
