//! The cache: blocks of files, the least recently used of which make room for others.
//!
//! Why: least recently used is the plain policy; long sequential reads, which defeat it, are kept out by their length.
//! Invariants: at most `limit` blocks; a block is given out only to those who know its file in the version it was read.
//! Limits: one lock, held for a look-up, never while bytes are copied or read.
//! Source: thesis §1.1.2 (cached buffers, cache policy).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::root::{FileId, Version};

/// The length of a cached block. Blocks begin at the multiples of it; a file's last one is shorter.
pub const BLOCK: usize = 64 << 10;

/// What a file server's cache did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks that were in the cache, in the file's present version, when a fetch needed them.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
    /// Fetches that were read straight into their buffers: long ones, and those of files that changed just before.
    pub bypassed: u64,
    /// Blocks in the cache now.
    pub blocks: usize,
}

/// The name of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) file: FileId,
    pub(super) index: u64,
}

/// A block's bytes.
#[derive(Debug)]
pub(super) struct Block {
    /// The file's, when the bytes were read.
    pub(super) version: Version,
    pub(super) bytes: Box<[u8]>,
}

/// Blocks by name.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    blocks: Mutex<LruCache<Key, Arc<Block>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    bypassed: AtomicU64,
}

impl Cache {
    /// A cache of as many blocks as fit into `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        // The limit is kept by `insert`, since a bounded map would take its own memory in advance.
        Self {
            limit: bytes / BLOCK,
            blocks: Mutex::new(LruCache::unbounded()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            bypassed: AtomicU64::new(0),
        }
    }

    /// Whether a fetch of `len` bytes is to go through the cache.
    pub(super) fn suits(&self, len: usize) -> bool {
        len <= self.limit * BLOCK / 2
    }

    pub(super) fn count_bypass(&self) {
        self.bypassed.fetch_add(1, Relaxed);
    }

    /// The block, if it is there in this version.
    pub(super) fn get(&self, key: Key, version: Version) -> Option<Arc<Block>> {
        let found = self.blocks().get(&key).filter(|block| block.version == version).cloned();
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Relaxed);
        found
    }

    /// Keeps a block, in place of an earlier version or of the least recently used one.
    pub(super) fn insert(&self, key: Key, block: Arc<Block>) {
        let mut blocks = self.blocks();
        let mut gone = blocks.put(key, block);
        if blocks.len() > self.limit {
            gone = blocks.pop_lru().map(|(_, block)| block);
        }
        drop(blocks);
        drop(gone);
    }

    /// Drops the blocks of a file that hold any of `len` bytes at `offset`.
    pub(super) fn forget(&self, file: FileId, offset: u64, len: usize) {
        if len == 0 {
            return;
        }
        let range = offset / BLOCK as u64..=(offset + (len as u64 - 1)) / BLOCK as u64;
        let mut blocks = self.blocks();
        for index in range {
            blocks.pop(&Key { file, index });
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        Statistics {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            bypassed: self.bypassed.load(Relaxed),
            blocks: self.blocks().len(),
        }
    }

    fn blocks(&self) -> MutexGuard<'_, LruCache<Key, Arc<Block>>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
