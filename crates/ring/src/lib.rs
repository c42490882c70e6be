//! Rings: request and reply records between two processes, at the cost of the cache lines that they fill.
//!
//! Why: data stays where it is, so the cost of a request is that of its control path. A socket takes microseconds; two
//! rings of the usual kind, with head and tail indices, move four or more cache lines a round trip. Here one line
//! carries the header and the payload of a small record, and the line itself tells that the record has come: a round
//! trip moves two lines.
//!
//! How: a channel object (a memfd) holds two directions, each with one producer and one consumer:
//!
//! ```text
//! requests  | control | line 0 | line 1 | ... | argument area |    then the replies: the same again
//!             4 KiB     64 B     64 B           256 KiB
//!
//! control   at 0     sleeper      who sleeps, and how to wake it: set by the consumer, cleared by either side
//!           at 128   heads        lines and argument bytes consumed: stored by the consumer, now and then
//!           at 256   wants room   set by a producer that found no room, cleared by the consumer
//! line      | sequence u32, len u16, kind u8, role u8 | 56 bytes of payload |
//! ```
//!
//! 1. The producer writes the payload of a record into the next lines, then the header of the first one: the sequence
//!    of its position (Release). It finds out whether there is room from its own copy of the consumer's head, and
//!    refreshes that copy only when the ring looks full.
//! 2. The consumer looks at the first word of the next line until that sequence is there (Acquire), copies the record
//!    out and goes on. It publishes its head every quarter of a lap.
//! 3. A record of more than 448 bytes is put into the argument area, in one piece, and a line announces its length.
//!    Both sides work out its place from the lengths of the records before it, so that no offset is sent.
//! 4. A side that wants to sleep says so in its sleeper word, and a side that publishes something looks at that word after
//!    a fence (see the module `bell`). While both sides are awake there is no system call.
//!
//! Invariants: a record is seen whole or not at all, once, in the order of sending. A side that armed its bell and was told
//! to sleep is woken by the next record, or finds it. A producer does not touch what it has published until the consumer
//! has published that it is done with it.
//! Trust: the peer may store anything anywhere in the object at any time. Each word of the object is loaded once,
//! checked and then used. A word that fails the check is [`Broken`], and ends the channel for this side. A peer can
//! lose its own records, delay or omit wake-ups, or wake without reason: set timeouts, and watch for its death by other
//! means.
//! Limits: one producer and one consumer a direction, attached once; records of up to half of the argument area
//! ([`Layout::record_max`], by default 128 KiB); when lines or area are used up, pushes fail with [`PushError::Full`],
//! and [`wait_for_room`] waits until they are not. Positions are 64 bits wide and do not come round.
//! Source: thesis chapter 5 and §9.2 (what I/O-oriented IPC adds to a request is a transfer of control). Differs: there,
//! control crosses by system calls; here, by lines that both sides poll, and by system calls only when a side sleeps.
//!
//! The interleavings of both sides are explored with loom, in less than a minute:
//! `RUSTFLAGS="--cfg loom" cargo test -p genie-ring --release --test loom`. (Loom does not delay a load until after a
//! later store, so it cannot tell whether the heads need their Release.) The example `round_trip` prints what a round
//! trip costs on a machine, and how that compares with a single word.
//!
//! ```
//! use genie_ring::{Bells, Ends, Layout, Record, Side, Spin, create, wait};
//! use genie_sys::event::Event;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The object and one end of the pair go to the other process; here, both sides are in one.
//! let (object, layout) = (create(Layout::default())?, Layout::default());
//! let (ours, theirs) = Event::pair()?;
//! let mut client = Ends::attach(&object, layout, Side::Client, Bells::end(ours))?;
//! let mut server = Ends::attach(&object, layout, Side::Server, Bells::end(theirs))?;
//!
//! client.producer.push(1, b"to the server")?;
//!
//! let mut record = Record::new();
//! assert!(wait(&mut server.consumer, Spin::NONE, None)? && server.consumer.pop(&mut record)?);
//! assert_eq!((record.kind(), record.payload()), (1, &b"to the server"[..]));
//! # Ok(())
//! # }
//! ```

mod bell;
mod channel;
mod consumer;
mod direction;
mod error;
mod layout;
mod line;
mod primitive;
mod producer;
mod record;
mod wait;

pub use bell::{Bells, Mode, Waker};
#[doc(hidden)]
pub use channel::consumer_of_image;
#[cfg(not(loom))]
pub use channel::create;
pub use channel::{Ends, Side};
pub use consumer::Consumer;
pub use error::{Broken, Error, PushError};
pub use layout::{INLINE_MAX, Layout};
#[cfg(loom)]
pub use primitive::Event;
pub use producer::Producer;
pub use record::Record;
pub use wait::{Spin, wait, wait_for_room};
