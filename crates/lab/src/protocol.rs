//! A datagram protocol server: puts a header before data that is sent, takes the header off data that arrives, and
//! subcontracts the device.
//!
//! Why: the papers had protocol servers compute checksums. This one is called in its client's process and thread, as one in the kernel
//! would be, and passes data of any length, which the datagram server of `genie_net` cannot.
//! How: for an output, the server makes a request to the device with a header and a fragment of the client's buffer; for an
//! input, a request with room for a header, and a fragment. So the data is passed once, between client and device, and the
//! server in the middle touches it only for a checksum. The server's own requests are in a queue that they leave when the
//! device has replied. A client that waits for one of the server's replies looks at the queue ([`Completer`]), and so stands
//! for the interrupt.
//! With a checksum that is integrated with the copy, the server copies an output itself, and sums while it copies; its
//! client then passes the data by emulated share, and gets the reply when the copy is made. An input's checksum is verified
//! before the client gets its reply, so that damaged data never reaches the client's buffer.
//! Source: J. C. Brustoloni's thesis, §8.4, §9.1.

mod header;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use genie::{
    Buffer, Completer, Completions, Failed, In, Incoming, Interface, Out, Pending, Reply, RequestId, Scheme,
    Server, ServerError, ServerHandle, Service, ServiceId,
};
use genie_sys::lock::Mutex;
use serde::{Deserialize, Serialize};

use crate::device::{DISCARD, RECEIVE, TRANSMIT};
use genie_net::checksum::Checksum;
use header::Header;

/// How datagrams are protected against damage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Not at all.
    #[default]
    None,
    /// By a checksum for which each end reads the data once more.
    Separate(Checksum),
    /// By a checksum that the sender's side computes while it copies the data; the other end reads the data once more for
    /// it.
    Integrated(Checksum),
}

impl Check {
    fn checksum(self) -> Option<Checksum> {
        match self {
            Self::None => None,
            Self::Separate(kind) | Self::Integrated(kind) => Some(kind),
        }
    }
}

/// Services are numbered as the device's are, so that clients need not know whether they make requests of the device or of
/// this server.
static SERVICES: [Service; 3] = [
    Service::new("send", true, false),
    Service::new("receive", false, true),
    Service::new("nothing", false, false),
];

/// The server. Cloning makes another handle to the same one.
#[derive(Debug, Clone)]
pub struct Protocol(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Requests and buffers go before the interface.
    /// The server's own requests that the device has, each with the request that it was originated from, unless that one has
    /// its reply already.
    flying: Completions<Option<Incoming>>,
    spare: Mutex<Vec<Buffer>>,
    device: ServerHandle,
    genie: Interface,
    check: Mutex<Check>,
}

impl Protocol {
    /// A server that subcontracts `device` by requests of `genie`, and protects datagrams by no check at first.
    pub fn new(genie: Interface, device: ServerHandle) -> Self {
        Self(Arc::new(Inner {
            flying: Completions::default(),
            spare: Mutex::default(),
            device,
            genie,
            check: Mutex::default(),
        }))
    }

    /// Protects datagrams by `check` from now on.
    pub fn set_check(&self, check: Check) {
        *self.0.check.lock() = check;
    }

    /// Whether none of the server's own requests is pending.
    pub fn is_idle(&self) -> bool {
        self.0.flying.is_empty()
    }
}

impl Completer for Protocol {
    fn collect(&self) -> usize {
        let mut count = 0;
        if self.0.flying.wait(&self.0.device, Duration::ZERO) {
            while let Some((pending, original)) = self.0.flying.next() {
                self.0.finish(pending, original);
                count += 1;
            }
        }
        count
    }

    fn wait(&self, timeout: Duration) {
        self.0.flying.wait(&self.0.device, timeout);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.genie.descriptor().ok()
    }

    fn arm(&self) -> bool {
        // Looking at the device may have made the descriptor readable.
        self.0.genie.collect();
        self.0.genie.arm() && !self.0.flying.has_next()
    }
}

impl Inner {
    fn check(&self) -> Check {
        *self.check.lock()
    }

    fn launch(&self, request: Incoming, originate: impl FnOnce(&Self, &mut Incoming) -> Started) {
        let mut request = request;
        match originate(self, &mut request) {
            Ok(pending) => {
                let is_copied = self.copies(&request);
                let original = match is_copied {
                    true => {
                        request.reply(Ok(()));
                        None
                    }
                    false => Some(request),
                };
                self.flying.add(pending, original);
            }
            Err(error) => request.reply(Err(error)),
        }
    }

    /// Whether an output's data has been copied, so that its client need not wait.
    fn copies(&self, request: &Incoming) -> bool {
        request.service() == TRANSMIT && matches!(self.check(), Check::Integrated(_))
    }

