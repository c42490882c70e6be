//! The data of one operation: each word follows from a seed and the word's place.
//!
//! Why: every operation sends other data, so that bytes which a buffer still holds from before are never taken for the data
//! that was sent. The receiver needs to be told only the seed.

/// An odd number with as many ones as zeros: its multiples differ in all bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn word(seed: u64, index: usize) -> u64 {
    (seed ^ index as u64).wrapping_mul(FACTOR)
}

/// Fills `bytes` with the data of a seed.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    let last = word(seed, words.len()).to_le_bytes();
    words.iter_mut().enumerate().for_each(|(index, bytes)| *bytes = word(seed, index).to_le_bytes());
    rest.copy_from_slice(&last[..rest.len()]);
}

/// The first offset at which `bytes` are not the data of a seed.
pub(crate) fn mismatch(bytes: &[u8], seed: u64) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    let differs = |(index, bytes): (usize, &[u8; 8])| *bytes != word(seed, index).to_le_bytes();
    let in_words = words.iter().enumerate().position(differs).map(|index| index * 8);
    let last = word(seed, words.len()).to_le_bytes();
    in_words.or_else(|| (*rest != last[..rest.len()]).then_some(words.len() * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_another_operation_and_a_damaged_byte_are_found() {
        for len in [1, 7, 8, 9, 4096, 4099] {
            let mut bytes = vec![0; len];
            fill(&mut bytes, 17);
            assert_eq!(mismatch(&bytes, 17), None, "{len}");
            assert_eq!(mismatch(&bytes, 18), Some(0), "{len}");
            bytes[len - 1] ^= 1;
            assert_eq!(mismatch(&bytes, 17), Some((len - 1) / 8 * 8), "{len}");
        }
    }
}
