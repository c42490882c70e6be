//! Writing buffers to a channel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use std::time::Duration;

use genie_sys::poll::readable;

use super::{Channel, ON_THEIR_WAY, Sender};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::place::Place;
use crate::unwritten::Unwritten;
use crate::{Fbuf, channels};

/// How long a writer that waits for room sleeps before it looks for itself.
pub(super) const LOOK: Duration = Duration::from_millis(2);

impl Channel {
    /// Writes a buffer away: the other end has it from now on. A buffer of another pool, or a migrant buffer, is copied into one of
    /// this pool. Waits while 256 buffers have not been read.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Spoilt`]; [`Error::Exhausted`] where a buffer has to be copied. The buffer comes back.
    ///
    /// # Cost
    /// The same at any length up to 256 KiB (see `genie lab run fbufs-rw`), and an exchange for each 256 KiB more; a system call if the
    /// reader sleeps.
    #[doc(alias = "uf_write")]
    pub fn write(&self, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        self.pass(fbuf, true)
    }

    /// As [`Channel::write`], but fails with [`Error::WouldBlock`] instead of waiting. From then on until the next call, the
    /// descriptor [`Channel::room`] becomes readable for `poll` when 64 messages or so have been read.
    ///
    /// # Errors
    /// As [`Channel::write`].
    pub fn try_write(&self, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        self.pass(fbuf, false)
    }

    /// A descriptor that is readable for `poll` when there is room for more buffers, after [`Channel::try_write`] has failed for
    /// want of it, or when the other end has closed. It is for waiting alone.
    pub fn room(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    fn pass(&self, fbuf: Fbuf, waits: bool) -> Result<usize, Box<Unwritten>> {
        if let Err(error) = self.ensure_usable() {
            return Err(Unwritten::nothing(error, fbuf));
        }
        let fbuf = self.pool.import(fbuf)?;
        if fbuf.is_empty() {
            // The other end would take it for the end.
            return Ok(0);
        }
        let mut sender = self.sender.lock();
        if sender.is_over {
            return Err(Unwritten::nothing(Error::Closed, fbuf));
        }
        match self.wait_for_room(&mut sender, waits) {
            Ok(()) => self.transmit(&mut sender, fbuf),
            Err(error) => Err(Unwritten::nothing(error, fbuf)),
        }
    }

    fn transmit(&self, sender: &mut Sender, fbuf: Fbuf) -> Result<usize, Box<Unwritten>> {
        let (len, place) = (fbuf.len(), Place::of(&fbuf));
        let (words, direction) = (&self.pool.0.words, Holder::direction(self.index, 1 - self.end));
        // Before: the reader may be in this process.
        fbuf.give_up();
        if !place.runs().all(|run| words.pass(run, words.me, direction)) {
            return Err(self.lost(place));
        }
        // From here on the pages are not this process's. If the other end is closed, whoever closed it may have freed them.
        if channels::is_closed(words, self.index, 1 - self.end) {
            return self.taken_back(place);
        }
        if sender.producer.push(Place::KIND, &place.bytes()).is_err() {
            return Err(self.lost(place));
        }
        sender.sent += 1;
        sender.bytes += len as u64;
        self.remember(sender, place);
        Ok(len)
    }

    /// What becomes of a buffer that was put on its way to an end that is closed: it comes back, unless whoever has closed the end
    /// has freed it, or some of it. Then it was written, and the end was closed before anybody read it.
    #[cold]
    pub(super) fn taken_back(&self, place: Place) -> Result<usize, Box<Unwritten>> {
        let direction = Holder::direction(self.index, 1 - self.end);
        match self.make_ours(place, direction).unwrap_or_default() {
            Some(fbuf) => Err(Unwritten::nothing(Error::Closed, fbuf)),
            None => {
                self.pool.0.free_if_held(place.runs(), direction);
                Ok(place.len())
            }
        }
    }

    /// A write for which the shared memory is spoilt, when the pages were given away already: an empty buffer comes back.
    #[cold]
    fn lost(&self, place: Place) -> Box<Unwritten> {
        let direction = Holder::direction(self.index, 1 - self.end);
        self.pool.0.free_if_held(place.runs(), direction);
        Unwritten::nothing(self.spoil("a channel"), Fbuf::gone())
    }

    fn wait_for_room(&self, sender: &mut Sender, waits: bool) -> Result<()> {
        while sender.sent - sender.taken >= ON_THEIR_WAY {
            if self.look_for_room(sender)? {
                continue;
            }
            self.room.clear()?;
            channels::wanted(&self.pool.0.words, self.index, 1 - self.end).store(1, Ordering::Release);
            // Partner: the fence in `publish`.
            fence(Ordering::SeqCst);
            if self.look_for_room(sender)? {
                continue;
            } else if self.is_hung_up() {
                return Err(Error::Closed);
            } else if !waits {
                return Err(Error::WouldBlock);
            }
            // The reader tells of some messages at a time. One that reads fewer, and then waits for this process, must not wait for ever.
            readable(&self.room, Some(LOOK))?;
        }
        Ok(())
    }

    /// Takes notice of how far the other end has read; returns whether that is further than before.
    fn look_for_room(&self, sender: &mut Sender) -> Result<bool> {
        let taken: &AtomicU64 = channels::taken(&self.pool.0.words, self.index, 1 - self.end);
        let found = taken.load(Ordering::Acquire);
        if found > sender.sent {
            return Err(self.spoil("a channel"));
        }
        let is_more = found > sender.taken;
        sender.taken = sender.taken.max(found);
        Ok(is_more)
    }
}
