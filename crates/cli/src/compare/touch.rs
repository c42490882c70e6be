//! The client's touching: one word in every 4 KiB.

use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};

/// How far apart the words are.
const STRIDE: usize = 4096;

/// Stores into every 4 KiB the word that belongs there: the one that is there. The compiler cannot know that it is the
/// same, so it must store; and what the buffer holds stays the data. Returns when the stores have been made: a processor
/// keeps some for later, for which the next request would wait.
pub(super) fn store_words(bytes: &mut [u8]) {
    for page in bytes.chunks_mut(STRIDE) {
        match page.first_chunk_mut::<8>() {
            Some(word) => *word = black_box(*word),
            None => page[0] = black_box(page[0]),
        }
    }
    fence(Ordering::SeqCst);
}

/// Loads one word from every 4 KiB.
pub(super) fn load_words(bytes: &[u8]) {
    for page in bytes.chunks(STRIDE) {
        match page.first_chunk::<8>() {
            Some(word) => drop(black_box(*word)),
            None => drop(black_box(page[0])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_changes_nothing() {
        for len in [1, 7, 8, 4095, 4096, 4097, 9000] {
            let before: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut after = before.clone();
            store_words(&mut after);
            load_words(&after);
            assert_eq!(before, after);
        }
    }
}
