//! The wire by which a server sends, in this process or another: frames with parts of clients' outputs, and who takes the replies.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use genie_io::{
    Completer, Error, Failed, Incoming, Interface, Out, Pending, Server, ServerError, ServerHandle,
};
use genie_sys::Errno;
use genie_sys::lock::Mutex;

use crate::driver::Link;
use crate::wire::{Station, TRANSMIT};

/// A server's way out.
pub(crate) struct Uplink {
    pub(crate) genie: Interface,
    wire: Mutex<Option<ServerHandle>>,
    /// A wire at which clients have to look: one whose completer is theirs.
    looked_at: OnceLock<ServerHandle>,
    /// The same, if frames can be left to it without a request for each.
    link: OnceLock<Link>,
    /// Whether clients were told that nobody has to take replies.
    is_served: AtomicBool,
}

impl Uplink {
    pub(crate) fn new(genie: Interface) -> Self {
        let (looked_at, link) = (OnceLock::new(), OnceLock::new());
        Self { genie, wire: Mutex::default(), looked_at, link, is_served: AtomicBool::new(false) }
    }

    /// Sends by this wire from now on.
    pub(crate) fn attach(&self, wire: ServerHandle) -> Result<(), Error> {
        let misuse = |message: String| Err(Error::Server(ServerError::misuse(message)));
        if !matches!(wire.service("transmit"), Ok(TRANSMIT)) {
            return misuse(format!("{} is no wire: it has no service `transmit`", wire.name()));
        }
        let is_looked_at = wire.is_remote() || wire.completer().is_some();
        if is_looked_at && self.is_served.load(Ordering::Acquire) {
            return misuse(format!(
                "clients have to look for what {} completes, and the server is given to clients already, who would not: attach it before \
                 the first `ServerHandle` or `Listener` of the server is made",
                wire.name()
            ));
        }
        let is_link = wire.completer().is_some();
        if self.looked_at.get().is_some() || is_link && self.looked_at.set(wire.clone()).is_err() {
            return misuse("the server is attached to an interface of the kernel's, and stays so".to_owned());
        }
        *self.wire.lock() = Some(wire);
        Ok(())
    }

    /// Sends by this link, and receives what it leads to `station`, from now on.
    pub(crate) fn attach_link(&self, link: &Link, station: impl Station) -> Result<(), Error> {
        self.attach(ServerHandle::new(link.clone()))?;
        if !link.lead_to(station) {
            return Err(Error::Server(ServerError::misuse(format!(
                "the frames that come by {} go elsewhere already",
                link.name()
            ))));
        }
        let _ = self.link.set(link.clone());
        Ok(())
    }

    /// The link, if this is attached to one.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    pub(crate) fn wire(&self) -> Result<ServerHandle, ServerError> {
        // It stays: no lock is needed.
        if let Some(link) = self.looked_at.get() {
            return Ok(link.clone());
        }
        let detached = || ServerError {
            code: Errno::NETDOWN.raw_os_error(),
            message: "the server is attached to no wire".to_owned(),
        };
        self.wire.lock().clone().ok_or_else(detached)
    }

    /// What takes the wire's replies; one in this process replies by itself, unless it has a completer.
    pub(crate) fn completer(&self) -> Option<&dyn Completer> {
        if let Some(looked_at) = self.looked_at.get() {
            return looked_at.completer();
        }
        let is_elsewhere = self.wire.lock().as_ref().is_some_and(ServerHandle::is_remote);
        self.is_served.fetch_or(!is_elsewhere, Ordering::Release);
        is_elsewhere.then_some(self)
    }

    /// Has datagrams to a port come, where the wire leaves others to the kernel; or not any more.
    pub(crate) fn claim(&self, port: u16, is_ours: bool) -> Result<(), ServerError> {
        let Some(link) = self.looked_at.get() else { return Ok(()) };
        let Ok(service) = link.service(if is_ours { "claim" } else { "release" }) else { return Ok(()) };
        let port = port.to_le_bytes();
        self.genie
            .request(link, service)
            .argument(&port)
            .send()
            .map(drop)
            .map_err(|failed| failed.error.into())
    }

    /// Sends a frame.
    pub(crate) fn send(
        &self,
        wire: &ServerHandle,
        head: &[u8],
        data: Option<Out<'_>>,
        tail: &[u8],
    ) -> Result<Pending<'static>, Failed> {
        let mut frame = self.genie.request(wire, TRANSMIT).out(Out::copy(head));
        if let Some(data) = data {
            frame = frame.and_out(data);
        }
        if !tail.is_empty() {
            frame = frame.and_out(Out::copy(tail));
        }
        frame.submit()
    }

    /// Sends a frame with a part of a request's output, from where the client has it. A client that does not trust this process, and a wire
    /// in another one, have no memory together: then it is copied. Returns how many bytes were.
    pub(crate) fn forward(
        &self,
        wire: &ServerHandle,
        head: &[u8],
        (request, part): (&mut Incoming, Range<usize>),
        tail: &[u8],
    ) -> Result<(Pending<'static>, usize), Error> {
        let data = Out::fragment(request.fragment(0, part.clone())?);
        match self.send(wire, head, Some(data), tail).map_err(|failed| failed.error) {
            Ok(pending) => Ok((pending, 0)),
            Err(Error::Unforwardable { .. }) => {
                let mut copy = self.genie.allocate(part.len())?;
                let copied = request.output(0)?.part(part).copy_to(&mut copy);
                let sent = self.send(wire, head, Some(Out::emulated_share(copy)), tail);
                Ok((sent.map_err(|failed| failed.error)?, copied))
            }
            Err(error) => Err(error),
        }
    }
}

impl Completer for Uplink {
    fn collect(&self) -> usize {
        // Without the lock: continuations may send.
        let wire = self.wire.lock().clone();
        wire.map_or(0, |wire| self.genie.collect_from(&wire))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.genie.descriptor().ok()
    }

    fn arm(&self) -> bool {
        self.genie.arm()
    }
}
