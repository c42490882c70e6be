//! Segments: the runs of memory that hold some data, and copying from and to them.

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

/// Copies the first bytes of `segments` to `bytes`, as many as both have; returns how many.
pub fn gather(segments: &[Span], bytes: &mut [u8]) -> usize {
    let mut done = 0;
    for segment in segments {
        let here = segment.len().min(bytes.len() - done);
        segment.part(0, here).copy_to(&mut bytes[done..done + here]);
        done += here;
    }
    done
}

/// Copies the first of `bytes` to `segments`, as many as both have; returns how many.
pub fn scatter(bytes: &[u8], segments: &[Span]) -> usize {
    let mut done = 0;
    for segment in segments {
        let here = segment.len().min(bytes.len() - done);
        segment.part(0, here).copy_from(&bytes[done..done + here]);
        done += here;
    }
    done
}

/// Copies the first bytes of `from` to `to`, as many as both have; returns how many.
pub fn transfer(from: &[Span], to: &[Span]) -> usize {
    let mut done = 0;
    let mut sources = from.iter().copied();
    let mut source = sources.next();
    for target in to {
        let mut target = *target;
        while let (false, Some(here)) = (target.is_empty(), source) {
            let len = here.len().min(target.len());
            target.part(0, len).copy_span(here.part(0, len));
            done += len;
            target = target.part(len, target.len() - len);
            let rest = here.part(len, here.len() - len);
            source = if rest.is_empty() { sources.next() } else { Some(rest) };
        }
    }
    done
}
