//! Memory that client and peer share, and buffers of either kind as baselines touch them.
//!
//! How: a memory object, mapped by the `vm-memory` crate, which gives volatile and atomic views of it. Words by which the sides take
//! turns are atomic. The data between two messages is one side's own, and is touched as that side's own memory is: volatile loads,
//! eight bytes at a time, would make shared memory slower than means that are built upon it.

#![allow(
    unsafe_code,
    reason = "slices of shared memory are made where the protocol gives it to this side alone"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use genie_sys::{GranuleKind, Object};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use genie_lab::data;
use genie_lab::touch::{self, Amount};

/// A small page.
const PAGE: usize = 4096;

/// A memory object, mapped whole.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    region: MmapRegion,
    descriptor: OwnedFd,
}

impl SharedMemory {
    /// Makes an object of granules of this kind that holds `len` bytes, and fills its page tables.
    pub(crate) fn create(kind: GranuleKind, len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(kind.size());
        let object = Object::create(kind, len).map_err(io::Error::other)?;
        Self::attach(object.as_fd().try_clone_to_owned()?)
    }

    /// Maps an object of the other process.
    pub(crate) fn attach(descriptor: OwnedFd) -> io::Result<Self> {
        let file = File::from(descriptor.try_clone()?);
        let len = file.metadata()?.len() as usize;
        let region = MmapRegion::from_file(FileOffset::new(file, 0), len).map_err(io::Error::other)?;
        let memory = Self { region, descriptor };
        memory.populate();
        Ok(memory)
    }

    /// Stores into every page what the page holds already, so that no touch faults later. Nobody else stores meanwhile.
    fn populate(&self) {
        for page in 0..self.region.size() / PAGE {
            let word = self.word(page * PAGE);
            word.fetch_add(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The word at an offset that is a multiple of four.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        self.region.get_atomic_ref(offset).expect("an aligned word inside the object")
    }

    /// The long word at an offset that is a multiple of eight.
    pub(crate) fn long_word(&self, offset: usize) -> &AtomicU64 {
        self.region.get_atomic_ref(offset).expect("an aligned word inside the object")
    }

    /// The `len` bytes from `offset` on.
    pub(crate) fn part(&self, offset: usize, len: usize) -> VolatileSlice<'_> {
        self.region.get_slice(offset, len).expect("bytes inside the object")
    }
}

/// A buffer that may be stored into.
#[derive(Debug)]
pub(crate) enum Memory<'a> {
    Bytes(&'a mut [u8]),
    Shared(VolatileSlice<'a>),
}

impl Memory<'_> {
    /// Stores what is there already; all of it from `data`.
    pub(crate) fn touch(self, amount: Amount, data: &[u8]) {
        match self {
            Self::Bytes(bytes) => touch::store(bytes, amount, data),
            Self::Shared(memory) => {
                match amount {
                    Amount::Words => {
                        touch::words(memory.len()).for_each(|at| touch_shared(&memory, at, true));
                    }
                    Amount::All => memory.copy_from(std::hint::black_box(data)),
                }
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Copies `bytes`, as many as there are, into the buffer.
    pub(crate) fn fill(self, from: &[u8]) {
        match self {
            Self::Bytes(bytes) => bytes.copy_from_slice(from),
            Self::Shared(memory) => memory.copy_from(from),
        }
    }
}

/// A buffer that may be loaded from.
#[derive(Debug, Clone)]
pub(crate) enum View<'a> {
    Bytes(&'a [u8]),
    Shared(VolatileSlice<'a>),
}

impl View<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared(memory) => memory.len(),
        }
    }

    /// Loads from the buffer.
    pub(crate) fn touch(&self, amount: Amount) {
        match (self, amount) {
            (Self::Bytes(bytes), _) => touch::load(bytes, amount),
            (Self::Shared(memory), Amount::Words) => {
                touch::words(memory.len()).for_each(|at| touch_shared(memory, at, false));
            }
            (Self::Shared(memory), Amount::All) => touch::load(own(memory), amount),
        }
    }

    /// The sum of all bytes, as the memory server computes it.
    pub(crate) fn sum(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => data::sum(bytes),
            Self::Shared(memory) => data::sum(own(memory)),
        }
    }

    /// The first offset at which the bytes differ from `expected`, which has the same length.
    pub(crate) fn difference(&self, expected: &[u8]) -> Option<usize> {
        match self {
            Self::Bytes(bytes) => data::difference(bytes, expected),
            Self::Shared(memory) => data::difference(own(memory), expected),
        }
    }
}

/// Loads the word at an offset, or the byte where there is no room for a word, and maybe stores it again.
fn touch_shared(memory: &VolatileSlice<'_>, at: usize, store: bool) {
    if let Ok(word) = memory.get_ref::<u64>(at) {
        let value = std::hint::black_box(word.load());
        if store {
            word.store(value);
        }
    } else if let Ok(byte) = memory.get_ref::<u8>(at) {
        let value = std::hint::black_box(byte.load());
        if store {
            byte.store(value);
        }
    }
}

/// Shared memory between two messages, when it is this side's own.
fn own<'a>(memory: &'a VolatileSlice<'a>) -> &'a [u8] {
    let guard = memory.ptr_guard();
    // SAFETY: the slice is mapped as long as it is borrowed. The peer is a process of this program's, which stores into the memory
    // only between a message that gives it away and the answer; views are made after the answer.
    unsafe { std::slice::from_raw_parts(guard.as_ptr(), memory.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(bytes: &[u8]) -> SharedMemory {
        let memory = SharedMemory::create(GranuleKind::Base, bytes.len()).unwrap();
        Memory::Shared(memory.part(0, bytes.len())).fill(bytes);
        memory
    }

    #[test]
    fn shared_memory_sums_and_compares_as_private_memory_does() {
        for len in [1, 7, 8, 63, 64, 65, 4095, 4096, 9001] {
            let mut bytes: Vec<u8> = (0..len).map(|at| (at * 31 + 7) as u8).collect();
            let memory = shared(&bytes);
            let view = View::Shared(memory.part(0, len));
            assert_eq!(view.sum(), View::Bytes(&bytes).sum(), "at length {len}");
            assert_eq!(view.difference(&bytes), None);
            bytes[len - 1] ^= 1;
            assert_eq!(view.difference(&bytes), Some(len - 1));
        }
    }

    #[test]
    fn touching_shared_memory_changes_nothing() {
        for amount in [Amount::Words, Amount::All] {
            let bytes: Vec<u8> = (0..9001).map(|at| at as u8).collect();
            let memory = shared(&bytes);
            Memory::Shared(memory.part(0, bytes.len())).touch(amount, &bytes);
            let view = View::Shared(memory.part(0, bytes.len()));
            view.touch(amount);
            assert_eq!(view.difference(&bytes), None);
        }
    }

    #[test]
    fn two_mappings_of_an_object_show_the_same_bytes() {
        let memory = shared(b"abc");
        let other = SharedMemory::attach(memory.descriptor().try_clone_to_owned().unwrap()).unwrap();
        memory.word(8).store(7, Ordering::Relaxed);
        assert_eq!(other.word(8).load(Ordering::Relaxed), 7);
        assert_eq!(View::Shared(other.part(0, 3)).difference(b"abc"), None);
    }
}
