//! The services of the datagram server.

use genie_io::{Service, ServiceId};

/// Opens a port; the argument is made by [`open_argument`](super::open_argument). The reply's argument, which needs [`OPENED`](super::OPENED) bytes of room, has its number, which
/// [`opened`](super::opened) reads.
pub const OPEN: ServiceId = ServiceId(0);
/// Closes a port; the argument is made by [`port_argument`](super::port_argument). Requests that wait there fail, and datagrams that wait are dropped.
pub const CLOSE: ServiceId = ServiceId(1);
/// Sends output buffer 0, or no bytes if there is none, as one datagram; the argument is made by [`send_argument`](super::send_argument). Success means that it has
/// left, or is lost on the way. With [`Summing::Integrated`](super::Summing::Integrated) it may not have left yet.
pub const SEND: ServiceId = ServiceId(2);
/// Receives one datagram into input buffer 0; the argument is made by [`port_argument`](super::port_argument). The reply's argument, which needs [`Open::room`](super::Open::room) bytes
/// of room ([`ARRIVED`](super::ARRIVED) if the port has no program), is read by [`Arrived::from_reply`](super::Arrived::from_reply). What the buffer has no room for is dropped.
pub const RECEIVE: ServiceId = ServiceId(3);
/// Passes back what has become of a port's datagrams; the argument is made by [`port_argument`](super::port_argument). The reply's argument, which needs [`COUNTERS`](super::COUNTERS)
/// bytes of room, is read by [`Counters::from_reply`](super::Counters::from_reply).
pub const STATISTICS: ServiceId = ServiceId(4);

pub(super) static SERVICES: [Service; 5] = [
    Service::new("open", false, false),
    Service::new("close", false, false),
    Service::new("send", true, false),
    Service::new("receive", false, true),
    Service::new("statistics", false, false),
];
