//! I/O for Linux in which every buffer says how its data is to be passed.
//!
//! A [`Request`] goes to a [`Server`] and comes back as a [`Reply`]. Each element of its buffers names a [`Scheme`]: copy,
//! share, move, weak move, or the *emulated* one of each, which means the same and does less. The one to know is
//! **emulated copy**: no copying, yet copy's exact meaning.
//!
//! ```
//! use genie::{Interface, Out, ServerHandle, memory};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let genie = Interface::open()?;
//! let server = ServerHandle::new(memory::Memory::customized());
//! let mut page = genie.allocate(4 << 20)?;
//! page.fill(b'a');
//!
//! // An asynchronous request: the page may be overwritten at once, whether or not the server has read it.
//! let store = genie.request(&server, memory::STORE).out(Out::emulated_copy(&page)).argument(b"letters");
//! let pending = store.submit()?;
//! page.fill(b'b');
//! println!("{}", pending.sync()?.receipt());
//! # Ok(())
//! # }
//! ```
//!
//! What may happen to a buffer is in the types: copy and emulated copy borrow it, for the call (output) or until the
//! reply is taken (input); share takes a [`Buffer`] by value, and the reply brings it back; the migrant schemes take a
//! [`Migrant`] for good. Safe code therefore cannot corrupt what a server still reads, whatever scheme it chooses.

#[cfg(feature = "tokio")]
pub mod tokio;

pub use genie_io::servers::{file, memory};
pub use genie_io::{
    Anticipated, Error, Failed, Fragment, In, Incoming, Interface, Limits, Out, Pending, Reply, ReplyBuffer,
    ReplyElement, Request, RequestId, Returned, Server, ServerError, ServerHandle, Service, ServiceId,
};

/// Servers in other processes: listening and connecting.
pub mod channel {
    pub use genie_io::channel::directory::Directory;
    pub use genie_io::channel::{
        ConnectOptions, Driven, Layout, Listener, Running, ServeOptions, Serving, Status, Stopper, servers,
    };
    pub use genie_memory::Mapping;
}

pub use genie_memory::{
    Buffer, Config, Data, Direction, Faults, Granularity, GranuleKind, Mark, Migrant, Protection, Segments,
    Space, Span, Statistics, gather, scatter, transfer,
};
pub use genie_passing::{Cost, Costs, Line, Passing, Preferred, Reason, Receipt, Scheme, Thresholds, model};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
