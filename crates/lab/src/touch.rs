//! The sides that touch passed data, and how a client touches it: one word in every 4 KiB, or all of it.
//!
//! A word lies one cache line further in each 4 KiB than in the one before. If it were always the first word of the 4 KiB,
//! all touched words would share a few sets of the cache, and would drive out whatever else lies at the beginning of a page.

use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};

use crate::data;

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
    /// Both: the client one word in every 4 KiB, the server every byte.
    Both,
    /// Both, every byte.
    Full,
}

/// How much of its buffer a client touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// One word in every 4 KiB.
    Words,
    /// Every byte.
    All,
}

impl Touch {
    /// How much of the data the client touches, if any.
    pub fn by_client(self) -> Option<Amount> {
        match self {
            Self::None | Self::Server => None,
            Self::Client | Self::Both => Some(Amount::Words),
            Self::Full => Some(Amount::All),
        }
    }

    /// Whether the server touches the data.
    pub fn by_server(self) -> bool {
        matches!(self, Self::Server | Self::Both | Self::Full)
    }

    /// The word for it, in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::Server => "server",
            Self::Both => "both",
            Self::Full => "full",
        }
    }
}

/// Stores what is there already, so that the buffer keeps its data: words by themselves, which the compiler cannot know to be the
/// same, or all of it from `data`, which is as long. Returns when the stores have been made: otherwise a processor keeps some
/// for later, and the next request would wait for them.
pub fn store(bytes: &mut [u8], amount: Amount, data: &[u8]) {
    match amount {
        Amount::Words => {
            for at in words(bytes.len()) {
                match bytes[at..].first_chunk_mut::<WORD>() {
                    Some(word) => *word = black_box(*word),
                    None => bytes[at] = black_box(bytes[at]),
                }
            }
        }
        Amount::All => bytes.copy_from_slice(black_box(data)),
    }
    fence(Ordering::SeqCst);
}

/// Loads from the buffer.
pub fn load(bytes: &[u8], amount: Amount) {
    match amount {
        Amount::Words => {
            for at in words(bytes.len()) {
                match bytes[at..].first_chunk::<WORD>() {
                    Some(word) => drop(black_box(*word)),
                    None => drop(black_box(bytes[at])),
                }
            }
        }
        Amount::All => drop(black_box(data::sum(bytes))),
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
        for len in [1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 9000] {
            for amount in [Amount::Words, Amount::All] {
                let before: Vec<u8> = (0..len).map(|at| at as u8).collect();
                let mut after = before.clone();
                store(&mut after, amount, &before);
                load(&after, amount);
                assert_eq!(before, after);
            }
        }
    }
}
