//! Networks: the wire, adapters with five levels of support for copy avoidance, and servers over them.
//!
//! Why: with which adapter, and under which conditions, data can be passed without a copy is what chapter 6 of the thesis is about.
//! How: a [`Wire`] brings frames to a station. There an [`Adapter`] stores each [`Frame`] where its level of support allows, which stands for
//! the device's DMA and is counted apart from the host's copies, and says where the bytes are ([`Received`]). A server (of
//! [datagrams](datagram), or of [transfers](transfer)) drives the adapter, and passes the data to its clients. [`packet`] has the headers of
//! datagrams. [`driver`] has drivers of the kernel's interfaces, and a card without a device; [`streaming`] has data go from one driver to
//! another, and a [`network`] allocates the buffers that applications send and receive.
//! Source: thesis chapters 6 and 9, table 6.1.

pub mod adapter;
mod assembly;
pub mod checksum;
pub mod datagram;
pub mod driver;
mod frame;
pub mod namespaces;
mod netlink;
pub mod network;
pub mod packet;
mod rate;
pub mod raw;
pub mod streaming;
pub mod traffic;
pub mod transfer;
mod uplink;
pub mod wire;

pub use adapter::{Adapter, Received};
pub use frame::{Flip, Frame};
pub use rate::{Line, Rate};
pub use wire::Wire;
