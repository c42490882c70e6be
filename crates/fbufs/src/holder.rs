//! Holders: who has a page, as it is written in the words that the group's processes share.
//!
//! How: a *member* is a process's handle of the pool; what is on its way through a channel is held by one *direction* of the
//! channel. A place in the tables of both is used again only when no page names it any more.
//! Trust: a number that another member has written names a place that exists, or nobody: [`Holder::of`] checks it.

use crate::bits::PER_WORD;
use crate::layout::{CHANNELS, MEMBERS};

const INDEX_BITS: u32 = 14;
const INDEX: u64 = (1 << INDEX_BITS) - 1;
const MEMBER: u64 = 1;
const DIRECTION: u64 = 2;
/// Where the length of a run starts in the word of its head.
const COUNT_AT: u32 = 48;

/// The holder of a page: a member, or a direction of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder(u64);

impl Holder {
    pub(crate) fn member(index: usize) -> Self {
        Self(MEMBER << INDEX_BITS | index as u64)
    }

    /// The direction of a channel that ends at its end `to`, 0 or 1.
    pub(crate) fn direction(channel: usize, to: usize) -> Self {
        Self(DIRECTION << INDEX_BITS | (channel * 2 + to) as u64)
    }

    /// The holder that a word names; none where the word is zero or no honest member's.
    pub(crate) fn of(word: u64) -> Option<Self> {
        let index = (word & INDEX) as usize;
        let exists = match word >> INDEX_BITS {
            MEMBER => index < MEMBERS,
            DIRECTION => index < 2 * CHANNELS,
            _ => false,
        };
        exists.then_some(Self(word))
    }

    /// The holder as a word, which is never zero.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The member's place, if it is a member.
    pub(crate) fn member_index(self) -> Option<usize> {
        (self.0 >> INDEX_BITS == MEMBER).then_some((self.0 & INDEX) as usize)
    }
}

/// What is written at the first page of a run: who has it, and how many pages it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) holder: Holder,
    pub(crate) count: usize,
}

impl Head {
    pub(crate) fn word(self) -> u64 {
        (self.count as u64) << COUNT_AT | self.holder.word()
    }

    /// What a word says of the page `first` of a word of the bit string; none where it is zero, or nonsense.
    pub(crate) fn of(word: u64, first: usize) -> Option<Self> {
        let count = (word >> COUNT_AT) as usize;
        let holder = Holder::of(word & ((1 << COUNT_AT) - 1))?;
        (1..=PER_WORD - first).contains(&count).then_some(Self { holder, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written_and_nonsense_is_nobody() {
        let [member, direction] = [Holder::member(MEMBERS - 1), Holder::direction(CHANNELS - 1, 1)];
        for holder in [member, direction] {
            let head = Head { holder, count: 64 };
            assert_eq!((Holder::of(holder.word()), Head::of(head.word(), 0)), (Some(holder), Some(head)));
            assert_eq!(Head::of(head.word(), 1), None, "the run leaves its word");
        }
        assert_eq!((member.member_index(), direction.member_index()), (Some(MEMBERS - 1), None));
        let nobody = [0, u64::MAX, Holder::member(MEMBERS).word(), Holder::direction(CHANNELS, 0).word()];
        assert!(nobody.iter().all(|word| Holder::of(*word).is_none() && Head::of(*word, 0).is_none()));
    }
}
