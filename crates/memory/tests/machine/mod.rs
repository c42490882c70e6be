//! What every test of this crate needs: a space per granule kind, patterns, page frames, and the SKIP line.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(
    unsafe_code,
    reason = "stands for the parties of which the types of the floors above keep each other away"
)]

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_memory::{
    Buffer, Config, DataMut, Direction, Faults, Frames, Granularity, GranuleKind, LenderId, ObjectId,
    Protection, Reference, Space, Usage,
};
use genie_sys::{Arena, Object, inspect, process};

#[path = "../../../sys/tests/proc/mod.rs"]
pub(crate) mod proc;
#[path = "../../../sys/tests/skip/mod.rs"]
mod skip;

pub(crate) use skip::skip;

/// One granule kind of this machine, in the hands of one test.
pub(crate) struct Machine {
    pub(crate) kind: GranuleKind,
    name: &'static str,
}

/// Runs a test's function on each granule kind, as a test of its own.
#[macro_export]
macro_rules! on_each_kind {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            fn huge() {
                $crate::machine::run(genie_memory::GranuleKind::Huge, concat!(stringify!($test), "::huge"), super::$test);
            }

            #[test]
            fn collapsed() {
                let name = concat!(stringify!($test), "::collapsed");
                $crate::machine::run(genie_memory::GranuleKind::Collapsed, name, super::$test);
            }

            #[test]
            fn base() {
                $crate::machine::run(genie_memory::GranuleKind::Base, concat!(stringify!($test), "::base"), super::$test);
            }
        }
    )*};
}

/// Runs `test` if the machine has granules of this kind.
pub(crate) fn run(kind: GranuleKind, name: &'static str, test: fn(Machine)) {
    if let Some(reason) = missing(kind) {
        return skip(name, &reason);
    }
    proc::while_pages_stay(|| test(Machine { kind, name }));
}

/// Why the machine has no granules of this kind, if so.
fn missing(kind: GranuleKind) -> Option<String> {
    match kind {
        GranuleKind::Huge => {
            let pages = inspect::huge_pages().expect("/proc/meminfo is readable");
            let available = pages.free.saturating_sub(pages.reserved);
            (pages.size_kib != 2048 || available < 64)
                .then(|| format!("{available} huge pages of 2 MiB are available, 64 are needed"))
        }
        GranuleKind::Collapsed | GranuleKind::Base => None,
    }
}

impl Machine {
    /// The granule size.
    pub(crate) fn granule(&self) -> usize {
        self.kind.size()
    }

    /// Whether granules are of 2 MiB: then a test takes few of them, and repeats itself less often.
    pub(crate) fn is_large(&self) -> bool {
        self.granule() > GranuleKind::Base.size()
    }

    /// How many granules the first object of a space has whose limit is so many.
    pub(crate) fn first_object(&self, granules: usize) -> usize {
        if self.kind == GranuleKind::Collapsed { granules.min(4) } else { granules }
    }

    /// How many granules a buffer needs for system buffers like it to have windows of their own, with page tables to
    /// swap; with granules of 2 MiB, where none has, a few granules.
    pub(crate) fn windowed(&self) -> usize {
        if self.is_large() { 5 } else { 18 }
    }

    /// A space of so many granules, made otherwise as `adapt` says.
    pub(crate) fn space_with(&self, granules: usize, adapt: impl FnOnce(&mut Config)) -> Space {
        let limit = granules * self.granule();
        let mut config = Config {
            granularity: Granularity::Only(self.kind),
            limit,
            faults: Faults::Best,
            kernel_never_stores: false,
            pool: limit,
        };
        adapt(&mut config);
        Space::new(&config).expect("a space")
    }

    /// A space of so many granules.
    pub(crate) fn space(&self, granules: usize) -> Space {
        self.space_with(granules, |_| ())
    }

    /// A space whose output is protected against every store; without the right to have one, the test is skipped.
    pub(crate) fn protecting_space(&self, granules: usize) -> Option<Space> {
        let space = self.space(granules);
        if space.protection() == Protection::Full {
            return Some(space);
        }
        self.skip(&format!("output cannot be protected: {:?}", space.protection()));
        None
    }

    /// Says that a part of the test was not run.
    pub(crate) fn skip(&self, reason: &str) {
        skip(self.name, reason);
    }

