//! Buffering: memory of the host's for an adapter to store into.

use std::ops::Range;
use std::sync::Arc;

use genie_io::InputPin;
use genie_memory::Data;
use genie_passing::Overlay;

use crate::Frame;

/// From what clients receive: an ATM connection, a UDP port. Which number stands for what is between driver and adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub u64);

/// The name of a request's buffering, chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostingId(pub u64);

/// A request's buffering: segments in the order in which they are to be filled.
#[derive(Debug)]
pub struct Posting {
    /// Its name, which no other posting at the adapter has.
    pub id: PostingId,
    /// The segments; the last one has the end-of-buffering bit.
    pub segments: Vec<Segment>,
}

/// Memory of the host's for an adapter to store into.
#[derive(Debug)]
pub enum Segment {
    /// A part of an input that its server has pinned: buffering of one request's own.
    Pinned(Arc<InputPin>, Range<usize>),
    /// Memory of the driver's: for headers and trailers between the parts of the data.
    Own(Box<[u8]>),
    /// A buffer of the driver's that can be passed: for data that nobody has asked for yet.
    Overlay(Overlay),
}

impl Segment {
    /// How many bytes it has room for.
    pub fn len(&self) -> usize {
        match self {
            Self::Pinned(_, range) => range.len(),
            Self::Own(bytes) => bytes.len(),
            Self::Overlay(overlay) => overlay.len(),
        }
    }

    /// Whether it has room for none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores bytes `from` of a frame, from byte `at` of the segment on.
    pub(super) fn store(&mut self, frame: &Frame<'_>, from: Range<usize>, at: usize) {
        let len = from.len();
        match self {
            Self::Pinned(pin, range) => {
                let start = range.start + at;
                frame.store(from, &pin.data().part(start..start + len));
            }
            Self::Own(bytes) => frame.store_bytes(from.start, &mut bytes[at..at + len]),
            Self::Overlay(overlay) => {
                frame.store(from, &overlay.data().part(at..at + len));
            }
        }
    }

    /// Shows bytes `range` of it to `see`.
    pub fn with<R>(&self, range: Range<usize>, see: impl FnOnce(Data<'_>) -> R) -> R {
        match self {
            Self::Pinned(pin, place) => {
                see(pin.data().part(place.start + range.start..place.start + range.end).into_data())
            }
            Self::Own(bytes) => see(bytes[range].into()),
            Self::Overlay(overlay) => see(overlay.data().part(range).into_data()),
        }
    }
}
