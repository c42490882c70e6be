//! Offers: ends of channels that nobody has taken yet, and how they get to other processes.
//!
//! How: over a Unix-domain socket, as a message with three descriptors: the ring, the bell and the event for room.
//! Trust: whoever sends an offer is a member of the group; which pool it is of is checked.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_sys::Object;
use genie_sys::event::Event;
use genie_sys::socket::{Listener, Socket};

use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::{Channel, Pool, channels};

/// The end of a channel that an offer is of.
const END: usize = 1;

/// What became of an offer.
#[derive(Debug, Default)]
pub(crate) struct State(AtomicBool);

impl State {
    /// Whether it was sent to another process.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The end of a channel that a member of the group is to take. Dropping it closes that end.
#[derive(Debug)]
pub struct Offer {
    index: usize,
    from: Holder,
    token: [u64; 2],
    /// Ring, bell, room; none once it was taken or sent.
    descriptors: Option<[OwnedFd; 3]>,
    /// The pool by which it was made, if that was in this process.
    made_by: Option<(Pool, Arc<State>)>,
}

impl Offer {
    pub(crate) fn made_here(pool: Pool, index: usize, descriptors: [OwnedFd; 3], state: Arc<State>) -> Self {
        let (from, token) = (pool.0.words.me, pool.token());
        Self { index, from, token, descriptors: Some(descriptors), made_by: Some((pool, state)) }
    }

    /// Sends the offer to another process, which gets it by [`Offer::receive`].
    ///
    /// # Errors
    /// As [`Socket::send`]; the channel ends.
    pub fn send(mut self, socket: &Socket) -> Result<()> {
        let descriptors = self.descriptors.as_ref().expect("taken only by value");
        let numbers = [self.index as u64, self.from.word(), self.token[0], self.token[1]];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        if let Some((_, state)) = &self.made_by {
            // Before, since it may be taken before this thread goes on.
            state.0.store(true, Ordering::Release);
        }
        socket.send(&bytes, &descriptors.each_ref().map(AsFd::as_fd))?;
        self.descriptors = None;
        Ok(())
    }

    /// Receives an offer.
    ///
    /// # Errors
    /// [`Error::Closed`]: the sender has hung up. [`Error::Spoilt`]: what came is no offer.
    pub fn receive(socket: &Socket) -> Result<Self> {
        let mut bytes = [0; 33];
        let received = socket.receive(&mut bytes)?;
        if received.len == 0 {
            return Err(Error::Closed);
        }
        let spoilt = || Error::Spoilt { what: "the offer of a channel" };
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let from =
            Holder::of(number(1)).filter(|_| received.len == 32 && !received.truncated).ok_or_else(spoilt)?;
        let index = usize::try_from(number(0))
            .ok()
            .filter(|index| *index < crate::layout::CHANNELS)
            .ok_or_else(spoilt)?;
        let descriptors = received.descriptors.try_into().map_err(|_| spoilt())?;
        Ok(Self { index, from, token: [number(2), number(3)], descriptors: Some(descriptors), made_by: None })
    }
}

impl Pool {
    /// Takes the end of a channel that was offered.
    ///
    /// # Errors
    /// [`Error::Closed`]: the channel has ended, or its end was taken already. [`Error::OtherGroup`]: it is another pool's.
    /// The kernel's, where it cannot be mapped; the end is closed then.
    pub fn take(&self, mut offer: Offer) -> Result<Channel> {
        self.ensure_own()?;
        if offer.token != self.token() {
            return Err(Error::OtherGroup);
        }
        let [ring, bell, room] = offer.descriptors.take().ok_or(Error::Closed)?;
        if !channels::adopt(&self.0.words, offer.index, END, offer.from) {
            return Err(Error::Closed);
        }
        let attach = || {
            let object = Object::accept(ring)?;
            let [bell, room] = [Event::try_from_descriptor(bell)?, Event::try_from_descriptor(room)?];
            Channel::attach(self.clone(), offer.index, END, &object, bell, room)
        };
        attach().inspect_err(|_| {
            channels::close(&self.0.words, offer.index, END, self.0.words.me);
        })
    }

    /// Makes a channel with the client that has waited longest at a listener, which must be a member of the group and call
    /// [`Pool::connect`]. If no client waits, returns nothing at once.
    ///
    /// # Errors
    /// As [`Listener::accept`], [`Pool::channel`] and [`Offer::send`].
    pub fn accept(&self, listener: &Listener) -> Result<Option<Channel>> {
        let Some(socket) = listener.accept()? else { return Ok(None) };
        let (channel, offer) = self.channel()?;
        offer.send(&socket)?;
        Ok(Some(channel))
    }

    /// Makes a channel with the member of the group that listens at a path. Waits until that accepts.
    ///
    /// # Errors
    /// As [`Socket::connect`], [`Offer::receive`] and [`Pool::take`].
    pub fn connect(&self, path: &Path) -> Result<Channel> {
        let socket = Socket::connect(path)?;
        self.take(Offer::receive(&socket)?)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let (Some(_), Some((pool, _))) = (&self.descriptors, &self.made_by)
            && pool.ensure_own().is_ok()
        {
            channels::close(&pool.0.words, self.index, END, self.from);
        }
    }
}
