//! The server's end of the wire, which has a space of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use genie_io::carrier::{
    Allowance, Caller, Code, Contract, Located, Mirrored, PrivateBuffer, RequestIds, Slot, Work, WorkBuffer,
    carried_room, program_name,
};
use genie_io::{Client, Error, Incoming, RequestId, ServiceId};
use genie_memory::{Config, Direction, Extent, Faults, Granularity, GranuleKind, Space};
use genie_passing::{CARRIED, Receipt, Scheme};
use genie_sys::lock::Mutex;

use super::{Buffer, Failure, Success, ToClient, ToServer, received, send};

/// How long what a request has originated may take to be let go.
const GRACE: Duration = Duration::from_millis(20);

/// The server's end, which is its client's caller.
pub(super) struct There {
    code: Code,
    client: Client,
    /// Memory for what no record carries.
    space: Space,
    allowance: Arc<Allowance>,
    ids: RequestIds,
    pending: Mutex<HashMap<u32, Entry>>,
    to: Mutex<Sender<Vec<u8>>>,
}

struct Entry {
    id: RequestId,
    contract: Weak<Contract>,
    is_aborted: bool,
    is_anticipated: bool,
}

impl There {
    /// The end of a server, whose replies go to `to`.
    pub(super) fn new(code: Code, to: Sender<Vec<u8>>) -> Arc<Self> {
        let config = Config {
            granularity: Granularity::Only(GranuleKind::Base),
            limit: 32 << 20,
            faults: Faults::Never,
            kernel_never_stores: false,
            pool: 8 << 20,
        };
        Arc::new(Self {
            code,
            client: Client::new(std::process::id(), 0, program_name()),
            space: Space::new(&config).expect("memory"),
            allowance: Allowance::elsewhere(32 << 20, (Arc::default(), usize::MAX)),
            ids: RequestIds::default(),
            pending: Mutex::default(),
            to: Mutex::new(to),
        })
    }

    /// Makes of what comes what the server's code gets, until the client is gone.
    pub(super) fn serve(self: Arc<Self>, from: &Receiver<Vec<u8>>) {
        for bytes in from {
            match received(&bytes) {
                ToServer::Request { number, service, argument, room, buffers } => {
                    let work = self.work(&argument, room, buffers);
                    let id = self.ids.take();
                    let entry = Entry { id, contract: Weak::new(), is_aborted: false, is_anticipated: false };
                    self.pending.lock().insert(number, entry);
                    let caller = Arc::<Self>::clone(&self);
                    let slot = Slot { index: number, generation: 0 };
                    let offered = &self.code.services()[service as usize];
                    let brought = Incoming::brought(work, (caller, slot, id), (ServiceId(service), offered));
                    self.code.request(|| brought);
                }
                ToServer::Abort(number) => self.let_go(number),
            }
        }
        // The client is gone.
        let left: Vec<_> = self.pending.lock().keys().copied().collect();
        left.into_iter().for_each(|number| self.let_go(number));
    }

    fn work(&self, argument: &[u8], room: usize, buffers: Vec<Buffer>) -> Box<Work> {
        let is_carried = |len: usize| len <= CARRIED / 2;
        let elements = buffers.iter().flat_map(|buffer| &buffer.elements).copied();
        let mut room_left =
            elements.filter(|len| is_carried(*len)).map(carried_room).sum::<usize>().min(1024);
        let mut work = Work::received(argument, room);
        for Buffer { output, elements } in buffers {
            let direction = if output.is_some() { Direction::Out } else { Direction::In };
            work.begin_buffer(direction, true);
            let mut bytes = output.unwrap_or_default();
            for len in elements {
                let rest = bytes.split_off(len.min(bytes.len()));
                if is_carried(len) && carried_room(len) <= room_left {
                    room_left -= carried_room(len);
                    work.receive(direction, &bytes, len);
                } else {
                    let buffer = self.space.system_buffer(len).expect("memory");
                    buffer.data().copy_from(&bytes);
                    let mut located = Located::named(buffer.segments(), len, Receipt::new(Scheme::Fragment));
                    located.keep(PrivateBuffer { buffer, places: Vec::new() });
                    work.add_located(located);
                }
                bytes = rest;
            }
        }
        work
    }

    /// Asks the server to let a request go, after what it has originated.
    fn let_go(&self, number: u32) {
        let entry = self.pending.lock().get_mut(&number).map(|entry| {
            entry.is_aborted = true;
            (entry.id, entry.contract.upgrade())
        });
        if let Some((id, contract)) = entry {
            contract.iter().for_each(|contract| contract.evict(&Error::Aborted, GRACE));
            self.code.abort(id);
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        self.code.departed(self.client.id);
    }
}

impl fmt::Debug for There {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("There").finish_non_exhaustive()
    }
}

impl Caller for There {
    fn client(&self) -> &Client {
        &self.client
    }

    fn allowance(&self) -> &Arc<Allowance> {
        &self.allowance
    }

    fn is_aborted(&self, request: Slot) -> bool {
        self.pending.lock().get(&request.index).is_none_or(|entry| entry.is_aborted)
    }

    fn reply(&self, request: Slot, mut work: Box<Work>, error: Option<Error>) {
        let error = error.or_else(|| work.check_inputs().and_then(|()| work.bring()).err());
        work.let_go();
        let entry = self.pending.lock().remove(&request.index).expect("a request is replied to once");
        let number = request.index;
        let message = match (entry.is_anticipated, error) {
            (true, _) => ToClient::Done(number),
            (false, error) => {
                let outcome = error.map_or_else(|| Ok(success(&work)), |error| Err(failure(error)));
                ToClient::Reply { number, is_anticipated: false, outcome }
            }
        };
        // A client that is gone gets no reply.
        send(&self.to.lock(), &message);
        work.end();
    }

    fn anticipate(&self, request: Slot, work: &Work) {
        if let Some(entry) = self.pending.lock().get_mut(&request.index) {
            entry.is_anticipated = true;
        }
        let (number, outcome) = (request.index, Ok(success(work)));
        send(&self.to.lock(), &ToClient::Reply { number, is_anticipated: true, outcome });
    }

    fn progress(&self, request: Slot, buffer: usize, len: usize) {
        send(&self.to.lock(), &ToClient::Progress { number: request.index, buffer, len });
    }

    fn locations(&self, _named: &[(u16, Extent)]) -> Mirrored {
        Mirrored::new() // no memory of the client's is here
    }

    fn contracted(&self, request: Slot, contract: &Arc<Contract>) -> bool {
        let mut pending = self.pending.lock();
        let Some(entry) = pending.get_mut(&request.index) else { return true };
        entry.contract = Arc::downgrade(contract);
        entry.is_aborted
    }
}

fn success(work: &Work) -> Success {
    let passed = |(index, buffer): (usize, &WorkBuffer)| {
        let actual = buffer.actual();
        let is_input = buffer.direction() == Direction::In && actual > 0;
        let bytes =
            if is_input { work.input(index).into_data().part(0..actual).to_vec() } else { Vec::new() };
        (actual, bytes)
    };
    let argument = work.reply_argument().to_vec();
    Success { argument, buffers: work.buffers().iter().enumerate().map(passed).collect() }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Dropped => Failure::Dropped,
        Error::Panicked { message } => Failure::Panicked(message),
        Error::ArgumentTooLong { len, .. } => Failure::ArgumentTooLong(len),
        Error::Untold { buffer } => Failure::Untold(buffer),
        Error::Server(error) => Failure::Server(error.code, error.message),
        error => Failure::Server(0, error.to_string()),
    }
}
