//! A test server that keeps what it is sent in memory: a peer for programs that try or measure how data is passed.
//!
//! Why: the plainest server that really moves data; experiments and tests need one whose own cost is known. A program of use has
//! a server of its own.
//! How: it works in the client's thread. Opened *customized*, it fills buffers that the interface makes for each request
//! (table 7.2); opened *pooled*, it fills buffers of its own and overlays them (table 7.3), as a device does that
//! receives before it is asked.

use std::collections::BTreeMap;

use genie_memory::{DataMut, Direction, Space};
use genie_passing::{Overlay, Overlays, Preferred};

use crate::primitive::Mutex;
use crate::{Client, Error, Incoming, Kept, RequestId, Server, ServerError, Service, ServiceId};

/// Replies at once and touches nothing. Input buffers are made ready and returned whole, with whatever is in them.
pub const NULL: ServiceId = ServiceId(0);
/// Reads every byte of output buffer 0; its reply argument is their sum as little-endian 64-bit words
/// (see [`genie_memory::Data::sum`]), 8 bytes, where there is room.
pub const SINK: ServiceId = ServiceId(1);
/// Stores the first byte of the argument (or zero) into every byte of input buffer 0.
pub const SOURCE: ServiceId = ServiceId(2);
/// Copies output buffer 0 to input buffer 1.
pub const ECHO: ServiceId = ServiceId(3);
/// Keeps output buffer 0 ([`Incoming::keep`]) under the name that is the argument.
pub const STORE: ServiceId = ServiceId(4);
/// Copies to input buffer 0 what is kept under the name that is the argument, as much as fits.
pub const FETCH: ServiceId = ServiceId(5);
/// Compares output buffer 0 with the beginning of what is kept under the argument; fails, naming the offset, where they
/// differ.
pub const CHECK: ServiceId = ServiceId(6);

static SERVICES: [Service; 7] = [
    Service::new("null", true, true),
    Service::new("sink", true, false),
    Service::new("source", false, true),
    Service::new("echo", true, true),
    Service::new("store", true, false),
    Service::new("fetch", false, true),
    Service::new("check", true, false),
];

/// A test server: it takes, makes and returns bytes, and keeps what is stored until it is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    overlays: Option<Overlays>,
    kept: Mutex<BTreeMap<Vec<u8>, Kept>>,
}

impl Memory {
    /// Opens it with customized system buffers.
    pub fn customized() -> Self {
        Self::default()
    }

    /// Opens it with `count` pooled buffers of `len` bytes, whose data starts `offset` bytes into their first granule.
    /// Longer requests are served from customized buffers. While all pooled buffers are in use, an input that would fit into one is
    /// refused.
    ///
    /// # Errors
    /// No memory for the pool.
    pub fn pooled(space: &Space, offset: usize, len: usize, count: usize) -> Result<Self, Error> {
        Ok(Self::overlaid(Overlays::reserve(space, offset, len, count)?))
    }

    /// Opens it with buffers of this pool, likewise.
    pub fn overlaid(overlays: Overlays) -> Self {
        Self { overlays: Some(overlays), kept: Mutex::default() }
    }

    fn serve(&self, request: &mut Incoming) -> Result<(), ServerError> {
        match request.service() {
            NULL => self.null(request),
            SINK => sink(request),
            SOURCE => {
                let byte = request.argument().first().copied().unwrap_or_default();
                self.fill(request, 0, usize::MAX, |_, to| {
                    to.fill(byte);
                    Ok(())
                })
            }
            ECHO => self.fill(request, 1, request.output(0)?.len(), |request, to| {
                to.copy_data(&request.output(0)?);
                Ok(())
            }),
            STORE => {
                let kept = request.keep(0)?;
                let before = self.kept.lock().insert(request.argument().to_vec(), kept);
                drop(before);
                Ok(())
            }
            FETCH => self.fetch(request),
            CHECK => self.check(request),
            ServiceId(other) => Err(ServerError::new(format!("the memory server has no service {other}"))),
        }
    }

    fn null(&self, request: &mut Incoming) -> Result<(), ServerError> {
        for index in 0..request.buffers() {
            if request.direction(index)? == Direction::In {
                self.fill(request, index, usize::MAX, |_, _| Ok(()))?;
            }
        }
        Ok(())
    }

    fn fetch(&self, request: &mut Incoming) -> Result<(), ServerError> {
        let kept = self.kept.lock();
        let bytes = find(&kept, request.argument())?;
        self.fill(request, 0, bytes.len(), |_, to| {
            to.copy_from(bytes);
            Ok(())
        })
    }

    fn check(&self, request: &Incoming) -> Result<(), ServerError> {
        let kept = self.kept.lock();
        let bytes = find(&kept, request.argument())?;
        let data = request.output(0)?;
        if data.len() > bytes.len() {
            return Err(ServerError::new(format!("only {} bytes are kept", bytes.len())));
        }
        match data.mismatch(&bytes[..data.len()]) {
            Some(at) => Err(ServerError::new(format!("the data differs at offset {at}"))),
            None => Ok(()),
        }
    }

    /// Passes at most `available` bytes in input buffer `index`, written by `write`.
    fn fill(
        &self,
        request: &mut Incoming,
        index: usize,
        available: usize,
        write: impl Fn(&Incoming, &DataMut<'_>) -> Result<(), Error>,
    ) -> Result<(), ServerError> {
        let actual = request.len(index).min(available);
        if let Some(overlay) = self.overlay(request, index)? {
            write(request, &overlay.data().part(0..actual))?;
            request.overlay(index, 0, overlay)?;
        } else {
            request.ready(index)?;
            write(request, &request.input(index)?.part(0..actual))?;
        }
        request.set_actual(index, actual)?;
        Ok(())
    }

    /// A buffer of the pool, where there is one that is long enough.
    fn overlay(&self, request: &Incoming, index: usize) -> Result<Option<Overlay>, ServerError> {
        let Some(overlays) = &self.overlays else { return Ok(None) };
        if request.len(index) > overlays.preferred().len || request.elements(index) != 1 {
            return Ok(None);
        }
        let overlay = overlays.allocate().ok_or_else(|| ServerError::new("all pooled buffers are in use"))?;
        Ok(Some(overlay))
    }
}

impl Server for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let result = self.serve(&mut request);
        request.reply(result);
    }

    fn abort(&self, _request: RequestId) {
        // Every request is replied to before the call that made it returns.
    }

    fn preferred(&self, _client: &Client, _service: ServiceId, _argument: &[u8]) -> Option<Preferred> {
        self.overlays.as_ref().map(Overlays::preferred)
    }
}

fn sink(request: &mut Incoming) -> Result<(), ServerError> {
    let sum = request.output(0)?.sum();
    if request.room() >= 8 {
        request.set_argument(&sum.to_le_bytes())?;
    }
    Ok(())
}

fn find<'a>(kept: &'a BTreeMap<Vec<u8>, Kept>, name: &[u8]) -> Result<&'a [u8], ServerError> {
    let missing = || ServerError::new(format!("nothing is kept under {:?}", String::from_utf8_lossy(name)));
    kept.get(name).map(|kept| &**kept).ok_or_else(missing)
}