    fn send(&self, request: &mut Incoming) -> Started {
        let (len, port) = (request.len(0), request.argument().to_vec());
        let (data, checksum) = match self.check() {
            Check::None => (Out::fragment(request.fragment(0, 0..len)?), 0),
            Check::Separate(kind) => {
                let checksum = kind.of_data(&request.output(0)?);
                (Out::fragment(request.fragment(0, 0..len)?), checksum)
            }
            Check::Integrated(kind) => {
                let mut copy = self.buffer(len)?;
                let checksum = kind.copy_data(&request.output(0)?, &mut copy);
                (Out::owned(Scheme::EmulatedShare, copy), checksum)
            }
        };
        let header = Header { len: len as u64, checksum }.encode();
        let sending = self.genie.request(&self.device, TRANSMIT).out(Out::copy(&header)).and_out(data);
        sending.argument(&port).submit().map_err(|failed| self.recover(failed))
    }

    fn receive(&self, request: &mut Incoming) -> Started {
        let (len, port) = (request.len(0), request.argument().to_vec());
        let header = In::owned(Scheme::EmulatedShare, self.buffer(header::LEN)?);
        let data = In::fragment(request.fragment(0, 0..len)?);
        let posting = self.genie.request(&self.device, RECEIVE).input(header).and_input(data);
        posting.argument(&port).submit().map_err(|failed| self.recover(failed))
    }

    /// A buffer of the server's own.
    fn buffer(&self, len: usize) -> Result<Buffer, ServerError> {
        let mut spare = self.spare.lock();
        let found = spare.iter().position(|buffer| buffer.len() == len);
        match found {
            Some(index) => Ok(spare.swap_remove(index)),
            None => Ok(self.genie.allocate(len)?),
        }
    }

    /// Keeps a buffer for the next request; of buffers longer than headers, only the last one.
    fn keep(&self, buffer: Buffer) {
        let mut spare = self.spare.lock();
        spare.retain(|other| other.len() == header::LEN || other.len() == buffer.len());
        spare.push(buffer);
    }

    fn recover(&self, mut failed: Failed) -> ServerError {
        failed.take_buffer().into_iter().for_each(|buffer| self.keep(buffer));
        failed.error.into()
    }

    fn finish(&self, pending: Pending<'static>, original: Option<Incoming>) {
        let result = pending.sync().map_err(|failed| self.recover(failed));
        let Some(mut original) = original else {
            // The client has its reply already; nobody is told that the datagram is lost.
            result
                .into_iter()
                .filter_map(|mut reply| reply.take_buffer())
                .for_each(|buffer| self.keep(buffer));
            return;
        };
        let result = result.and_then(|reply| match original.service() {
            RECEIVE => self.arrived(&mut original, reply),
            _ => Ok(()),
        });
        original.reply(result);
    }

    /// Takes the header off, and verifies the data that it protects.
    fn arrived(&self, original: &mut Incoming, mut reply: Reply) -> Result<(), ServerError> {
        let actual = reply.actual().saturating_sub(header::LEN);
        let buffer = reply.take_buffer().ok_or_else(|| ServerError::new("the header was not returned"))?;
        let header = Header::decode(&buffer);
        self.keep(buffer);
        let header = header.ok_or_else(|| ServerError::new("what arrived has no header"))?;
        if header.len != actual as u64 {
            let lens = format!("{actual} bytes arrived of a datagram of {}", header.len);
            return Err(ServerError::new(lens));
        }
        if let Some(kind) = self.check().checksum() {
            let found = kind.of_data(&original.ready(0)?.part(0..actual));
            if found != header.checksum {
                let name = kind.name();
                return Err(ServerError::new(format!(
                    "damaged: the {name} is {found:#x}, not {:#x}",
                    header.checksum
                )));
            }
        }
        Ok(original.set_actual(0, actual)?)
    }
}

/// A request of the server's own that was made, or why not.
type Started = Result<Pending<'static>, ServerError>;

impl Server for Protocol {
    fn name(&self) -> &str {
        "protocol"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        match request.service() {
            TRANSMIT => self.0.launch(request, Inner::send),
            RECEIVE => self.0.launch(request, Inner::receive),
            DISCARD => request.reply(Ok(())),
            ServiceId(other) => {
                request.reply(Err(ServerError::new(format!("the protocol server has no service {other}"))));
            }
        }
    }

    fn completer(&self) -> Option<&dyn Completer> {
        Some(self)
    }

    fn abort(&self, request: RequestId) {
        // The request that it originated was aborted first, and is over or given up.
        let is_it = |original: &Option<Incoming>| original.as_ref().is_some_and(|it| it.id() == request);
        drop(self.0.flying.remove(is_it));
    }
}
