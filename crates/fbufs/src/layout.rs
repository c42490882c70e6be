//! The layout of a pool's words, and the pool's size.
//!
//! ```text
//! page 0        magic, pages, token (2 words), segments in use, offers made
//! page 1        64 members, 8 words each: whether it is taken, process number
//! pages 2 to 5  128 channels, 16 words each: made by, ends (2), unused, messages taken (2), wanted (2); CPUs (2), keeps, bytes read
//! then          for each 64 pages of buffers a word of the bit string, on a line of its own: lock, bits, intent
//! then          for each page of buffers its head: who has the run that starts there, and how long the run is
//! then          the pages of buffers
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use genie_sys::shared::PAGE;

use crate::bits::PER_WORD;
use crate::error::{Error, Result};

/// How many members a pool can have at once.
pub(crate) const MEMBERS: usize = 64;
/// How many channels a pool can have at once.
pub(crate) const CHANNELS: usize = 128;
/// Words of the bit string for each segment: a segment has 4 MiB.
pub(crate) const WORDS_PER_SEGMENT: usize = 16;
/// The length of a segment in bytes.
pub(crate) const SEGMENT: usize = WORDS_PER_SEGMENT * PER_WORD * PAGE;
/// The most segments: 64 GiB.
const SEGMENTS_MAX: usize = 1 << 14;

/// Its last digits count the layouts: a word that means something else is another layout.
const MAGIC: u64 = 0x6662_7566_0000_0004;
/// Words for each member, and for each word of the bit string.
const ENTRY: usize = 8;
/// Words for each channel.
const CHANNEL_ENTRY: usize = 16;
const PAGE_WORDS: usize = PAGE / 8;
const MEMBERS_AT: usize = PAGE_WORDS;
const CHANNELS_AT: usize = MEMBERS_AT + MEMBERS * ENTRY;
const BITS_AT: usize = CHANNELS_AT + CHANNELS * CHANNEL_ENTRY;

/// How a pool's words are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    segments: usize,
}

impl Layout {
    /// The layout of a pool of at most `limit` bytes, rounded up to segments.
    pub(crate) fn for_limit(limit: usize) -> Result<Self> {
        let segments = limit.div_ceil(SEGMENT);
        let fits = (1..=SEGMENTS_MAX).contains(&segments);
        if fits {
            Ok(Self { segments })
        } else {
            Err(Error::PoolSize { asked: limit, most: SEGMENTS_MAX * SEGMENT })
        }
    }

    /// The layout of a pool's object that is `len` bytes long; none where no pool is.
    pub(crate) fn of_object(len: usize) -> Option<Self> {
        let guess = Self { segments: (len / SEGMENT).min(SEGMENTS_MAX) };
        (guess.segments > 0 && guess.object_bytes() == len).then_some(guess)
    }

    pub(crate) fn segments(self) -> usize {
        self.segments
    }

    /// How many words the bit string has.
    pub(crate) fn words(self) -> usize {
        self.segments * WORDS_PER_SEGMENT
    }

    pub(crate) fn pages(self) -> usize {
        self.words() * PER_WORD
    }

    /// The length of what precedes the pages of buffers.
    pub(crate) fn control_bytes(self) -> usize {
        ((BITS_AT + self.words() * ENTRY + self.pages()) * 8).next_multiple_of(PAGE)
    }

    pub(crate) fn object_bytes(self) -> usize {
        self.control_bytes() + self.segments * SEGMENT
    }

    /// The place of the head of a page.
    #[inline]
    pub(crate) fn head(self, page: usize) -> usize {
        BITS_AT + self.words() * ENTRY + page
    }

    /// The place of a word of the bit string: its lock, the bits and the intent follow each other.
    #[inline]
    pub(crate) fn word(self, word: usize) -> usize {
        debug_assert!(word < self.words(), "the bit string has no word {word}");
        BITS_AT + word * ENTRY
    }

    pub(crate) fn member(self, index: usize) -> usize {
        MEMBERS_AT + index * ENTRY
    }

    pub(crate) fn channel(self, index: usize) -> usize {
        CHANNELS_AT + index * CHANNEL_ENTRY
    }

    /// Writes what is never changed again. The magic is written last.
    pub(crate) fn begin(self, words: &[AtomicU64], token: [u64; 2]) {
        for word in 0..self.words() {
            words[self.word(word) + 1].store(!0, Ordering::Relaxed);
        }
        words[1].store(self.pages() as u64, Ordering::Relaxed);
        words[2].store(token[0], Ordering::Relaxed);
        words[3].store(token[1], Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
    }

    /// Whether the words are those of a pool of this layout.
    pub(crate) fn is_begun(self, words: &[AtomicU64]) -> bool {
        words[0].load(Ordering::Acquire) == MAGIC && words[1].load(Ordering::Relaxed) == self.pages() as u64
    }
}

/// What distinguishes a pool from all others.
pub(crate) fn token(words: &[AtomicU64]) -> [u64; 2] {
    [words[2].load(Ordering::Relaxed), words[3].load(Ordering::Relaxed)]
}

/// How many segments are in use.
pub(crate) fn segments_in_use(words: &[AtomicU64]) -> &AtomicU64 {
    &words[4]
}

/// How many ends of channels were offered to other processes.
pub(crate) fn offers(words: &[AtomicU64]) -> &AtomicU64 {
    &words[5]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_found_again_by_the_length_of_its_object() {
        for limit in [1, SEGMENT, SEGMENT + 1, 256 << 20, SEGMENTS_MAX * SEGMENT] {
            let layout = Layout::for_limit(limit).unwrap();
            assert_eq!(Layout::of_object(layout.object_bytes()), Some(layout), "{limit}");
            assert_eq!(Layout::of_object(layout.object_bytes() + PAGE), None);
            assert!(layout.head(layout.pages() - 1) < layout.control_bytes() / 8);
        }
        for limit in [0, SEGMENTS_MAX * SEGMENT + 1] {
            assert!(Layout::for_limit(limit).is_err(), "{limit}");
        }
        assert_eq!(Layout::of_object(0), None);
    }
}
