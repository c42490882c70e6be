//! The cache: blocks of files, of which the least recently used make room for others.
//!
//! Why: dropping the least recently used block is the plain policy. Long sequential reads, which defeat it, are kept out by
//! their length.
//! How: a block bears the version of its file that was current before it was read. Versions never come back, so a block
//! that was read too late, with newer bytes, is never used, but does no harm. The kernel changes a file's times
//! when a write begins, though; a block that was read before a long write reached it would bear the times that the file has
//! after the write. Hence blocks that are read during a store of this server's are not kept.
//! Invariants: at most `limit` blocks; none was read from a file while a store to it was served.
//! Limits: one lock, held for a look-up, never while bytes are copied or read.
//! Source: thesis §1.1.2 (cached buffers, cache policy).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use genie_sys::lock::Mutex;
use lru::LruCache;

use super::root::{FileId, Opened, Version, bytes_possible};

/// The length of a cached block. Blocks begin at multiples of this length; a file's last one is shorter.
pub const BLOCK: usize = 64 << 10;

/// What a file server's cache has done so far.
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
pub(crate) struct Key {
    pub(crate) file: FileId,
    pub(crate) index: u64,
}

/// A block's bytes.
#[derive(Debug)]
pub(crate) struct Block {
    /// The file's version when the bytes were read.
    pub(crate) version: Version,
    pub(crate) bytes: Box<[u8]>,
}

impl Block {
    /// Reads a block, or as much of it as there is.
    pub(crate) fn read(opened: &Opened, offset: u64) -> Result<Self, genie_sys::Error> {
        let mut bytes = Vec::new();
        opened.read(offset, BLOCK.min(bytes_possible(offset)), &mut bytes)?;
        Ok(Self { version: opened.version, bytes: bytes.into_boxed_slice() })
    }
}

/// Blocks by name.
#[derive(Debug)]
pub(crate) struct Cache {
    limit: usize,
    state: Mutex<State>,
    bypassed: AtomicU64,
}

#[derive(Debug)]
struct State {
    blocks: LruCache<Key, Arc<Block>>,
    /// How many stores to each file are being served.
    stores: HashMap<FileId, u32>,
    stores_ended: u64,
    hits: u64,
    misses: u64,
}

/// The right to insert the missing block, unless a store interferes.
#[derive(Debug)]
pub(crate) struct Miss {
    key: Key,
    stores_ended: u64,
}

/// A store being served; dropping it removes the blocks that it stored to.
#[derive(Debug)]
pub(crate) struct Store<'c> {
    cache: &'c Cache,
    file: FileId,
    bytes: Range<u64>,
}

