//! Ends: drivers that flows lead from and to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_sys::fork::Maker;
use genie_sys::lock::{Mutex, MutexGuard};

use super::descriptor::Descriptor;
use super::error::Error;
use crate::driver::{Counters, Rings};

/// A driver that flows lead from and to. Clones are handles of the same one.
#[derive(Clone)]
pub struct End(Arc<Inner>);

struct Inner {
    name: String,
    rings: Mutex<Box<dyn Rings>>,
    descriptor: OwnedFd,
    is_file: bool,
    is_source: AtomicBool,
    maker: Maker,
}

impl End {
    /// A driver's rings; the name is for messages.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(name: &str, rings: impl Rings + 'static) -> std::io::Result<Self> {
        Self::of(name, rings, false)
    }

    /// A file, a pipe or a socket. What comes is taken in packets of `len` bytes, the last one shorter; of a socket of messages or datagrams,
    /// each is a packet, and one that is longer ends the flow ([`Error::Message`]). What goes is written without gaps; an empty packet goes to a
    /// socket of datagrams alone, and is dropped elsewhere. The descriptor's flags stay as they are.
    ///
    /// # Errors
    /// The process has no descriptors left; EINVAL: packets are empty.
    ///
    /// # Cost
    /// A look, a read and a write are a system call each.
    pub fn of_descriptor(name: &str, descriptor: OwnedFd, len: usize) -> std::io::Result<Self> {
        Self::of(name, Descriptor::new(descriptor, len)?, true)
    }

    fn of(name: &str, rings: impl Rings + 'static, is_file: bool) -> std::io::Result<Self> {
        let (name, descriptor) = (name.to_owned(), rings.descriptor().try_clone_to_owned()?);
        let (rings, is_source) = (Mutex::new(Box::new(rings) as _), AtomicBool::new(false));
        let maker = Maker::this_process();
        Ok(Self(Arc::new(Inner { name, rings, descriptor, is_file, is_source, maker })))
    }

    /// What has become of its frames so far; nothing in a child made by fork while a thread was inside.
    pub fn counters(&self) -> Counters {
        self.0.rings.lock_made_by(self.0.maker).map_or_else(Counters::default, |rings| rings.counters())
    }

    /// The rings, if this is the last handle and no flow has the end; soon after a flow was closed, its thread may still have it.
    ///
    /// # Errors
    /// The handle, where there are others.
    pub fn into_rings(self) -> Result<Box<dyn Rings>, Self> {
        Arc::try_unwrap(self.0).map(|inner| inner.rings.into_inner()).map_err(Self)
    }

    pub(super) fn name(&self) -> String {
        self.0.name.clone()
    }

    /// The rings, for one turn. The reaper alone has two at once.
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn Rings>> {
        self.0.rings.lock()
    }

    /// What is readable when the rings have something, if they are armed.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }

    /// Whether the descriptor itself is what is read and written.
    pub(super) fn is_file(&self) -> bool {
        self.0.is_file
    }

    /// Makes it a flow's source.
    pub(super) fn claim(&self, sink: &Self) -> Result<(), Error> {
        if Arc::ptr_eq(&self.0, &sink.0) || self.0.is_source.swap(true, Ordering::Relaxed) {
            return Err(Error::Taken { end: self.name() });
        }
        Ok(())
    }

    pub(super) fn release(&self) {
        self.0.is_source.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_source(&self) -> bool {
        self.0.is_source.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("End").field(&self.0.name).finish()
    }
}
