//! Offers: ends of channels that nobody has taken yet, and how they get to other processes.
//!
//! How: over a Unix-domain socket, as a message with four descriptors: the ring, the bell, the event for room, and a *lifeline*, whose
//! lock on the offer's byte of the pool the kernel takes off when the last process that could take the end has closed it, or
//! the message is lost with its socket. So an end that was sent survives its sender's close and death, and none is lost.
//! Trust: whoever sends an offer is a member of the group; which pool it is of is checked. Of the lifeline nothing is asked.
//! Limits: an offer that its receiver neither takes nor drops keeps its channel's place, and what is on its way there.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::record_lock::RecordLocks;
use genie_sys::socket::{Listener, Received, Socket};
use genie_sys::unshared::Unshared;
use genie_sys::{Errno, Object};

use crate::error::{Error, Result};
use crate::layout::CHANNELS;
use crate::{Channel, Pool, channels};

/// The end of a channel that an offer is of.
const END: usize = 1;
/// Room for the bytes of an offer, and for one that is too many.
const BYTES: usize = 33;
/// How long to wait before looking again whether somebody listens; then twice as long, and so on.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Whether nobody listens at a path now.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN)
}

/// The end of a channel that a member of the group is to take. Dropping it closes that end.
#[derive(Debug)]
pub struct Offer {
    index: usize,
    /// Whose the end is: the member's who made it, or, once it was sent, the offer's own.
    from: u64,
    token: [u64; 2],
    /// None once it was taken or sent.
    descriptors: Option<Descriptors>,
    /// The pool by which it was made, if that was in this process.
    made_by: Option<Pool>,
    maker: Maker,
}

#[derive(Debug)]
struct Descriptors {
    /// Dropped before the descriptors are.
    _unshared: Vec<Unshared>,
    ring: OwnedFd,
    bell: OwnedFd,
    room: OwnedFd,
    /// Of an offer that came.
    lifeline: Option<OwnedFd>,
}

impl Descriptors {
    fn new([ring, bell, room]: [OwnedFd; 3], lifeline: Option<OwnedFd>) -> Result<Self> {
        let unshared = [Some(&bell), Some(&room), lifeline.as_ref()].into_iter().flatten().map(Unshared::new);
        Ok(Self { _unshared: unshared.collect::<Result<_, _>>()?, ring, bell, room, lifeline })
    }
}

impl Offer {
    /// Offers an end of this member's; closes it where that fails.
    pub(crate) fn made_here(pool: Pool, index: usize, descriptors: [OwnedFd; 3]) -> Result<Self> {
        let (words, token) = (&pool.0.words, pool.token());
        let descriptors =
            Descriptors::new(descriptors, None).inspect_err(|_| channels::close_own(words, index, END))?;
        let (from, descriptors) = (words.me.word(), Some(descriptors));
        Ok(Self { index, from, token, descriptors, made_by: Some(pool), maker: Maker::this_process() })
    }

    /// Sends the offer to another process, which gets it by [`Offer::receive`]. From then on that end stays, whatever becomes of
    /// this process, until the other one has closed it, or has died.
    ///
    /// # Errors
    /// As [`Socket::send`]; the channel ends. [`Error::Inherited`]; the limit on descriptors.
    pub fn send(mut self, socket: &Socket) -> Result<()> {
        self.ensure_own()?;
        let made = self.lifeline()?;
        let numbers = [self.index as u64, self.from, self.token[0], self.token[1]];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let Descriptors { ring, bell, room, lifeline, .. } =
            self.descriptors.as_ref().expect("taken only by value");
        let lifeline = made.as_ref().map(AsFd::as_fd).or(lifeline.as_ref().map(AsFd::as_fd));
        let descriptors: Vec<_> = [ring, bell, room].map(AsFd::as_fd).into_iter().chain(lifeline).collect();
        socket.send(&bytes, &descriptors)?;
        self.descriptors = None;
        Ok(())
    }

    /// Whether a pool is the one that it is of.
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        self.token == pool.token()
    }

    /// That it is not a parent's: a child has only dummies for the descriptors.
    fn ensure_own(&self) -> Result<()> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Error::Inherited) }
    }

    /// Makes the end the offer's own, with a lock that lasts as long as somebody can take it; nothing where it came so.
    fn lifeline(&mut self) -> Result<Option<RecordLocks>> {
        let Some(pool) = &self.made_by else { return Ok(None) };
        let words = &pool.0.words;
        let offer = channels::new_offer(words);
        let locks = RecordLocks::open(pool)?;
        // Before the end is the offer's: who finds it without the lock closes it.
        if !locks.try_lock(channels::byte_of(offer).expect("made of an offer's number"))? {
            return Err(Error::Spoilt { what: "the number of an offer" });
        }
        channels::give(words, self.index, END, offer);
        self.from = offer;
        Ok(Some(locks))
    }

    /// Receives an offer.
    ///
    /// # Errors
    /// [`Error::Closed`]: the sender has hung up. [`Error::Spoilt`]: what came is no offer. The limit on descriptors.
    pub fn receive(socket: &Socket) -> Result<Self> {
        let mut bytes = [0; BYTES];
        let received = socket.receive(&mut bytes)?;
        Self::of(received, &bytes)
    }

    fn of(received: Received, bytes: &[u8; BYTES]) -> Result<Self> {
        let Received { len, truncated, is_short, descriptors } = received;
        if len == 0 {
            return Err(Error::Closed);
        }
        if is_short {
            return Err(genie_sys::Error::new("recvmsg", "the offer of a channel", Errno::MFILE).into());
        }
        let spoilt = || Error::Spoilt { what: "the offer of a channel" };
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let (index, from) = (number(0), number(1));
        let is_known = len == 32 && !truncated && channels::byte_of(from).is_some();
        if !is_known || index >= CHANNELS as u64 {
            return Err(spoilt());
        }
        let [ring, bell, room, lifeline] = descriptors.try_into().map_err(|_| spoilt())?;
        let descriptors = Some(Descriptors::new([ring, bell, room], Some(lifeline))?);
        let (index, token) = (index as usize, [number(2), number(3)]);
        Ok(Self { index, from, token, descriptors, made_by: None, maker: Maker::this_process() })
    }
}

