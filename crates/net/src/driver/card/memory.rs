//! A card's memory, mapped.
#![allow(unsafe_code, reason = "vouches for memory that it keeps mapped, and to which it makes no reference")]

use genie_memory::{DataMut, Object, Segments};
use genie_sys::{Arena, Errno, Error, GranuleKind, Result};

use super::words::{BUFFER, MEMORY};

/// A card's memory. The other side may store into it at any moment.
#[derive(Debug)]
pub(crate) struct Memory(Arena);

impl Memory {
    /// Maps it.
    ///
    /// # Errors
    /// EINVAL: the object is no card's memory. The kernel's, where memory or addresses are lacking.
    pub(crate) fn map(object: &Object) -> Result<Self> {
        if (object.kind(), object.len()) != (GranuleKind::Base, MEMORY) {
            let subject = format!("an object of {} bytes, a card's memory", object.len());
            return Err(Error::new("check", subject, Errno::INVAL));
        }
        let arena = Arena::reserve(MEMORY)?;
        arena.map(0, object, 0, MEMORY)?;
        Ok(Self(arena))
    }

    /// A buffer.
    ///
    /// # Panics
    /// When there is no such buffer.
    pub(crate) fn buffer(&self, index: u32) -> DataMut<'_> {
        let at = index as usize * BUFFER;
        assert!(at < MEMORY, "buffer {index} of a card");
        // SAFETY: mapped for loads and stores as long as the arena is there, which the data borrows (in a child made by fork, zeros are
        // mapped); an object's size is sealed; and nobody makes a Rust reference to these bytes.
        unsafe { DataMut::new(Segments::from_slice(&[self.0.span(at, BUFFER)])) }
    }
}