    /// The page frame at an address; `None`, once said so, where frames are hidden.
    pub(crate) fn frame(&self, addr: usize) -> Option<u64> {
        let frame = frame(addr);
        if frame.is_none() {
            self.skip("page frames are hidden (CAP_SYS_ADMIN is missing)");
        }
        frame
    }
}

/// The number of the page frame at an address, if it is visible.
pub(crate) fn frame(addr: usize) -> Option<u64> {
    let page = proc::page_frames(addr, 1)[0];
    assert!(page.present, "no page at {addr:#x}");
    page.frame
}

/// Verifies the tables.
pub(crate) fn checked(space: &Space) -> Usage {
    space.check().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// An output of the whole buffer by emulated copy.
pub(crate) fn output(space: &Space, buffer: &Buffer) -> Reference {
    output_of(space, buffer.addresses().start, buffer.len())
}

/// An output of `len` bytes at `addr` by emulated copy.
pub(crate) fn output_of(space: &Space, addr: usize, len: usize) -> Reference {
    let reference = space.reference(addr, len, Direction::Out).expect("a reference");
    space.read_only(&reference).expect("protection");
    reference
}

/// What the server sees of a reference.
pub(crate) fn seen(reference: &Reference) -> Vec<u8> {
    reference.data().to_vec()
}

/// What a server fills by way of a reference. No test looks at the client's bytes while it stores into them.
pub(crate) fn server(reference: &Reference) -> DataMut<'_> {
    // SAFETY: as said above; outputs that a test has pending from the bytes are what it is about.
    unsafe { reference.data_mut() }
}

/// Client memory by its address: for tests that have a buffer in several hands, but store into it by one at a time.
pub(crate) fn client<'b>(addr: usize, len: usize) -> &'b mut [u8] {
    // SAFETY: the test owns the buffer that the bytes are in, and uses what is returned before it touches that again.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(addr), len) }
}

/// Makes a lender lend an object, into which only the test stores.
pub(crate) fn lend(space: &Space, lender: LenderId, object: Object) -> genie_memory::Result<()> {
    // SAFETY: the test that keeps the object stores where a server would.
    unsafe { space.lend(lender, object) }
}

/// Frames of an object into which only the test stores.
pub(crate) fn frames(space: &Space, object: Object, stride: usize) -> genie_memory::Result<Frames> {
    // SAFETY: as said above.
    unsafe { space.frames(object, stride) }
}

/// A writable descriptor of an object, through which nobody stores.
pub(crate) fn share_writable(space: &Space, id: ObjectId) -> genie_memory::Result<OwnedFd> {
    // SAFETY: as said above.
    unsafe { space.share_writable(id) }
}

/// Stores `bytes`, which fill `data`.
pub(crate) fn scatter(data: &DataMut<'_>, bytes: &[u8]) {
    assert_eq!(data.copy_from(bytes), bytes.len(), "there is room for all bytes");
}

/// `len` bytes that depend on `seed`; two granules hold the same ones by no rule.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    if len > LONGEST {
        return random(seed, len);
    }
    let bytes = BYTES.get_or_init(|| random(1, LONGEST + SHIFTS));
    let start = (seed >> 1) as usize % SHIFTS;
    bytes[start..start + len].to_vec()
}

/// Patterns up to this length are parts of one.
const LONGEST: usize = 16 << 20;

/// How many of those there are.
const SHIFTS: usize = 1 << 20;

fn random(mut word: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_exact_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Fails with the place of the first difference, not with megabytes of bytes.
#[track_caller]
pub(crate) fn same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths differ");
    // Comparing slices takes no time even where a sanitizer watches each load of this loop.
    if found == expected {
        return;
    }
    if let Some(at) = found.iter().zip(expected).position(|(f, e)| f != e) {
        panic!("{what}: byte {at} of {} is {} and should be {}", found.len(), found[at], expected[at]);
    }
}

/// Whether `addr` can be loaded from, found out without a fault.
pub(crate) fn is_accessible(addr: usize) -> bool {
    process::read_memory(process::own_pid(), addr, &mut [0]).is_ok()
}

/// Whether mlock locks anything.
pub(crate) fn can_lock() -> bool {
    let len = 2 << 20;
    let object = Object::create(GranuleKind::Base, len).expect("an object");
    let arena = Arena::reserve(len).expect("addresses");
    arena.map(0, &object, 0, len).expect("a mapping");
    arena.lock(0, 4096).expect("a lock");
    proc::mapping_at(arena.base()).expect("the mapping").has_flag("lo")
}

/// Ends a test's other threads, also when the thread that made this has failed.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
