//! Data: the bytes of a buffer as a server is shown them, in one or more pieces.

use std::io::{Read, Seek, Write};

use genie_memory::{Config, Faults, Granularity, GranuleKind, Space, SystemBuffer};

const PAGE: usize = GranuleKind::Base.size();

/// A buffer of three granules, none next to another, with the data a little way into the first one.
fn scattered() -> (Space, SystemBuffer) {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit: 6 * PAGE,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: 0,
    };
    let space = Space::new(&config).unwrap();
    let mut taken: Vec<_> = (0..6).map(|_| space.aligned_buffer(0, PAGE).unwrap()).collect();
    [5, 3, 1].into_iter().for_each(|at| drop(taken.remove(at)));
    let buffer = space.aligned_buffer(100, 3 * PAGE - 200).unwrap();
    assert_eq!(buffer.segments().len(), 3);
    (space, buffer)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

#[test]
fn bytes_are_copied_across_pieces() {
    let (_space, buffer) = scattered();
    let data = buffer.data();
    let len = 3 * PAGE - 200;
    assert_eq!((data.len(), data.is_empty(), data.segments().len()), (len, false, 3));
    let expected = bytes(len);
    assert_eq!(data.copy_from(&[&expected[..], b"more"].concat()), len);
    assert_eq!(data.to_vec(), expected);
    let mut some = vec![0; 5000];
    assert_eq!(data.copy_to(&mut some), 5000);
    assert_eq!(some, expected[..5000]);
    data.part(3000..5000).fill(9);
    let changed = [&expected[..3000], &[9; 2000], &expected[5000..]].concat();
    assert_eq!(data.to_vec(), changed);
    let (_other, other) = scattered();
    let other = other.data();
    assert_eq!(other.part(0..100).copy_data(&data.part(2950..3100)), 100);
    assert_eq!(other.part(0..100).to_vec(), changed[2950..3050]);
    assert!(data.part(7..7).is_empty());
}

#[test]
fn the_first_difference_is_found_wherever_it_is() {
    let (_space, buffer) = scattered();
    let data = buffer.data();
    let expected = bytes(data.len());
    data.copy_from(&expected);
    assert_eq!(data.mismatch(&expected), None);
    for at in [0, PAGE - 101, PAGE - 100, 2 * PAGE, data.len() - 1] {
        let mut other = expected.clone();
        other[at] ^= 1;
        assert_eq!(data.mismatch(&other), Some(at));
        assert_eq!(data.mismatch(&expected[..at]), Some(at), "the bytes end there");
        assert_eq!(data.part(0..at).mismatch(&expected), Some(at), "the data ends there");
    }
}

#[test]
fn files_are_read_and_written_across_pieces() {
    let (_space, buffer) = scattered();
    let data = buffer.data();
    let expected = bytes(data.len());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[b"head", &expected[..]].concat()).unwrap();
    assert_eq!(data.read_file(&file, 4).unwrap(), data.len());
    assert_eq!(data.to_vec(), expected);
    assert_eq!(data.read_file(&file, 4 + 6000).unwrap(), data.len() - 6000, "up to its end");
    assert_eq!(data.to_vec()[..data.len() - 6000], expected[6000..]);
    data.copy_from(&expected);
    assert_eq!(data.write_file(&file, 10).unwrap(), data.len());
    let mut written = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut written).unwrap();
    assert_eq!(written[10..], expected);
}

#[test]
#[should_panic(expected = "bytes 0..12089 are asked for of data of 12088 bytes")]
fn a_part_beyond_the_end_is_a_mistake() {
    let (_space, buffer) = scattered();
    let _ = buffer.data().part(0..3 * PAGE - 199);
}
