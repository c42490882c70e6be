//! The table of channels: which members have the ends of each, and what becomes of buffers on their way when an end closes.
//!
//! How: what is on its way to an end is held by a *direction*, a name of its own. Who closes an end frees what was on its way
//! there; a member that then finds the end closed takes back what it was about to send. Of the two that store and then look,
//! one sees the other. An end that was sent away is no member's: it is an *offer's*, which has a number of its own and a lock on
//! the byte of that number (`offer`). While the lock is there, somebody may still take the end, whatever became of who sent it.
//! While an end is being closed, it says so, and still whose it is: if that cannot be done now, a sweep does it.
//! A channel may *keep* what is on its way: whoever closes an end leaves it there then, and the sender can take it back (`channel/keeping`).
//! Invariants: a channel's place is used again when both ends are closed, and nothing is on its way. The word of its maker has a
//! generation: no other channel ever has the same word, so that of several members that find a channel over, one removes it. No
//! offer's number is used twice.
//! Limits: 128 channels at once.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use genie_sys::record_lock::RecordLocks;

use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::layout::{CHANNELS, MEMBERS, offers};
use crate::members::give_all_of;
use crate::words::Words;

/// Where the parts of a channel's entry are: who makes, has made or removes it; its ends' members.
const MAKER: usize = 0;
const ENDS: [usize; 2] = [1, 2];
/// Where the words of each direction are, behind its number: messages taken, as published now and then; whether the sender
/// waits to hear of more.
const TAKEN: usize = 4;
const WANTED: usize = 6;
/// Where the words of each end are that say on which CPU it was when it waited last, on a line that is seldom written.
const CPU: usize = 8;
/// Whether what is on its way to an end that closes stays there; how far that was read.
const KEEPS: usize = 10;
const READ: usize = 11;

/// In the word of how far was read: the writer has taken the rest back.
pub(crate) const TAKEN_BACK: u64 = 1 << 63;

const NOBODY: u64 = 0;
/// In the word of an end: the rest is an offer's number.
const OFFERED: u64 = 1 << 63;
/// In the word of an end: nothing more is to go there, and who has it is freeing what was on its way.
const CLOSING: u64 = 1 << 62;

/// In the word of the maker: the member, or nobody; how many channels have been here; whether the ends are not there yet; whether that
/// member is removing it.
const MEMBER: u64 = (1 << 32) - 1;
const GENERATION: u64 = MAKING - (1 << 32);
const MAKING: u64 = 1 << 62;
const REMOVING: u64 = 1 << 63;

/// Makes a channel, both of whose ends are this member's.
pub(crate) fn make(words: &Words) -> Result<usize> {
    let me = words.me.word();
    for channel in 0..CHANNELS {
        let maker = part(words, channel, MAKER);
        let last = maker.load(Ordering::Acquire);
        let made = (last & GENERATION).wrapping_add(1 << 32) & GENERATION | me;
        let is_free = last & MEMBER == NOBODY;
        if is_free && maker.compare_exchange(last, made | MAKING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            (TAKEN..=READ).for_each(|at| part(words, channel, at).store(0, Ordering::Relaxed));
            ENDS.iter().for_each(|end| part(words, channel, *end).store(me, Ordering::Release));
            maker.store(made, Ordering::Release);
            return Ok(channel);
        }
    }
    Err(Error::Full { what: "channels", most: CHANNELS })
}

/// The word of an offer that was never made before.
pub(crate) fn new_offer(words: &Words) -> u64 {
    OFFERED | offers(words.shared.words()).fetch_add(1, Ordering::Relaxed)
}

/// The byte that an offer's lock is on, behind those of members; none if no offer has that word.
pub(crate) fn byte_of(offer: u64) -> Option<u64> {
    // As bytes are counted by signed numbers, the highest ones are nobody's.
    (offer & OFFERED != 0).then_some((offer & ((OFFERED >> 2) - 1)) + MEMBERS as u64)
}

/// Makes an end, which is this member's, an offer's.
pub(crate) fn give(words: &Words, channel: usize, end: usize, offer: u64) {
    part(words, channel, ENDS[end]).store(offer, Ordering::Release);
}

