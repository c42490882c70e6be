//! Ranges of files, compared with `std::fs`.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use genie_conformance::bytes::{pattern, same};
use genie_file as file;
use proptest::prelude::*;

use crate::{Files, Stop, settle};

const BLOCK: usize = file::BLOCK;

#[derive(Debug, Clone)]
enum Step {
    Fetch { offset: usize, len: usize },
    Store { offset: usize, len: usize, seed: u64 },
    Settle,
    WriteBehind { offset: usize, len: usize, seed: u64 },
    Truncate { len: usize },
}

/// Lengths and offsets, most of them near the edges of blocks.
fn extent(blocks: usize) -> impl Strategy<Value = usize> {
    prop_oneof![
        0..blocks * BLOCK,
        (0..blocks, -3isize..=3).prop_map(|(block, by)| (block * BLOCK).saturating_add_signed(by)),
        0..100usize,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (extent(6), extent(4)).prop_map(|(offset, len)| Step::Fetch { offset, len }),
        2 => (extent(6), extent(3), any::<u64>()).prop_map(|(offset, len, seed)| Step::Store { offset, len, seed }),
        2 => Just(Step::Settle),
        1 => (extent(5), extent(1), any::<u64>()).prop_map(|(offset, len, seed)| Step::WriteBehind { offset, len, seed }),
        1 => extent(6).prop_map(|len| Step::Truncate { len }),
    ]
}

/// What a file should hold.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.resize(self.0.len().max(offset + bytes.len()), 0);
            self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn read(&self, offset: usize, len: usize) -> &[u8] {
        &self.0[offset.min(self.0.len())..(offset + len).min(self.0.len())]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_fetches_and_stores_agree_with_the_file(steps in prop::collection::vec(step(), 1..40)) {
        let files = Files::new(8);
        let mut model = Model::default();
        files.store("file", 0, b"");
        let behind = std::fs::OpenOptions::new().write(true).open(files.path("file")).unwrap();
        for step in steps {
            match step {
                Step::Fetch { offset, len } => {
                    same(&files.fetch("file", offset as u64, len), model.read(offset, len), "fetched");
                }
                Step::Store { offset, len, seed } => {
                    let bytes = pattern(seed, len);
                    files.store("file", offset as u64, &bytes);
                    model.write(offset, &bytes);
                }
                Step::Settle => settle(),
                Step::WriteBehind { offset, len, seed } => {
                    let bytes = pattern(seed, len);
                    behind.write_all_at(&bytes, offset as u64).unwrap();
                    model.write(offset, &bytes);
                }
                Step::Truncate { len } => {
                    behind.set_len(len as u64).unwrap();
                    model.0.resize(len, 0);
                }
            }
        }
        same(&std::fs::read(files.path("file")).unwrap(), &model.0, "the file itself");
        prop_assert_eq!(files.size("file"), model.0.len() as u64);
        prop_assert!(files.file.statistics().blocks <= 8);
    }
}

#[test]
fn random_ranges_of_a_cached_file_agree_with_it() {
    let files = Files::new(8);
    let bytes = pattern(1, 5 * BLOCK + 1234);
    files.write_settled("file", &bytes);
    let mut runner = proptest::test_runner::TestRunner::default();
    runner
        .run(&(extent(7), extent(5)), |(offset, len)| {
            let model = &bytes[offset.min(bytes.len())..(offset + len).min(bytes.len())];
            same(&files.fetch("file", offset as u64, len), model, format!("{len} bytes at {offset}"));
            Ok(())
        })
        .unwrap();
    let statistics = files.file.statistics();
    assert!(statistics.hits > 0 && statistics.misses > 0 && statistics.bypassed > 0, "{statistics:?}");
}

#[test]
fn a_short_file_gives_what_it_has_and_nothing_beyond_its_end() {
    let files = Files::new(8);
    for (name, len) in [("empty", 0), ("one", 1), ("block", BLOCK), ("more", BLOCK + 1)] {
        let bytes = pattern(2, len);
        files.write(name, &bytes);
        // Just written, read directly; then, settled, through the cache; then from it.
        for pass in 0..3 {
            same(&files.fetch(name, 0, 2 * BLOCK), &bytes, format!("{name}, pass {pass}"));
            same(&files.fetch(name, len as u64, 100), b"", format!("{name} at its end, pass {pass}"));
            same(&files.fetch(name, 1 << 40, 100), b"", format!("{name} beyond its end, pass {pass}"));
            same(
                &files.fetch(name, i64::MAX as u64, 100),
                b"",
                format!("{name} at the end of all, pass {pass}"),
            );
            same(&files.fetch(name, 0, 0), b"", format!("no bytes of {name}, pass {pass}"));
            settle();
        }
    }
}

#[test]
fn a_store_beyond_the_end_leaves_a_hole_of_zeros() {
    let files = Files::new(8);
    files.store("sparse", 1 << 32, b"end");
    assert_eq!(files.size("sparse"), (1 << 32) + 3);
    let allocated = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(files.path("sparse")).unwrap());
    assert!(allocated < 1000, "{allocated} sectors for a hole");
    for _ in 0..2 {
        same(&files.fetch("sparse", (1 << 32) - 5, 100), b"\0\0\0\0\0end", "around the hole's end");
        same(&files.fetch("sparse", 12345, 1000), &[0; 1000], "in the hole");
        settle();
    }
}

#[test]
fn a_store_of_nothing_creates_the_file_and_changes_no_other() {
    let files = Files::new(8);
    files.store("new", 1 << 30, b"");
    assert_eq!(files.size("new"), 0);
    files.write("old", b"old");
    files.store("old", 1, b"");
    assert_eq!(std::fs::read(files.path("old")).unwrap(), b"old");
}

#[test]
fn sync_answers_for_files_anywhere_beneath_the_root() {
    let files = Files::new(8);
    std::fs::create_dir_all(files.path("a/b")).unwrap();
    for name in ["file", "a/b/file"] {
        files.store(name, 0, b"durable");
        files.ask(file::SYNC, name).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn clients_at_once_see_each_file_whole_through_a_small_cache() {
    let files = Files::new(6);
    let bytes: Vec<_> = (0..3).map(|seed| pattern(seed, 4 * BLOCK + 77)).collect();
    for (index, bytes) in bytes.iter().enumerate() {
        files.write(&index.to_string(), bytes);
    }
    settle();
    let done = AtomicBool::new(false);
    let (files, bytes, done) = (&files, &bytes, &done);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0u8;
            while !done.load(Relaxed) {
                round = round.wrapping_add(1);
                files.store("written", u64::from(round), &[round; 5000]);
                same(&files.fetch("written", u64::from(round), 5000), &[round; 5000], "one's own stores");
            }
        });
        let stop = Stop(done);
        let readers: Vec<_> = (0..4u64)
            .map(|seed| {
                scope.spawn(move || {
                    for (round, word) in pattern(seed, 8 * 1500).chunks(8).enumerate() {
                        let word = u64::from_le_bytes(word.try_into().unwrap()) as usize;
                        let (which, offset, len) =
                            (word % 3, (word >> 8) % (5 * BLOCK), (word >> 32) % (2 * BLOCK));
                        let whole = &bytes[which];
                        let model = &whole[offset.min(whole.len())..(offset + len).min(whole.len())];
                        let found = files.fetch(&which.to_string(), offset as u64, len);
                        same(&found, model, format!("client {seed}, round {round}, file {which}"));
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
        drop(stop);
        writer.join().expect("the writer");
    });
    let statistics = files.file.statistics();
    assert!(statistics.hits > 0 && statistics.misses > 0 && statistics.blocks <= 6, "{statistics:?}");
}
