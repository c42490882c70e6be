//! The two parties of a comparison: a client's interface and the memory server, which keeps the data.

use genie::{Error, Interface, Out, Request, ServerHandle, ServiceId, memory};

use super::data::Data;
use super::options::Args;
use crate::failure::Failure;

/// The name under which the server keeps the data.
const KEY: &[u8] = b"file";
/// What the server is asked to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    service: ServiceId,
    argument: &'static [u8],
    room: usize,
}

impl Task {
    /// Nothing.
    pub(super) const NULL: Self = Self { service: memory::NULL, argument: b"", room: 0 };
    /// Read every byte of an output and reply their sum.
    pub(super) const SUM: Self = Self { service: memory::SINK, argument: b"", room: 8 };
    /// Compare every byte of an output with the data.
    pub(super) const CHECK: Self = Self { service: memory::CHECK, argument: KEY, room: 0 };
    /// Write the data into an input.
    pub(super) const FETCH: Self = Self { service: memory::FETCH, argument: KEY, room: 0 };
}

/// The parties and the data.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) genie: Interface,
    pub(super) data: Data,
    server: ServerHandle,
}

impl Bench {
    /// Opens the interface and the server, and gives the server the data.
    pub(super) fn open(args: &Args, data: Data) -> Result<Self, Failure> {
        let genie = args.granule.open()?;
        let server = args.buffers.open(&genie, data.all().len())?;
        let store = genie.request(&server, memory::STORE).out(Out::copy(data.all())).argument(KEY);
        store.send().map_err(Failure::could_not)?;
        Ok(Self { genie, data, server })
    }

    /// Begins a request for a task; its buffer is added by `with`, and then its arguments.
    #[inline]
    pub(super) fn request<'r, 'o, 'i>(
        &'r self,
        task: Task,
        with: impl FnOnce(Request<'r, 'o, 'i>) -> Request<'r, 'o, 'i>,
    ) -> Request<'r, 'o, 'i> {
        with(self.genie.request(&self.server, task.service)).argument(task.argument).room(task.room)
    }

    /// Makes a request without any buffer.
    pub(super) fn empty_request(&self) -> Result<(), Error> {
        self.genie.request(&self.server, memory::NULL).send().map(drop).map_err(|failed| failed.error)
    }
}
