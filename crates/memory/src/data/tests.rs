//! Data in heap memory, so that Miri can check the code.

use super::*;

/// Pieces of these lengths in one vector, with other bytes between them.
struct Scattered {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Scattered {
    const GAP: usize = 3;

    fn new(lens: &[usize]) -> Self {
        let len = lens.iter().map(|len| len + Self::GAP).sum();
        Self { bytes: vec![0xee; len], lens: lens.to_vec() }
    }

    fn data(&mut self) -> DataMut<'_> {
        let (start, mut at) = (self.bytes.as_mut_ptr(), 0);
        let segment = |len: &usize| {
            let segment = Span::new(start.wrapping_add(at), *len);
            at += len + Self::GAP;
            segment
        };
        let segments = self.lens.iter().map(segment).collect();
        // SAFETY: the vector stays borrowed exclusively as long as its data.
        unsafe { DataMut::new(segments) }
    }

    /// Asserts that nothing between the pieces has changed.
    fn assert_gaps(&self) {
        let mut at = 0;
        for len in &self.lens {
            at += len;
            assert_eq!(self.bytes[at..at + Self::GAP], [0xee; Self::GAP]);
            at += Self::GAP;
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

#[test]
fn bytes_are_copied_across_pieces_and_nowhere_else() {
    let mut scattered = Scattered::new(&[100, 1, 0, 200]);
    let data = scattered.data();
    let expected = pattern(301);
    assert_eq!((data.len(), data.is_empty(), data.pieces().count()), (301, false, 4));
    assert_eq!(data.copy_from(&[&expected[..], b"more"].concat()), 301);
    assert_eq!(data.to_vec(), expected);
    data.part(50..150).fill(9);
    let changed = [&expected[..50], &[9; 100], &expected[150..]].concat();
    assert_eq!(data.mismatch(&changed), None);
    assert_eq!(data.mismatch(&expected), Some(50));
    scattered.assert_gaps();
}

#[test]
fn data_is_copied_to_data_in_other_pieces() {
    let (mut from, mut to) = (Scattered::new(&[10, 90]), Scattered::new(&[33, 33, 33]));
    let (source, target) = (from.data(), to.data());
    source.copy_from(&pattern(100));
    assert_eq!(target.copy_data(&source), 99);
    assert_eq!(target.to_vec(), pattern(99));
    to.assert_gaps();
}

#[test]
fn every_byte_is_summed_once() {
    let mut scattered = Scattered::new(&[64, 130]);
    let data = scattered.data();
    let bytes = pattern(194);
    data.copy_from(&bytes);
    let word = |word: &[u8]| {
        let mut full = [0; 8];
        full[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(full)
    };
    let (first, second) = bytes.split_at(64);
    let expected = first.chunks(8).chain(second.chunks(8)).map(word).fold(0, u64::wrapping_add);
    assert_eq!(data.sum(), expected);
    let mut sum = 0u64;
    data.lines(|line| sum = line.into_iter().fold(sum, u64::wrapping_add));
    assert_eq!(sum, expected);
}

#[test]
fn data_behind_other_data_is_read_after_it() {
    let (mut one, mut two) = (Scattered::new(&[5]), Scattered::new(&[7]));
    let (first, second) = (one.data(), two.data());
    first.fill(1);
    second.fill(2);
    let mut both = first.into_data();
    both.append(second.into_data());
    assert_eq!(both.to_vec(), [&[1; 5][..], &[2; 7]].concat());
}

#[test]
fn chunks_are_all_bytes_in_their_order() {
    for lens in [&[][..], &[0, 5, 0], &[16 << 10], &[1, 16 << 10, 20_000, 7]] {
        let mut scattered = Scattered::new(lens);
        let data = scattered.data();
        let expected: Vec<u8> = (0..data.len()).map(|at| (at / 3) as u8).collect();
        data.copy_from(&expected);
        let mut seen = Vec::new();
        data.for_each_chunk(|bytes| {
            assert!((1..=16 << 10).contains(&bytes.len()));
            seen.extend_from_slice(bytes);
        });
        assert!(seen == expected, "{lens:?}");
    }
}
