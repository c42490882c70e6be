//! In place: inputs for which a server fills the client's own granules, and the memory that any server fills, that of overlay
//! buffers included.
//!
//! Why it is sound: the granules are referenced, and so stay where they are. Those of a migrant region belong to the input until
//! it arrives. Those of a native buffer belong to the input because the caller that began it has promised so. Those that a
//! device transfers to are in bytes that are borrowed mutably for the time of the delivery. Those of an overlay buffer's part stay in
//! the buffer until the part itself is passed.
#![allow(unsafe_code, reason = "hands out client memory to be filled, by the promises that the header names")]

use genie_memory::{DataMut, Reference, SystemBuffer};

use crate::input::Buffering;
use crate::{Input, Overlay, Parties, Passing, Result, Scheme, Target};

impl Passing {
    /// Runs the request-time operations of an input by `scheme` from a server in this process.
    ///
    /// # Errors
    /// As [`Passing::input_from`].
    ///
    /// # Safety
    /// As [`Passing::input_from`].
    pub unsafe fn input(&self, scheme: Scheme, target: Target) -> Result<Box<Input>> {
        self.begin_input(scheme, target, Parties::OWN)
    }

    /// Runs the request-time operations of an input by `scheme`, with a system buffer as `parties` says; if `parties` is
    /// made of a [`LenderId`](genie_memory::LenderId) alone, the system buffer is the server's own memory. For move it is
    /// always the space's own memory, since the client keeps it, and the lender would lose it for good.
    ///
    /// # Errors
    /// No memory for a region, or a region that is not the client's at the moment.
    ///
    /// # Safety
    /// By share and emulated share, no Rust reference to the bytes of a [`Target::Native`] is used until the input has been
    /// delivered, cancelled or dropped, except the reference given to [`Input::deliver`]. By the other schemes the target's
    /// address only says where the data will probably be delivered, and no such rule applies.
    pub unsafe fn input_from(
        &self,
        scheme: Scheme,
        target: Target,
        parties: impl Into<Parties>,
    ) -> Result<Box<Input>> {
        self.begin_input(scheme, target, parties.into())
    }
}

impl Input {
    /// The data, or where it will be, in host memory, for the server to fill.
    pub fn data(&self) -> DataMut<'_> {
        match &self.buffering {
            Buffering::Overlaid(chain) => chain.data(),
            // The granules that a device is about to fill are the client's until the delivery.
            Buffering::Outboard(_) if self.receipt().effective == Scheme::EmulatedCopy => {
                host(&self.system, &None)
            }
            Buffering::Customized | Buffering::Outboard(_) => host(&self.system, &self.reference),
        }
    }
}

impl Overlay {
    /// What lies in front of its bytes in its frame, for the frame's owner alone. It is empty where the buffer is no frame, and while
    /// another part of the frame is in use.
    pub fn headroom(&self) -> DataMut<'_> {
        // SAFETY: as in `data`. Nobody else is given these bytes: other parts are none, and no delivery takes a granule for what lies
        // beside the data but while this is borrowed mutably, or gone.
        unsafe { DataMut::new(self.segments_in_front()) }
    }

    /// The buffer's memory, or that of the part of it, for its owner to fill.
    pub fn data(&self) -> DataMut<'_> {
        // SAFETY: the buffer is out of its pool while this borrows a part of it. A delivery of another part takes no granule that
        // holds bytes of this one (`leave_shared`). No output is pending from granules that a delivery has brought in from a
        // client (`Delivery::swap`). The aliases of the granules stay mapped as long, and no Rust reference points there.
        unsafe { DataMut::new(self.segments()) }
    }
}

/// The system buffer's memory, or, where there is no system buffer, the client's own granules.
pub(crate) fn host<'i>(system: &'i Option<SystemBuffer>, reference: &'i Option<Reference>) -> DataMut<'i> {
    match (system, reference) {
        (Some(system), _) => system.data(),
        // SAFETY: see the module's header.
        (None, Some(reference)) => unsafe { reference.data_mut() },
        (None, None) => DataMut::default(),
    }
}
