//! How a flow is, and what it has done.

use genie_memory::Data;

/// Which thread puts packets into the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// The one that reaps the source, at once: one copy.
    #[default]
    Synchronous,
    /// Another one, from a queue: two copies.
    Asynchronous,
}

/// What becomes of packets for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// They stay at their source.
    #[default]
    Hold,
    /// They are dropped, and counted.
    Drop,
}

/// Sees each packet before it is put into the sink, in the thread that does.
pub type Tap = Box<dyn FnMut(&Data<'_>) + Send>;

/// How a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// Which thread puts packets into the sink.
    pub style: Style,
    /// Flows of higher priority come first (0).
    pub priority: u8,
    /// What becomes of packets for which there is no room.
    pub when_full: WhenFull,
    /// How many packets a turn moves at most (32).
    pub quantum: usize,
    /// How many packets wait in the queue of an asynchronous flow at most (64).
    pub queue: usize,
}

impl Default for How {
    fn default() -> Self {
        let (style, when_full) = Default::default();
        Self { style, priority: 0, when_full, quantum: 32, queue: 64 }
    }
}

/// What a flow has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Packets that were put into the sink.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were copied on the way: into the queue, and what the drivers of both ends say of themselves and of the kernel
    /// ([`Rings::copied`](crate::driver::Rings::copied)).
    pub copied: u64,
    /// Packets that were dropped; those that a flow which is over has left in its queue, too.
    pub dropped: u64,
    /// How often the flow found its sink, or its queue, full and waited.
    pub held: u64,
    /// In how many turns it has moved something.
    pub turns: u64,
}
