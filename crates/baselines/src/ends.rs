//! The two ends of a baseline, whatever passes the data.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exchange::{Ask, Asked, Kept, Message, nonsense};
use crate::memory::{Memory, View};

/// The client's end.
pub(crate) trait Client {
    /// Gets a buffer whose data is to be passed out, and lets `touch` store into it.
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()>;

    /// Asks for something, and waits for the answer. Passes the prepared data out, if the peer is to take data, or has data
    /// passed in, if the peer is to give some.
    fn exchange(&mut self, ask: Ask, len: usize) -> io::Result<Message>;

    /// Lets `touch` load the data that is there, and gives the data's buffer back.
    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>));

    /// Whether a buffer holds what was in it before, when the client stores nothing into it.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Passes data out so many times, without waiting for answers meanwhile. Returns the time until the peer had looked at all of it,
    /// and how often the peer found the data right. Only means that [pass many](super::Means::passes_many) do so.
    fn pass_many(&mut self, _data: &[u8], _count: usize) -> io::Result<(Duration, u64)> {
        Err(nonsense())
    }
}

/// The peer's end of what passes data.
pub(crate) trait Peer {
    /// Waits for the client's next request.
    fn next(&mut self) -> io::Result<Message>;

    /// The data that the client passed out with what it asked.
    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>>;

    /// Answers by passing data in: the kept data, if it is to be written first, or else whatever is there.
    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()>;

    /// Answers, and takes data as often as the client passes it; returns how often it was right.
    fn take_many(&mut self, _asked: &Asked, _kept: &Kept) -> io::Result<u64> {
        Err(nonsense())
    }

    /// Answers with what was found.
    fn answer(&mut self, found: u64) -> io::Result<()>;
}

/// A baseline as the peer serves it.
pub(crate) trait Service {
    /// Serves until the client asks to leave.
    fn serve(&mut self, kept: &Kept) -> io::Result<()>;
}

impl<P: Peer> Service for P {
    fn serve(&mut self, kept: &Kept) -> io::Result<()> {
        loop {
            let asked = self.next()?.asked(kept.data.len())?;
            let found = match asked.ask {
                ask if ask.gives() => {
                    self.give(&asked, kept)?;
                    continue;
                }
                ask if ask.takes() => kept.look(ask, self.taken(&asked)?)?,
                Ask::TakeMany => self.take_many(&asked, kept)?,
                _ => 0,
            };
            self.answer(found)?;
            if asked.ask == Ask::Leave {
                return Ok(());
            }
        }
    }
}

/// The facts that an end must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// The longest data.
    pub(crate) longest: usize,
    /// How much data that is passed many times may be on its way.
    pub(crate) queue: usize,
    /// The folder in which baselines that need names make files.
    pub(crate) folder: String,
    /// An address in the client's memory, to try whether it can be read.
    pub(crate) address: usize,
}
