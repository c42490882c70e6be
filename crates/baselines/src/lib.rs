//! Baselines: other means by which a client's data reaches another process and comes back, measured beside the schemes.
//!
//! Why: the gain of a scheme shows only beside the means that people use today, and beside limits that no scheme can beat,
//! measured on the same machine and in the same minutes.
//! How: each baseline is a pair of ends, the client's here and the service's in the peer process. Data passed out reaches
//! memory that the peer may read; the peer reads it if data is to be touched, and acknowledges it. Data passed in is written
//! by the peer if data is to be touched, and ends up where the client may read it. Baselines that copy do copy all of it.
//! Limits: the polled ones need a second CPU, and are left out where there is none.

mod exchange;
#[cfg(feature = "peers")]
mod iceoryx;
mod limits;
mod line;
mod measuring;
mod memory;
mod peer;
mod process_vm;
mod shared;
mod stream;
#[cfg(feature = "peers")]
mod zeromq;

use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use exchange::{Ask, Asked, Kept, Message};
use memory::{Memory, View};

pub use exchange::MESSAGE;
pub use measuring::{Baselines, Exchanged, Passing, mean_of_empty};
pub use peer::{ROLE, run};

/// What passes the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Unix-domain stream sockets.
    UnixStream,
    /// A pipe each way.
    Pipe,
    /// TCP through the loopback interface, without delay.
    TcpLoopback,
    /// process_vm_readv and process_vm_writev by the peer.
    ProcessVm,
    /// Shared memory, used in place.
    SharedMemory,
    /// Shared memory, copied to and from.
    SharedMemoryCopy,
    /// iceoryx2 publish-subscribe, with samples used in place.
    IceoryxLoan,
    /// iceoryx2 publish-subscribe, with data copied into samples.
    IceoryxCopy,
    /// ZeroMQ over Unix-domain sockets.
    ZeromqIpc,
    /// No requests: the limits of all baselines that share memory.
    Limits,
}

/// How a side waits for the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// It sleeps in the kernel.
    Blocking,
    /// It looks again and again.
    Polled,
}

/// One baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Means {
    /// What passes the data.
    pub kind: Kind,
    /// How both sides wait.
    pub waiting: Waiting,
}

/// The baselines by their names, in the order in which they are shown.
const NAMED: [(Kind, Waiting, &str); 15] = [
    (Kind::UnixStream, Waiting::Blocking, "unix-stream"),
    (Kind::UnixStream, Waiting::Polled, "unix-stream-polled"),
    (Kind::Pipe, Waiting::Blocking, "pipe"),
    (Kind::Pipe, Waiting::Polled, "pipe-polled"),
    (Kind::TcpLoopback, Waiting::Blocking, "tcp-loopback"),
    (Kind::TcpLoopback, Waiting::Polled, "tcp-loopback-polled"),
    (Kind::ProcessVm, Waiting::Blocking, "process-vm"),
    (Kind::ProcessVm, Waiting::Polled, "process-vm-polled"),
    (Kind::SharedMemoryCopy, Waiting::Blocking, "shared-memory-copy"),
    (Kind::SharedMemoryCopy, Waiting::Polled, "shared-memory-copy-polled"),
    (Kind::SharedMemory, Waiting::Blocking, "shared-memory"),
    (Kind::SharedMemory, Waiting::Polled, "shared-memory-polled"),
    (Kind::IceoryxLoan, Waiting::Polled, "iceoryx2-loan"),
    (Kind::IceoryxCopy, Waiting::Polled, "iceoryx2-copy"),
    (Kind::ZeromqIpc, Waiting::Blocking, "zeromq-ipc"),
];

impl Means {
    /// All, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMED.into_iter().map(|(kind, waiting, _)| Self { kind, waiting })
    }

    /// Its name, in options, tables and documents.
    pub fn name(self) -> &'static str {
        let is_it = |(kind, waiting, _): &&(Kind, Waiting, _)| (*kind, *waiting) == (self.kind, self.waiting);
        NAMED.iter().find(is_it).map_or("the limits", |(.., name)| name)
    }

    /// Whether this program was built with it.
    pub fn is_built_in(self) -> bool {
        !self.needs_names() || cfg!(feature = "peers")
    }

    /// Whether it makes files by which its ends find each other, as all baselines of other projects do.
    fn needs_names(self) -> bool {
        matches!(self.kind, Kind::IceoryxLoan | Kind::IceoryxCopy | Kind::ZeromqIpc)
    }
}

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
}

/// The peer's end of what passes data.
pub(crate) trait Peer {
    /// Waits for the client's next request.
    fn next(&mut self) -> io::Result<Message>;

    /// The data that the client passed out with what it asked.
    fn taken(&mut self, asked: &Asked) -> io::Result<View<'_>>;

    /// Answers by passing data in: the kept data, if it is to be written first, or else whatever is there.
    fn give(&mut self, asked: &Asked, kept: &Kept) -> io::Result<()>;

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
            if asked.ask.gives() {
                self.give(&asked, kept)?;
            } else {
                let found = if asked.ask.takes() { kept.look(asked.ask, self.taken(&asked)?)? } else { 0 };
                self.answer(found)?;
            }
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
    /// The folder in which baselines that need names make files.
    pub(crate) folder: String,
    /// An address in the client's memory, to try whether it can be read.
    pub(crate) address: usize,
}

/// Opens the peer's end.
pub(crate) fn attach(
    means: Means,
    setting: &Setting,
    descriptors: Vec<OwnedFd>,
) -> io::Result<Box<dyn Service>> {
    let Means { kind, waiting } = means;
    let longest = setting.longest;
    Ok(match kind {
        Kind::UnixStream | Kind::Pipe | Kind::TcpLoopback => {
            let stream = stream::Stream::attach(descriptors, waiting)?;
            Box::new(stream::Buffered::new(stream, longest))
        }
        Kind::ProcessVm => {
            Box::new(process_vm::ProcessVmPeer::attach(descriptors, waiting, longest, setting.address)?)
        }
        Kind::SharedMemory | Kind::SharedMemoryCopy => {
            Box::new(shared::SharedPeer::attach(descriptors, waiting)?)
        }
        Kind::Limits => Box::new(limits::Limits::attach(descriptors, waiting)?),
        #[cfg(feature = "peers")]
        Kind::IceoryxLoan | Kind::IceoryxCopy => Box::new(iceoryx::Peer::open(means, setting)?),
        #[cfg(feature = "peers")]
        Kind::ZeromqIpc => Box::new(zeromq::Peer::open(setting)?),
        #[cfg(not(feature = "peers"))]
        Kind::IceoryxLoan | Kind::IceoryxCopy | Kind::ZeromqIpc => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_baseline_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Means::all().map(Means::name).collect();
        assert_eq!(names.len(), NAMED.len());
    }
}
