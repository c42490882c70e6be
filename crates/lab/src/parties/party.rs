//! A party in a process of its own: the device or the receiver, as it is told.

use std::time::Duration;

use genie::channel::{Directory, Listener, Running, ServeOptions, Serving};

use super::order::{DEVICE, Hosting, Order};
use super::receiver::Receiver;
use super::relay;
use crate::device::Loop;
use crate::error::{Error, Result};
use crate::peer::{self, Link, Said, say};

/// Is a party, on `cpu` if there is one, until the process that started it goes.
///
/// # Errors
/// The process was not started as a peer, or could not do what it was told; then the process that told it has heard why.
pub fn run(cpu: Option<usize>) -> Result<()> {
    let mut party = Party::default();
    peer::obey(cpu, |order, _, link| party.obey(order, link))
}

/// What this party has been told to be.
#[derive(Debug, Default)]
struct Party {
    receiver: Option<Receiver>,
    hosted: Vec<Running>,
}

impl Party {
    fn obey(&mut self, order: Order, link: &Link) -> Result<()> {
        match order {
            Order::Host(hosting) => self.hosted.push(host(&hosting)?),
            Order::HostMemory(hosting) => self.hosted.push(hosting.start()?),
            Order::Attend(attending) => self.receiver = Some(Receiver::open(&attending)?),
            Order::Relay(relaying) => return relay::run(&relaying, link),
            Order::Receive(posting) => {
                let early = || Error::Peer("a party was told to receive before it could".to_owned());
                return self.receiver.as_mut().ok_or_else(early)?.receive(&posting, link);
            }
        }
        say(link, &Said::Ready)
    }
}

/// How many of the longest buffers the pool holds that is lent to each client.
const LENT_BUFFERS: usize = 2;
/// How many bytes it has at least.
const LENT_BYTES: usize = 8 << 20;

/// How parties serve: clients that they trust, with memory for the longest data.
pub(super) fn serving(longest: usize, spin: Duration) -> ServeOptions {
    let pool = LENT_BYTES.max(LENT_BUFFERS * longest);
    ServeOptions { pool, pending_bytes: usize::MAX, spin, ..ServeOptions::default() }
}

/// Hosts the device in threads of its own, until what is returned is dropped.
fn host(hosting: &Hosting) -> Result<Running> {
    let options = serving(hosting.longest, hosting.spin);
    let serving = Listener::bind_in(&Directory::at(&hosting.folder)?, DEVICE, Loop::default(), options);
    Ok(serving.and_then(Serving::start)?)
}
