//! The end that receives.

use std::sync::Arc;

use crate::bell::{Bell, Mode, Waker};
use crate::direction::Direction;
use crate::error::Broken;
use crate::layout::place;
use crate::line::{Header, LINE, LINE_PAYLOAD, Role, lines_of, load_words};
use crate::primitive::{Event, Ordering, fence};
use crate::record::Record;

/// The receiving end of one direction.
///
/// It polls the header of the next line itself: no index is read, so that a short record costs the transfer of one
/// cache line. What the peer wrote is loaded once, checked, and copied out before anything is done with it.
#[derive(Debug)]
pub struct Consumer {
    direction: Direction,
    own_event: Arc<Event>,
    /// The peer's bell, to tell the peer of room.
    bell: Bell,
    inline_max: usize,
    spilled_max: usize,
    /// After this many consumed lines the producer is told of the room, which costs the transfer of a line.
    lazy_lines: u64,
    head: u64,
    published_head: u64,
    area_head: u64,
    armed: Option<Mode>,
    broken: Option<Broken>,
}

impl Consumer {
    pub(crate) fn new(direction: Direction, own_event: Arc<Event>, bell: Bell) -> Self {
        let layout = direction.layout();
        Self {
            own_event,
            bell,
            inline_max: layout.inline_max(),
            spilled_max: layout.area as usize / 2,
            lazy_lines: u64::from(layout.lines / 4).max(1),
            head: 0,
            published_head: 0,
            area_head: 0,
            armed: None,
            broken: None,
            direction,
        }
    }

    /// Whether a record is there, or something that a peer makes look like a record.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // Both lines of a record that has two are on their way at the same time.
        self.direction.prefetch(self.head + 1);
        self.direction.line(self.head).header().is_of(self.head) && self.broken.is_none()
    }

    /// Takes the next record, if there is one.
    ///
    /// # Errors
    /// The peer broke the rules: `record` holds nothing of use, and no more records are taken.
    ///
    /// # Cost
    /// One line read for each 56 bytes of payload, once. The producer is told of the room after every quarter of the
    /// ring.
    #[inline]
    pub fn pop(&mut self, record: &mut Record) -> Result<bool, Broken> {
        let header = self.direction.line(self.head).header();
        if !header.is_of(self.head) && self.broken.is_none() {
            return Ok(false);
        }
        self.take(header, record)?;
        if self.head - self.published_head >= self.lazy_lines {
            self.publish();
        }
        Ok(true)
    }

    #[inline]
    fn take(&mut self, header: Header, record: &mut Record) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let taken = match header.role() {
            Ok(Role::First) => self.take_inline(header, record),
            Ok(Role::Spilled) => self.take_spilled(header, record),
            Ok(Role::Continuation) => Err(self.no_first_line(Role::Continuation as u8)),
            Err(unknown) => Err(self.no_first_line(unknown)),
        };
        self.broken = taken.err();
        taken
    }

    #[inline]
    fn take_inline(&mut self, header: Header, record: &mut Record) -> Result<(), Broken> {
        let len = header.len();
        if len > self.inline_max {
            return Err(self.too_long(len as u64, self.inline_max));
        }
        let parts = record.set_inline(header.kind(), len);
        self.direction.line(self.head).load(&mut parts[0]);
        let count = lines_of(len);
        for (position, part) in (self.head..).zip(&mut parts[..count]).skip(1) {
            let line = self.direction.line(position);
            if line.header() != Header::continuation(position) {
                return Err(Broken::Continuation { position });
            }
            line.load(part);
        }
        self.head += count as u64;
        Ok(())
    }

    #[cold]
    fn take_spilled(&mut self, header: Header, record: &mut Record) -> Result<(), Broken> {
        let mut words = [0; LINE_PAYLOAD];
        self.direction.line(self.head).load(&mut words);
        let claimed = u64::from_le_bytes(words.as_chunks().0[0]);
        let len = usize::try_from(claimed).unwrap_or(usize::MAX);
        if len > self.spilled_max {
            return Err(self.too_long(claimed, self.spilled_max));
        }
        let place = place(self.area_head, len, self.direction.layout().area);
        let payload = record.set_spilled(header.kind(), len);
        for (line, part) in self.direction.area()[place.line..].iter().zip(payload.chunks_mut(LINE)) {
            load_words(line.words(), part);
        }
        self.area_head = place.end;
        self.head += 1;
        // The producer may be waiting for this room, to send a record of half of the area.
        self.publish();
        Ok(())
    }

    fn too_long(&self, len: u64, max: usize) -> Broken {
        Broken::Length { position: self.head, len, max }
    }

    fn no_first_line(&self, role: u8) -> Broken {
        Broken::Role { position: self.head, role }
    }

    /// Tells the producer of everything consumed, and wakes it if it waits for room.
    #[cold]
    fn publish(&mut self) {
        self.published_head = self.head;
        let control = self.direction.control();
        // Release, for the Acquire in `Producer::look`.
        control.heads.0.lines.store(self.head, Ordering::Release);
        control.heads.0.area.store(self.area_head, Ordering::Release);
        // Partner: the fence in `Producer::want_room`.
        fence(Ordering::SeqCst);
        let wants_room = &control.wants_room.0;
        if wants_room.load(Ordering::Relaxed) != 0 && wants_room.swap(0, Ordering::Acquire) != 0 {
            self.bell.ring();
        }
    }

    /// What wakes this consumer from another thread.
    pub fn waker(&self) -> Waker {
        Waker(Bell::new(self.direction.clone(), Arc::clone(&self.own_event)))
    }

    /// Makes the producer's next record ring the bell. Returns whether the caller may sleep; if not, a record is there
    /// already, and the bell does not ring.
    ///
    /// End the sleep with [`Consumer::disarm`].
    pub fn arm(&mut self, mode: Mode) -> bool {
        self.armed = Some(mode);
        // An atomic swap, as in `Bell::wake`, so that all changes of the word are in one order that both sides agree
        // on.
        self.direction.control().sleeper.0.0.swap(mode as u32, Ordering::AcqRel);
        // Partner: the fence in `Bell::ring`.
        fence(Ordering::SeqCst);
        // Nor may a broken end sleep: it has an error to report.
        let may_sleep = !self.is_ready() && self.broken.is_none();
        if !may_sleep {
            self.disarm();
        }
        may_sleep
    }

    /// Ends a sleep: the bell rings no more, and the descriptor is not readable until the next time. Look for records
    /// after this, not before. Does nothing where nothing was armed.
    ///
    /// Returns whether a sleep has ended that no bell ended: a descriptor that was readable nevertheless has rung for
    /// nothing, or its other end has gone.
    pub fn disarm(&mut self) -> bool {
        let Some(mode) = self.armed.take() else { return false };
        let has_rung = self.direction.control().sleeper.0.0.swap(0, Ordering::AcqRel) == 0;
        if mode == Mode::Descriptor {
            // If the event could not be cleared, it wakes once too often.
            let _ = self.own_event.clear();
        }
        !has_rung
    }
}

