//! One end of the traffic: what sends and receives datagrams, whoever brings them.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use genie::{Buffer, Migrant};

use crate::failure::Failure;

/// The longest data of a datagram, over IPv4.
pub(crate) const LONGEST: usize = 65_507;

/// A datagram's memory, of the kind that its end and its scheme need.
#[derive(Debug)]
pub(crate) enum Load {
    /// The first bytes of the command's own memory: the kernel copies.
    Plain(Box<[u8]>, usize),
    /// The first bytes of a native buffer.
    Native(Buffer, usize),
    /// A buffer that moves.
    Migrant(Migrant),
}

impl Deref for Load {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(bytes, len) => &bytes[..*len],
            Self::Native(buffer, len) => &buffer[..*len],
            Self::Migrant(migrant) => migrant,
        }
    }
}

impl DerefMut for Load {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(bytes, len) => &mut bytes[..*len],
            Self::Native(buffer, len) => &mut buffer[..*len],
            Self::Migrant(migrant) => migrant,
        }
    }
}

/// A datagram that has come.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Its data, as far as there was room.
    pub(crate) load: Load,
    pub(crate) from: SocketAddr,
    /// How long its data was.
    pub(crate) len: usize,
}

/// What sends and receives datagrams.
pub(crate) trait End {
    /// What it is, for the summary.
    fn name(&self) -> String;

    /// Memory for a datagram of `len` bytes, whatever they are.
    fn load(&mut self, len: usize) -> Result<Load, Failure>;

    /// Sends a datagram, at the latest when [`End::flush`] is called.
    fn send(&mut self, load: Load, to: SocketAddr) -> Result<(), Failure>;

    /// Has all that was sent leave.
    fn flush(&mut self) -> Result<(), Failure>;

    /// The next datagram, for which this waits no longer than `timeout`.
    fn receive(&mut self, timeout: Duration) -> Result<Option<Arrival>, Failure>;

    /// Takes back memory that is not needed any more.
    fn recycle(&mut self, load: Load);

    /// What passing the datagrams has cost, as far as this end knows.
    fn costs(&self) -> Option<Costs>;
}

/// What passing datagrams has cost.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub(crate) struct Costs {
    /// Bytes that data passing has copied, to and from the program's memory.
    pub(crate) copied_by_passing: u64,
    /// Datagrams for which the server had no room.
    pub(crate) dropped_by_server: u64,
    /// Bytes that the driver and the kernel have copied, to, from and behind the rings; none where the driver is in another process.
    pub(crate) copied_by_driver: Option<u64>,
    /// Frames for which the ring had no room, likewise.
    pub(crate) dropped_by_kernel: Option<u64>,
}
