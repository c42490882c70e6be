//! The baselines, by name.

use serde::{Deserialize, Serialize};

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

    /// Whether data can be passed many times without waiting for an answer each time.
    pub fn passes_many(self) -> bool {
        self.kind == Kind::IceoryxCopy
    }

    /// Whether it makes files by which its ends find each other, as all baselines of other projects do.
    pub(crate) fn needs_names(self) -> bool {
        matches!(self.kind, Kind::IceoryxLoan | Kind::IceoryxCopy | Kind::ZeromqIpc)
    }
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
