//! Threads that store, a kernel that stores, and outputs pending all the while: no update lost, no snapshot torn.
//!
//! `GENIE_TORTURE_SECONDS` (1) is how long each kind of granule is tortured.
#![allow(
    unsafe_code,
    reason = "stores into one buffer from several threads, each into words or a page of its own, as C programs do"
)]

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::machine::{Machine, StopOnDrop, checked};
use genie_memory::{Buffer, Direction, Error, Reference, Space};

const THREADS: usize = 4;
/// Counters of one thread.
const COUNTERS: usize = 8;
const PAGE: usize = 4096;

on_each_kind!(stores_outputs_and_kernel_reads_race_without_loss);

fn stores_outputs_and_kernel_reads_race_without_loss(machine: Machine) {
    // Room for what all outputs hold at once, so that none is refused: a store that meets one at that moment waits for it.
    let Some(space) = machine.protecting_space(64) else { return };
    let seconds = std::env::var("GENIE_TORTURE_SECONDS").map_or(1, |text| text.parse().expect("a number"));
    let arena = Arena::new(&space, 4);
    let stop = AtomicBool::new(false);
    let increments = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let (arena, stop) = (&arena, &stop);
                    move || arena.increment(thread, stop)
                })
            })
            .collect();
        let kernel = scope.spawn(|| arena.let_the_kernel_store(&stop));
        let short = scope.spawn(|| output_shortly(&space, &arena, &stop));
        let outputs = {
            let _stopped_even_by_a_panic = StopOnDrop(&stop);
            output_and_verify(&space, &arena, Instant::now() + Duration::from_secs(seconds))
        };
        let reads = kernel.join().expect("the kernel's stores arrive");
        let short = short.join().expect("short outputs");
        let increments: Vec<_> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
        let total: u64 = increments.iter().flatten().sum();
        eprintln!(
            "{total} increments, {reads} kernel reads, {outputs} outputs verified, {short} short: {:?}",
            space.statistics()
        );
        increments
    });
    for (thread, counts) in increments.iter().enumerate() {
        for (counter, count) in counts.iter().enumerate() {
            let found = arena.counter(thread, counter).load(Relaxed);
            assert_eq!(found, *count, "counter {counter} of thread {thread} lost updates");
        }
    }
    let statistics = space.statistics();
    assert!(statistics.replacements > 0, "no granule was ever replaced: {statistics:?}");
    assert_eq!(statistics.waits, 0, "a store waited, although a replacement was promised");
    drop(arena);
    let usage = checked(&space);
    assert_eq!((usage.regions, usage.deferred, usage.references), (0, 0, 0));
}

/// A buffer shared by threads: counters spread over all of its granules, and a page for the kernel.
struct Arena {
    buffer: Buffer,
    granule: usize,
}

impl Arena {
    fn new(space: &Space, granules: usize) -> Self {
        let granule = space.granule();
        Self { buffer: space.allocate(granules * granule).expect("a buffer"), granule }
    }

    /// Where a counter lies: consecutive counters of a thread lie in different granules, those of the threads side by
    /// side. The last granule is the kernel's, but for one counter of each thread.
    fn place(&self, thread: usize, counter: usize) -> usize {
        let granules = self.buffer.len() / self.granule;
        let in_granule = (counter / granules) * 512 + thread * 8 + 64;
        (counter % granules) * self.granule + in_granule
    }

    fn counter(&self, thread: usize, counter: usize) -> &AtomicU64 {
        let addr = self.buffer.addresses().start + self.place(thread, counter);
        // SAFETY: inside the buffer, aligned, and used as an atomic only.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) }
    }

    /// Where the kernel stores: half of the last granule, at most a page.
    fn kernel_place(&self) -> (usize, usize) {
        (self.buffer.len() - self.granule / 2, (self.granule / 2).min(PAGE))
    }

    fn increment(&self, thread: usize, stop: &AtomicBool) -> [u64; COUNTERS] {
        let mut counts = [0; COUNTERS];
        while !stop.load(Relaxed) {
            for (counter, count) in counts.iter_mut().enumerate() {
                // A load and a store: what is lost between the two stays lost.
                let word = self.counter(thread, counter);
                word.store(word.load(Relaxed) + 1, Relaxed);
                *count += 1;
            }
        }
        counts
    }

