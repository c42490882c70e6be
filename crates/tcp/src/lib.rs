//! TCP as an engine without I/O, whose segments are references to data that stays where its owner has it.
//!
//! Why: the copies that TCP costs are made because a protocol stack owns buffers: a socket's, into which data is copied so that it can be
//! sent again, and a frame's. Here the engine owns no byte. What is sent is a reference into the sender's buffer, held until the peer has
//! acknowledged it; what arrives is a reference into the memory where an adapter has put it, held until the client takes it. Where the bytes
//! lie, who protects them meanwhile and whether they are copied once or never is the business of the floor that uses the engine.
//!
//! How: in the manner of quinn-proto. A [`Connection`] is a state machine: no thread, clock, socket or lock.
//!
//! | what happens | call |
//! | --- | --- |
//! | a segment has come, its checksum verified | [`Connection::on_segment`] |
//! | a segment has come whose checksum is to be verified while its data is copied to the client | [`Connection::on_unverified`], and then [`Connection::confirm`] or [`Connection::reject`] |
//! | time has passed | [`Connection::on_timeout`], at [`Connection::next_timeout`] |
//! | there is room on the link | [`Connection::poll_transmit`], until it has nothing more |
//! | the client sends | [`Connection::send`]: a [`Payload`], which comes back by [`Connection::poll_released`] when it is acknowledged |
//! | the client receives | [`Connection::receive`]: references, in order |
//! | the client wants to know | [`Connection::poll_event`], [`Connection::state`] |
//! | the client is done | [`Connection::finish`] (half-close), [`Connection::close`], [`Connection::abort`] |
//!
//! A [`Table`] has many connections, behind a hash of their addresses and ports, with listeners that keep SYN cookies under a flood. [`wire`]
//! makes the bytes of headers, and reads them; the engine itself sees no bytes. Whoever calls says what time it is ([`Time`]), so a test
//! plays minutes of traffic in a second.
//!
//! Payload: [`Payload`] is what the engine asks of a reference: its length, and a part of it. A segment's payload is a list of references
//! ([`Pieces`]), since it can begin in one buffer of the client's and end in the next, and since adapters scatter.
//!
//! ```
//! use genie_tcp::{Backlog, Path, Secret, Shared, Table, Time};
//!
//! // One table plays both hosts: whatever it sends arrives at once.
//! let mut table = Table::new(Secret::random());
//! let now = Time::from_secs(1);
//! let path = Path { local: ([10, 0, 0, 1], 50000).into(), remote: ([10, 0, 0, 2], 80).into() };
//! table.listen(path.remote, Default::default(), Backlog::default())?;
//! let client = table.connect(path, Default::default(), now)?;
//! let carry = |table: &mut Table<Shared>| {
//!     while let Some(out) = table.poll_transmit(now) {
//!         table.on_segment(out.path.reversed(), &out.segment, now);
//!     }
//! };
//! carry(&mut table);
//! let server = table.accept(path.remote).expect("the handshake is done");
//!
//! table.with(client, |it| it.send(Shared::new(*b"hello"))).expect("it is there").expect("it is open");
//! carry(&mut table);
//! let piece = table.with(server, |it| it.receive(100)).flatten().expect("it has come");
//! assert_eq!(piece.bytes(), b"hello"); // where the client had them: nothing was copied
//! # Ok::<(), genie_tcp::Refused>(())
//! ```
//!
//! Invariants: sequence numbers that were promised are kept (the right edge of the window moves left by no more than rounding); each byte is
//! handed out once and in order; a reference that was given to `send` comes back exactly once, whatever becomes of the connection.
//!
//! Trust: a segment's header is anybody's. It is checked against the windows before anything is changed (RFC 9293 §3.10.7, RFC 5961), what
//! it makes the engine keep is bounded ([`Config::pieces`], [`Config::receive_capacity`], the scoreboard's ranges), and so is how often it
//! is answered.
//!
//! Limits: no urgent data: the URG flag is ignored, and urgent bytes are data like others (RFC 6093 §5 asks programs to do without). No ECN,
//! no Fast Open, no source routes. Fragments of IP are reassembled by somebody else.
//!
//! Source: RFC 9293, 7323, 2018, 6675, 5681, 6582, 6298, 9438, 5961, 6528 and 1337, by section where each rule is; *Afterburner:
//! Architectural Support for High-Performance Protocols* (Dalton et al.) for one copy with the checksum; J. C. Brustoloni's thesis, chapter
//! 6, for where segments lie. MUSTS.md, beside the sources, has RFC 9293's requirements with the test that holds each.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
mod check;
mod config;
mod congestion;
mod connection;
mod cookie;
mod event;
mod isn;
mod listener;
mod options;
mod payload;
mod reassembly;
mod receive;
mod recovery;
mod rtt;
mod scoreboard;
mod segment;
mod send;
mod sequence;
mod table;
mod timers;
mod timestamps;
pub mod wire;

#[cfg(any(test, feature = "fuzzing"))]
pub use check::check;
pub use config::{Algorithm, Config, KeepAlive};
pub use connection::{Closing, Connection, Counters, NotTaken, State};
pub use event::{Ended, Event, Unreachable};
pub use isn::Secret;
pub use listener::Backlog;
pub use options::{Block, Options, SACK_BLOCKS_MOST, Timestamps};
pub use payload::{Payload, Pieces, Shared};
pub use segment::{Flags, Header, Path, Segment};
pub use sequence::Seq;
pub use table::{Counted, Id, Outgoing, Refused, Table};
pub use timers::Time;
