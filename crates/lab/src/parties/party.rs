//! A party in a process of its own, in the role that it is told.

use std::os::fd::OwnedFd;

use genie::channel::Running;
use genie_net::namespaces::Namespace;

use super::order::Order;
use super::receiver::Receiver;
use super::{device, host};
use crate::error::{Error, Result};
use crate::peer::{self, Link, Said, say};

/// Acts as a party, on `cpu` if there is one, until the process that started it ends.
///
/// # Errors
/// The process was not started as a peer, or could not do what it was told; then that process has been told why.
pub fn run(cpu: Option<usize>) -> Result<()> {
    let mut party = Party::default();
    peer::obey(cpu, |order, descriptors, link| party.obey(order, descriptors, link))
}

/// What this party has been told to be.
#[derive(Debug, Default)]
struct Party {
    receiver: Option<Receiver>,
    hosted: Vec<Running>,
}

impl Party {
    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>, link: &Link) -> Result<()> {
        let namespace = descriptors.into_iter().next().map(Namespace::from);
        match order {
            Order::Host(hosting) => device::host(&hosting)?,
            Order::HostMemory(hosting) => self.hosted.push(hosting.start()?),
            Order::Attend(attending) => self.receiver = Some(Receiver::open(&attending, namespace.as_ref())?),
            Order::Serve(serving) => self.hosted.extend(host::serve(&serving, namespace.as_ref())?),
            Order::Receive(posting) => {
                let early = || Error::Peer("a party was told to receive before it could".to_owned());
                return self.receiver.as_mut().ok_or_else(early)?.receive(&posting, link);
            }
        }
        say(link, &Said::Ready)
    }
}
