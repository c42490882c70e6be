//! Fbufs: input and output by the exchange of buffers.
//!
//! Why: `read` and `write` copy, since the caller keeps its buffer and may store into it at once. Calls by which buffers change
//! hands need not copy: where both parties have mapped the pages already, only their owner changes.
//! How: a process, or a group of processes, has a [`Pool`]. A buffer of it, an [`Fbuf`], has one owner at a time: `read` gives
//! one, `write` takes one away, and what is dropped goes back to the pool. Between members of a group, a [`Channel`] passes
//! buffers at the same cost whatever their length. A Genie server is read and written as a stream by a [`Connection`], whose buffers are
//! migrant buffers of an interface's. Descriptors of the kernel's take and give buffers as well, and the kernel
//! copies the bytes; parts of files ([`Mapped`]) go to sockets and pipes without a copy. [`explain`] says which it is.
//!
//! | SMLI TR-95-39, tables 1 and 2 | here |
//! | --- | --- |
//! | `uf_allocate`, `uf_deallocate` | [`Pool::allocate`], [`Fbuf::deallocate`] or drop |
//! | `uf_read`, `uf_get` | [`Pool::read`], [`Pool::get`]; [`Channel::read`], [`Connection::read`] |
//! | `uf_write` | [`Pool::write`], [`Channel::write`], [`Connection::write`], [`Mapped::write`] |
//! | `uf_mmap`, `uf_unmap` | [`Pool::map`], drop of [`Mapped`] |
//! | `uf_allocb`, mblks | [`Block::allocate`], [`Message`] |
//! | pools by keys (§5.5) | [`Group`] |
//!
//! Programs in C have the paper's own names: [`c`]. docs/fbufs.md introduces both.
//!
//! ```
//! use genie_fbufs::{Config, Pool};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Both members are in this process; as a rule the second one is another process, which got the descriptor.
//! let ours = Pool::new(Config::default())?;
//! let theirs = Pool::join(ours.descriptor()?, Config::default())?;
//! let (channel, offer) = ours.channel()?;
//! let their_end = theirs.take(offer)?;
//!
//! let mut fbuf = ours.allocate(100_000)?;
//! fbuf.fill(b'a');
//! let place = fbuf.offset();
//! channel.write(fbuf).map_err(|unwritten| unwritten.error)?;
//!
//! let fbuf = their_end.read(usize::MAX)?.expect("the other end is open");
//! assert!(fbuf.offset() == place && fbuf.iter().all(|byte| *byte == b'a'), "the same pages");
//! # Ok(())
//! # }
//! ```
//!
//! Integrity is weak: whoever has written a buffer away has it no more, by Rust's rules, but could still store into it as a
//! hostile program; members of a group trust each other with the group's buffers, and with nothing else.
//! Source: M. N. Thadani and Y. A. Khalidi, *An Efficient Zero-Copy I/O Framework for UNIX*, SMLI TR-95-39, 1995.

mod allocation;
mod bits;
mod block;
pub mod c;
mod chain;
mod channel;
mod channels;
mod check;
mod config;
mod connection;
mod descriptors;
mod error;
mod explain;
mod fbuf;
mod group;
mod holder;
mod layout;
mod mapped;
mod members;
mod offer;
mod own;
mod place;
mod pool;
mod residence;
mod unwritten;
mod words;

/// Compiles and runs the program of the page for newcomers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fbufs.md")]
struct Page;

pub use block::Block;
pub use chain::Message;
pub use channel::Channel;
pub use config::Config;
pub use connection::Connection;
pub use error::{Error, Result};
pub use explain::{Explanation, Passing, explain};
pub use fbuf::Fbuf;
pub use group::Group;
pub use mapped::Mapped;
pub use offer::Offer;
pub use pool::Pool;
pub use unwritten::Unwritten;
