//! Channels that keep what is on its way, as pipes do: what a reader has not read when it ends, the writer takes back.
//!
//! How: the writer remembers where the messages lie that may be unread: as many as may be in the ring, and the one before. Whoever closes the
//! reader's end does not free what was on its way there, so of each message its pages tell whether it was read: the direction holds
//! those that were not. Messages are read in order, so these are the last ones. While a message is read in parts it stays the
//! direction's; the channel's entry says how many bytes were read. To read a part is one exchange there, once the part is copied; so a
//! reader that is killed has read the part or not, and has nothing of the rest in its hands. The writer marks that word before
//! it takes back: from then on no part is read.
//! Invariants: of a reader that reads and a writer that takes back at once, one gets a message, or the rest of it, whole; the reader
//! ends there.
//! Trust: a reader's word about how far it has read is checked against the message.
//! Limits: of a reader that is killed in a read, what this one read was to return may be lost, as with the kernel's pipes.

use std::sync::atomic::{Ordering, fence};

use genie_sys::poll::readable;

use super::writing::LOOK;
use super::{Channel, ON_THEIR_WAY, Receiver, Sender};
use crate::channels::TAKEN_BACK;
use crate::error::Result;
use crate::holder::Holder;
use crate::offer::Offer;
use crate::place::Place;
use crate::{Fbuf, Pool, channels};

impl Pool {
    /// As [`Pool::channel`], a channel that keeps what this end writes until it is read.
    pub(crate) fn keeping_channel(&self) -> Result<(Channel, Offer)> {
        let (mut channel, offer) = self.channel()?;
        channels::keep(&self.0.words, channel.index);
        channel.keeps = true;
        Ok((channel, offer))
    }
}

impl Channel {
    /// Notes a message that is on its way now.
    pub(super) fn remember(&self, sender: &mut Sender, place: Place) {
        if self.keeps {
            // One more than may be in the ring: of one that was taken from there, a part may be unread.
            if sender.kept.len() as u64 > ON_THEIR_WAY {
                sender.kept.pop_front();
            }
            sender.kept.push_back(place);
        }
    }

    /// Reads the first `len` bytes of a message that has more, by a copy. Where that fails, the message is as it was.
    pub(super) fn read_part(
        &self,
        receiver: &mut Receiver,
        place: Place,
        len: usize,
    ) -> Result<Option<Fbuf>> {
        let words = &self.pool.0.words;
        let mut part = self.pool.allocate(len)?;
        {
            // A writer in this process could not claim the pages meanwhile.
            let _looking = self.pool.0.looking.read();
            let direction = Holder::direction(self.index, self.end);
            if !place.runs().all(|run| words.has(run, direction)) {
                return Ok(None);
            }
            let message = words.shared.try_claim(place.first(), place.count())?;
            let message = message.ok_or_else(|| self.spoil("a buffer on its way"))?;
            part.copy_from_slice(&message[place.start()..][..len]);
        }
        let bytes = receiver.bytes.wrapping_add(len as u64) & !TAKEN_BACK;
        let read = |found| (found & TAKEN_BACK == 0).then_some(bytes);
        // Release: the copy comes before. If the writer has taken the message back, what was copied may be anything.
        let is_read = channels::read(words, self.index)
            .fetch_update(Ordering::Release, Ordering::Relaxed, read)
            .is_ok();
        if is_read {
            (receiver.bytes, receiver.unread) = (bytes, Some(place.after(len)));
        }
        Ok(is_read.then_some(part))
    }

    /// Waits until at most `most` bytes are unread, or the other end is gone.
    pub(crate) fn wait_until_read(&self, most: usize) -> Result<()> {
        self.ensure_usable()?;
        let sender = self.sender.lock();
        while self.unread(&sender) > most && !self.is_hung_up() {
            self.room.clear()?;
            channels::wanted(&self.pool.0.words, self.index, 1 - self.end).store(1, Ordering::Release);
            // Partner: the fence in `publish`.
            fence(Ordering::SeqCst);
            readable(&self.room, Some(LOOK))?;
        }
        Ok(())
    }

    /// How many bytes of what was written are unread.
    fn unread(&self, sender: &Sender) -> usize {
        let (words, direction) = (&self.pool.0.words, Holder::direction(self.index, 1 - self.end));
        let is_unread = |place: &Place| place.runs().next().is_some_and(|run| words.has(run, direction));
        let messages = sender.kept.iter().rev().copied().take_while(is_unread).map(Place::len).sum();
        // Of the first one, a part may have been read.
        let read = channels::read(words, self.index).load(Ordering::Relaxed);
        (sender.bytes.saturating_sub(read) as usize).min(messages)
    }

    /// Takes back what the other end has not read, in the order in which it was written. Nothing can be written any more.
    ///
    /// # Errors
    /// [`Error::Spoilt`](crate::Error::Spoilt); with traps, the pages cannot be made accessible.
    pub(crate) fn take_back(&self) -> Result<Vec<Fbuf>> {
        self.ensure_usable()?;
        let mut sender = self.sender.lock();
        sender.is_over = true;
        let direction = Holder::direction(self.index, 1 - self.end);
        // Acquire: what a reader has copied, it has copied before. From here on no part is read.
        let word = channels::read(&self.pool.0.words, self.index);
        let read = word.fetch_or(TAKEN_BACK, Ordering::AcqRel) & !TAKEN_BACK;
        let _alone = self.pool.0.looking.write();
        let mut unread = Vec::new();
        while let Some(place) = sender.kept.pop_back() {
            match self.make_ours(place, direction)? {
                Some(fbuf) => unread.push(fbuf),
                // This one was read, and so were those before.
                None => sender.kept.clear(),
            }
        }
        let first = sender.bytes - unread.iter().map(|fbuf| fbuf.len() as u64).sum::<u64>();
        if let Some(fbuf) = unread.last_mut()
            && read > first
        {
            let (start, len, read) = (fbuf.headroom(), fbuf.len(), (read - first) as usize);
            if read >= len {
                return Err(self.spoil("a message that was read in part"));
            }
            fbuf.set_data(start + read, len - read)?;
        }
        unread.reverse();
        Ok(unread)
    }
}

#[cfg(test)]
mod tests;