/// Makes an end this member's; returns whether `from` was its word, a member's or an offer's.
pub(crate) fn adopt(words: &Words, channel: usize, end: usize, from: u64) -> bool {
    let word = part(words, channel, ENDS[end]);
    word.compare_exchange(from, words.me.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Closes ends that were offered and that nobody can take any more.
pub(crate) fn close_lost_offers(words: &Words, locks: &RecordLocks) -> Result<()> {
    for (channel, end) in (0..CHANNELS).flat_map(|channel| [(channel, 0), (channel, 1)]) {
        let offer = part(words, channel, ENDS[end]).load(Ordering::Acquire);
        let Some(byte) = byte_of(offer) else { continue };
        // As this member's, so that of several who find it one does it.
        if !locks.is_locked_elsewhere(byte)? && adopt(words, channel, end, offer) {
            close_own(words, channel, end);
        }
    }
    Ok(())
}

/// Whether nobody has an end any more, or who has it is closing it.
pub(crate) fn is_closed(words: &Words, channel: usize, end: usize) -> bool {
    // Partner: the fence in `close`. Before, the caller has passed on what it sends.
    fence(Ordering::SeqCst);
    let found = part(words, channel, ENDS[end]).load(Ordering::Acquire);
    found == NOBODY || found & CLOSING != 0
}

/// Closes an end of this member's. What cannot be done now is left to a sweep, which finds an offer that nobody can take.
pub(crate) fn close_own(words: &Words, channel: usize, end: usize) {
    if !close(words, channel, end, words.me) {
        give(words, channel, end, new_offer(words) | CLOSING);
    }
}

/// Closes an end if it is `holder`'s; returns false if that cannot be done now. Then it is still `holder`'s.
pub(crate) fn close(words: &Words, channel: usize, end: usize, holder: Holder) -> bool {
    let word = part(words, channel, ENDS[end]);
    if word.load(Ordering::Acquire) & !CLOSING != holder.word() {
        return true;
    }
    word.store(holder.word() | CLOSING, Ordering::Release);
    // Partner: the fence in `is_closed`.
    fence(Ordering::SeqCst);
    if !keeps(words, channel) && !free_on_their_way(words, channel, end) {
        return false;
    }
    word.store(NOBODY, Ordering::Release);
    // Of two that close both ends, one sees both closed.
    fence(Ordering::SeqCst);
    remove_if_over(words, channel, None);
    true
}

/// Closes all ends that a member had who has died, and removes what nobody has; returns whether nothing was left undone.
pub(crate) fn close_all_of(words: &Words, index: usize) -> bool {
    let dead = Holder::member(index);
    let mut is_clean = true;
    for channel in 0..CHANNELS {
        for end in 0..2 {
            is_clean &= close(words, channel, end, dead);
        }
        // It may have died while it made or removed the channel, or before it would have removed it.
        remove_if_over(words, channel, Some(dead));
    }
    is_clean
}

/// Removes a channel if nobody has an end of it, and nobody but `dead` is making or removing it.
fn remove_if_over(words: &Words, channel: usize, dead: Option<Holder>) {
    let maker = part(words, channel, MAKER);
    let found = maker.load(Ordering::Acquire);
    let is_busy = found & (MAKING | REMOVING) != 0 && dead.is_none_or(|dead| dead.word() != found & MEMBER);
    let is_there = |end: &usize| part(words, channel, *end).load(Ordering::Acquire) != NOBODY;
    if found & MEMBER == NOBODY || is_busy || ENDS.iter().any(is_there) {
        return;
    }
    // The ends were those of the channel with this word, since the word is still there.
    let removing = found & GENERATION | words.me.word() | REMOVING;
    if maker.compare_exchange(found, removing, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // If this is not possible, what is on its way stays so until a channel with this place closes.
        let _ = free_on_their_way(words, channel, 0) && free_on_their_way(words, channel, 1);
        maker.store(found & GENERATION, Ordering::Release);
    }
}

/// How many messages of the direction that ends at `end` were taken, as published last.
pub(crate) fn taken(words: &Words, channel: usize, end: usize) -> &AtomicU64 {
    part(words, channel, TAKEN + end)
}

/// Whether the sender of the direction that ends at `end` waits for messages to be taken.
pub(crate) fn wanted(words: &Words, channel: usize, end: usize) -> &AtomicU64 {
    part(words, channel, WANTED + end)
}

/// The CPU on which an end was when it waited last, and one; 0 if it has not waited.
pub(crate) fn cpu(words: &Words, channel: usize, end: usize) -> &AtomicU64 {
    part(words, channel, CPU + end)
}

/// Has a channel keep what is on its way to an end that closes, until both ends are closed.
pub(crate) fn keep(words: &Words, channel: usize) {
    part(words, channel, KEEPS).store(1, Ordering::Release);
}

pub(crate) fn keeps(words: &Words, channel: usize) -> bool {
    part(words, channel, KEEPS).load(Ordering::Acquire) != 0
}

/// How many bytes of a channel that keeps were read when a part of a message was read last, and [`TAKEN_BACK`].
pub(crate) fn read(words: &Words, channel: usize) -> &AtomicU64 {
    part(words, channel, READ)
}

fn free_on_their_way(words: &Words, channel: usize, end: usize) -> bool {
    let direction = Holder::direction(channel, end);
    give_all_of(words, |holder| holder == direction)
}

fn part(words: &Words, channel: usize, part: usize) -> &AtomicU64 {
    words.at(words.layout.channel(channel) + part)
}
