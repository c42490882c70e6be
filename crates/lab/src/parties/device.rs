//! The device: a server of transfers whose wire leads back to it, in a process of its own.
//!
//! Why: the papers measured between two hosts, through an adapter that demultiplexes early. Here the adapters, the wire and both hosts' drivers
//! are a process of their own, so that in the clients' processes there is nothing but what clients do.
//! How: the process has one thread that works: it serves both clients, and has each packet arrive when its last bit would have. It spins, as
//! hardware would. A packet is stored in the input that was posted for it, by one copy, which stands for the wire. Without a limit of the
//! rate data of any length is one packet: with more, what the driver does for each would count by the byte. At a rate, packets are so short
//! that the last one's copy hardly matters.
//! Source: J. C. Brustoloni's thesis, §6.4 (early demultiplexing), §8.1.

use std::time::Duration;

use genie::ServerHandle;
use genie::channel::{Directory, Listener};
use genie_net::adapter::{EarlyDemultiplexing, Pool};
use genie_net::transfer::{Receiving, Shape, Transfers, layout};
use genie_net::wire::{Clock, Options};
use genie_net::{Rate, Wire};

use super::host;
use super::order::{DEVICE, Hosting};
use crate::error::{Error, Result};
use crate::interface::Granule;

/// The longest datagram of the papers, which is one packet at any rate; and how many packets a second there are at a high one.
const PACKET: usize = 60 << 10;
const PACKETS_A_SECOND: u64 = 50_000;
/// How many segments there are for what nobody has asked for, and how long they are: nothing comes so.
const POOLED: (usize, usize) = (4, 4096);
/// How long the thread waits for a request at a time.
const LOOK: Duration = Duration::from_secs(1);

/// How much data a packet has.
fn packet(rate: Rate) -> usize {
    match rate {
        Rate::Unlimited => usize::MAX,
        Rate::Bits(bits) => (bits / 8 / PACKETS_A_SECOND) as usize,
    }
    .max(PACKET)
}

/// Is the device until this process ends.
pub(super) fn host(hosting: &Hosting) -> Result<()> {
    let options = host::serving(hosting.longest, hosting.spin);
    let listener = Listener::claim_in(&Directory::at(&hosting.folder)?, DEVICE, options)?;
    let (count, len) = POOLED;
    let pool = Pool::reserve(listener.private_pool()?, len, count).map_err(genie::Error::from)?;
    let adapter = Box::new(EarlyDemultiplexing::new(layout(), pool));
    let (rate, shape) = (hosting.rate, Shape::of(packet(hosting.rate)));
    let transfers = Transfers::new(Granule::Base.open()?, adapter, Receiving::of(shape.clone()));
    transfers.set_shape(shape);
    let clock = Clock::polled();
    let wire =
        Wire::new(Options { mtu: usize::MAX, rate, ..Options::default() }, clock.clone(), transfers.clone());
    transfers.attach(ServerHandle::new(wire.map_err(|error| Error::Peer(error.to_string()))?))?;
    let mut driven = listener.serve(transfers)?.drive()?;
    let look = move || {
        // Only a stop ends this.
        while driven.attend(if clock.next_due().is_some() { Duration::ZERO } else { LOOK }).is_ok() {
            clock.poll();
        }
    };
    let spawned = std::thread::Builder::new().name("device".to_owned()).spawn(look);
    spawned.map(drop).map_err(|error| Error::Peer(format!("the device has no thread: {error}")))
}
