use super::*;

/// The lengths at which another way to copy begins, and those around.
const LENGTHS: [usize; 7] = [4095, 4096, 4097, 8192, 3 * 4096 + 77, 1 << 18, (1 << 20) + 5];

fn lengths() -> impl Iterator<Item = usize> {
    (0..=400).chain(LENGTHS)
}

/// Bytes that differ from their neighbours, and from those a page or a line further on.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 6 ^ at >> 12).wrapping_mul(167) as u8).collect()
}

#[test]
fn copies_of_any_length_are_exact() {
    for len in lengths() {
        let mut from = pattern(len + 128);
        for (skip, at) in [(0, 0), (1, 0), (0, 1), (63, 64), (64, 63), (17, 49)] {
            for inwards in [false, true] {
                let mut to = vec![0xaa; len + 128];
                // SAFETY: `skip + len` bytes are there, and `at + len`.
                unsafe {
                    match inwards {
                        true => copy_in(&from[skip..skip + len], to.as_mut_ptr().add(at)),
                        false => copy(from.as_mut_ptr().add(skip), to.as_mut_ptr().add(at), len),
                    }
                };
                assert!(to[at..at + len] == from[skip..skip + len], "{len} bytes from {skip} to {at}");
                let mut around = to[..at].iter().chain(&to[at + len..]);
                assert!(around.all(|byte| *byte == 0xaa), "{len} bytes from {skip} to {at}");
            }
        }
    }
}

/// At any distance of the two places, since the string instruction is avoided at some.
#[test]
fn long_copies_at_any_distance_are_exact() {
    let mut from = pattern(3 * 4096);
    for at in 0..200 {
        let mut to = vec![0xaa; 3 * 4096];
        // SAFETY: both are inside the vectors.
        unsafe { copy(from.as_mut_ptr(), to.as_mut_ptr().add(at), 2 * 4096 + 5) };
        assert!(to[at..at + 2 * 4096 + 5] == from[..2 * 4096 + 5], "to {at}");
        assert!(to[..at].iter().chain(&to[at + 2 * 4096 + 5..]).all(|byte| *byte == 0xaa), "to {at}");
    }
}

#[test]
fn fills_of_any_length_are_exact() {
    for len in lengths() {
        for at in [0, 1, 8, 49, 63, 64] {
            let mut to = vec![0xaa; len + 128];
            // SAFETY: `at + len` bytes are there.
            unsafe { fill(to.as_mut_ptr().add(at), 0x33, len) };
            assert!(to[at..at + len].iter().all(|byte| *byte == 0x33), "{len} bytes at {at}");
            assert!(to[..at].iter().chain(&to[at + len..]).all(|byte| *byte == 0xaa), "{len} bytes at {at}");
        }
    }
}

#[test]
fn places_that_overlap_are_copied_as_if_by_way_of_a_third() {
    for (len, distance) in lengths()
        .take(400)
        .flat_map(|len| [1, 7, 16, 64, 100].map(|by| (len, by)))
        .chain([1, 64, 1000, 4096, 8192].map(|by| (8192, by)))
    {
        let before = pattern(len + distance);
        let mut bytes = before.clone();
        let start = bytes.as_mut_ptr();
        // SAFETY: both places are inside the vector.
        unsafe { copy(start, start.add(distance), len) };
        assert!(bytes[distance..] == before[..len], "{len} bytes {distance} up");
        bytes.copy_from_slice(&before);
        let start = bytes.as_mut_ptr();
        // SAFETY: as above.
        unsafe { copy(start.add(distance), start, len) };
        assert!(bytes[..len] == before[distance..], "{len} bytes {distance} down");
    }
}

#[test]
fn lines_are_loaded_from_any_address() {
    let mut bytes = pattern(128);
    for at in 0..64 {
        // SAFETY: 64 bytes are there.
        let line = unsafe { load_line(bytes.as_mut_ptr().add(at)) };
        assert_eq!(line.map(u64::to_ne_bytes).concat(), bytes[at..at + 64]);
    }
}
