//! A client in the real world: its buffers, its scheme, and the outputs that the holder has of it.

use std::ops::{Deref, DerefMut, Range};
use std::time::Duration;

use genie_conformance::Scene;
use genie_io::{Error, In, Out, Pending};
use genie_memory::Buffer;
use genie_passing::Scheme;

use super::action::{BESIDE, BESIDE_BYTES, BUFFERS, Delivery, End};
use crate::support::holder::{HOLD, Holder, Name};

/// A client's memory.
pub(crate) enum Memory {
    Region(Buffer),
    Heap(Vec<u8>),
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Region(buffer) => buffer,
            Self::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Region(buffer) => buffer,
            Self::Heap(bytes) => bytes,
        }
    }
}

/// An output at the server; the client may have given it up.
struct Held {
    id: Name,
    pending: Option<Pending<'static>>,
}

/// One client.
pub(crate) struct World<'t> {
    transport: &'t Scene,
    scheme: Scheme,
    pub(crate) buffers: [Option<Memory>; BUFFERS],
    outputs: Vec<Held>,
}

/// What an input is to do.
pub(crate) struct InputAction<'a> {
    pub(crate) buffer: usize,
    pub(crate) range: Range<usize>,
    /// What the server writes.
    pub(crate) bytes: &'a [u8],
    /// How much of it is passed.
    pub(crate) actual: usize,
    pub(crate) delivery: Delivery,
    pub(crate) end: End,
}

impl<'t> World<'t> {
    pub(crate) fn new(transport: &'t Scene, scheme: Scheme) -> Self {
        Self { transport, scheme, buffers: Default::default(), outputs: Vec::new() }
    }

