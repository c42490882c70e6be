//! Private buffers: how data gets to a server that maps nothing of its client's.
//!
//! Why: a client that means harm can change output that it has announced, whatever its interface would protect. Bytes that
//! the kernel has copied into memory of the server's own can't change any more.
//! How: output is read from the client's address space before the server's code sees the request; input is written there
//! after a reply of success. One copy each way, by `process_vm_readv` and `process_vm_writev`.
//! Invariants: bytes that were read after the client exited are not taken for the client's, and nothing is written once it was
//! seen to have exited: by then its number may be another process's.
//! Trust: the client's memory may be gone, or mixed; a transfer that comes short ends the channel. Not prevented: between a
//! look at the client and the kernel's own, a client may exit and its number be given again; and a client that becomes
//! another program keeps its number. What is written then is what the server was to write, to where the client said, in a
//! process that this one has the right to trace: a server with more rights than its clients' users should not serve those
//! untrusted.
//! Limits: as many bytes for each client as the server lends to one.
//! Source: thesis §5.2 (user-to-user copying).

use genie_memory::{Config, DataMut, Direction, Faults, Granularity, Space, SystemBuffer};
use genie_passing::{Reason, Receipt};
use genie_sys::GranuleKind;
use genie_sys::process::Process;

use super::wire::record::Element;
use crate::Error;
use crate::location::LocatedTransfer;
use crate::work::{Transfer, Work};

/// How one client's data is copied.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) client: Process,
    /// Where the client's arena starts in its own address space, and how long it is.
    pub(super) base: usize,
    pub(super) len: usize,
    /// Where this client's private buffers are from, and no other client's.
    pub(super) space: Space,
}

/// A private buffer of one element, and where it belongs.
#[derive(Debug)]
pub(crate) struct PrivateBuffer {
    buffer: SystemBuffer,
    /// (address in the client, length).
    places: Vec<(usize, usize)>,
}

impl Private {
    /// A private buffer for an element, with the client's data in it if that goes out.
    pub(super) fn transfer(
        &self,
        element: &Element<'_>,
        direction: Direction,
        mut receipt: Receipt,
    ) -> Result<Box<LocatedTransfer>, Error> {
        let len = element.len as usize;
        let buffer = self.space.system_buffer(len)?;
        let mut places = Vec::with_capacity(element.segments.len());
        for segment in element.segments {
            let (offset, here) = (segment.offset() as usize, segment.len() as usize);
            if segment.arena() != 0 || offset + here > self.len {
                return Err(Error::Elsewhere { addr: offset, len: here });
            }
            places.push((self.base + offset, here));
        }
        // The memory of an input held data of the same client before, or none.
        if direction == Direction::Out {
            each(&buffer, &places, len, |data, addr| data.read_process(self.client.pid(), addr))?;
            // After reading: a process that still exists has existed all the time.
            self.check(len)?;
            receipt.copied += len;
            receipt.reason = Some(Reason::Untrusted);
        }
        let mut located = LocatedTransfer::named(buffer.segments(), len, receipt);
        located.keep(PrivateBuffer { buffer, places });
        Ok(located)
    }

    /// Writes the inputs' data, as much as was passed, to where it belongs.
    pub(super) fn write_back(&self, work: &mut Work) -> Result<(), Error> {
        for buffer in work.buffers.iter().filter(|buffer| buffer.direction == Direction::In) {
            let mut left = buffer.actual;
            for element in &buffer.elements {
                let here = element.len().min(left);
                left -= here;
                if let Transfer::Located(located) = &element.transfer
                    && let Some(PrivateBuffer { buffer, places }) = located.private()
                {
                    each(buffer, places, here, |data, addr| {
                        if self.client.has_exited() {
                            Ok(0)
                        } else {
                            data.write_process(self.client.pid(), addr)
                        }
                    })?;
                }
            }
        }
        Ok(())
    }

    fn check(&self, len: usize) -> Result<(), Error> {
        match self.client.has_exited() {
            true => Err(Error::Elsewhere { addr: self.base, len }),
            false => Ok(()),
        }
    }
}

/// Memory of the server's own: small granules, never written by two, so never protected.
pub(super) fn space(limit: usize) -> Result<Space, Error> {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool: limit / 2,
    };
    Ok(Space::new(&config)?)
}

/// Calls `transfer` for each of the places that the first `len` bytes belong to.
fn each(
    buffer: &SystemBuffer,
    places: &[(usize, usize)],
    len: usize,
    transfer: impl Fn(DataMut<'_>, usize) -> genie_sys::Result<usize>,
) -> Result<(), Error> {
    let (data, mut done) = (buffer.data(), 0);
    for (addr, room) in places.iter().copied() {
        let here = room.min(len - done);
        if here > 0 && transfer(data.part(done..done + here), addr)? != here {
            return Err(Error::Elsewhere { addr, len: here });
        }
        done += here;
    }
    match done < len {
        true => Err(Error::Elsewhere { addr: 0, len: len - done }),
        false => Ok(()),
    }
}
