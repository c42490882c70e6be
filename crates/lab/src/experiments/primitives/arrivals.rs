//! Arrivals: a server in this process that has data in buffers of its own before a client asks for it.
//!
//! Why: operations on overlay buffers run only where a device or server has buffers of its own and client and server share
//! one space.
//! How: the server takes a buffer from the pool, copies the data to it, which stands for the wire, overlays the buffer on
//! the client's, and replies. It works in the client's thread. If it worked in a thread on another CPU, each change of the
//! client's mappings would have to interrupt that CPU. On a virtual machine that can take milliseconds, and neither the
//! parties nor the papers' hosts have to do it.
//! Limits: the data is in this CPU's cache when it is copied out, as far as it fits there.
//! Source: J. C. Brustoloni's thesis, §6.1 (pooled in-host buffering), §8.2.

use std::sync::Arc;

use genie::mechanism::Space;
use genie::{Incoming, RequestId, Server, ServerError, Service, ServiceId};
use genie_passing::{Overlays, Recorder};

use crate::error::Result;

/// Fills input buffer 0 with the data.
pub(super) const RECEIVE: ServiceId = ServiceId(0);

static SERVICES: [Service; 1] = [Service::new("receive", false, true)];

/// How many buffers the pool has: one with the client, one for the next arrival, one to spare.
const BUFFERS: usize = 3;

/// The server.
#[derive(Debug)]
pub(super) struct Arrivals {
    overlays: Overlays,
    data: Arc<[u8]>,
}

impl Arrivals {
    /// Opens the server with buffers for `data`, which arrives at each request.
    ///
    /// # Errors
    /// No memory for the pool.
    pub(super) fn open(space: &Space, recorder: &'static Recorder, data: Arc<[u8]>) -> Result<Self> {
        let overlays = Overlays::reserve(space, 0, data.len(), BUFFERS).map_err(genie::Error::from)?;
        Ok(Self { overlays: overlays.with_recorder(recorder), data })
    }

    fn arrive(&self, request: &mut Incoming) -> std::result::Result<(), ServerError> {
        let overlay =
            self.overlays.allocate().ok_or_else(|| ServerError::new("all pooled buffers are in use"))?;
        overlay.data().copy_from(&self.data);
        request.overlay(0, 0, overlay)?;
        request.set_actual(0, self.data.len())?;
        Ok(())
    }
}

impl Server for Arrivals {
    fn name(&self) -> &str {
        "arrivals"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.arrive(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // Every request is replied to before the call that made it returns.
    }
}
