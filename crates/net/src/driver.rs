//! Drivers of the kernel's interfaces: frames that leave the process.
//!
//! Why: what passes without a copy between Genie's own hosts is to reach hosts that know nothing of Genie.
//! How: a driver has [`Rings`] that it shares with the kernel. A [`Link`] makes them a server like a [`Wire`](crate::Wire): it sends the frames
//! of its clients' requests, and shows those that come to a [`Station`](crate::wire::Station). It has no thread that looks for frames:
//! whoever waits for a reply does. A [`PacketSocket`] works with every interface that has an Ethernet's frames. By AF_XDP ([`Xdp`]) the kernel
//! stores frames into buffers that can change places with clients' pages ([`Native`]).
//! A [`Card`] is an adapter with memory of its own, without a device.
//! A [`Host`] is a datagram server with the best of these that can be had. A [`Front`] has several processes drive one interface.
//! Trust: frames are anybody's, and so is the memory of rings, as far as the kernel's own part is concerned: no more.

pub mod card;
mod claims;
mod error;
mod front;
mod host;
pub mod interfaces;
pub(crate) mod link;
mod native;
pub mod neighbours;
mod packet_socket;
pub(crate) mod rings;
mod xdp;

pub use card::Card;
pub use error::Error;
pub use front::Front;
pub use host::{Driver, Host};
pub use link::{CLAIM, Link, Options, RELEASE};
pub use native::Native;
pub use neighbours::Neighbours;
pub use packet_socket::PacketSocket;
pub use rings::{Counters, Rings};
pub use xdp::{Queue, Xdp};
