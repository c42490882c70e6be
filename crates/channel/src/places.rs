//! Places: what one side of a channel keeps for each pending request, and how many bytes the requests have.
//!
//! How: a [`Slot`] names a place and how often it was taken before, so that a late name is not taken for the next request
//! there. The client chooses places, and the server keeps its own part of each request under the same name.
//! Invariants: `bytes` and `taken` are the sums over the places that are taken.

use super::wire::record::Slot;

/// Places for as many requests as the client was granted.
#[derive(Debug)]
pub(super) struct Places<T> {
    places: Vec<Place<T>>,
    /// Bytes that may be pending.
    pub(super) limit: usize,
    bytes: usize,
    taken: u32,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    bytes: usize,
    content: Option<T>,
}

impl<T> Places<T> {
    pub(super) fn new(count: u32, limit: usize) -> Self {
        let mut places = Self { places: Vec::new(), limit, bytes: 0, taken: 0 };
        places.grow(count);
        places
    }

    /// How many places there are.
    pub(super) fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// (bytes, requests) pending.
    pub(super) fn load(&self) -> (usize, u32) {
        (self.bytes, self.taken)
    }

    /// Whether a request of this many bytes would exceed the limit.
    pub(super) fn would_exceed(&self, bytes: usize) -> bool {
        bytes > self.limit.saturating_sub(self.bytes)
    }

    /// Makes more places, up to `count`; none is ever taken away.
    pub(super) fn grow(&mut self, count: u32) {
        let count = self.places.len().max(count as usize);
        self.places.resize_with(count, || Place { generation: 0, bytes: 0, content: None });
    }

    /// The name that the place has now.
    pub(super) fn slot(&self, index: u32) -> Slot {
        Slot { index, generation: self.places[index as usize].generation }
    }

    /// Whether there is a request at the place, whatever its generation; `None` if there is no such place.
    pub(super) fn is_taken(&self, index: u32) -> Option<bool> {
        Some(self.places.get(index as usize)?.content.is_some())
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        let place = self.places.get(slot.index as usize)?;
        place.content.as_ref().filter(|_| place.generation == slot.generation)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let place = self.places.get_mut(slot.index as usize)?;
        place.content.as_mut().filter(|_| place.generation == slot.generation)
    }

    /// Takes a vacant place for a request of this many bytes.
    pub(super) fn put(&mut self, slot: Slot, bytes: usize, content: T) {
        let Slot { index, generation } = slot;
        let place = &mut self.places[index as usize];
        debug_assert!(place.content.is_none(), "place {index} is taken by another request");
        *place = Place { generation, bytes, content: Some(content) };
        self.bytes += bytes;
        self.taken += 1;
    }

    /// Makes a place vacant; returns what was there.
    pub(super) fn take(&mut self, slot: Slot) -> Option<T> {
        let place = self.places.get_mut(slot.index as usize)?;
        if place.generation != slot.generation {
            return None;
        }
        let content = place.content.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.bytes -= place.bytes;
        self.taken -= 1;
        Some(content)
    }

    /// The places that are taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let named = (0..).zip(&self.places);
        named.filter_map(|(index, place)| {
            Some((Slot { index, generation: place.generation }, place.content.as_ref()?))
        })
    }
}
