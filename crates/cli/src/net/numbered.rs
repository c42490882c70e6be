//! What the datagrams' data says: who sent them, and which one each is.
//!
//! Shape: magic number and kind (4 bytes), a number of the sender's run (4), the datagram's number (8), little-endian. If the sender was
//! asked to have the data verified, the rest depends on the datagram's number; else it is anything.
//! Trust: datagrams are anybody's. What is no numbered datagram of the run is counted, and has no other effect.

use std::ops::Range;

/// How long the shortest data is.
pub(super) const HEADER: usize = 16;
const MAGIC: [u8; 3] = *b"gEn";
/// Of how many numbers before the highest one it is known which have come.
const WINDOW: u64 = 1 << 16;

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its data is anything.
    Data,
    /// Its data is to be verified.
    Verified,
    /// The sender has sent as many datagrams as the number says.
    End,
}

/// A datagram's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) run: u32,
    pub(super) number: u64,
}

impl Header {
    /// Writes it into the data of a datagram, which has room for it, with the data that is to be verified.
    pub(super) fn write(self, data: &mut [u8]) {
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Verified => 1,
            Kind::End => 2,
        };
        data[..3].copy_from_slice(&MAGIC);
        data[3] = kind;
        data[4..8].copy_from_slice(&self.run.to_le_bytes());
        data[8..HEADER].copy_from_slice(&self.number.to_le_bytes());
        if self.kind == Kind::Verified {
            let rest = &mut data[HEADER..];
            rest.copy_from_slice(&PATTERN[start(self.number, rest.len())]);
        }
    }

    /// Reads it.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let (header, _) = data.split_first_chunk::<HEADER>()?;
        let [a, b, c, kind, ref run @ .., _, _, _, _, _, _, _, _] = *header;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Verified,
            2 => Kind::End,
            _ => return None,
        };
        let number = u64::from_le_bytes(*header.last_chunk()?);
        ([a, b, c] == MAGIC).then_some(Self { kind, run: u32::from_le_bytes(*run), number })
    }

    /// Whether the data is what was sent, as far as that is known.
    pub(super) fn is_intact(self, data: &[u8]) -> bool {
        let rest = data.get(HEADER..).unwrap_or_default();
        self.kind != Kind::Verified || PATTERN.get(start(self.number, rest.len())) == Some(rest)
    }
}

/// Where a datagram's bytes are in the pattern.
fn start(number: u64, len: usize) -> Range<usize> {
    let start = (number % STARTS) as usize;
    start..start + len
}

/// How many patterns there are, a prime.
const STARTS: u64 = 65_521;

/// Bytes that repeat nowhere near.
static PATTERN: std::sync::LazyLock<Box<[u8]>> = std::sync::LazyLock::new(|| {
    let mut random = fastrand::Rng::with_seed(1);
    std::iter::repeat_with(|| random.u8(..)).take(STARTS as usize + super::end::LONGEST).collect()
});

/// What the number of a datagram tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the highest one so far.
    InOrder,
    /// Higher ones have come before it.
    Late,
    /// It came before, or may have: it is far behind.
    Again,
}

/// Which numbers have come.
#[derive(Debug)]
pub(super) struct Seen {
    bits: Box<[bool]>,
    /// One more than the highest number.
    next: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self { bits: vec![false; WINDOW as usize].into(), next: 0 }
    }
}

impl Seen {
    /// Notes that a number has come.
    pub(super) fn note(&mut self, number: u64) -> Place {
        if number >= self.next {
            // What is far ahead leaves nothing of the window.
            let first = self.next.max(number.saturating_sub(WINDOW - 1));
            (first..number).for_each(|number| *self.bit(number) = false);
            *self.bit(number) = true;
            self.next = number.saturating_add(1);
            return Place::InOrder;
        }
        if number.saturating_add(WINDOW) < self.next || std::mem::replace(self.bit(number), true) {
            return Place::Again;
        }
        Place::Late
    }

    fn bit(&mut self, number: u64) -> &mut bool {
        &mut self.bits[(number % WINDOW) as usize]
    }

    /// How many numbers there are, as far as one has come.
    pub(super) fn count(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_was_changed_is_found() {
        for kind in [Kind::Data, Kind::Verified, Kind::End] {
            let header = Header { kind, run: 0x0102_0304, number: 70_000 };
            let mut data = vec![9; 1000];
            header.write(&mut data);
            assert_eq!(Header::read(&data), Some(header));
            assert!(header.is_intact(&data));
            data[999] ^= 1;
            assert_eq!(header.is_intact(&data), kind != Kind::Verified);
        }
        assert_eq!(Header::read(&[0; HEADER]), None);
        assert_eq!(Header::read(b"gEn"), None);
    }

    #[test]
    fn numbers_are_lost_late_and_doubled_by_the_window() {
        use Place::{Again, InOrder, Late};
        let mut seen = Seen::default();
        let places = [0, 1, 1, 4, 2, 2, 3, 5].map(|number| seen.note(number));
        assert_eq!(places, [InOrder, InOrder, Again, InOrder, Late, Again, Late, InOrder]);
        assert_eq!(seen.note(WINDOW * 3), InOrder);
        assert_eq!([WINDOW * 2 + 1, 7, WINDOW * 3].map(|number| seen.note(number)), [Late, Again, Again]);
        assert_eq!(seen.note(u64::MAX - 1), InOrder);
        assert_eq!(seen.count(), u64::MAX);
    }
}
