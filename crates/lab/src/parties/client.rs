//! A client, which is a sender or a receiver: its interface, its way to the device, and the memory whose data it passes.

use genie::channel::{ConnectOptions, Directory};
use genie::{Connect, Failed, Interface, Out, Pending, Reply, Scheme, ServerHandle};
use genie_passing::Recorder;
use genie_sys::machine;

use super::order::{Attending, Route};
use super::pattern;
use crate::client_buffer::{ClientBuffer, Prepared};
use crate::device::{DISCARD, RECEIVE, TRANSMIT, argument};
use crate::error::{Error, Result};
use crate::model::breakdown::Buffering;
use crate::operations::{self, OperationTime};
use crate::protocol::{Check, Protocol};

/// The port at which sender and receiver meet.
const PORT: u32 = 1;
/// Room for the operations of one request, and of those that tidy up after it.
const RECORDS: usize = 64;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    // The buffers go before the interface.
    memory: ClientBuffer,
    pub(super) server: ServerHandle,
    pub(super) driver: Driver,
    pub(super) genie: Interface,
    recorder: &'static Recorder,
}

/// What is between a client and the device.
#[derive(Debug, Clone)]
pub(super) struct Driver {
    /// In the client's process.
    protocol: Option<Protocol>,
    /// In another process, with the interface that reaches it.
    relay: Option<(Interface, ServerHandle)>,
}

impl Driver {
    /// Has a protocol server in this process protect datagrams by `check`.
    pub(super) fn set_check(&self, check: Check) {
        if let Some(protocol) = &self.protocol {
            protocol.set_check(check);
        }
    }

    /// Waits until a protocol server in another process has done all earlier requests: it takes requests in order.
    pub(super) fn settle(&self) -> Result<()> {
        if let Some((genie, relay)) = &self.relay {
            genie.request(relay, DISCARD).send().map_err(|failed| failed.error)?;
        }
        Ok(())
    }
}

impl Client {
    /// Opens an interface and connects it to the device.
    pub(super) fn open(attending: &Attending) -> Result<Self> {
        // If the limit cannot be raised, that shows when memory cannot be wired.
        let _ = machine::raise_memory_lock_limit();
        let recorder = Recorder::new(RECORDS);
        recorder.pause(true);
        let genie = attending.granule.open_recorded(recorder)?;
        let options = ConnectOptions { spin: Some(attending.spin), ..ConnectOptions::default() };
        let directory = Directory::at(&attending.folder)?;
        let connected = genie.connect_with(&directory, &attending.server, &options)?;
        let (mut driver, mut server) = (Driver { protocol: None, relay: None }, connected.clone());
        match attending.route {
            Route::Device => {}
            Route::InProcess => {
                let protocol = Protocol::adjustable(genie.clone(), connected);
                server = ServerHandle::new(protocol.clone());
                driver.protocol = Some(protocol);
            }
            Route::Process(_) => driver.relay = Some((genie.clone(), connected)),
        }
        Ok(Self { memory: ClientBuffer::default(), server, driver, genie, recorder })
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
        let Self { memory, server, genie, .. } = self;
        let element = memory.output(scheme, prepared);
        genie.request(server, TRANSMIT).out(element).argument(&argument(PORT)).submit()
    }

    /// Requests an input, without waiting.
    pub(super) fn post(
        &mut self,
        scheme: Scheme,
        len: usize,
    ) -> Result<std::result::Result<Pending<'_>, Failed>> {
        let Self { memory, server, genie, .. } = self;
        let element = memory.input(genie, scheme, len)?;
        Ok(genie.request(server, RECEIVE).input(element).argument(&argument(PORT)).submit())
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
            // If the buffer were deallocated, its region would be kept for emulated move, and the kept regions would grow
            // without end.
            let removal = self.genie.request(&self.server, DISCARD).out(Out::moved(migrant));
            removal.send().map_err(|failed| failed.error)?;
        }
        Ok(found)
    }
}
