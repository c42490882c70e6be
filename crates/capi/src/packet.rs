//! Packets that the program has.

use crate::process::process;
use crate::shown::Shown;
use crate::types::{Segment, io_packet_t};

/// A packet, and where its bytes are.
#[repr(C)]
#[derive(Debug)]
pub struct Packet {
    /// The packet's number, for io_network_send and io_packet_free; never given twice.
    pub packet: io_packet_t,
    /// How many bytes it has.
    pub length: usize,
    /// How many segments they lie in.
    pub segc: usize,
    /// The segments. They and their bytes stay where they are until the packet is sent or freed.
    pub segv: *const Segment,
    /// The Internet checksum of a packet that a network with IO_SUMMED has received: 0 if the packet's own is right.
    pub checksum: u16,
}

/// A packet that the program has, as the library knows it.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) packet: genie_net::network::Packet,
    pub(crate) shown: Shown,
}

impl Owned {
    pub(crate) fn new(packet: genie_net::network::Packet) -> Self {
        let shown = Shown::new(packet.data().segments());
        Self { packet, shown }
    }

    /// Lists it; returns what the program is told.
    pub(crate) fn listed(self, checksum: u16) -> Packet {
        let (length, segc, segv) = (self.packet.len(), self.shown.count(), self.shown.first());
        Packet { packet: process().packets.add(self), length, segc, segv, checksum }
    }
}
