//! Checksums over data that another process may change: the Internet checksum and CRC32C, alone or while copying.
//!
//! How: the Internet checksum is summed where the data is; if the data is copied, each line is stored as soon as it has been
//! added. The crate for CRC32C needs bytes that do not change, so the data is read once, block by block, into a block that
//! stays in the first-level cache; if the data is copied as well, each block is stored to its destination and summed there.
//! So every byte is loaded from memory once and, where it is copied, stored once: the checksum is integrated with the copy.
//! CRC32C is crc-fast's. No crate was found that has the Internet checksum at memory speed (etherparse and internet-checksum
//! took about three times as long); hence the function `internet` here. `genie lab run checksum` prints how fast it is. A sum in the making
//! ([`Sum`]) takes pieces of any lengths.
//! Trust: each byte is loaded once, so a sum is always that of bytes that really were there.
//! Source: RFC 1071; J. C. Brustoloni's thesis, §8.4.

use crc_fast::{CrcAlgorithm, Digest};
use genie_memory::Data;
use serde::{Deserialize, Serialize};

/// The length of a block: half of a small first-level cache.
const BLOCK: usize = 16 << 10;
/// How many sums run at a time, each over words of its own, so that none waits for another.
const LANES: usize = 8;
/// Bytes of a line: a word for each sum.
const LINE: usize = LANES * 8;

/// A kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// The ones' complement sum of 16-bit words (RFC 1071).
    Internet,
    /// The cyclic redundancy check with the Castagnoli polynomial.
    Crc32c,
}

impl Checksum {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Internet, Self::Crc32c];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internet => "Internet checksum",
            Self::Crc32c => "CRC32C",
        }
    }

    /// The checksum of `bytes`.
    pub fn of(self, bytes: &[u8]) -> u32 {
        let mut sum = Sum::new(self);
        sum.add(bytes);
        sum.finish()
    }

    /// The checksum of data.
    pub fn of_data(self, data: &Data<'_>) -> u32 {
        let mut sum = Sum::new(self);
        sum.add_data(data);
        sum.finish()
    }

    /// Copies data to `to`, which is as long, and returns its checksum; the data is read once.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy_data(self, from: &Data<'_>, to: &mut [u8]) -> u32 {
        assert_eq!(from.len(), to.len(), "copying between unlike lengths");
        if self == Self::Internet {
            return Sum(Summed::Internet(internet_copying_data(from, to))).finish();
        }
        let mut sum = Sum::new(self);
        let mut rest = to;
        for start in (0..from.len()).step_by(BLOCK) {
            // The bytes that were just stored are still in the cache when they are summed.
            let (here, later) = rest.split_at_mut(BLOCK.min(from.len() - start));
            from.part(start..start + here.len()).copy_to(here);
            sum.add(here);
            rest = later;
        }
        sum.finish()
    }

    /// The same, between bytes.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy(self, from: &[u8], to: &mut [u8]) -> u32 {
        assert_eq!(from.len(), to.len(), "copying between unlike lengths");
        let mut sum = Sum::new(self);
        if let Summed::Internet(pieces) = &mut sum.0 {
            pieces.add(internet_copying(from, to), from.len());
            return sum.finish();
        }
        for (from, to) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
            to.copy_from_slice(from);
            sum.add(to);
        }
        sum.finish()
    }
}

/// A checksum in the making.
#[derive(Debug)]
pub struct Sum(Summed);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one checksum, and is not moved")]
enum Summed {
    Internet(Pieces),
    Crc32c(Digest),
}

impl Sum {
    /// That of no bytes.
    pub fn new(kind: Checksum) -> Self {
        Self(match kind {
            Checksum::Internet => Summed::Internet(Pieces::default()),
            Checksum::Crc32c => Summed::Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi)),
        })
    }

    /// Adds the bytes that come next.
    pub fn add(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Summed::Internet(pieces) => pieces.add(internet(bytes), bytes.len()),
            Summed::Crc32c(digest) => digest.update(bytes),
        }
    }

    /// The same, of data.
    pub fn add_data(&mut self, data: &Data<'_>) {
        if let Summed::Internet(pieces) = &mut self.0 {
            let Pieces { sum, len } = internet_of_data(data);
            return pieces.add(sum, len);
        }
        let mut block = [0; BLOCK];
        let len = data.len();
        for start in (0..len).step_by(BLOCK) {
            let here = &mut block[..BLOCK.min(len - start)];
            data.part(start..start + here.len()).copy_to(here);
            self.add(here);
        }
    }

    /// The checksum.
    pub fn finish(self) -> u32 {
        match self.0 {
            Summed::Internet(pieces) => u32::from(!fold(pieces.sum)),
            Summed::Crc32c(digest) => digest.finalize() as u32,
        }
    }
}

