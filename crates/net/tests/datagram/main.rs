//! The datagram server, over every adapter: what is sent arrives, or is dropped and counted, and nothing else is seen or lost.

mod apart;
#[path = "../../../sys/tests/child/mod.rs"]
mod child;
mod clients;
mod delivery;
mod elsewhere;
mod forks;
mod frames;
mod hostile;
mod hosts;
mod limits;
mod peer;
mod promises;
mod schemes;
mod sight;
mod sums;

use elsewhere::play;
