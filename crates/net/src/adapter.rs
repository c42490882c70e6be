//! Network adapters, by how far they support copy avoidance.
//!
//! Why: output can be gathered from clients' buffers by any adapter. Input without copying depends on where the adapter stores packets,
//! whose receiver, length and headers it knows before they come, or does not.
//! How: an adapter is a device's registers and logic, driven by one driver: it has no lock and no thread. It is told where to store packets
//! ([`Adapter::post`]), and says of each where it is ([`Received`]). Passing the data to clients is the driver's part.
//! Invariants: a segment is with the adapter from [`Adapter::post`] until it comes back, from [`Adapter::reclaim`]; after that nothing is
//! stored there. A frame that is dropped leaves the scatter lists as they were.
//! Trust: frames are anybody's. Of the bytes of a frame only as many are looked at as there are, whatever its headers say.
//! Source: thesis chapter 6.

mod approximation;
mod device;
mod early;
mod lists;
mod memory;
mod outboard;
mod pool;
mod pooled;
pub mod program;
mod received;
mod segment;
mod snap_off;
mod tracking;

pub use approximation::Approximation;
pub use device::{Adapter, Amended, Counters, Dropped, Free, Mode, NotPosted, Support};
pub use early::EarlyDemultiplexing;
pub use memory::{Buffer, Gathered};
pub use outboard::Outboard;
pub use pool::Pool;
pub use pooled::Pooled;
pub use program::{Layout, Parsed, Program};
pub use received::{Piece, Received};
pub use segment::{Port, Posting, PostingId, Segment};
pub use snap_off::SnapOff;
pub use tracking::{Tracking, WINDOW};
