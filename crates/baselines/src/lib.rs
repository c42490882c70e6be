//! Baselines: other means by which a client's data reaches another process and comes back, measured beside the schemes.
//!
//! Why: what a scheme gains shows only beside what people use today, and beside what no scheme can beat, on the same
//! machine and in the same minutes.
//! How: each baseline is a pair of ends, the client's here and the service's in the peer process. Data passed out reaches
//! memory that the peer may read, is read by it when it is to be touched, and acknowledged; data passed in is written by
//! the peer when it is to be touched, and is then where the client may read it. Baselines that copy do copy all of it.
//! Limits: the polled ones need a second CPU, and are left out where there is none.

mod exchange;
mod hand_over;
#[cfg(feature = "peers")]
mod iceoryx;
mod lanes;
mod line;
mod memory;
mod peer;
mod process_vm;
mod rotation;
mod shared;
mod stream;
#[cfg(feature = "peers")]
mod zeromq;

use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use exchange::{Ask, Kept, Message};
use memory::{Memory, View};

pub use exchange::MESSAGE;
pub use lanes::{Baselines, EMPTY, Exchanged, Passing};
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
    /// iceoryx2 publish-subscribe, in loans used in place.
    IceoryxLoan,
    /// iceoryx2 publish-subscribe, copied into loans.
    IceoryxCopy,
    /// ZeroMQ over Unix-domain sockets.
    ZeromqIpc,
    /// No data: a word that goes there and back.
    HandOver,
    /// No acknowledgement of each: many buffers of shared memory in turn.
    Rotation,
}

/// How a side waits for the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// It sleeps in the kernel.
    Blocking,
    /// It asks again and again.
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

const fn blocking(kind: Kind) -> Means {
    Means { kind, waiting: Waiting::Blocking }
}

const fn polled(kind: Kind) -> Means {
    Means { kind, waiting: Waiting::Polled }
}

impl Means {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 15] = [
        blocking(Kind::UnixStream),
        polled(Kind::UnixStream),
        blocking(Kind::Pipe),
        polled(Kind::Pipe),
        blocking(Kind::TcpLoopback),
        polled(Kind::TcpLoopback),
        blocking(Kind::ProcessVm),
        polled(Kind::ProcessVm),
        blocking(Kind::SharedMemoryCopy),
        polled(Kind::SharedMemoryCopy),
        blocking(Kind::SharedMemory),
        polled(Kind::SharedMemory),
        polled(Kind::IceoryxLoan),
        polled(Kind::IceoryxCopy),
        blocking(Kind::ZeromqIpc),
    ];

    /// Its name, in options, tables and documents.
    pub fn name(self) -> &'static str {
        let polled = self.waiting == Waiting::Polled;
        match self.kind {
            Kind::UnixStream if polled => "unix-stream-polled",
            Kind::UnixStream => "unix-stream",
            Kind::Pipe if polled => "pipe-polled",
            Kind::Pipe => "pipe",
            Kind::TcpLoopback if polled => "tcp-loopback-polled",
            Kind::TcpLoopback => "tcp-loopback",
            Kind::ProcessVm if polled => "process-vm-polled",
            Kind::ProcessVm => "process-vm",
            Kind::SharedMemory if polled => "shared-memory-polled",
            Kind::SharedMemory => "shared-memory",
            Kind::SharedMemoryCopy if polled => "shared-memory-copy-polled",
            Kind::SharedMemoryCopy => "shared-memory-copy",
            Kind::IceoryxLoan => "iceoryx2-loan",
            Kind::IceoryxCopy => "iceoryx2-copy",
            Kind::ZeromqIpc => "zeromq-ipc",
            Kind::HandOver if polled => "ping-pong",
            Kind::HandOver => "futex hand-over",
            Kind::Rotation => "rotation",
        }
    }

    /// Whether this program was built with it.
    pub fn is_built_in(self) -> bool {
        !self.needs_names() || cfg!(feature = "peers")
    }

    /// Whether it makes files by which its ends find each other, as all do that are of other projects.
    fn needs_names(self) -> bool {
        matches!(self.kind, Kind::IceoryxLoan | Kind::IceoryxCopy | Kind::ZeromqIpc)
    }
}

/// The client's end.
pub(crate) trait Client {
    /// Gets a buffer whose data is to be passed out, and lets `touch` store into it.
    fn prepare(&mut self, len: usize, touch: &mut dyn FnMut(Memory<'_>)) -> io::Result<()>;

    /// Passes the prepared data out and waits for the answer.
    fn put(&mut self, ask: Ask, len: usize) -> io::Result<Message>;

    /// Asks for data, and returns when it is there.
    fn get(&mut self, ask: Ask, len: usize) -> io::Result<()>;

    /// Lets `touch` load the data that is there, and gives its buffer back.
    fn finish(&mut self, len: usize, touch: &mut dyn FnMut(View<'_>));

    /// Asks for something without data, and waits for the answer.
    fn ask(&mut self, ask: Ask) -> io::Result<()>;

    /// Whether a buffer holds what was in it before, when nobody stores into it.
    fn keeps_data(&self) -> bool {
        true
    }
}

/// The peer's end.
pub(crate) trait Service {
    /// Serves until the client asks to leave.
    fn serve(&mut self, kept: &Kept) -> io::Result<()>;
}

/// What an end must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// The longest data.
    pub(crate) longest: usize,
    /// Where those make files that need names.
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
            Box::new(process_vm::ProcessVmService::attach(descriptors, waiting, longest, setting.address)?)
        }
        Kind::SharedMemory | Kind::SharedMemoryCopy => {
            Box::new(shared::SharedService::attach(descriptors, waiting, longest)?)
        }
        Kind::HandOver => Box::new(hand_over::HandOverService::attach(descriptors, waiting)?),
        Kind::Rotation => Box::new(rotation::RotationService::attach(descriptors)?),
        #[cfg(feature = "peers")]
        Kind::IceoryxLoan | Kind::IceoryxCopy => Box::new(iceoryx::Service::open(means, setting)?),
        #[cfg(feature = "peers")]
        Kind::ZeromqIpc => Box::new(zeromq::Service::open(setting)?),
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
        let names: std::collections::BTreeSet<_> = Means::ALL.iter().map(|means| means.name()).collect();
        assert_eq!(names.len(), Means::ALL.len());
    }
}
