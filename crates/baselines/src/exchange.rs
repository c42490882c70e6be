//! The messages between client and peer, which are the same over every baseline.
//!
//! How: the client sends a message of 64 bytes, followed by data where the client passes data out; the peer does what the
//! message asks for and answers with a message of 64 bytes, followed by data where data is passed in. So an empty round trip
//! is 64 bytes each way.
//! Trust: client and peer are one program; a message that makes no sense is an error, and nothing worse.

use std::io;
use std::os::fd::OwnedFd;

use super::memory::{SharedMemory, View};

/// The length of a message in bytes; a message also goes ahead of data.
pub const MESSAGE: usize = 64;
/// The longest data that is passed many times without waiting.
pub const LONGEST_OF_MANY: usize = 1 << 20;
/// How many words a message has.
pub(crate) const WORDS: usize = MESSAGE / 8;
/// The answer of a peer that compared and found no difference.
const SAME: u64 = u64::MAX;

/// What the client asks the peer to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To do nothing but answer.
    Nothing,
    /// To take data without looking at it.
    Take,
    /// To take data, and to answer with the sum of its bytes.
    Sum,
    /// To take data, and to compare it with the data that the peer keeps.
    Check,
    /// To give whatever data is there.
    Give,
    /// To answer, to take data many times, and then to answer how often it was the data that the peer keeps.
    TakeMany,
    /// To write the data that the peer keeps to the place from which it gives data, and to give it.
    Fetch,
    /// To hand a word over as many times as the argument says.
    HandOver,
    /// To read buffers as they are written; the argument says how many buffers there are.
    Rotate,
    /// To stop serving this baseline, and to answer.
    Leave,
}

const ASKS: [Ask; 10] = [
    Ask::Nothing,
    Ask::Take,
    Ask::Sum,
    Ask::Check,
    Ask::Give,
    Ask::TakeMany,
    Ask::Fetch,
    Ask::HandOver,
    Ask::Rotate,
    Ask::Leave,
];

impl Ask {
    /// Whether data goes to the peer.
    pub(crate) fn takes(self) -> bool {
        matches!(self, Self::Take | Self::Sum | Self::Check)
    }

    /// Whether data comes from the peer.
    pub(crate) fn gives(self) -> bool {
        matches!(self, Self::Give | Self::Fetch)
    }
}

/// A message, in either direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// What is asked for, or what was found.
    code: u64,
    /// How many bytes of data are passed, in either direction.
    len: u64,
    /// How many bytes of data follow this message, where data follows messages.
    follows: u64,
    /// The address of the client's data, for a peer that fetches it itself; or a number.
    argument: u64,
}

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    /// How much data is passed.
    pub(crate) len: usize,
    /// See [`Message::ask`].
    pub(crate) argument: usize,
}

impl Message {
    /// A request for `ask`, with data of `len` bytes. The argument is the data's address in the client, or a number.
    pub(crate) fn ask(ask: Ask, len: usize, argument: usize) -> Self {
        let follows = if ask.takes() { len as u64 } else { 0 };
        Self { code: ask as u64, len: len as u64, follows, argument: argument as u64 }
    }

    /// An answer that says what was found; `follows` bytes of data follow it.
    pub(crate) fn answer(found: u64, follows: usize) -> Self {
        Self { code: found, len: follows as u64, follows: follows as u64, argument: 0 }
    }

    /// What the message asks for. A peer has room for `longest` bytes.
    pub(crate) fn asked(&self, longest: usize) -> io::Result<Asked> {
        let ask = usize::try_from(self.code).ok().and_then(|code| ASKS.get(code).copied());
        match (ask, usize::try_from(self.len)) {
            (Some(ask), Ok(len)) if len <= longest => {
                Ok(Asked { ask, len, argument: self.argument as usize })
            }
            _ => Err(nonsense()),
        }
    }

    /// How much data follows, in a stream that has room for `longest` bytes.
    pub(crate) fn follows(&self, longest: usize) -> io::Result<usize> {
        usize::try_from(self.follows).ok().filter(|len| *len <= longest).ok_or_else(nonsense)
    }

    /// The sum in an answer.
    pub(crate) fn sum(&self) -> u64 {
        self.code
    }

    /// Where the peer found a difference.
    pub(crate) fn difference(&self) -> Option<u64> {
        (self.code != SAME).then_some(self.code)
    }

    pub(crate) fn words(&self) -> [u64; WORDS] {
        [0, self.code, self.len, self.follows, self.argument, 0, 0, 0]
    }

    pub(crate) fn from_words(words: &[u64; WORDS]) -> Self {
        let [_, code, len, follows, argument, ..] = *words;
        Self { code, len, follows, argument }
    }

    pub(crate) fn bytes(&self) -> [u8; MESSAGE] {
        let mut bytes = [0; MESSAGE];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; MESSAGE]) -> Self {
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
        Self::from_words(&words)
    }
}

pub(crate) fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message makes no sense")
}

/// The data that the peer keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// No longer data is ever passed.
    pub(crate) data: Vec<u8>,
}

impl Kept {
    /// Copies `len` bytes from memory of the client.
    pub(crate) fn copied(memory: OwnedFd, len: usize) -> io::Result<Self> {
        let mut data = vec![0; len];
        SharedMemory::attach(memory)?.part(0, len).copy_to(&mut data);
        Ok(Self { data })
    }

    /// The data that the peer is to write to the place from which it gives data; none where that place is to stay as it is.
    pub(crate) fn to_write(&self, asked: &Asked) -> Option<&[u8]> {
        (asked.ask == Ask::Fetch).then(|| &self.data[..asked.len])
    }

    /// Looks at taken data in the way that was asked for, and returns what was found.
    pub(crate) fn look(&self, ask: Ask, taken: View<'_>) -> io::Result<u64> {
        Ok(match ask {
            Ask::Sum => taken.sum(),
            Ask::Check => {
                let expected = self.data.get(..taken.len()).ok_or_else(nonsense)?;
                taken.difference(expected).map_or(SAME, |at| at as u64)
            }
            _ => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        for ask in ASKS {
            let message = Message::ask(ask, 4097, 0x7000_0000_0000);
            let read = Message::from_bytes(&message.bytes());
            assert_eq!(read, message);
            let asked = Asked { ask, len: 4097, argument: 0x7000_0000_0000 };
            assert_eq!(read.asked(4097).unwrap(), asked);
            assert_eq!(read.follows(4097).unwrap(), if ask.takes() { 4097 } else { 0 });
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(Message::ask(Ask::Sum, 65, 0).asked(64).is_err());
        assert!(Message::answer(0, 65).follows(64).is_err());
        assert!(Message::answer(ASKS.len() as u64, 0).asked(64).is_err());
    }

    #[test]
    fn what_is_found_is_the_sum_or_the_difference() {
        let kept = Kept { data: vec![1, 2, 3, 4] };
        let look = |ask, bytes| Message::answer(kept.look(ask, View::Bytes(bytes)).unwrap(), 0);
        assert_eq!(look(Ask::Check, &[1, 2, 3]).difference(), None);
        assert_eq!(look(Ask::Check, &[1, 2, 0]).difference(), Some(2));
        assert_eq!(look(Ask::Sum, &[1, 1]).sum(), 0x101);
        assert!(kept.look(Ask::Check, View::Bytes(&[0; 5])).is_err());
    }
}
