//! Kept buffers: outputs that servers have made their own.
//!
//! Why: a server that works on an output after its reply, or changes it, needs memory in which nobody else stores. What the data was
//! passed in is seldom such memory. A client in another process has it mapped and may store there for as long as it lives, whether it
//! is the client's own memory or what the server has lent; no kernel takes a mapping back. And memory of a client in this process lies
//! in objects of which that client shows other granules to other servers, who may have been given the right to store.
//! How: on an untrusted channel the kernel has copied the data into memory that only this process has, and that memory changes hands.
//! All other data is copied once, when the server asks for it. What is kept counts for its client until it is dropped.
//! Invariants: only its holder sees or changes a kept buffer. Memory that a server has changed is zeroed before its client's later
//! requests get it, and memory of a client that has left goes back to the kernel.
//! Limits: [`Limits::kept_bytes`](crate::Limits::kept_bytes) for a client of this process,
//! `channel::ServeOptions::kept` and `pools` for one elsewhere.
//! Source: none in the thesis, whose servers find an output in their clients' or their own memory until they reply.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use genie_memory::{Direction, SystemBytes};
use genie_sys::{Errno, cgroup};

use crate::{Error, Incoming};

pub(crate) mod allowance;

use allowance::{Hold, Share};

/// What an output held, in memory of the server's own: readable, writable, and there for as long as it exists, whatever becomes of
/// the request, its channel and its client. [`Incoming::keep`] makes it.
///
/// It can be an element of requests that the server makes itself, as any other memory can. Any thread may drop it. In a child made
/// by fork, one that was not [copied](Self::copied) holds zeros.
pub struct Kept {
    // Dropped before its share is given back.
    memory: Memory,
    _share: Share,
}

enum Memory {
    Taken(Taken),
    Copied(Vec<u8>),
}

/// Private memory that the data was in.
struct Taken {
    /// Some until this is dropped.
    bytes: Option<SystemBytes>,
    is_changed: bool,
    /// Let go after the memory.
    hold: Hold,
}

impl Kept {
    /// How many bytes were copied to make it: all of them, or none.
    pub fn copied(&self) -> usize {
        match &self.memory {
            Memory::Taken(_) => 0,
            Memory::Copied(bytes) => bytes.len(),
        }
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Taken(taken) => taken.bytes.as_deref().unwrap_or_default(),
            Memory::Copied(bytes) => bytes,
        }
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Taken(taken) => {
                taken.is_changed = true;
                taken.bytes.as_deref_mut().unwrap_or_default()
            }
            Memory::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("len", &self.len()).field("copied", &self.copied()).finish()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(mut bytes) = self.bytes.take() else { return };
        if self.hold.has_ended() {
            return bytes.discard();
        }
        if self.is_changed {
            // What the server has stored is not for the client, whose next input may get this memory.
            bytes.fill(0);
        }
        let space = bytes.space().clone();
        drop(bytes);
        // The client may have left just now, and not have found this memory free.
        if self.hold.has_ended() {
            space.discard_free();
        }
    }
}

impl Incoming {
    /// Makes the data of output buffer `index` a buffer of the server's own, which it may change, and have for as long as it likes:
    /// after the reply, the client and the channel. Nobody else sees or changes it from then on.
    ///
    /// On an untrusted channel (`channel::ServeOptions::untrusted`), data of one element from about a
    /// page on stays where the kernel has copied it, in memory that only this process has. All other data is copied once, as it is at
    /// this moment: what other processes have mapped they could go on changing, whatever they promise, and by every scheme but copy
    /// the memory is the client's. [`Kept::copied`] tells. While a server keeps private memory of 64 clients that have left, all is copied.
    ///
    /// The request has the data no more, in either case. Its client is not held up: its buffers come back with the reply, and what is
    /// kept takes nothing from its limits on pending bytes.
    ///
    /// ```
    /// # use genie_io::{Incoming, Kept, ServerError};
    /// fn store(request: &mut Incoming, stored: &mut Vec<Kept>) -> Result<(), ServerError> {
    ///     stored.push(request.keep(0)?);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Incoming::output`]. [`Error::KeptTooMuch`]: so many bytes of this client's outputs, or of all clients', may not be kept; the
    /// error's fields say which limit is met. A client that is replied this error finds the number `EDQUOT`. There is no memory. After
    /// an error the request has the data still.
    ///
    /// # Cost
    /// One copy into fresh memory, or none, and at least 128 bytes of what may be kept; for every 8 MiB copied, a look at the memory cgroup's files.
    pub fn keep(&mut self, index: usize) -> Result<Kept, Error> {
        self.ensure_own()?;
        let len = self.output(index)?.len();
        let allowance = Arc::clone(self.allowance());
        let held = self.private_footprint(index).and_then(|bytes| Some((allowance.hold()?, bytes)));
        let share = allowance.share(held.as_ref().map_or(len, |(_, bytes)| *bytes))?;
        let taken =
            held.and_then(|(hold, _)| Some((hold, self.work_mut().whole_mut()[index].take_private()?)));
        let memory = match taken {
            Some((hold, bytes)) => Memory::Taken(Taken { bytes: Some(bytes), is_changed: false, hold }),
            None => Memory::Copied(self.copied(index, len)?),
        };
        self.work_mut().set_kept(index);
        Ok(Kept { memory, _share: share })
    }

    /// How much memory the private buffer takes that an output's data fills by itself; none where there is no such buffer.
    fn private_footprint(&self, index: usize) -> Option<usize> {
        // Pins and fragments still show where the data was.
        if self.is_contracted() {
            return None;
        }
        self.buffer(index, Direction::Out).ok()?.private_footprint()
    }

    fn copied(&self, index: usize, len: usize) -> Result<Vec<u8>, Error> {
        cgroup::ensure_room_ahead(len)?;
        let mut bytes = Vec::new();
        let full = |_| {
            genie_sys::Error::new("allocation", format!("{len} bytes to keep an output in"), Errno::NOMEM)
        };
        bytes.try_reserve_exact(len).map_err(full)?;
        self.output(index)?.append_to(&mut bytes);
        Ok(bytes)
    }
}
