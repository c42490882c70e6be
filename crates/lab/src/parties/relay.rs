//! A protocol server in a process of its own.
//!
//! How: the server drives itself: it takes requests, and collects what the device has replied to its own requests. While it
//! has requests pending, it hands the CPU over between looks; otherwise it sleeps until a client wakes it. So control goes
//! to and from the server by a switch between processes, as on the papers' machines, and not by spinning.

use std::time::Duration;

use genie::Connect;
use genie::channel::{ConnectOptions, Directory, Driven, Listener};
use genie_sys::machine;
use rustix::event::{PollFd, PollFlags, poll};

use super::order::{Order, Relaying};
use super::party::serving;
use crate::error::{Error, Result};
use crate::peer::{Link, Said, say};
use crate::protocol::Protocol;

/// Serves until the process that gave the order has ended.
pub(super) fn run(relaying: &Relaying, link: &Link) -> Result<()> {
    let _ = machine::raise_memory_lock_limit();
    let attending = &relaying.attending;
    let directory = Directory::at(&attending.folder)?;
    let genie = attending.granule.open()?;
    let options = ConnectOptions { spin: Some(attending.spin), ..ConnectOptions::default() };
    let device = genie.connect_with(&directory, &attending.server, &options)?;
    let protocol = Protocol::new(genie, device, relaying.check);
    let options = serving(relaying.longest, Duration::ZERO);
    let driven = Listener::bind_in(&directory, &relaying.name, protocol.clone(), options)?.drive()?;
    say(link, &Said::Ready)?;
    serve(driven, &protocol, link)
}

fn serve(mut driven: Driven, protocol: &Protocol, link: &Link) -> Result<()> {
    loop {
        if driven.attend(Duration::ZERO)? {
            continue;
        }
        if !protocol.is_idle() {
            std::thread::yield_now();
        } else if driven.arm() && !sleep(&driven, link)? {
            return Ok(());
        }
    }
}

/// Sleeps until there is something to do; false when there never will be again.
fn sleep(driven: &Driven, link: &Link) -> Result<bool> {
    let mut watched =
        [PollFd::from_borrowed_fd(driven.descriptor(), PollFlags::IN), PollFd::new(link, PollFlags::IN)];
    match poll(&mut watched, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(Error::Peer(format!("a protocol server cannot sleep: {errno}"))),
    }
    let is_gone =
        watched[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) || link.look::<Order>().is_some();
    Ok(!is_gone)
}
