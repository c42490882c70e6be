//! Speculation: buffering of the server's own at the adapter, where no request waits, for the rest of one that ended early.
//!
//! How: it lies in overlay buffers as that rest lay in its client's memory, page for page. What is stored there waits in the stream's queue
//! as what came before it was asked for. A request for all of the rest takes the buffers over, so pages change places though data came
//! before it. Any other, and one in parts, amends: its own buffering takes their place, and what they have is copied.
//! Source: thesis §6.5. Differs: a server is not told where a client's buffer begins until it has made it ready, and can have no other one
//! overlaid then. So the length alone says whether a request is for the rest; if its buffer begins elsewhere in its page, all is copied.

use genie_passing::Overlays;
use smallvec::SmallVec;

use crate::adapter::{Posting, PostingId, Segment};

/// Buffering of the server's own that is posted.
#[derive(Debug)]
pub(super) struct Speculation {
    pub(super) id: PostingId,
    /// Where its segments begin.
    pub(super) starts: SmallVec<[Option<usize>; 4]>,
    /// How many bytes a request for all of it asks for; 0 once some have been taken.
    pub(super) len: usize,
}

impl Speculation {
    /// Buffering of `len` bytes that lie in pages as those from `addr` on; none if the pool has too few buffers.
    pub(super) fn begin(pool: &Overlays, addr: usize, len: usize, id: PostingId) -> Option<(Self, Posting)> {
        let segment = pool.preferred().len;
        let (mut at, mut starts, mut segments) = (0, SmallVec::new(), Vec::new());
        while at < len {
            let front = if at == 0 { addr % segment } else { 0 };
            let here = (segment - front).min(len - at);
            starts.push(Some(at));
            segments.push(Segment::Overlay(pool.allocate()?.part(front..front + here)));
            at += here;
        }
        Some((Self { id, starts, len }, Posting { id, segments }))
    }
}
