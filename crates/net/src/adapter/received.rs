//! What an adapter says of a packet: where its bytes are.

use genie_passing::Overlay;
use smallvec::SmallVec;

use super::memory::Buffer;
use super::segment::{Port, PostingId};

/// A packet that an adapter has stored.
#[derive(Debug)]
pub struct Received {
    /// Its port, where the adapter has looked.
    pub port: Option<Port>,
    /// How long it was.
    pub len: usize,
    /// The ones' complement sum of all its bytes, as they were stored, where the adapter was asked to sum them: that of words with their
    /// high byte first.
    pub sum: Option<u16>,
    /// Its first bytes, where the adapter takes headers off.
    pub header: SmallVec<[u8; 64]>,
    /// Where the bytes are that follow the header, in order.
    pub pieces: SmallVec<[Piece; 2]>,
    /// Its last bytes, where the adapter takes trailers off.
    pub trailer: SmallVec<[u8; 16]>,
    /// The requests whose buffering ended with this packet, in order (snap-off).
    pub ended: SmallVec<[PostingId; 1]>,
}

/// Some of a packet's bytes.
#[derive(Debug)]
pub enum Piece {
    /// In buffers of a pool: all of the part.
    Pooled(Overlay),
    /// In a posted segment.
    Posted {
        /// Whose.
        posting: PostingId,
        /// Which of its segments.
        segment: usize,
        /// Where in it they begin.
        at: usize,
        /// How many.
        len: usize,
    },
    /// In the adapter's own memory.
    Outboard(Buffer),
}

impl Piece {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Pooled(overlay) => overlay.len(),
            Self::Posted { len, .. } => *len,
            Self::Outboard(buffer) => buffer.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts it in two, the first `middle` bytes and the rest.
    ///
    /// # Panics
    /// When it has fewer bytes.
    #[must_use]
    pub fn cut(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.len(), "a piece of {} bytes was to be cut at {middle}", self.len());
        match self {
            Self::Pooled(overlay) => {
                let (first, rest) = overlay.cut(middle);
                (Self::Pooled(first), Self::Pooled(rest))
            }
            Self::Posted { posting, segment, at, len } => {
                let rest = Self::Posted { posting, segment, at: at + middle, len: len - middle };
                (Self::Posted { posting, segment, at, len: middle }, rest)
            }
            Self::Outboard(buffer) => {
                let rest = buffer.part(middle..buffer.len());
                (Self::Outboard(buffer.part(0..middle)), Self::Outboard(rest))
            }
        }
    }
}

impl Received {
    /// A packet of `len` bytes that are nowhere yet.
    pub(crate) fn of(len: usize) -> Self {
        Self {
            port: None,
            len,
            sum: None,
            header: SmallVec::new(),
            pieces: SmallVec::new(),
            trailer: SmallVec::new(),
            ended: SmallVec::new(),
        }
    }
}
