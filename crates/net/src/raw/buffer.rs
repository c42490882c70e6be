//! Buffers of a sender's memory, in the application's hands.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::xdp::Extent;

/// How many bytes are free in front of the data, for headers.
pub(super) const HEADROOM: usize = 64;

/// Where buffers go that are dropped.
#[derive(Debug)]
pub(super) struct Home {
    dropped: Mutex<Vec<Extent>>,
    maker: Maker,
}

/// Room for a datagram's data, in memory from which it is sent, with room for headers in front. Nobody else has it, the kernel included. If
/// it is dropped, the sender has it back.
#[derive(Debug)]
pub struct Buffer {
    extent: Extent,
    home: Arc<Home>,
}

/// A [`Buffer`] from which the kernel may still load what was sent before, by the paper's rule.
///
/// What is stored before it has done so is what it sends. Stores are such as may go along with the kernel's loads.
#[derive(Debug)]
pub struct Unsettled(pub(super) Buffer);

/// A buffer that is given away to be sent, of either kind.
#[derive(Debug)]
pub struct Filled(pub(super) Buffer);

impl Home {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { dropped: Mutex::default(), maker: Maker::this_process() })
    }

    /// Takes a buffer that was dropped.
    pub(super) fn take(&self) -> Option<Extent> {
        self.dropped.lock().pop()
    }
}

impl Buffer {
    pub(super) fn new(extent: Extent, home: Arc<Home>) -> Self {
        Self { extent, home }
    }

    /// Whether it goes back there.
    pub(super) fn is_of(&self, home: &Arc<Home>) -> bool {
        Arc::ptr_eq(&self.home, home)
    }

    /// All of its memory.
    pub(super) fn extent(&mut self) -> &mut Extent {
        &mut self.extent
    }

    /// The same, given up.
    pub(super) fn into_extent(mut self) -> Extent {
        self.extent.split_to(self.extent.len())
    }
}

impl Unsettled {
    /// The bytes for the data.
    pub fn bytes(&mut self) -> &[AtomicU8] {
        &self.0.extent.atomics()[HEADROOM..]
    }

    /// Stores data from `at` on.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.0.extent.write(HEADROOM + at, bytes);
    }
}

impl From<Buffer> for Filled {
    fn from(buffer: Buffer) -> Self {
        Self(buffer)
    }
}

impl From<Unsettled> for Filled {
    fn from(buffer: Unsettled) -> Self {
        Self(buffer.0)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.extent[HEADROOM..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.extent[HEADROOM..]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.extent.is_empty() && self.home.maker.is_this_process() {
            let extent = self.extent.split_to(self.extent.len());
            self.home.dropped.lock().push(extent);
        }
    }
}
