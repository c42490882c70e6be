//! A client, which is a sender or a receiver: its interface, its way to the other one, and the memory whose data it passes.

use std::cell::RefCell;
use std::rc::Rc;

use genie::channel::{ConnectOptions, Directory};
use genie::{Connect, Failed, Interface, Pending, Reply, Request, Scheme, ServerHandle, ServiceId, memory};
use genie_net::datagram::{self, Socket};
use genie_net::namespaces::Namespace;
use genie_net::transfer;
use genie_passing::Recorder;
use genie_sys::machine;

use super::host::{self, Bringing};
use super::order::{Attending, Network, Place, Route};
use super::pattern;
use crate::client_buffer::{ClientBuffer, Prepared, give_away};
use crate::error::{Error, Result};
use crate::medium::Copied;
use crate::model::breakdown::Buffering;
use crate::operations::{self, OperationTime};

/// The device's port at which sender and receiver meet.
const PORT: u16 = 1;
/// Room for the operations of one request, and of those that tidy up after it.
const RECORDS: usize = 64;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    // The buffers go before the interface.
    memory: ClientBuffer,
    pub(super) server: ServerHandle,
    pub(super) driver: Driver,
    /// Takes the buffers that are given away.
    sink: ServerHandle,
    pub(super) genie: Interface,
    recorder: &'static Recorder,
}

/// A client's way to the other one.
#[derive(Debug, Clone)]
pub(super) struct Driver {
    terms: Rc<Terms>,
    /// What brings frames to a datagram server in the client's process.
    bringing: Option<Rc<RefCell<Bringing>>>,
    /// A server that takes requests in another process and in their order, with the interface that reaches it.
    elsewhere: Option<(Interface, ServerHandle)>,
}

/// How a server is asked.
#[derive(Debug)]
struct Terms {
    transmit: (ServiceId, Vec<u8>),
    receive: (ServiceId, Vec<u8>),
    /// What touches no data.
    nothing: (ServiceId, Vec<u8>),
    /// Room for the arguments of replies.
    room: usize,
    /// The port, as long as it is to be open.
    _socket: Option<Socket>,
}

impl Terms {
    /// Of the device.
    fn of_device() -> Self {
        let [transmit, receive] =
            [transfer::SEND, transfer::RECEIVE].map(|service| (service, transfer::port(PORT).to_vec()));
        // It sends no bytes where it has no buffers.
        let nothing = transmit.clone();
        Self { transmit, receive, nothing, room: 0, _socket: None }
    }

    /// The client of a datagram server.
    fn of_socket(socket: Socket) -> Self {
        let port = datagram::port_argument(socket.port()).to_vec();
        Self {
            transmit: (datagram::SEND, datagram::send_argument(socket.port(), None).to_vec()),
            receive: (datagram::RECEIVE, port.clone()),
            nothing: (datagram::STATISTICS, port),
            room: datagram::COUNTERS.max(datagram::ARRIVED),
            _socket: Some(socket),
        }
    }

    fn request<'r, 'o, 'i>(
        &self,
        genie: &'r Interface,
        server: &'r ServerHandle,
        (service, argument): &'o (ServiceId, Vec<u8>),
    ) -> Request<'r, 'o, 'i> {
        genie.request(server, *service).argument(argument).room(self.room)
    }
}

impl Driver {
    /// Waits until a server in another process has taken all earlier requests.
    pub(super) fn settle(&self) -> Result<()> {
        if let Some((genie, server)) = &self.elsewhere {
            let request = self.terms.request(genie, server, &self.terms.nothing);
            request.send().map_err(|failed| failed.error)?;
        }
        Ok(())
    }

    /// Looks for frames.
    pub(super) fn attend(&self) -> Result<()> {
        self.bringing.as_ref().map_or(Ok(()), |bringing| bringing.borrow_mut().attend())
    }

    /// What was copied so far for frames, where they come or go over a link of the kernel's in this process.
    pub(super) fn brought(&self) -> Option<Copied> {
        self.bringing.as_ref().and_then(|bringing| bringing.borrow().copied())
    }

    /// What was copied since.
    pub(super) fn brought_since(&self, before: Option<Copied>) -> Option<Copied> {
        Some(self.brought()? - before?)
    }
}

