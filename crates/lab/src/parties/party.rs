//! A party in a process of its own, in the role that it is told.

use genie::channel::{Directory, Listener, Running, Serving};

use super::host;
use super::order::{DEVICE, Hosting, Order};
use super::receiver::Receiver;
use crate::device::Loop;
use crate::error::{Error, Result};
use crate::peer::{self, Link, Said, say};

/// Acts as a party, on `cpu` if there is one, until the process that started it ends.
///
/// # Errors
/// The process was not started as a peer, or could not do what it was told; then that process has been told why.
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
            Order::Host(hosting) => self.hosted.push(host_device(&hosting)?),
            Order::HostMemory(hosting) => self.hosted.push(hosting.start()?),
            Order::Attend(attending) => self.receiver = Some(Receiver::open(&attending)?),
            Order::Serve(serving) => self.hosted.extend(host::serve(&serving)?),
            Order::Receive(posting) => {
                let early = || Error::Peer("a party was told to receive before it could".to_owned());
                return self.receiver.as_mut().ok_or_else(early)?.receive(&posting, link);
            }
        }
        say(link, &Said::Ready)
    }
}

/// Hosts the device in threads of its own, until the returned value is dropped.
fn host_device(hosting: &Hosting) -> Result<Running> {
    let options = host::serving(hosting.longest, hosting.spin);
    let serving = Listener::bind_in(&Directory::at(&hosting.folder)?, DEVICE, Loop::default(), options);
    Ok(serving.and_then(Serving::start)?)
}
