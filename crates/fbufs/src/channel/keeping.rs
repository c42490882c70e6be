//! Channels that keep what is on its way, as pipes do: what a reader has not read when it ends, the writer takes back.
//!
//! How: the writer remembers where the messages lie that may be unread, at most as many as may be on their way. Whoever closes the
//! reader's end does not free what was on its way there, so of each message its pages tell whether it was read: the direction holds
//! those that were not. Messages are read in order, so these are the last ones. What is left of a message that was read in part goes
//! back to the direction, and the channel's entry says where it begins.
//! Invariants: of a reader that reads and a writer that takes back at once, one gets a message, whole; the reader ends there.
//! Trust: a reader's word about where a rest begins is checked against the message.

use std::sync::atomic::{Ordering, fence};

use genie_sys::poll::readable;

use super::writing::LOOK;
use super::{Channel, ON_THEIR_WAY, Receiver, Sender, lock};
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
            if sender.kept.len() as u64 == ON_THEIR_WAY {
                sender.kept.pop_front();
            }
            sender.kept.push_back(place);
        }
    }

    /// Gives what is left of a message that was read in part back to the direction.
    pub(super) fn put_back(&self, receiver: &mut Receiver, rest: Fbuf) {
        let (words, place) = (&self.pool.0.words, Place::of(&rest));
        // While these change, the message is this member's, so that nobody asks.
        let [message, start] = channels::partly(words, self.index);
        message.store(receiver.taken, Ordering::Relaxed);
        start.store(place.start() as u64, Ordering::Release);
        rest.give_up();
        let direction = Holder::direction(self.index, self.end);
        // Where a member has spoilt the words, the next read finds that it has no such message.
        place.runs().for_each(|run| {
            words.pass(run, words.me, direction);
        });
        receiver.unread = Some(place);
    }

    /// Waits until at most `most` bytes are unread, or the other end is gone.
    pub(crate) fn wait_until_read(&self, most: usize) -> Result<()> {
        self.ensure_usable()?;
        let sender = lock(&self.sender);
        let (words, direction) = (&self.pool.0.words, Holder::direction(self.index, 1 - self.end));
        let is_unread = |place: &Place| place.runs().next().is_some_and(|run| words.has(run, direction));
        loop {
            let unread = sender.kept.iter().rev().copied().take_while(is_unread);
            if unread.map(Place::len).sum::<usize>() <= most || self.is_hung_up() {
                return Ok(());
            }
            self.room.clear()?;
            channels::wanted(words, self.index, 1 - self.end).store(1, Ordering::Release);
            // Partner: the fence in `publish`.
            fence(Ordering::SeqCst);
            readable(&self.room, Some(LOOK))?;
        }
    }

    /// Takes back what the other end has not read, in the order in which it was written. Nothing can be written any more.
    ///
    /// # Errors
    /// [`Error::Spoilt`](crate::Error::Spoilt); with traps, the pages cannot be made accessible.
    pub(crate) fn take_back(&self) -> Result<Vec<Fbuf>> {
        self.ensure_usable()?;
        let mut sender = lock(&self.sender);
        sender.is_over = true;
        let direction = Holder::direction(self.index, 1 - self.end);
        let mut unread = Vec::new();
        while let Some(place) = sender.kept.pop_back() {
            match self.make_ours(place, direction)? {
                Some(fbuf) => unread.push(fbuf),
                // This one was read, and so were those before.
                None => sender.kept.clear(),
            }
        }
        let first = sender.sent + 1 - unread.len() as u64;
        let [message, start] = channels::partly(&self.pool.0.words, self.index);
        if let Some(fbuf) = unread.last_mut()
            && message.load(Ordering::Acquire) == first
        {
            let (start, end) = (start.load(Ordering::Acquire) as usize, fbuf.headroom() + fbuf.len());
            if !(fbuf.headroom()..end).contains(&start) {
                return Err(self.spoil("a message that was read in part"));
            }
            fbuf.set_data(start, end - start)?;
        }
        unread.reverse();
        Ok(unread)
    }
}