    fn let_the_kernel_store(&self, stop: &AtomicBool) -> u64 {
        let (offset, len) = self.kernel_place();
        let file = pattern_file(len);
        // SAFETY: this part of the buffer is this thread's alone, but for outputs, which read it through other addresses.
        let place = unsafe {
            let addr = self.buffer.addresses().start + offset;
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(addr), len)
        };
        let mut reads = 0;
        while !stop.load(Relaxed) {
            let byte = (reads % 251) as u8;
            file.read_exact_at(place, u64::from(byte)).expect("the kernel stores into protected memory");
            let right =
                place.iter().enumerate().all(|(at, found)| *found == ((at + usize::from(byte)) % 251) as u8);
            assert!(right, "read {reads} was lost");
            reads += 1;
            std::thread::yield_now();
        }
        reads
    }
}

/// An unnamed file whose byte at `n` is `n` modulo 251.
fn pattern_file(len: usize) -> std::fs::File {
    let name = format!("genie-torture-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(path).expect("its removal");
    let bytes: Vec<u8> = (0..len + 251).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&bytes, 0).expect("room in the file");
    file
}

/// An output of the whole buffer; none if too few granules are free, since those that were replaced stay until the outputs from
/// them have completed.
fn reference(space: &Space, arena: &Arena) -> Option<Reference> {
    let reference = space
        .reference(arena.buffer.addresses().start, arena.buffer.len(), Direction::Out)
        .expect("a reference");
    match space.read_only(&reference) {
        Ok(_) => Some(reference),
        Err(Error::Irreplaceable { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Outputs that last no longer than it takes to ask for them: their ends race with replacements.
fn output_shortly(space: &Space, arena: &Arena, stop: &AtomicBool) -> u64 {
    let mut outputs = 0;
    while !stop.load(Relaxed) {
        outputs += u64::from(reference(space, arena).is_some());
        // Pauses of several lengths, so that stores happen between outputs as well.
        std::thread::sleep(Duration::from_micros(outputs % 8 * 40));
        std::thread::yield_now();
    }
    outputs
}

/// Outputs, some of them overlapping in time, each read twice.
fn output_and_verify(space: &Space, arena: &Arena, end: Instant) -> u64 {
    let mut outputs = 0;
    let mut last = [[0; COUNTERS]; THREADS];
    let mut pending: Vec<(Reference, Snapshot)> = Vec::new();
    while Instant::now() < end {
        let begun = reference(space, arena);
        let most = if begun.is_some() { outputs as usize % 4 } else { pending.len().saturating_sub(1) };
        if let Some(reference) = begun {
            let snapshot = Snapshot::of(arena, &reference);
            snapshot.verify_progress(&mut last);
            pending.push((reference, snapshot));
        }
        if outputs % 3 != 0 {
            std::thread::yield_now();
        }
        while pending.len() > most {
            let (reference, snapshot) = pending.remove(outputs as usize % pending.len());
            assert!(
                snapshot == Snapshot::of(arena, &reference),
                "output {outputs} changed while it was pending"
            );
            reference.release();
        }
        if pending.is_empty() {
            std::thread::sleep(Duration::from_micros(outputs % 7 * 40));
        }
        outputs += 1;
    }
    for (reference, snapshot) in pending {
        assert!(snapshot == Snapshot::of(arena, &reference), "a last output changed while it was pending");
    }
    outputs
}

/// What a server sees of one output.
#[derive(PartialEq)]
struct Snapshot {
    counters: [[u64; COUNTERS]; THREADS],
    kernel: Vec<u8>,
}

impl Snapshot {
    fn of(arena: &Arena, reference: &Reference) -> Self {
        let data = reference.data();
        let read = |offset: usize, bytes: &mut [u8]| {
            data.part(offset..offset + bytes.len()).copy_to(bytes);
        };
        let counter = |thread, counter| {
            let mut bytes = [0; 8];
            read(arena.place(thread, counter), &mut bytes);
            u64::from_ne_bytes(bytes)
        };
        let (offset, len) = arena.kernel_place();
        let mut kernel = vec![0; len];
        read(offset, &mut kernel);
        Self { counters: std::array::from_fn(|t| std::array::from_fn(|c| counter(t, c))), kernel }
    }

    /// Counters never go back, and those of one thread are incremented one after the other.
    fn verify_progress(&self, last: &mut [[u64; COUNTERS]; THREADS]) {
        for (thread, counters) in self.counters.iter().enumerate() {
            for (counter, value) in counters.iter().enumerate() {
                let before = std::mem::replace(&mut last[thread][counter], *value);
                assert!(
                    *value >= before,
                    "counter {counter} of thread {thread} went back from {before} to {value}"
                );
            }
        }
    }
}
