//! The parties of a comparison: a client's interface and the memory servers, which keep the data.

use std::time::Duration;

use genie::{Error, Interface, Out, Request, ServerHandle, ServiceId, memory};
use genie_lab::data::Data;
use genie_lab::memory_server::{self, Buffers};
use genie_lab::peer::Peer;

use crate::failure::Failure;

/// The name under which the server keeps the data.
const KEY: &[u8] = b"file";
/// How long both sides spin where each has a CPU of its own: longer than requests take. The baselines with names that
/// end in -polled do the same.
pub(super) const POLLED: Duration = Duration::from_millis(3);

/// Where a server is. To a client, the only difference is the handle that its requests go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the client's process and thread, as a kernel-level server.
    InProcess,
    /// In another process, on another CPU where there is one.
    Process,
}

/// A server that was opened, and its process, if that is not this process.
#[derive(Debug)]
struct Opened {
    place: Place,
    // Declared in the order in which they are to go.
    handle: ServerHandle,
    _peer: Option<Peer>,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Process => "process",
        }
    }

    /// Opens a memory server in this place, whose own buffers, if it has any, are `longest` bytes long. A server in another
    /// process runs on `cpu`. Both sides spin for `spin` before they sleep, or for the default time if none is given.
    fn open(
        self,
        genie: &Interface,
        buffers: Buffers,
        longest: usize,
        cpu: Option<usize>,
        spin: Option<Duration>,
    ) -> Result<Opened, Failure> {
        let (handle, peer) = match self {
            Self::InProcess => (buffers.open(genie, longest)?, None),
            Self::Process => {
                let (handle, peer) = memory_server::connect(genie, buffers, longest, cpu, spin)?;
                (handle, Some(peer))
            }
        };
        Ok(Opened { place: self, handle, _peer: peer })
    }
}

/// A task that the server is asked to do.
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
    servers: Vec<Opened>,
    /// A server at which both sides sleep, where a server in another process is compared with baselines.
    asleep: Option<Opened>,
}

impl Bench {
    /// Opens servers in these places, on `cpu` if they have processes of their own, and gives them the data.
    pub(super) fn open(
        genie: Interface,
        data: Data,
        places: &[Place],
        buffers: Buffers,
        cpu: Option<usize>,
        has_baselines: bool,
    ) -> Result<Self, Failure> {
        let longest = data.all().len();
        let open = |place: &Place| place.open(&genie, buffers, longest, cpu, cpu.map(|_| POLLED));
        let servers = places.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for server in &servers {
            let store = genie.request(&server.handle, memory::STORE).out(Out::copy(data.all())).argument(KEY);
            store.send().map_err(Failure::could_not)?;
        }
        let is_across = places.contains(&Place::Process);
        let asleep = (is_across && has_baselines)
            .then(|| Place::Process.open(&genie, Buffers::Customized, 0, cpu, Some(Duration::ZERO)))
            .transpose()?;
        Ok(Self { genie, data, servers, asleep })
    }

    /// How many system buffers for `len` bytes rotate, whether they are whole granules or not.
    pub(super) fn rotation(&self, len: usize) -> u16 {
        let recycling = self.genie.passing().costs_for(len).recycling();
        let whole = len.next_multiple_of(self.genie.space().for_len(len).granule());
        recycling.rotation(len).max(recycling.rotation(whole))
    }

    /// The places where there are servers.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.servers.iter().map(|server| server.place)
    }

    /// The server in this place.
    fn server(&self, place: Place) -> &ServerHandle {
        let found = self.servers.iter().find(|server| server.place == place);
        &found.expect("subjects are of places that were opened").handle
    }

    /// Begins a request for a task; `with` adds the buffer, and then the arguments are added.
    #[inline]
    pub(super) fn request<'r, 'o, 'i>(
        &'r self,
        place: Place,
        task: Task,
        with: impl FnOnce(Request<'r, 'o, 'i>) -> Request<'r, 'o, 'i>,
    ) -> Request<'r, 'o, 'i> {
        with(self.genie.request(self.server(place), task.service)).argument(task.argument).room(task.room)
    }

    /// Makes a request without any buffer, for which both sides sleep until they are woken; returns false where there is no
    /// such server.
    pub(super) fn empty_request_asleep(&self) -> Result<bool, Error> {
        let Some(server) = &self.asleep else { return Ok(false) };
        let sent = self.genie.request(&server.handle, memory::NULL).send();
        sent.map(|_| true).map_err(|failed| failed.error)
    }

    /// Makes a request without any buffer.
    pub(super) fn empty_request(&self, place: Place, argument: &[u8]) -> Result<(), Error> {
        let request = self.genie.request(self.server(place), memory::NULL).argument(argument);
        request.send().map(drop).map_err(|failed| failed.error)
    }
}