impl Cache {
    /// Makes a cache of as many blocks as fit into `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        // The limit is kept by `insert`, since a bounded map would take its own memory in advance.
        let state = State {
            blocks: LruCache::unbounded(),
            stores: HashMap::new(),
            stores_ended: 0,
            hits: 0,
            misses: 0,
        };
        Self { limit: bytes / BLOCK, state: Mutex::new(state), bypassed: AtomicU64::new(0) }
    }

    /// Whether a fetch of `len` bytes is to go through the cache.
    pub(crate) fn suits(&self, len: usize) -> bool {
        len <= self.limit * BLOCK / 2
    }

    pub(crate) fn count_bypass(&self) {
        self.bypassed.fetch_add(1, Relaxed);
    }

    /// The block, if the cache has it in this version.
    pub(crate) fn get(&self, key: Key, version: Version) -> Result<Arc<Block>, Miss> {
        let mut state = self.state.lock();
        let found = state.blocks.get(&key).filter(|block| block.version == version).cloned();
        *(if found.is_some() { &mut state.hits } else { &mut state.misses }) += 1;
        found.ok_or(Miss { key, stores_ended: state.stores_ended })
    }

    /// Keeps a block that was read after the miss, in place of its earlier version or of the least recently used block. The
    /// block is not kept if its file was stored to meanwhile (or, for simplicity, if any store ended meanwhile).
    pub(crate) fn insert(&self, miss: Miss, block: Arc<Block>) {
        let mut state = self.state.lock();
        if state.stores_ended != miss.stores_ended || state.stores.contains_key(&miss.key.file) {
            return;
        }
        let mut gone = state.blocks.put(miss.key, block);
        if state.blocks.len() > self.limit {
            gone = state.blocks.pop_lru().map(|(_, block)| block);
        }
        // Memory is freed without the lock.
        drop(state);
        drop(gone);
    }

    /// Announces a store of `len` bytes at `offset`, which must not reach beyond what files can hold.
    pub(crate) fn store(&self, file: FileId, offset: u64, len: usize) -> Store<'_> {
        *self.state.lock().stores.entry(file).or_default() += 1;
        Store { cache: self, file, bytes: offset..offset + len as u64 }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let state = self.state.lock();
        Statistics {
            hits: state.hits,
            misses: state.misses,
            bypassed: self.bypassed.load(Relaxed),
            blocks: state.blocks.len(),
        }
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        // The store changes the file's times, so these blocks would not be used; this makes room.
        for index in self.bytes.start / BLOCK as u64..self.bytes.end.div_ceil(BLOCK as u64) {
            state.blocks.pop(&Key { file: self.file, index });
        }
        state.stores_ended += 1;
        if let Entry::Occupied(mut running) = state.stores.entry(self.file) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: 1, inode: 1 };
    const OTHER: FileId = FileId { device: 1, inode: 2 };
    const KEY: Key = Key { file: FILE, index: 3 };

    fn version() -> Version {
        Version::of(&std::fs::metadata("/proc/self").expect("a directory"))
    }

    fn put(cache: &Cache, miss: Miss, version: Version) {
        cache.insert(miss, Arc::new(Block { version, bytes: Box::default() }));
    }

    /// A store marks the file's times when it begins; a fetch then reads what the store has not reached yet.
    #[test]
    fn what_was_read_during_a_store_is_not_kept() {
        let (cache, version) = (Cache::new(4 * BLOCK), version());
        let before = cache.get(KEY, version).unwrap_err();
        let store = cache.store(FILE, 0, 1);
        let during = cache.get(KEY, version).unwrap_err();
        put(&cache, before, version);
        assert_eq!(cache.statistics().blocks, 0, "put in during the store, read before");
        drop(store);
        put(&cache, during, version);
        assert_eq!(cache.statistics().blocks, 0, "put in after the store, read during it");
        let after = cache.get(KEY, version).unwrap_err();
        put(&cache, after, version);
        cache.get(KEY, version).expect("what was read after the store is kept");
    }

    #[test]
    fn one_of_two_stores_that_ends_leaves_the_other_in_force() {
        let (cache, version) = (Cache::new(4 * BLOCK), version());
        let (one, other) = (cache.store(FILE, 0, 1), cache.store(FILE, 0, 1));
        drop(one);
        put(&cache, cache.get(KEY, version).unwrap_err(), version);
        assert_eq!(cache.statistics().blocks, 0);
        drop(other);
        put(&cache, cache.get(KEY, version).unwrap_err(), version);
        assert_eq!(cache.statistics().blocks, 1);
    }

    #[test]
    fn a_store_forgets_the_blocks_that_it_touches_and_no_others() {
        let (cache, version) = (Cache::new(8 * BLOCK), version());
        let all = [(FILE, 0), (FILE, 1), (FILE, 2), (OTHER, 1)].map(|(file, index)| Key { file, index });
        let keep = |key| put(&cache, cache.get(key, version).unwrap_err(), version);
        all.into_iter().for_each(keep);
        let left = |offset, len| {
            drop(cache.store(FILE, offset, len));
            cache.statistics().blocks
        };
        assert_eq!(left(BLOCK as u64, 0), 4);
        assert_eq!(left(BLOCK as u64, BLOCK), 3);
        assert_eq!(left(BLOCK as u64 - 1, 1), 2);
        assert_eq!(left(2 * BLOCK as u64 - 1, 2), 1);
        cache.get(all[3], version).expect("the other file's block is left");
    }
}
