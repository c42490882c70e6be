//! Chunks: parts of granules, for data that will be copied.
//!
//! How: the length of a chunk is a power of two, from 4 KiB to 1 MiB. Where no chunk of a length is at hand, the shortest
//! longer chunk that was never handed out is halved until it fits; so chunks of all lengths share granules. A deallocated
//! chunk is kept for data of the same length, until all chunks of its granule are free and the granule is wanted
//! elsewhere.
//! Limits: data of more than 1 MiB gets whole granules, and so does all data where granules are pages of 4 KiB.

use std::collections::BTreeMap;

use crate::tables::shelf::Shelf;

/// The shortest chunk: 4 KiB.
const SHORTEST: u32 = 12;
/// Each class is twice as long as the one before.
const CLASSES: usize = 9;

/// A part of a granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) granule: u32,
    pub(crate) offset: u32,
    class: u8,
}

impl Chunk {
    pub(crate) fn len(self) -> usize {
        chunk_len(self.class as usize)
    }
}

/// The chunks of one pool that one party is shown.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    shelves: [Shelf<Chunk>; CLASSES],
    /// Chunks that were never handed out, the lowest last.
    fresh: [Vec<Chunk>; CLASSES],
    /// Granules cut into chunks.
    cut: Vec<u32>,
}

impl Chunks {
    /// Whether no granule is cut.
    pub(crate) fn is_empty(&self) -> bool {
        self.cut.is_empty()
    }

    /// The granules that are cut.
    pub(crate) fn granules(&self) -> impl Iterator<Item = &u32> {
        self.cut.iter()
    }

    /// Takes a chunk: a deallocated one, once as many chunks exist as are to be rotated over, else one that was never
    /// handed out.
    pub(crate) fn take(&mut self, class: usize, rotation: u16) -> Option<Chunk> {
        self.shelves[class].take(rotation).or_else(|| self.take_fresh(class))
    }

    /// Takes a chunk that was never handed out.
    pub(crate) fn take_fresh(&mut self, class: usize) -> Option<Chunk> {
        let longest = (class..CLASSES).find(|class| !self.fresh[*class].is_empty())?;
        let mut chunk = self.fresh[longest].pop()?;
        for half in (class..longest).rev() {
            chunk.class = half as u8;
            self.fresh[half].push(Chunk { offset: chunk.offset + chunk_len(half) as u32, ..chunk });
        }
        self.shelves[class].exist += 1;
        Some(chunk)
    }

    /// Takes the chunk that has been free longest, because there is no memory for one more.
    pub(crate) fn take_oldest(&mut self, class: usize) -> Option<Chunk> {
        self.shelves[class].take_oldest()
    }

    pub(crate) fn has_kept(&self, class: usize) -> bool {
        !self.shelves[class].kept.is_empty()
    }

    pub(crate) fn keep(&mut self, chunk: Chunk) {
        self.shelves[chunk.class as usize].kept.push_back(chunk);
    }

    /// Adds a granule of `len` bytes.
    pub(crate) fn cut(&mut self, granule: u32, len: usize) {
        self.cut.push(granule);
        let class = CLASSES - 1;
        let offsets = (0..len).step_by(chunk_len(class)).rev();
        let chunks = offsets.map(|offset| Chunk { granule, offset: offset as u32, class: class as u8 });
        self.fresh[class].extend(chunks);
    }

    /// Of the granules that `of` selects, takes out those whose chunks are all free. A granule is `len` bytes long.
    pub(crate) fn take_uncut(&mut self, len: usize, of: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut free = BTreeMap::<u32, usize>::new();
        let kept = self.shelves.iter().flat_map(|shelf| &shelf.kept);
        for chunk in kept.chain(self.fresh.iter().flatten()).filter(|chunk| of(chunk.granule)) {
            *free.entry(chunk.granule).or_default() += chunk.len();
        }
        free.retain(|_, bytes| *bytes == len);
        for shelf in &mut self.shelves {
            let before = shelf.kept.len();
            shelf.kept.retain(|chunk| !free.contains_key(&chunk.granule));
            shelf.exist -= (before - shelf.kept.len()) as u32;
        }
        for fresh in &mut self.fresh {
            fresh.retain(|chunk| !free.contains_key(&chunk.granule));
        }
        self.cut.retain(|granule| !free.contains_key(granule));
        free.into_keys().collect()
    }
}

/// The class of the shortest chunk that holds `len` bytes.
pub(crate) fn chunk_class(len: usize) -> Option<usize> {
    let class = len.checked_next_power_of_two()?.trailing_zeros().saturating_sub(SHORTEST) as usize;
    (class < CLASSES).then_some(class)
}

pub(crate) fn chunk_len(class: usize) -> usize {
    1 << (SHORTEST as usize + class)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: usize = 2 << 20;

    #[test]
    fn a_power_of_two_is_its_chunks_length() {
        for len in (12..=20).map(|power| 1usize << power) {
            let class = |len| chunk_class(len).map(chunk_len);
            assert_eq!((class(len), class(len - 1)), (Some(len), Some(len)));
            assert_eq!(class(len + 1), (len < 1 << 20).then_some(2 * len));
        }
    }

    #[test]
    fn chunks_of_all_lengths_share_a_granule_and_do_not_overlap() {
        let mut chunks = Chunks::default();
        chunks.cut(7, GRANULE);
        let mut places = Vec::new();
        for class in [1, 0, 4, 1, 8, 0, 0, 6] {
            let chunk = chunks.take_fresh(class).expect("room");
            assert_eq!((chunk.granule, chunk.len()), (7, chunk_len(class)));
            assert!((chunk.offset as usize).is_multiple_of(chunk.len()), "{chunk:?}");
            places.push((chunk.offset as usize, chunk));
        }
        places.sort_by_key(|(offset, _)| *offset);
        assert!(places.windows(2).all(|two| two[0].0 + two[0].1.len() <= two[1].0), "{places:?}");
        assert!(chunks.take_uncut(GRANULE, |_| true).is_empty());
        places.iter().for_each(|(_, chunk)| chunks.keep(*chunk));
        assert_eq!(chunks.take_uncut(GRANULE, |_| true), [7], "all of it is free again");
        assert!(chunks.is_empty() && chunks.take(0, 1).is_none());
        assert!(chunks.shelves.iter().all(|shelf| shelf.exist == 0));
    }

    #[test]
    fn a_granule_holds_as_many_chunks_as_fit() {
        let mut chunks = Chunks::default();
        chunks.cut(0, GRANULE);
        let offsets: Vec<_> = std::iter::from_fn(|| chunks.take_fresh(1)).map(|chunk| chunk.offset).collect();
        assert_eq!(offsets, (0..GRANULE as u32).step_by(8192).collect::<Vec<_>>());
    }
}
