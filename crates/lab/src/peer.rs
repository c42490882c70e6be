//! Peer processes: each runs this program once more, in another party's role, on a CPU that the measuring program chooses.
//!
//! Why: data that is passed between threads of one process says nothing about what it costs to pass it between two.
//! How: [`Peer::start`] runs this program with the hidden command [`COMMAND`] and the name of a role, and a [`Link`] for standard
//! input. Over the link the process gets orders, and descriptors with them ([`obey`]); it answers when it is ready, or why
//! it is not.
//! Invariants: a peer ends with the process that started it, even one that is killed, and stops and goes on with it when a
//! terminal says so: it is in the same process group. A terminal's other signals to the group are left to the process that
//! started the peer, which may want to finish first.

mod link;
mod process;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use link::Link;
pub use process::{Peer, Watch};

use genie_sys::machine::{self, Pinned};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setpgid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::error::{Error, Result};

/// The hidden command that makes this program a peer. After it come the role, which tells whose `run` is to be called, and
/// maybe `--cpu` and a number.
pub const COMMAND: &str = "peer";

/// A peer's answer to an order that is answered.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// The order has been carried out.
    Ready,
    /// The order could not be carried out, for this reason.
    Failed(String),
}

/// Makes a folder for things that need names. Only this user may enter the folder; when it is dropped, it is removed with
/// everything in it.
///
/// # Errors
/// Those of the directory for temporary files.
pub fn folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix(&format!("genie-run-{}-", std::process::id())).tempdir();
    made.map_err(|source| Error::File { path: std::env::temp_dir(), what: "takes no new folder", source })
}

/// Acts as a peer process, on `cpu` if there is one: carries out orders until the process that started it ends. `order` must
/// say when it has carried out an order for which an answer is awaited.
///
/// # Errors
/// The command was not started by a measuring program; or an order failed, and the process that gave it has been told why.
pub fn obey<O: DeserializeOwned>(
    cpu: Option<usize>,
    mut order: impl FnMut(O, Vec<OwnedFd>, &Link) -> Result<()>,
) -> Result<()> {
    let (link, _pinned) = begin(cpu)?;
    let nonsense = |error| Error::Peer(format!("an order does not make sense: {error}"));
    while let Some((given, descriptors)) = link.receive::<O>().map_err(nonsense)? {
        if let Err(error) = order(given, descriptors, &link) {
            // A process that has ended needs no answer.
            let _ = say(&link, &Said::Failed(error.to_string()));
            return Err(error);
        }
    }
    Ok(())
}

fn begin(cpu: Option<usize>) -> Result<(Link, Option<Pinned>)> {
    let link = Link::inherited().map_err(|_| Error::NoLink)?;
    let refused = |error: rustix::io::Errno| Error::Peer(format!("a peer process cannot begin: {error}"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(refused)?;
    ignore_interruptions()?;
    if let Some(group) = parents_group() {
        setpgid(None, Some(group)).map_err(refused)?;
    }
    // If the parent ended before these calls, the link shows it.
    let pinned = cpu.map(machine::pin_thread).transpose()?;
    say(&link, &Said::Ready)?;
    Ok((link, pinned))
}

/// The process group of the parent; none if it is of another PID namespace, whose groups have no numbers here.
fn parents_group() -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", getppid()?)).ok()?;
    let (_, fields) = stat.rsplit_once(')')?; // a name may hold anything
    Pid::from_raw(fields.split_whitespace().nth(2)?.parse().ok()?)
}

/// Has this process ignore signals that ask it to end.
fn ignore_interruptions() -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let noted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, noted)
            .map_err(|error| Error::Peer(format!("signals cannot be left to others: {error}")))?;
    }
    Ok(())
}

/// Sends a message to the process that gave an order.
///
/// # Errors
/// The other end is gone.
pub fn say(link: &Link, said: &impl Serialize) -> Result<()> {
    link.send(said, &[]).map_err(|error| Error::Peer(format!("a peer process is alone: {error}")))
}
