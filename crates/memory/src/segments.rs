//! Segments: the addresses of some data. They give no access to the memory there; [`Data`](crate::Data) does.

use std::ops::Range;

use genie_sys::Span;
use smallvec::SmallVec;

/// The runs of memory that hold some data, in order.
pub type Segments = SmallVec<[Span; 2]>;

/// The bytes in `range` of some memory, as far as there are any.
pub fn part(segments: &[Span], range: Range<usize>) -> Segments {
    let mut at = 0;
    let cut = |segment: &Span| {
        let (start, end) = (at, at + segment.len());
        at = end;
        let from = range.start.clamp(start, end);
        segment.part(from - start, range.end.clamp(from, end) - from)
    };
    segments.iter().map(cut).filter(|segment| !segment.is_empty()).collect()
}