    fn holder(&self) -> &'t Holder {
        self.transport.holder()
    }

    /// Allocates a buffer: a region, or heap memory where the scheme copies anyway.
    pub(crate) fn allocate(&mut self, buffer: usize, offset: usize, content: &[u8]) {
        self.buffers[buffer] = None;
        let mut memory = if self.scheme == Scheme::Copy {
            Memory::Heap(vec![0; content.len()])
        } else {
            Memory::Region(self.transport.interface().allocate_at(offset, content.len()).expect("a buffer"))
        };
        memory.copy_from_slice(content);
        self.buffers[buffer] = Some(memory);
    }

    pub(crate) fn output(&mut self, buffer: usize, range: Range<usize>) {
        let Some(memory) = self.buffers[buffer].take() else { return };
        self.submit(&memory[range]);
        self.buffers[buffer] = Some(memory);
    }

    fn submit(&mut self, bytes: &[u8]) {
        let request = self.transport.interface().request(self.holder().handle(), HOLD);
        let pending = request.out(Out::borrowed(self.scheme, bytes)).submit().expect("a request");
        self.outputs.push(Held { id: pending.id().into(), pending: Some(pending) });
    }

    /// A synchronous output for which the server takes too long; it keeps the request.
    pub(crate) fn timed_out(&mut self, buffer: usize, range: Range<usize>) -> Result<(), Error> {
        let Some(memory) = &self.buffers[buffer] else { return Ok(()) };
        self.holder().set_obliging(false);
        let before = self.holder().held();
        let request = self.transport.interface().request(self.holder().handle(), HOLD);
        let out = Out::borrowed(self.scheme, &memory[range]);
        let result = request.timeout(Duration::from_micros(100)).out(out).send();
        let id =
            self.holder().held().into_iter().find(|id| !before.contains(id)).expect("the server keeps it");
        self.outputs.push(Held { id, pending: None });
        result.map(drop).map_err(|failed| failed.error)
    }

    /// What the server sees of an output.
    pub(crate) fn read(&self, output: usize) -> Vec<u8> {
        self.holder().read(self.outputs[output].id)
    }

    pub(crate) fn anticipate(&mut self, output: usize) -> Option<bool> {
        let held = &mut self.outputs[output];
        let pending = held.pending.take()?;
        self.transport.holder().anticipate(held.id);
        Some(pending.sync().expect("an anticipated reply").anticipated)
    }

    /// Ends an output; returns the client's reply, if it waits for one.
    pub(crate) fn complete(&mut self, output: usize, end: End) -> Option<Result<(), Error>> {
        let id = self.outputs[output].id;
        let pending = self.outputs[output].pending.take();
        if end != End::AbortedInVain {
            self.outputs.remove(output);
        }
        let Some(pending) = pending else {
            // Its client has gone; the server lets it go, whichever way.
            if end != End::AbortedInVain {
                self.holder().drop_request(id);
            }
            return None;
        };
        Some(self.end(pending, end))
    }

    fn end(&self, pending: Pending<'_>, end: End) -> Result<(), Error> {
        let id = pending.id().into();
        self.holder().set_obliging(end == End::Aborted);
        let result = match end {
            End::Aborted | End::AbortedInVain => pending.abort(),
            End::Success | End::Failure | End::Dropped => {
                self.finish(id, end);
                pending.sync()
            }
        };
        result.map(drop).map_err(|failed| failed.error)
    }

    fn finish(&self, id: Name, end: End) {
        match end {
            End::Failure => self.holder().fail(id, "the server fails"),
            End::Dropped => self.holder().drop_request(id),
            _ => self.holder().reply(id),
        }
    }

    /// Stores behind an input that is pending, outputs what lies there and stores again.
    fn beside(&mut self, behind: &mut [u8]) {
        let [stored, output] = BESIDE.map(|more| more.min(behind.len()));
        behind[..stored].fill(BESIDE_BYTES[0]);
        self.submit(&behind[..output]);
        behind[..stored].fill(BESIDE_BYTES[1]);
    }

    /// An input from request to reply; the server writes before it decides how it ends.
    pub(crate) fn input(&mut self, input: &InputAction<'_>) -> Result<(), Error> {
        let Some(mut memory) = self.buffers[input.buffer].take() else { return Ok(()) };
        let mut other = self.buffers[1 - input.buffer].take();
        let (bytes, behind) = memory.split_at_mut(input.range.end);
        let bytes = &mut bytes[input.range.start..];
        let request = self.transport.interface().request(self.holder().handle(), HOLD);
        let request = if input.delivery == Delivery::Split {
            let (low, high) = bytes.split_at_mut(input.range.len() / 3);
            request.input(In::borrowed(self.scheme, low)).and_input(In::borrowed(self.scheme, high))
        } else {
            request.input(In::borrowed(self.scheme, bytes))
        };
        let pending = request.submit().expect("a request");
        let id = pending.id();
        self.holder().write(id, 0, input.bytes);
        self.holder().set_actual(id, input.actual);
        if input.delivery == Delivery::Beside {
            self.beside(behind);
        }
        let result = match (input.delivery, input.end, &mut other) {
            (Delivery::Redirected, End::Success, Some(other)) if other.len() >= input.range.end => {
                self.holder().reply(id);
                pending.redirect([&mut other[input.range.clone()]]).map(drop).map_err(|failed| failed.error)
            }
            (Delivery::Peeked, End::Success, _) => {
                self.holder().reply(id);
                let mut peeked = vec![0; input.actual.min(64)];
                let found = pending.peek(&mut [&mut peeked]);
                assert_eq!(found, Ok(vec![peeked.len()]), "bytes peeked at");
                assert_eq!(peeked, input.bytes[..peeked.len()], "bytes peeked at");
                pending.sync().map(drop).map_err(|failed| failed.error)
            }
            (_, end, _) => self.end(pending, end),
        };
        if input.end == End::AbortedInVain {
            // The server finishes late, which must not show.
            self.holder().reply(id);
        }
        self.buffers[input.buffer] = Some(memory);
        self.buffers[1 - input.buffer] = other;
        result
    }
}