#[cfg(not(loom))]
mod sleeping {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use genie_sys::futex::Wait;

    use super::*;

    impl Consumer {
        /// Sleeps until the bell rings, after [`Consumer::arm`] with [`Mode::Futex`] said that the caller may sleep.
        ///
        /// A peer may ring for no reason, or never: look for a record again, and set a timeout.
        ///
        /// # Errors
        /// None is expected: the word is mapped.
        pub fn sleep(&self, timeout: Option<Duration>) -> genie_sys::Result<Wait> {
            self.direction.control().sleeper.0.wait(Mode::Futex as u32, timeout)
        }

        /// The word on which a sleep of [`Mode::Futex`] waits, and the value that the word has meanwhile, for
        /// `genie_sys::futex::wait_any`.
        pub fn word(&self) -> (&AtomicU32, u32) {
            (&self.direction.control().sleeper.0.0, Mode::Futex as u32)
        }
    }

    /// The descriptor that becomes readable when the bell rings for [`Mode::Descriptor`].
    impl AsFd for Consumer {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.own_event.as_fd()
        }
    }
}

#[cfg(loom)]
impl Consumer {
    /// Sleeps until the bell rings.
    pub fn sleep(&self, timeout: Option<std::time::Duration>) -> genie_sys::Result<genie_sys::futex::Wait> {
        self.direction.control().sleeper.0.wait(Mode::Futex as u32, timeout)
    }

    /// Sleeps as `poll` on the descriptor would.
    pub fn poll(&self) {
        self.own_event.wait();
    }
}
