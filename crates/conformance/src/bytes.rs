//! Bytes: patterns to pass, and comparisons that name the first difference.

use std::sync::OnceLock;

/// The longest pattern.
const LONGEST: usize = 17 << 20;

/// `len` bytes that depend on `seed`; two granules hold the same ones by no rule.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| random(LONGEST + SHIFTS));
    let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % SHIFTS;
    bytes[start..start + len].to_vec()
}

/// How many patterns there are.
const SHIFTS: usize = 1 << 20;

fn random(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
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
pub fn same(found: &[u8], expected: &[u8], what: impl std::fmt::Display) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths differ");
    if found == expected {
        return;
    }
    let differs = |(_, (f, e)): &(usize, (&u8, &u8))| f != e;
    let at = found.iter().zip(expected).enumerate().find(differs).map_or(0, |(at, _)| at);
    let count = found.iter().zip(expected).filter(|(f, e)| f != e).count();
    panic!(
        "{what}: byte {at} of {} is {} and should be {}; {count} bytes differ",
        found.len(),
        found[at],
        expected[at]
    );
}
