//! The client of the pooled server: it receives the same data by each scheme.

use std::sync::Arc;

use genie::{Interface, Reason, Reply, Scheme, ServerHandle, memory};
use genie_passing::Recorder;

use super::arrivals::{Arrivals, RECEIVE};
use crate::client_buffer::{ClientBuffer, give_away};
use crate::error::{Error, Result};
use crate::interface::Granule;
use crate::model::breakdown::Buffering;
use crate::operations::{self, OperationTime};

/// The offset from the beginning of a granule of a buffer that is not aligned with the pool's buffers: it begins a cache
/// line, so that only the offset differs.
const OFFSET: usize = 128;

/// The client and its server.
pub(super) struct Pooled {
    // The buffers and the server go before the interface.
    aligned: ClientBuffer,
    unaligned: ClientBuffer,
    arrivals: ServerHandle,
    /// Takes the buffers that are given away.
    sink: ServerHandle,
    genie: Interface,
    recorder: &'static Recorder,
    data: Arc<[u8]>,
}

impl Pooled {
    /// Opens an interface, and in its space a server from which data of `len` bytes arrives.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn open(granule: Granule, recorder: &'static Recorder, len: usize) -> Result<Self> {
        recorder.pause(true);
        let genie = granule.open_recorded(recorder)?;
        let data: Arc<[u8]> = (0..len).map(|index| (index % 251) as u8).collect();
        let arrivals = ServerHandle::new(Arrivals::open(genie.space(), recorder, Arc::clone(&data))?);
        let aligned = genie.allocate(len)?.into();
        let unaligned = genie.allocate_at(OFFSET, len)?.into();
        let sink = ServerHandle::new(memory::Memory::customized());
        Ok(Self { aligned, unaligned, arrivals, sink, genie, recorder, data })
    }

    /// Receives the data once; returns how long the operations took. No times are returned where data was copied although
    /// the buffers are aligned (it was too short to be swapped), or the region was not wired.
    ///
    /// # Errors
    /// The request failed, or the data is damaged.
    pub(super) fn receive(&mut self, scheme: Scheme, buffering: Buffering) -> Result<Vec<OperationTime>> {
        let is_aligned = buffering.is_aligned();
        let Self { aligned, unaligned, genie, recorder, data, .. } = self;
        let memory = if is_aligned { aligned } else { unaligned };
        let request =
            genie.request(&self.arrivals, RECEIVE).input(memory.input(genie, scheme, data.len())?);
        recorder.pause(false);
        let replied = request.send();
        recorder.pause(true);
        let times = operations::times(&recorder.drain(), buffering);
        let mut reply = memory.settle(replied)?;
        let receipt = reply.buffers[0].elements[0].receipt;
        self.judge(scheme, &mut reply, is_aligned)?;
        let is_another = receipt.effective != scheme;
        let is_unwired = receipt.reason == Some(Reason::Unwired);
        Ok(if is_unwired || is_aligned && is_another { Vec::new() } else { times })
    }

    /// Compares the data that came, and gives a migrant buffer back.
    fn judge(&self, scheme: Scheme, reply: &mut Reply, is_aligned: bool) -> Result<()> {
        let native = if is_aligned { self.aligned.native() } else { self.unaligned.native() };
        let migrant = reply.take_migrant();
        let bytes = migrant.as_deref().or(native).unwrap_or_default();
        if *bytes != *self.data {
            return Err(Error::Peer(format!(
                "data that was received by {scheme} from a pooled server arrived damaged; this is an error of Genie's, \
                 please report it"
            )));
        }
        if let Some(migrant) = migrant.filter(|_| scheme == Scheme::Move) {
            give_away(&self.genie, &self.sink, migrant)?;
        }
        Ok(())
    }
}
