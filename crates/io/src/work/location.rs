//! Locations: where data is that has been passed already.
//!
//! Source: thesis §7.5.

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Extent, Extents, Mirror, Segments, Span};
use smallvec::SmallVec;

use crate::work::forwarded::ForwardedInput;

/// Where data is: in memory that this process shows, or in a peer's that it may map.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    Here(Segments),
    There(Mirror, Extents),
    /// In an input of a client in this process, whose memory is made ready when it is needed.
    Forwarded(Arc<ForwardedInput>),
    /// In memory of this process alone, where the records brought it, or will take it from.
    Carried(Segments),
}

/// Where a part of an element's data is that the server is to be shown.
#[derive(Debug, Clone, Copy)]
pub enum Shown<'w> {
    /// In the client's space, or in what the server has lent it.
    Own(&'w [Span]),
    /// In this process: the client is a server itself, and forwards it. Another space's memory cannot be shown.
    Forwarded(&'w [Span]),
    /// In memory of another process, whose client has announced it to this one.
    Mirrored(&'w Mirror, &'w [Extent]),
    /// In memory of this process alone, of so many bytes: a record has brought it. It cannot be shown.
    Unshown(usize),
}

/// Locations of some data, in order.
pub(crate) type Locations = SmallVec<[Location; 1]>;

impl Location {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Here(segments) | Self::Carried(segments) => {
                segments.iter().map(|segment| segment.len()).sum()
            }
            Self::There(_, extents) => extents.iter().map(|extent| extent.len).sum(),
            Self::Forwarded(input) => input.len(),
        }
    }

    /// The bytes in `range`, as far as they are here; of an input that was forwarded, as far as it is ready.
    fn part(&self, range: Range<usize>) -> Self {
        match self {
            Self::Here(segments) => Self::Here(genie_memory::part(segments, range)),
            Self::Carried(segments) => Self::Carried(genie_memory::part(segments, range)),
            Self::Forwarded(input) => Self::Here(genie_memory::part(&input.seen(), range)),
            Self::There(mirror, extents) => {
                let mut at = 0;
                let cut = |extent: &Extent| {
                    let (start, end) = (at, at + extent.len);
                    at = end;
                    let from = range.start.clamp(start, end);
                    Extent { offset: extent.offset + from - start, len: range.end.clamp(from, end) - from }
                };
                let parts = extents.iter().map(cut).filter(|extent| extent.len > 0);
                Self::There(mirror.clone(), parts.collect())
            }
        }
    }
}

/// The bytes in `range` of `locations`.
pub(crate) fn part(locations: &[Location], range: Range<usize>) -> Locations {
    let mut at = 0;
    let mut parts = Locations::new();
    for location in locations {
        let (start, end) = (range.start.max(at), range.end.min(at + location.len()));
        if start < end {
            parts.push(location.part(start - at..end - at));
        }
        at += location.len();
    }
    parts
}
