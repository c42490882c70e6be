//! What a card and its host tell each other: by the FIFOs of buffers, by a socket of all else.
//!
//! Trust: either side may be told anything by the other. What a record says is read once, and is checked by whoever uses it.

use genie_ring::{Layout, Record};
use serde::{Deserialize, Serialize};

use crate::traffic::Tally;

/// Bytes of a buffer, and of the longest frame.
pub(crate) const BUFFER: usize = 4096;
/// How many buffers each of the two pools has. Those for transmission are the first.
pub(crate) const POOL: u32 = 128;
/// Bytes of a card's memory.
pub(crate) const MEMORY: usize = 2 * POOL as usize * BUFFER;
/// The FIFOs: an honest side never has more than two records for each buffer under way.
pub(super) const FIFOS: Layout = Layout { lines: 512, area: 128 };
/// The device's first message, which brings the memory, the FIFOs and the host's bell.
pub(super) const HELLO: &[u8] = b"genie card 1";

/// To the card: a buffer has a frame of this length to be sent.
pub(super) const TRANSMIT: u8 = 1;
/// To the host: what was in a buffer is sent.
pub(super) const SENT: u8 = 2;
/// To the host: a frame of this length has come into a buffer.
pub(super) const CAME: u8 = 3;
/// To the card: a frame may come into a buffer.
pub(super) const GIVE: u8 = 4;

/// A record's payload: the buffer, and the length of the frame in it.
pub(super) fn words(buffer: u32, len: usize) -> [u8; 8] {
    (u64::from(buffer) | (len as u64) << 32).to_le_bytes()
}

/// Kind, buffer and length of a record, if a buffer can have that length; none if the record is not of that shape.
pub(super) fn parse(record: &Record) -> Option<(u8, u32, usize)> {
    let word = u64::from_le_bytes(record.payload().try_into().ok()?);
    let (buffer, len) = (word as u32, (word >> 32) as usize);
    (len <= BUFFER).then_some((record.kind(), buffer, len))
}

/// What the host asks of a card.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Command {
    /// Packets of a length come, as many, with so much time between them.
    Generate { len: u32, count: u64, interval_ns: u64 },
    /// Its sink is new, and expects the first so many packets of a generator.
    Expect { count: u64 },
    /// What is sent comes back from now on.
    Reflect,
    /// What has become of all.
    Report,
}

/// What a card says of itself. It comes in parts, each with some of the latencies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How many packets it has generated.
    pub generated: u64,
    /// How many buffers for reception it has, of 128.
    pub free: u32,
    /// What its sink has found.
    pub tally: Tally,
    /// How many parts follow.
    pub(super) left: u64,
}