impl Client {
    /// Opens an interface, and connects it to what leads to the other client, by an interface in `namespace` if there is one.
    pub(super) fn open(attending: &Attending, namespace: Option<&Namespace>) -> Result<Self> {
        // If the limit cannot be raised, that shows when memory cannot be wired.
        let _ = machine::raise_memory_lock_limit();
        let recorder = Recorder::new(RECORDS);
        recorder.pause(true);
        let genie = attending.granule.open_recorded(recorder)?;
        attending.route.adjust(&genie);
        let connect = || -> Result<ServerHandle> {
            let options = ConnectOptions { spin: Some(attending.spin), ..ConnectOptions::default() };
            Ok(genie.connect_with(&Directory::at(&attending.folder)?, &attending.server, &options)?)
        };
        let (mut bringing, mut elsewhere) = (None, None);
        let server = match attending.route {
            Route::Datagrams(Network { place: Place::InProcess, .. }) => {
                let (server, found) = host::here(attending, &genie, namespace)?;
                bringing = found.map(|found| Rc::new(RefCell::new(found)));
                ServerHandle::new(server)
            }
            Route::Device(_) | Route::Datagrams(Network { place: Place::OwnProcess, .. }) => {
                elsewhere.insert((genie.clone(), connect()?)).1.clone()
            }
        };
        let terms = match attending.route.network() {
            None => Terms::of_device(),
            Some(_) => Terms::of_socket(attending.end.open(&genie, &server)?),
        };
        let driver = Driver { terms: Rc::new(terms), bringing, elsewhere };
        let sink = ServerHandle::new(memory::Memory::customized());
        Ok(Self { memory: ClientBuffer::default(), server, driver, sink, genie, recorder })
    }

    /// Has the times of operations recorded from now on.
    pub(super) fn record(&self) {
        drop(self.recorder.drain());
        self.recorder.pause(false);
    }

    /// Ends the recording; returns the recorded times.
    pub(super) fn recorded(&self) -> Vec<OperationTime> {
        self.recorder.pause(true);
        operations::times(&self.recorder.drain(), Buffering::EarlyDemultiplexed)
    }

    /// Stores the data of `seed` in the buffer from which a scheme sends it.
    pub(super) fn prepare(&mut self, scheme: Scheme, len: usize, seed: u64) -> Result<Prepared> {
        let Self { memory, genie, .. } = self;
        Ok(memory.prepare(genie, scheme, len, |bytes| pattern::fill(bytes, seed))?)
    }

    /// Requests an output of the prepared data.
    pub(super) fn transmit(
        &mut self,
        scheme: Scheme,
        prepared: Prepared,
    ) -> std::result::Result<Pending<'static>, Failed> {
        let Self { memory, server, driver, genie, .. } = self;
        let request = driver.terms.request(genie, server, &driver.terms.transmit);
        request.out(memory.output(scheme, prepared)).submit()
    }

    /// Requests an input, without waiting.
    pub(super) fn post(
        &mut self,
        scheme: Scheme,
        len: usize,
    ) -> Result<std::result::Result<Pending<'_>, Failed>> {
        let Self { memory, server, driver, genie, .. } = self;
        let element = memory.input(genie, scheme, len)?;
        Ok(driver.terms.request(genie, server, &driver.terms.receive).input(element).submit())
    }

    /// Takes back a shared buffer from a reply, or from the request that failed.
    pub(super) fn settle(&mut self, result: std::result::Result<Reply, Failed>) -> Result<Reply> {
        Ok(self.memory.settle(result)?)
    }

    /// Takes back a shared buffer from a request that failed; returns why it failed.
    pub(super) fn failed(&mut self, mut failed: Failed) -> Error {
        self.memory.take_back(failed.take_buffer());
        failed.error.into()
    }

    /// Compares the bytes that an input brought with the data of `seed`, and gives the buffer back if it is a migrant one.
    pub(super) fn judge(&mut self, scheme: Scheme, reply: &mut Reply, seed: u64) -> Result<Option<usize>> {
        let Some(migrant) = reply.take_migrant() else {
            return Ok(self.memory.native().map_or(Some(0), |bytes| pattern::mismatch(bytes, seed)));
        };
        let found = pattern::mismatch(&migrant, seed);
        if scheme == Scheme::Move {
            give_away(&self.genie, &self.sink, migrant)?;
        }
        Ok(found)
    }
}
