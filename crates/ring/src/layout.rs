//! Layouts: where the parts of a channel object lie.

use crate::error::Error;
use crate::line::{LINE, LINE_PAYLOAD};
use crate::primitive::{AtomicU32, AtomicU64, Word};

/// The most lines that a record takes; a longer record goes to the argument area.
const INLINE_LINES_MAX: usize = 8;
/// The most bytes of a record that lies in the ring's lines.
pub const INLINE_MAX: usize = INLINE_LINES_MAX * LINE_PAYLOAD;

const LINES_MAX: u32 = 1 << 20;
const AREA_MAX: u32 = 1 << 30;
/// Two lines: a record may take half of the area.
const AREA_MIN: u32 = 2 * LINE as u32;
const PAGE: usize = 4096;

/// The numbers of lines and of argument bytes in each direction of a channel. Both sides must agree on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Lines of 64 bytes: a power of two, 2 to 2^20.
    pub lines: u32,
    /// Bytes of the argument area: a power of two, 128 to 2^30.
    pub area: u32,
}

impl Default for Layout {
    /// 512 lines and 256 KiB: with their control pages, 584 KiB for both directions.
    fn default() -> Self {
        Self { lines: 512, area: 256 << 10 }
    }
}

impl Layout {
    /// Checks the numbers, which a peer may have chosen.
    ///
    /// # Errors
    /// [`Error::Layout`] names what is allowed.
    pub fn check(self) -> Result<(), Error> {
        let lines_fit = self.lines.is_power_of_two() && (2..=LINES_MAX).contains(&self.lines);
        let area_fits = self.area.is_power_of_two() && (AREA_MIN..=AREA_MAX).contains(&self.area);
        if lines_fit && area_fits {
            Ok(())
        } else {
            Err(Error::Layout { lines: self.lines, area: self.area })
        }
    }

    /// The size of the channel object in bytes, a multiple of 4096.
    pub const fn bytes(self) -> usize {
        2 * self.direction_bytes()
    }

    /// The longest record in bytes.
    pub fn record_max(self) -> usize {
        // Half, so that a record fits into an empty area wherever the last record ended.
        (self.area as usize / 2).max(self.inline_max())
    }

    /// The most bytes of a record that lies in the lines: [`INLINE_MAX`], or less in a ring of fewer than 16 lines.
    pub(crate) fn inline_max(self) -> usize {
        INLINE_LINES_MAX.min(self.lines as usize / 2) * LINE_PAYLOAD
    }

    /// Bytes of one direction: a page of control words, lines and area, rounded up to whole pages.
    pub(crate) const fn direction_bytes(self) -> usize {
        (self.area_offset() + self.area as usize).next_multiple_of(PAGE)
    }

    /// Where the lines of a direction start.
    #[cfg(not(loom))]
    pub(crate) const fn lines_offset(self) -> usize {
        PAGE
    }

    /// Where the argument area of a direction starts.
    pub(crate) const fn area_offset(self) -> usize {
        PAGE + self.lines as usize * LINE
    }
}

/// Keeps the words that one side writes apart from the lines that the other side's stores take away. It takes two
/// lines, since CPUs fetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The words of a direction that are not records.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// 0 while the consumer is awake, else how to wake it ([`crate::Mode`]). Set by the consumer, cleared by either.
    pub(crate) sleeper: Apart<Word>,
    /// Where the consumer is. The consumer writes it.
    pub(crate) heads: Apart<Heads>,
    /// 1 when the producer wants to be told of room. The producer sets it; the consumer clears it.
    pub(crate) wants_room: Apart<AtomicU32>,
}

/// How far a consumer has come, in lines and bytes since the ring was made.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Heads {
    /// Lines before this position may be written again.
    pub(crate) lines: AtomicU64,
    /// Bytes of the argument area before this position may be written again.
    pub(crate) area: AtomicU64,
}

impl Control {
    /// The words of a direction in which nothing has happened.
    pub(crate) fn new() -> Self {
        Self {
            sleeper: Apart(Word::new()),
            heads: Apart(Heads { lines: AtomicU64::new(0), area: AtomicU64::new(0) }),
            wants_room: Apart(AtomicU32::new(0)),
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Control>() <= PAGE);
    assert!(std::mem::offset_of!(Control, sleeper) == 0);
    assert!(std::mem::offset_of!(Control, heads) == 128);
    assert!(std::mem::offset_of!(Control, wants_room) == 256);
};

/// Where a spilled record lies. Both sides work it out from the lengths alone, so that no offset is ever sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The line of the area in which the record starts.
    pub(crate) line: usize,
    /// The area position behind it.
    pub(crate) end: u64,
}

/// Places a record of `len` bytes, at most half of `area`, in one piece at or behind the area position `from`. Where it
/// does not fit between `from` and the area's end, those bytes are skipped.
pub(crate) fn place(from: u64, len: usize, area: u32) -> Place {
    let area = u64::from(area);
    let room = (len as u64).next_multiple_of(LINE as u64);
    let offset = from & (area - 1);
    let start = if offset + room <= area { from } else { from + (area - offset) };
    Place { line: ((start & (area - 1)) / LINE as u64) as usize, end: start + room }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_that_indices_could_leave_are_refused() {
        for (lines, area) in
            [(0, 256), (1, 256), (3, 256), (1 << 21, 256), (4, 0), (4, 64), (4, 192), (4, 1 << 31)]
        {
            assert!(Layout { lines, area }.check().is_err(), "{lines} lines, area of {area} bytes");
        }
        assert!(Layout { lines: 2, area: 128 }.check().is_ok());
        assert!(Layout { lines: LINES_MAX, area: AREA_MAX }.check().is_ok());
    }

    #[test]
    fn the_default_channel_takes_584_kib() {
        let layout = Layout::default();
        assert_eq!(layout.check().map(|()| layout.bytes()).unwrap(), 584 << 10);
        assert_eq!((layout.inline_max(), layout.record_max()), (448, 128 << 10));
    }

    #[test]
    fn a_record_lies_in_one_piece_and_never_takes_more_than_the_area() {
        let area = 1024u32;
        for from in (0..4096u64).step_by(64) {
            for len in 1..=512 {
                let place = place(from, len, area);
                assert!(place.line * LINE + len <= area as usize, "from {from}, {len} bytes");
                assert!(place.end >= from + len as u64 && place.end <= from + u64::from(area));
            }
        }
    }
}
