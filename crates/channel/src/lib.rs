//! Channels: a channel joins a client with a server in another process.
//!
//! Why: a server in a process of its own need not be trusted with a client's address space, and does not die with the
//! client; but a system call for each request, or a copy of its data, would cost more than most requests do.
//! How: requests and replies travel on two rings of shared memory; data stays where it is, in memory objects that the
//! client announces and the server mirrors, or in the server's pool. A socket carries descriptors, and tells each side when
//! the other goes.
//!
//! ```text
//!   client                                                server
//!   Request -> Remote -- request ring --> Worker -> Session -> Incoming -> Server
//!   Reply   <- Remote <-- reply ring ---------------- Session <- reply
//!              Link  <-- control socket: objects, hang-up --> Control
//! ```
//!
//! Source: thesis chapter 5, §7.1, §7.2; docs/channel.md has the layouts.

mod abandoned;
mod announce;
mod arenas;
mod client_channel;
mod client_ring;
mod connect;
mod control;
mod counts;
pub mod directory;
mod driven;
mod evictions;
mod growth;
mod handshakes;
mod in_progress;
mod link;
mod listener;
mod long_calls;
mod options;
mod outbox;
mod places;
mod pool;
mod post;
mod private;
mod receiving;
mod relief;
mod remote;
mod room;
mod serving;
mod session;
mod shared;
mod shares;
mod sharing;
mod signals;
mod stand_ins;
mod table;
mod telemetry;
mod unwanted;
#[doc(hidden)]
pub mod wire;
mod worker;

pub use connect::{Connect, ConnectOptions};
pub use counts::Counts;
pub use driven::Driven;
pub use genie_io::carrier::is_control;
pub use genie_ring::Layout;
pub use listener::Listener;
pub use options::ServeOptions;
pub use serving::{Running, Serving, Stopper};
pub use wire::control::{ClientCounts, ClientStatus, Limits, Status, Traffic};

use std::time::{Duration, Instant};

use genie_io::Error;
use genie_sys::primitive;
use genie_sys::socket::Socket;

/// A server's name, and its answer, or the reason why it gives none.
pub type Answer<T = Status> = (String, Result<T, Error>);

/// Asks every server in the run-time directory for its status.
///
/// # Errors
/// The run-time directory can't be read.
pub fn servers() -> Result<Vec<Answer>, Error> {
    ask_all(link::PATIENCE, connect::hear_status)
}

/// Asks every server in the run-time directory for its status, and for what it has passed for its clients. A server that has
/// not answered within `patience` is told by [`Error::Silent`].
///
/// # Errors
/// The run-time directory can't be read.
pub fn traffic(patience: Duration) -> Result<Vec<Answer<(Status, Traffic)>>, Error> {
    ask_all(patience, connect::hear_traffic)
}

/// Asks all servers before it hears the first, and waits for all together: those that are stopped keep no others from answering.
fn ask_all<T>(
    patience: Duration,
    hear: impl Fn(&Socket, &str, Duration) -> Result<T, Error>,
) -> Result<Vec<Answer<T>>, Error> {
    let end = Instant::now() + patience;
    let directory = directory::Directory::open()?;
    let ask = |name: String| {
        let asked = connect::query(&directory, &name);
        (name, asked)
    };
    let asked: Vec<_> = directory.names()?.into_iter().map(ask).collect();
    let answer = |(name, asked): Answer<Socket>| {
        let left = end.saturating_duration_since(Instant::now());
        let answer = asked.and_then(|socket| hear(&socket, &name, left)).map_err(|error| match error {
            Error::Silent { server, .. } => Error::Silent { server, timeout: patience },
            error => error,
        });
        (name, answer)
    };
    Ok(asked.into_iter().map(answer).collect())
}
