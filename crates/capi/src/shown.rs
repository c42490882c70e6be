//! What a program is shown of memory of the library's: its segments.

use genie_memory::{Segments, Span};

use crate::types::Segment;

/// Segments that stay where they are while this exists.
#[derive(Debug, Default)]
pub(crate) struct Shown(Vec<Segment>);

// SAFETY: addresses, which nothing here is read or stored by; the calls that show them say who may use the memory, and any thread may.
unsafe impl Send for Shown {}

impl Shown {
    pub(crate) fn new(segments: &Segments) -> Self {
        let segment = |span: &Span| Segment {
            addr: std::ptr::with_exposed_provenance_mut(span.addr()),
            length: span.len(),
        };
        Self(segments.iter().map(segment).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn first(&self) -> *const Segment {
        self.0.as_ptr()
    }
}
