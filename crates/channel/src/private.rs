//! Private buffers: how data gets to a server that maps none of its client's memory.
//!
//! Why: a malicious client can change output that it has announced, whatever a proper interface would protect. Bytes that
//! the kernel has copied into the server's own memory can't change any more.
//! How: output is read from the client's address space before the server's code sees the request; input is written there
//! after a reply of success. One copy each way, by `process_vm_readv` and `process_vm_writev`.
//! Invariants: bytes that were read after the client exited are not taken for the client's, and nothing is written once the
//! client was seen to have exited: by then its process number may be another process's.
//! Trust: the client's memory may be gone, or mixed; a transfer that comes short ends the channel. Not prevented: between
//! this process's look at the client and the kernel's, the client may exit and its number be given to another process; and a
//! client that executes another program keeps its number. Then the data meant for the client is written to the address that
//! the client gave, in a process that this one may trace. So a server with more rights than its clients' users should not
//! serve those users untrusted.
//! What the server keeps of an output (`kept.rs`) stays in that memory, which then is not the client's any more; once the client has
//! left, all else of it goes back to the kernel.
//! Limits: as many bytes for each client as the server would lend to one, and as many as it may keep.
//! Source: thesis §5.2 (user-to-user copying).

use std::sync::Arc;

use genie_io::Error;
use genie_io::carrier::{Allowance, Located, PrivateBuffer, Work};
use genie_memory::{Config, DataMut, Direction, Faults, Granularity, Space, SystemBuffer};
use genie_passing::{Reason, Receipt};
use genie_sys::GranuleKind;
use genie_sys::process::Process;

use super::wire::record::Element;

/// How one client's data is copied.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) client: Process,
    /// Where the client's arena starts in its own address space, and how long it is.
    pub(super) base: usize,
    pub(super) len: usize,
    /// The memory of this client's private buffers, and of no other client's.
    pub(super) space: Space,
    /// What the server may keep of the client's outputs.
    pub(super) allowance: Arc<Allowance>,
}

impl Drop for Private {
    fn drop(&mut self) {
        if self.allowance.end() {
            self.space.discard_free();
        }
    }
}

impl Private {
    /// A private buffer for an element; for an output, with the client's data in it.
    pub(super) fn transfer(
        &self,
        element: &Element<'_>,
        direction: Direction,
        mut receipt: Receipt,
    ) -> Result<Box<Located>, Error> {
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
        // Nothing need be cleared for an input: the memory held no data before, or data of the same client.
        if direction == Direction::Out {
            each(&buffer, &places, len, |data, addr| data.read_process(self.client.pid(), addr))?;
            // Checked after reading: a process that still exists existed all the time.
            self.check(len)?;
            receipt.copied += len;
            receipt.reason = Some(Reason::Untrusted);
        }
        let mut located = Located::named(buffer.segments(), len, receipt);
        located.keep(PrivateBuffer { buffer, places });
        Ok(located)
    }

    /// Writes the inputs' data, as much as was passed, into the client's memory.
    pub(super) fn write_back(&self, work: &mut Work) -> Result<(), Error> {
        for buffer in work.buffers().iter().filter(|buffer| buffer.direction() == Direction::In) {
            let mut left = buffer.actual();
            for element in buffer.elements() {
                let here = element.len().min(left);
                left -= here;
                if let Some(PrivateBuffer { buffer, places }) = element.private() {
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

/// Memory of the server's own, at most `limit` bytes in small granules, of which `pool` are kept for reuse. Only one party writes
/// each, so nothing is ever protected.
pub(super) fn space(limit: usize, pool: usize) -> Result<Space, Error> {
    let config = Config {
        granularity: Granularity::Only(GranuleKind::Base),
        limit,
        faults: Faults::Never,
        kernel_never_stores: false,
        pool,
    };
    Ok(Space::new(&config)?)
}

/// Calls `transfer` for each of the places to which the first `len` bytes belong.
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
