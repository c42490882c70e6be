//! TCP's options: those that this engine knows, as fields; as bytes they are etherparse's.
//!
//! Limits: at most four blocks of SACK fit into a header, three beside timestamps.
//! Source: RFC 9293 §3.2; RFC 7323 §2.2 and §3.2; RFC 2018 §2 and §3.

use etherparse::{TcpOptionElement, TcpOptionReadError, TcpOptions, TcpOptionsIterator};

use crate::sequence::Seq;

/// How many blocks a SACK option has at most.
pub const SACK_BLOCKS_MOST: usize = 4;

/// The sequence numbers from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the sentence above says it")]
pub struct Block {
    pub start: Seq,
    pub end: Seq,
}

impl Block {
    pub(crate) fn contains(self, seq: Seq) -> bool {
        !seq.before(self.start) && seq.before(self.end)
    }

    pub(crate) fn len(self) -> u32 {
        self.end.since(self.start)
    }
}

/// A timestamps option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// The sender's clock: TSval.
    pub value: u32,
    /// What the sender has had last from its peer: TSecr.
    pub echo: u32,
}

/// The options of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The longest data that the sender takes in a segment.
    pub mss: Option<u16>,
    /// By how many bits the sender's windows are shifted.
    pub window_scale: Option<u8>,
    /// Whether the sender takes selective acknowledgments.
    pub sack_permitted: bool,
    /// What the sender has received beyond the acknowledgment; the latest first.
    pub sack: [Option<Block>; SACK_BLOCKS_MOST],
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
}

impl Options {
    /// How many bytes of the header they take, padding included.
    ///
    /// # Cost
    /// Some additions.
    pub fn len(&self) -> usize {
        let blocks = self.sack.iter().flatten().count();
        let bytes = self.mss.map_or(0, |_| 4)
            + self.window_scale.map_or(0, |_| 3)
            + if self.sack_permitted { 2 } else { 0 }
            + self.timestamps.map_or(0, |_| 10)
            + if blocks > 0 { 2 + 8 * blocks } else { 0 };
        bytes.next_multiple_of(4)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The options as a header has them, padded with zeros (MUST-68, MUST-69).
    ///
    /// # Panics
    /// Where they take more than the 40 bytes that a header has for them: all of them, and more than two blocks.
    pub fn write(&self) -> TcpOptions {
        let mut elements = smallvec::SmallVec::<[TcpOptionElement; 5]>::new();
        elements.extend(self.mss.map(TcpOptionElement::MaximumSegmentSize));
        elements.extend(self.sack_permitted.then_some(TcpOptionElement::SelectiveAcknowledgementPermitted));
        elements.extend(self.timestamps.map(|it| TcpOptionElement::Timestamp(it.value, it.echo)));
        elements.extend(self.window_scale.map(TcpOptionElement::WindowScale));
        let mut blocks = self.sack.iter().flatten().map(|block| (block.start.0, block.end.0));
        if let Some(first) = blocks.next() {
            let rest = [blocks.next(), blocks.next(), blocks.next()];
            elements.push(TcpOptionElement::SelectiveAcknowledgement(first, rest));
        }
        TcpOptions::try_from_elements(&elements).expect("options of no more than 40 bytes")
    }

    /// What options in a header say. Options that are not known are skipped (MUST-6), wherever they begin (MUST-64).
    ///
    /// # Errors
    /// When an option's length is one that it cannot have (MUST-7): says at which byte.
    pub fn read(bytes: &[u8]) -> Result<Self, usize> {
        let mut options = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut elements = TcpOptionsIterator::from_slice(rest);
            match elements.next() {
                None => break,
                Some(Ok(element)) => {
                    options.add(element);
                    rest = elements.rest();
                }
                Some(Err(TcpOptionReadError::UnknownId(_))) => {
                    let len = rest.get(1).map_or(0, |&len| usize::from(len));
                    if len < 2 || len > rest.len() {
                        return Err(bytes.len() - rest.len());
                    }
                    rest = &rest[len..];
                }
                Some(Err(_)) => return Err(bytes.len() - rest.len()),
            }
        }
        Ok(options)
    }

    fn add(&mut self, element: TcpOptionElement) {
        match element {
            TcpOptionElement::Noop => (),
            TcpOptionElement::MaximumSegmentSize(mss) => self.mss = Some(mss),
            TcpOptionElement::WindowScale(shift) => self.window_scale = Some(shift),
            TcpOptionElement::SelectiveAcknowledgementPermitted => self.sack_permitted = true,
            TcpOptionElement::Timestamp(value, echo) => self.timestamps = Some(Timestamps { value, echo }),
            TcpOptionElement::SelectiveAcknowledgement(first, [second, third, fourth]) => {
                let block = |(start, end)| Block { start: Seq(start), end: Seq(end) };
                self.sack = [Some(first), second, third, fourth].map(|it| it.map(block));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u32, end: u32) -> Option<Block> {
        Some(Block { start: Seq(start), end: Seq(end) })
    }

    #[test]
    fn options_read_as_they_were_written_padded_with_zeros() {
        let syn = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Options::default()
        };
        let mut sack = Options { timestamps: syn.timestamps, ..Options::default() };
        sack.sack = [block(1, 2), block(5, 9), block(11, 30), None];
        let blocks = [block(1, 2), block(5, 9), block(11, 30), block(u32::MAX, 4)];
        let four = Options { sack: blocks, ..Options::default() };
        for options in [Options::default(), syn, sack, four] {
            let bytes = options.write();
            assert_eq!(bytes.len(), options.len());
            assert_eq!(bytes.len() % 4, 0);
            assert_eq!(Options::read(bytes.as_slice()), Ok(options));
        }
        assert_eq!(Options { window_scale: Some(3), ..Options::default() }.write().as_slice(), [3, 3, 3, 0]);
    }

    #[test]
    fn unknown_options_are_skipped_wherever_they_begin() {
        // Kind 253 with four bytes, a NOP, then an MSS that begins at an odd place, and an end with garbage behind it.
        let options = Options::read(&[1, 253, 4, 9, 9, 2, 4, 5, 180, 0, 77, 77]).expect("well formed");
        assert_eq!(options, Options { mss: Some(1460), ..Options::default() });
    }

    #[test]
    fn lengths_that_an_option_cannot_have_are_errors() {
        for (bytes, at) in [
            (&[253, 0, 0, 0][..], 0),  // no option is shorter than two bytes
            (&[1, 1, 253, 9], 2),      // longer than the header
            (&[1, 1, 1, 253], 3),      // no length at all
            (&[2, 3, 5, 180], 0),      // an MSS has four
            (&[1, 8, 10, 0], 1),       // timestamps cut off
            (&[5, 11, 0, 0, 0, 0], 0), // SACK has 8 n + 2
        ] {
            assert_eq!(Options::read(bytes), Err(at), "{bytes:?}");
        }
    }
}