impl Pool {
    /// Takes the end of a channel that was offered.
    ///
    /// # Errors
    /// [`Error::Closed`]: the channel has ended, or its end was taken already. [`Error::OtherGroup`]: it is another pool's.
    /// [`Error::Inherited`]: the pool or the offer is a parent's.
    /// The kernel's, where it cannot be mapped; the end is closed then.
    pub fn take(&self, mut offer: Offer) -> Result<Channel> {
        self.ensure_own()?;
        offer.ensure_own()?;
        if !offer.is_of(self) {
            return Err(Error::OtherGroup);
        }
        // What keeps the end alive is closed when this returns: then the end is this member's.
        let Descriptors { ring, bell, room, lifeline: _lifeline, _unshared } =
            offer.descriptors.take().ok_or(Error::Closed)?;
        if !channels::adopt(&self.0.words, offer.index, END, offer.from) {
            return Err(Error::Closed);
        }
        let attach = || {
            let object = Object::accept(ring)?;
            let [bell, room] = [Event::try_from_descriptor(bell)?, Event::try_from_descriptor(room)?];
            Channel::attach(self.clone(), offer.index, END, &object, bell, room)
        };
        attach().inspect_err(|_| channels::close_own(&self.0.words, offer.index, END))
    }

    /// Makes a channel with the client that has waited longest at a listener, which must be a member of the group and call
    /// [`Pool::connect`]. If no client waits, returns nothing at once. Clients that have gone are passed over.
    ///
    /// # Errors
    /// As [`Listener::accept`], [`Pool::channel`] and [`Offer::send`].
    pub fn accept(&self, listener: &Listener) -> Result<Option<Channel>> {
        while let Some(socket) = listener.accept()? {
            let (channel, offer) = self.channel()?;
            match offer.send(&socket) {
                Ok(()) => return Ok(Some(channel)),
                Err(Error::System(error)) if matches!(error.errno, Errno::PIPE | Errno::CONNRESET) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Makes a channel with the member of the group that listens at a path. Waits until that accepts.
    ///
    /// # Errors
    /// As [`Socket::connect`], [`Offer::receive`] and [`Pool::take`].
    pub fn connect(&self, path: &Path) -> Result<Channel> {
        self.connect_over(&Socket::connect(path)?, Duration::MAX)
    }

    /// As [`Pool::connect`], with a member that may not listen yet: waits for that and until it accepts, for at most `timeout`.
    ///
    /// # Errors
    /// As [`Pool::connect`]: ENOENT, ECONNREFUSED and EAGAIN where the time was over before somebody listened there; ETIMEDOUT where it was
    /// over before that one accepted.
    pub fn connect_timeout(&self, path: &Path, timeout: Duration) -> Result<Channel> {
        let start = Instant::now();
        let left = || timeout.saturating_sub(start.elapsed());
        let mut pause = PAUSE_MIN;
        let socket = loop {
            match Socket::connect(path) {
                Err(error) if is_absent(error.errno) && left() > Duration::ZERO => {
                    std::thread::sleep(pause.min(left()));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                found => break found?,
            }
        };
        self.connect_over(&socket, left())
    }

    fn connect_over(&self, socket: &Socket, timeout: Duration) -> Result<Channel> {
        // An offer that waits there is lost with this process.
        let _unshared = Unshared::new(socket)?;
        let mut bytes = [0; BYTES];
        let received = socket.receive_timeout(&mut bytes, timeout)?.ok_or_else(|| {
            let error = genie_sys::Error::new(
                "connect",
                "a channel with the process that listens there",
                Errno::TIMEDOUT,
            );
            error.with_remedy("let it accept (uf_accept, Pool::accept), or wait longer")
        })?;
        self.take(Offer::of(received, &bytes)?)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let (Some(_), Some(pool)) = (&self.descriptors, &self.made_by)
            && self.ensure_own().is_ok()
            && channels::adopt(&pool.0.words, self.index, END, self.from)
        {
            channels::close_own(&pool.0.words, self.index, END);
        }
    }
}