/// The ones' complement sum of data that has this Internet checksum, high byte first.
pub(crate) fn ones_complement(checksum: u32) -> u16 {
    (!(checksum as u16)).to_be()
}

/// The ones' complement sum of two such sums.
pub(crate) fn plus(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// The ones' complement sum of the little-endian 16-bit words of `bytes`, the last one filled up with a zero; unfolded.
///
/// Limits: exact for up to 32 GiB.
fn internet(bytes: &[u8]) -> u64 {
    let (lines, rest) = bytes.as_chunks();
    let mut sums = [0; LANES];
    lines.iter().for_each(|line| add(&mut sums, words(line)));
    whole(sums) + last(rest)
}

/// The same, while copying the bytes to `to`, which is as long.
fn internet_copying(from: &[u8], to: &mut [u8]) -> u64 {
    let ((lines, rest), (places, end)) = (from.as_chunks(), to.as_chunks_mut());
    let mut sums = [0; LANES];
    for (line, place) in lines.iter().zip(places) {
        let line = words(line);
        *place = bytes(line);
        add(&mut sums, line);
    }
    end.copy_from_slice(rest);
    whole(sums) + last(rest)
}

/// The same sum of data, read where it is.
fn internet_of_data(data: &Data<'_>) -> Pieces {
    let mut all = Pieces::default();
    for piece in data.pieces() {
        let mut sums = [0; LANES];
        piece.lines(|line| add(&mut sums, line));
        all.add(whole(sums), piece.len());
    }
    all
}

/// The same, while copying the data to as many bytes.
fn internet_copying_data(from: &Data<'_>, to: &mut [u8]) -> Pieces {
    let (mut all, mut rest) = (Pieces::default(), to);
    for piece in from.pieces() {
        let (here, later) = rest.split_at_mut(piece.len());
        let (places, end) = here.as_chunks_mut();
        let (mut places, mut sums) = (places.iter_mut(), [0; LANES]);
        piece.lines(|line| {
            match places.next() {
                Some(place) => *place = bytes(line),
                None => end.copy_from_slice(&bytes(line)[..end.len()]),
            }
            add(&mut sums, line);
        });
        all.add(whole(sums), piece.len());
        rest = later;
    }
    all
}

/// The sum of pieces, one after the other.
#[derive(Debug, Default)]
struct Pieces {
    sum: u64,
    len: usize,
}

impl Pieces {
    fn add(&mut self, sum: u64, len: usize) {
        let here = fold(sum);
        // A piece that begins in the middle of a word has the bytes of its words swapped.
        self.sum += u64::from(if self.len.is_multiple_of(2) { here } else { here.swap_bytes() });
        self.len += len;
    }
}

/// A line's words.
#[inline]
fn words(line: &[u8; LINE]) -> [u64; LANES] {
    let (words, _) = line.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// The line that has these words.
#[inline]
fn bytes(words: [u64; LANES]) -> [u8; LINE] {
    let mut line = [0; LINE];
    let (places, _) = line.as_chunks_mut();
    places.iter_mut().zip(&words).for_each(|(place, word)| *place = word.to_le_bytes());
    line
}

/// The sum of the bytes that are left after the lines.
fn last(rest: &[u8]) -> u64 {
    let pair = |pair: &[u8]| u64::from(u16::from_le_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    rest.chunks(2).map(pair).sum()
}

/// Adds each word to its sum, in two halves, so that no sum overflows.
#[inline]
fn add(sums: &mut [u64; LANES], line: [u64; LANES]) {
    // By reference: a debug build takes four times as long to move words out of an array.
    for (sum, word) in sums.iter_mut().zip(&line) {
        *sum += (word & u64::from(u32::MAX)) + (word >> 32);
    }
}

/// All sums added up. Sums of 32-bit words fold to the sum of 16-bit ones, since 2^16 is 1 in this arithmetic.
fn whole(sums: [u64; LANES]) -> u64 {
    sums.iter().map(|sum| u64::from(fold(*sum))).sum()
}

/// Folds a sum into 16 bits, adding what is carried.
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use etherparse::checksum::u64_16bit_word;
    use genie_conformance::{Guard, Setup};
    use genie_io::{Incoming, Limits, Out, RequestId, Server, ServerError, ServerHandle, Service, ServiceId};
    use genie_memory::GranuleKind;
    use genie_passing::Thresholds;
    use proptest::prelude::*;

    use super::*;

    /// The Internet checksum as another crate has it.
    fn reference(bytes: &[u8]) -> u32 {
        let sum = u64_16bit_word::add_slice(0, bytes);
        u32::from(u64_16bit_word::ones_complement(sum))
    }

    proptest! {
        #[test]
        fn the_internet_checksum_is_the_one_that_others_compute(
            bytes in prop::collection::vec(any::<u8>(), 0..40_000),
        ) {
            prop_assert_eq!(Checksum::Internet.of(&bytes), reference(&bytes));
        }

        #[test]
        fn pieces_of_any_lengths_have_the_checksum_of_all_of_them(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            for kind in Checksum::ALL {
                let mut sum = Sum::new(kind);
                pieces.iter().for_each(|piece| sum.add(piece));
                prop_assert_eq!(sum.finish(), kind.of(&pieces.concat()));
            }
        }

        #[test]
        fn copying_copies_and_sums_alike(bytes in prop::collection::vec(any::<u8>(), 0..40_000)) {
            for kind in Checksum::ALL {
                let mut copy = vec![0; bytes.len()];
                prop_assert_eq!(kind.copy(&bytes, &mut copy), kind.of(&bytes));
                prop_assert_eq!(&copy, &bytes);
            }
        }
    }

    #[test]
    fn the_standards_own_examples_come_out() {
        // RFC 1071, section 3, and the check value of CRC-32/ISCSI.
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Checksum::Internet.of(&words), u32::from(!0xddf2_u16.swap_bytes()));
        assert_eq!(Checksum::Crc32c.of(b"123456789"), 0xe306_9283);
    }

    /// Replies the checksums of its output, alone and while copying it. The output lies in as many pieces as the client has
    /// elements.
    struct Summing;

    impl Server for Summing {
        fn name(&self) -> &str {
            "summing"
        }

        fn services(&self) -> &[Service] {
            static SERVICES: [Service; 1] = [Service::new("sum", true, false)];
            &SERVICES
        }

        fn request(&self, mut request: Incoming) {
            let sums = request.output(0).map(|data| {
                Checksum::ALL.map(|kind| {
                    let mut copy = vec![0; data.len()];
                    let sums = [kind.of_data(&data), kind.copy_data(&data, &mut copy)];
                    assert_eq!(data.mismatch(&copy), None, "{kind:?}");
                    sums.map(u32::to_le_bytes).concat()
                })
            });
            let replied = sums.and_then(|sums| request.set_argument(&sums.concat()));
            request.reply(replied.map_err(ServerError::from));
        }

        fn abort(&self, _request: RequestId) {}
    }

    #[test]
    fn data_in_pieces_of_odd_lengths_has_the_checksum_of_all_of_it() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
        let genie = setup.interface("checksums", 16 << 20, Limits::default(), Thresholds::ALWAYS);
        let genie = genie.expect("an interface");
        let server = ServerHandle::new(Summing);
        for (first, second) in [(1, 64), (63, 65), (4097, 8193), (30_001, 30_003)] {
            let [a, b, c] = [&bytes[..first], &bytes[first..first + second], &bytes[first + second..]];
            let request = genie.request(&server, ServiceId(0)).out(Out::copy(a)).and_out(Out::copy(b));
            let reply = request.and_out(Out::copy(c)).room(16).send().expect("a reply");
            let expected = Checksum::ALL.map(|kind| [kind.of(&bytes).to_le_bytes(); 2].concat()).concat();
            assert_eq!(reply.argument(), expected, "pieces of {first}, {second} and the rest");
        }
    }

    #[test]
    fn sums_that_carry_all_the_way_are_folded() {
        let ones = vec![0xff; 1 << 20];
        assert_eq!(Checksum::Internet.of(&ones), reference(&ones));
    }
}
