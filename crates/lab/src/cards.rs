//! Cards whose devices are processes of their own, and programs that load a CPU meanwhile.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use genie_net::driver::Card;
use genie_net::driver::card::Device;
use genie_sys::poll;
use genie_sys::socket::Socket;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::peer::{self, Link, Peer, Said};

/// The role of these processes.
pub const ROLE: &str = "card";

/// How long a device looks for work before it sleeps: devices may share a CPU, and those of the paper never slept.
pub const LOOKING: Duration = Duration::from_millis(2);
/// How often a load looks whether it is to end.
const LOOK: Duration = Duration::from_millis(5);

/// What such a process is to do until it is to end.
#[derive(Debug, Serialize, Deserialize)]
enum Work {
    /// Be the device of the card whose host is at the other end of the descriptor.
    Device,
    /// Loop.
    Soak,
    /// Walk through a file tree over and over.
    Find(PathBuf),
}

/// Does what it is told.
///
/// # Errors
/// As [`peer::obey`].
pub fn run(cpu: Option<usize>) -> Result<()> {
    peer::obey(cpu, |work: Work, descriptors, link| match work {
        Work::Device => device(descriptors, link),
        Work::Soak => {
            let mut number = 0u64;
            while !is_over(link) {
                let begun = Instant::now();
                while begun.elapsed() < LOOK {
                    (0..10_000).for_each(|_| number = std::hint::black_box(number.wrapping_add(1)));
                }
            }
            Ok(())
        }
        Work::Find(root) => {
            while !is_over(link) {
                walk(&root, link);
            }
            Ok(())
        }
    })
}

fn device(mut descriptors: Vec<OwnedFd>, link: &Link) -> Result<()> {
    let socket = descriptors.pop().ok_or(Error::NoLink)?;
    let device = Device::attach(Socket::try_from_descriptor(socket)?)?.yielding_for(LOOKING);
    peer::say(link, &Said::Ready)?;
    Ok(device.run()?)
}

fn is_over(link: &Link) -> bool {
    // Nobody says anything more but by closing it.
    poll::readable(link, Some(Duration::ZERO)).unwrap_or(true)
}

/// Looks at all files below a folder, as find does.
fn walk(folder: &Path, link: &Link) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.metadata().is_ok_and(|metadata| metadata.is_dir());
        if is_folder && !is_over(link) {
            walk(&entry.path(), link);
        }
    }
}

/// A card, and the process that is its device.
///
/// # Errors
/// The process does not start; memory.
pub fn card(cpu: usize) -> Result<(Card, Peer)> {
    let peer = Peer::start(ROLE, Some(cpu))?;
    let (ours, theirs) = Socket::pair()?;
    peer.order(&Work::Device, &[OwnedFd::from(theirs).as_fd()], "it made a card")?;
    Ok((Card::open(ours)?, peer))
}

/// A process that loops until it is dropped.
///
/// # Errors
/// The process does not start.
pub fn soak(cpu: usize) -> Result<Peer> {
    load(cpu, &Work::Soak)
}

/// A process that walks through the machine's files until it is dropped.
///
/// # Errors
/// The process does not start.
pub fn find(cpu: usize) -> Result<Peer> {
    load(cpu, &Work::Find("/usr".into()))
}

fn load(cpu: usize, work: &Work) -> Result<Peer> {
    let peer = Peer::start(ROLE, Some(cpu))?;
    peer.tell(work, &[], "it began to load its CPU")?;
    Ok(peer)
}
