//! Sources: where bytes are that have come for an input, wherever an adapter has stored them.

use std::ops::Range;

use genie_memory::Data;
use smallvec::SmallVec;

use crate::adapter::{Adapter, Piece, Port, PostingId};

/// Where bytes are that have come.
#[derive(Debug)]
pub(crate) enum Source {
    /// There.
    InPlace(usize),
    /// In a piece of a packet.
    Piece(Piece),
    /// Copied, since they lay in memory of a request that is over.
    Copied(Vec<u8>),
}

/// Bytes that have come, in order.
pub(crate) type Sources = SmallVec<[Source; 2]>;

impl Source {
    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InPlace(len) => *len,
            Self::Piece(piece) => piece.len(),
            Self::Copied(bytes) => bytes.len(),
        }
    }

    /// Cuts it in two, the first `middle` bytes, or as many as there are, and the rest.
    pub(crate) fn cut(self, middle: usize) -> (Self, Self) {
        let middle = middle.min(self.len());
        match self {
            Self::InPlace(len) => (Self::InPlace(middle), Self::InPlace(len - middle)),
            Self::Piece(piece) => {
                let (first, rest) = piece.cut(middle);
                (Self::Piece(first), Self::Piece(rest))
            }
            Self::Copied(mut bytes) => {
                let rest = bytes.split_off(middle);
                (Self::Copied(bytes), Self::Copied(rest))
            }
        }
    }

    /// Copies the bytes if they lie in memory of this request, which is about to be over; returns how many it has copied.
    pub(crate) fn leave(&mut self, adapter: &dyn Adapter, port: Port, id: PostingId) -> usize {
        if !matches!(self, Self::Piece(Piece::Posted { posting, .. }) if *posting == id) {
            return 0;
        }
        *self = Self::Copied(self.with(adapter, port, |data| data.to_vec()));
        self.len()
    }

    pub(super) fn into_piece(self) -> Option<Piece> {
        match self {
            Self::Piece(piece) => Some(piece),
            Self::InPlace(_) | Self::Copied(_) => None,
        }
    }

    /// Shows the bytes; none if they are in place, or gone.
    pub(crate) fn with<R>(&self, adapter: &dyn Adapter, port: Port, see: impl FnOnce(Data<'_>) -> R) -> R {
        match self {
            Self::InPlace(_) => see(Data::default()),
            Self::Copied(bytes) => see(bytes[..].into()),
            Self::Piece(piece) => with_bytes(piece, adapter, port, see),
        }
    }
}

/// Shows a piece's bytes to `see`, where they lie; none if they are in a segment that the adapter has no more.
pub(crate) fn with_bytes<R>(
    piece: &Piece,
    adapter: &dyn Adapter,
    port: Port,
    see: impl FnOnce(Data<'_>) -> R,
) -> R {
    match piece {
        Piece::Pooled(overlay) => see(overlay.data().into_data()),
        Piece::Outboard(buffer) => see(buffer.data()),
        Piece::Posted { posting, segment, at, len } => match adapter.segment(port, *posting, *segment) {
            Some(segment) => segment.with(*at..at + len, see),
            None => see(Data::default()),
        },
    }
}

/// Cuts pieces down to bytes `range` of them all.
pub(crate) fn within(pieces: SmallVec<[Piece; 2]>, range: Range<usize>) -> SmallVec<[Piece; 2]> {
    let mut at = 0;
    let part = |piece: Piece| {
        let (start, end) = (at, at + piece.len());
        at = end;
        let (from, to) = (range.start.clamp(start, end) - start, range.end.clamp(start, end) - start);
        (from < to).then(|| piece.cut(to).0.cut(from).1)
    };
    pieces.into_iter().filter_map(part).collect()
}
