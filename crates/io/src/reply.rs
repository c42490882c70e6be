//! Replies: what a client gets for a request.

use genie_memory::{Buffer, Migrant};
use genie_passing::{Receipt, TotalReceipt};
use smallvec::SmallVec;

/// A buffer that was given by value, or that a migrant input brought.
#[derive(Debug, Default)]
pub enum Returned {
    /// Nothing: the element was borrowed, or its buffer is the server's now.
    #[default]
    Nothing,
    /// The native buffer that was shared.
    Buffer(Buffer),
    /// The migrant buffer that arrived, or that a failed output gives back.
    Migrant(Migrant),
}

impl Returned {
    fn into_buffer(self) -> Result<Buffer, Self> {
        if let Self::Buffer(buffer) = self { Ok(buffer) } else { Err(self) }
    }

    fn into_migrant(self) -> Result<Migrant, Self> {
        if let Self::Migrant(migrant) = self { Ok(migrant) } else { Err(self) }
    }
}

/// The outcome of one element.
#[derive(Debug)]
pub struct ReplyElement {
    /// What was done.
    pub receipt: Receipt,
    /// What comes back.
    pub returned: Returned,
}

/// The outcome of one buffer.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    /// Bytes really passed, as the server says: 0 for an output, too, unless the server says otherwise. A success may come with
    /// fewer bytes than an input has room for, or with none: a server that never fills the input, or that does not say how much
    /// came, replies with 0. What lies behind these bytes in the client's buffer is what was there before, by share perhaps what
    /// the server has left there.
    pub actual: usize,
    /// The elements, in the request's order.
    pub elements: SmallVec<[ReplyElement; 1]>,
}

/// A successful reply.
#[derive(Debug, Default)]
pub struct Reply {
    /// Whether the server replied before it was done (an anticipated reply); its output receipts are then interim.
    pub anticipated: bool,
    pub(crate) argument: SmallVec<[u8; 16]>,
    /// The buffers, in the request's order.
    pub buffers: SmallVec<[ReplyBuffer; 2]>,
}

impl Reply {
    /// What was done for all elements together; [`Reply::receipts`] gives each one's own receipt.
    ///
    /// # Cost
    /// The receipts are added up in each call, and nothing is allocated.
    pub fn receipt(&self) -> TotalReceipt {
        self.receipts().collect()
    }

    /// Each element's receipt, buffer by buffer. That of one element is `reply.buffers[0].elements[0].receipt`.
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.buffers.iter().flat_map(|buffer| &buffer.elements).map(|element| &element.receipt)
    }

    /// Bytes really passed in the first buffer alone: see [`ReplyBuffer::actual`]. Where buffer 0 is an output, the bytes of an
    /// input that follows it are `reply.buffers[1].actual`.
    ///
    /// A client that needs all of an input, or that cannot tell its data from old data, compares this with the input's length:
    /// shorter data is no error.
    ///
    /// # Panics
    /// When the request had no buffer.
    pub fn actual(&self) -> usize {
        self.buffers[0].actual
    }

    /// The argument that the server gave back, for which [`Request::room`](crate::Request::room) made room; empty if the server
    /// gave none.
    pub fn argument(&self) -> &[u8] {
        &self.argument
    }

    /// Takes the next native buffer that comes back.
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        take(&mut self.buffers, Returned::into_buffer)
    }

    /// Takes the next migrant buffer that arrived.
    pub fn take_migrant(&mut self) -> Option<Migrant> {
        take(&mut self.buffers, Returned::into_migrant)
    }
}

impl crate::Failed {
    /// Takes the next native buffer that comes back.
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        take(&mut self.buffers, Returned::into_buffer)
    }

    /// Takes the next migrant buffer that comes back.
    pub fn take_migrant(&mut self) -> Option<Migrant> {
        take(&mut self.buffers, Returned::into_migrant)
    }
}

/// Takes the first returned buffer that `wanted` accepts.
fn take<T>(buffers: &mut [ReplyBuffer], wanted: impl Fn(Returned) -> Result<T, Returned>) -> Option<T> {
    for element in buffers.iter_mut().flat_map(|buffer| &mut buffer.elements) {
        match wanted(std::mem::take(&mut element.returned)) {
            Ok(found) => return Some(found),
            Err(other) => element.returned = other,
        }
    }
    None
}
