//! What a driver does for a network.

use std::fmt::Debug;

use genie_sys::Errno;

use crate::driver::Rings;

/// What has become of a network's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were sent, with those that wait in a stream.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Bytes that were copied on the way out, headers included.
    pub copied_out: u64,
    /// Bytes that were copied on the way in.
    pub copied_in: u64,
    /// System calls for the allocation and the release of buffers.
    pub management_calls: u64,
    /// Packets that were dropped, since they were empty, or, with what modules had put in front, longer than 4,096 bytes.
    pub unfit: u64,
}

/// A packet to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) buffer: u32,
    pub(super) len: usize,
    pub(super) checksum_at: Option<usize>,
}

/// A packet that has come.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) buffer: u32,
    pub(super) len: usize,
    pub(super) sum: Option<u16>,
}

/// What has become of a packet that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was copied; its buffer is the packet's still.
    Copied,
    /// The adapter has its buffer.
    Taken,
    /// It cannot be sent from where it lies. Nothing was done.
    Elsewhere,
    /// There is no room for it. Nothing was done.
    Waits,
}

/// A driver. Buffers are those of one [`Memory`](crate::driver::card::memory::Memory): the first half for packets to be sent, the second one
/// for those that were received.
pub(super) trait Driving: Debug + Send {
    fn allocate(&mut self, counters: &mut Counters) -> Result<Option<u32>, Errno>;

    fn send(&mut self, packet: &Outgoing, counters: &mut Counters) -> Result<Fate, Errno>;

    /// Sums what comes if `sums`, and a copy is made.
    fn receive(&mut self, sums: bool, counters: &mut Counters) -> Result<Option<Incoming>, Errno>;

    /// Takes back a buffer that was allocated, or received.
    fn release(&mut self, buffer: u32, counters: &mut Counters);

    fn rings(&mut self) -> &mut dyn Rings;

    /// Passes on to the adapter what waits to be sent, as far as there is room; returns whether that was all.
    fn drain(&mut self, _counters: &mut Counters) -> Result<bool, Errno> {
        Ok(true)
    }

    /// Whether there may be a packet to be received now.
    fn has_packets(&mut self) -> bool {
        self.rings().has_frames()
    }
}
