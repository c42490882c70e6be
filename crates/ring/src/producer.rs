//! The end that sends.

use crate::bell::Bell;
use crate::direction::Direction;
use crate::error::{Broken, PushError};
use crate::layout::place;
use crate::line::{Header, LINE, LINE_PAYLOAD, Role, lines_of, store_words};
use crate::primitive::{Ordering, fence};

/// The sending end of one direction.
///
/// Its positions are private. It never reads what it has written. It reads the peer's positions only when the ring
/// looks full, and checks them.
#[derive(Debug)]
pub struct Producer {
    direction: Direction,
    bell: Bell,
    inline_max: usize,
    lines: Track,
    area: Track,
    broken: Option<Broken>,
}

/// How far the lines or the argument area are written, and how far the peer has consumed them, as last seen.
#[derive(Debug)]
struct Track {
    unit: &'static str,
    capacity: u64,
    tail: u64,
    head: u64,
}

impl Track {
    fn new(unit: &'static str, capacity: u32) -> Self {
        Self { unit, capacity: u64::from(capacity), tail: 0, head: 0 }
    }

    /// Whether everything before position `end` may be written.
    #[inline]
    fn has_room_to(&self, end: u64) -> bool {
        end - self.head <= self.capacity
    }

    /// Enters how far the peer says that it has consumed; returns whether that is further than before.
    fn advance(&mut self, found: u64) -> Result<bool, Broken> {
        if found < self.head || found > self.tail {
            return Err(Broken::Head { unit: self.unit, found, least: self.head, most: self.tail });
        }
        let has_moved = found > self.head;
        self.head = found;
        Ok(has_moved)
    }
}

impl Producer {
    pub(crate) fn new(direction: Direction, bell: Bell) -> Self {
        let layout = direction.layout();
        Self {
            bell,
            inline_max: layout.inline_max(),
            lines: Track::new("lines", layout.lines),
            area: Track::new("argument bytes", layout.area),
            direction,
            broken: None,
        }
    }

    /// The longest record that can be sent, in bytes.
    pub fn record_max(&self) -> usize {
        self.direction.layout().record_max()
    }

    /// Sends a record, and wakes the peer if it sleeps.
    ///
    /// # Errors
    /// As [`Producer::publish`].
    ///
    /// # Cost
    /// One line written for each 56 bytes of payload, and a fence; a system call only when the peer sleeps.
    #[inline]
    pub fn push(&mut self, kind: u8, payload: &[u8]) -> Result<(), PushError> {
        self.publish(kind, payload)?;
        self.ring_bell();
        Ok(())
    }

    /// Puts a record where a peer that is awake finds it, without waking a peer that sleeps. Call
    /// [`Producer::ring_bell`] once after several of these calls.
    ///
    /// # Errors
    /// Nothing was sent. [`PushError::Full`]: there may be room later. [`PushError::TooLong`]: the record can never be
    /// sent. [`PushError::Broken`]: nothing can be sent any more.
    #[inline]
    pub fn publish(&mut self, kind: u8, payload: &[u8]) -> Result<(), PushError> {
        if payload.len() > self.inline_max {
            return self.publish_spilled(kind, payload);
        }
        let count = lines_of(payload.len()) as u64;
        self.make_room(self.lines.tail + count, self.area.tail)?;
        let first = self.lines.tail;
        for (index, part) in payload.chunks(LINE_PAYLOAD).enumerate().skip(1) {
            let position = first + index as u64;
            let line = self.direction.line(position);
            line.store(part);
            line.store_header(Header::continuation(position));
        }
        let line = self.direction.line(first);
        line.store(&payload[..payload.len().min(LINE_PAYLOAD)]);
        // Stored last, since this header publishes the other lines along with its own.
        line.store_header(Header::new(first, payload.len() as u16, kind, Role::First));
        self.lines.tail += count;
        Ok(())
    }

    #[cold]
    fn publish_spilled(&mut self, kind: u8, payload: &[u8]) -> Result<(), PushError> {
        let (len, max) = (payload.len(), self.record_max());
        if len > max {
            return Err(PushError::TooLong { len, max });
        }
        let place = place(self.area.tail, len, self.direction.layout().area);
        self.make_room(self.lines.tail + 1, place.end)?;
        let lines = &self.direction.area()[place.line..];
        for (line, part) in lines.iter().zip(payload.chunks(LINE)) {
            store_words(line.words(), part);
        }
        let position = self.lines.tail;
        let line = self.direction.line(position);
        line.store(&(len as u64).to_le_bytes());
        line.store_header(Header::new(position, size_of::<u64>() as u16, kind, Role::Spilled));
        self.lines.tail += 1;
        self.area.tail = place.end;
        Ok(())
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    pub fn ring_bell(&self) {
        self.bell.ring();
    }

    /// Whether any record of up to `len` bytes has room now; true if one of `len` bytes never has, or nothing can be sent any more.
    pub fn has_room(&mut self, len: usize) -> bool {
        if len > self.record_max() {
            return true;
        }
        // A record that needs no room in the area may need more lines than a longer one that does.
        let lines_end = self.lines.tail + lines_of(len.min(self.inline_max)) as u64;
        let area_end = match len > self.inline_max {
            true => place(self.area.tail, len, self.direction.layout().area).end,
            false => self.area.tail,
        };
        !matches!(self.make_room(lines_end, area_end), Err(PushError::Full))
    }

    /// Asks the peer to ring this side's bell once it has made room. Returns whether there is still no room; if there
    /// is, try again at once.
    ///
    /// Call this after [`PushError::Full`], and after [`crate::Consumer::arm`] of this side, since the bell ends that
    /// consumer's sleep: in the other order the bell may ring before anybody sleeps. [`crate::wait_for_room`] does all
    /// this.
    ///
    /// # Errors
    /// The peer broke the rules.
    pub fn want_room(&mut self) -> Result<bool, Broken> {
        // Release, for the Acquire in `Consumer::publish`: the peer that answers sees that this side sleeps.
        self.direction.control().wants_room.0.swap(1, Ordering::AcqRel);
        // Partner: the fence in `Consumer::publish`.
        fence(Ordering::SeqCst);
        Ok(!self.look()?)
    }

    #[inline]
    fn make_room(&mut self, lines_end: u64, area_end: u64) -> Result<(), PushError> {
        if self.broken.is_none() && self.lines.has_room_to(lines_end) && self.area.has_room_to(area_end) {
            return Ok(());
        }
        self.look()?;
        let has_room = self.lines.has_room_to(lines_end) && self.area.has_room_to(area_end);
        if has_room { Ok(()) } else { Err(PushError::Full) }
    }

    /// Reads how far the peer has consumed; returns whether that is further than before.
    #[cold]
    fn look(&mut self) -> Result<bool, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let heads = &self.direction.control().heads.0;
        // Acquire, for the Release in `Consumer::publish`: the peer has done with the lines before it says so.
        let lines = self.lines.advance(heads.lines.load(Ordering::Acquire));
        let area = self.area.advance(heads.area.load(Ordering::Acquire));
        match (lines, area) {
            (Ok(lines), Ok(area)) => Ok(lines || area),
            (Err(broken), _) | (_, Err(broken)) => {
                self.broken = Some(broken);
                Err(broken)
            }
        }
    }
}
