//! The sides that touch passed data, and how a client touches it: one word in every 4 KiB.
//!
//! The word lies one cache line further in each 4 KiB than in the one before. If it were always the first word of the 4 KiB,
//! all touched words would share a few sets of the cache, and would drive out whatever else lies at the beginning of a page.

use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};

/// How far apart the words are, apart from the cache line by which each one moves on.
const STRIDE: usize = 4096;
const LINE: usize = 64;
const WORD: usize = 8;

/// The sides that touch the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Touch {
    /// Nobody: passing alone is measured.
    None,
    /// The client, one word in every 4 KiB.
    Client,
    /// The server, every byte.
    Server,
    /// Both.
    Both,
}

impl Touch {
    /// Whether the client touches the data.
    pub fn by_client(self) -> bool {
        matches!(self, Self::Client | Self::Both)
    }

    /// Whether the server touches the data.
    pub fn by_server(self) -> bool {
        matches!(self, Self::Server | Self::Both)
    }

    /// The word for it, in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::Server => "server",
            Self::Both => "both",
        }
    }
}

/// Stores into every 4 KiB the word that is there already, so that the buffer keeps its data. The compiler cannot know that
/// the word is the same, so it must store. Returns when the stores have been made: otherwise a processor keeps some for
/// later, and the next request would wait for them.
pub fn store_words(bytes: &mut [u8]) {
    for at in words(bytes.len()) {
        match bytes[at..].first_chunk_mut::<WORD>() {
            Some(word) => *word = black_box(*word),
            None => bytes[at] = black_box(bytes[at]),
        }
    }
    fence(Ordering::SeqCst);
}

/// Loads one word from every 4 KiB.
pub fn load_words(bytes: &[u8]) {
    for at in words(bytes.len()) {
        match bytes[at..].first_chunk::<WORD>() {
            Some(word) => drop(black_box(*word)),
            None => drop(black_box(bytes[at])),
        }
    }
}

/// Where the words lie in `len` bytes. If the last 4 KiB are too short for a later place, the word lies at their beginning.
pub fn words(len: usize) -> impl Iterator<Item = usize> {
    (0..len.div_ceil(STRIDE)).map(move |index| {
        let (page, at) = (index * STRIDE, index * LINE % STRIDE);
        if page + at + WORD <= len { page + at } else { page }
    })
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
