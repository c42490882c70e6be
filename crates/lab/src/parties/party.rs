//! A party in a process of its own: the device or the receiver, as it is told.

use std::time::Duration;

use genie::channel::{Directory, Listener, Running, ServeOptions, Serving};

use super::order::{DEVICE, Hosting, Order};
use super::receiver::Receiver;
use super::relay;
use crate::device::Loop;
use crate::error::{Error, Result};
use crate::peer::{Link, Said, begin, say};

/// Is a party, on `cpu` if there is one, until whoever started it goes.
///
/// # Errors
/// It was started by nobody, or could not do what it was told; whoever told it has heard of that.
pub fn run(cpu: Option<usize>) -> Result<()> {
    let (link, _pinned) = begin(cpu)?;
    let mut cast = Cast::default();
    let orders = |error: std::io::Error| Error::Peer(format!("an order does not make sense: {error}"));
    while let Some((order, _)) = link.receive::<Order>().map_err(orders)? {
        if let Err(error) = cast.obey(order, &link) {
            // Where nobody listens any more nobody needs to know.
            let _ = say(&link, &Said::Failed(error.to_string()));
            return Err(error);
        }
    }
    Ok(())
}

/// What this party has been told to be.
#[derive(Debug, Default)]
struct Cast {
    receiver: Option<Receiver>,
    device: Option<Running>,
}

impl Cast {
    fn obey(&mut self, order: Order, link: &Link) -> Result<()> {
        match order {
            Order::Host(hosting) => self.device = Some(host(&hosting)?),
            Order::Attend(attending) => self.receiver = Some(Receiver::open(&attending)?),
            Order::Relay(relaying) => return relay::run(&relaying, link),
            Order::Receive(posting) => {
                let nobody = || Error::Peer("a party was told to receive before it could".to_owned());
                return self.receiver.as_mut().ok_or_else(nobody)?.receive(&posting, link);
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
