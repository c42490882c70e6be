//! Requests, as servers see them.

mod anticipated;
mod filling;
pub(crate) mod fragment;
mod origin;
pub(crate) mod pin;
mod supplying;
pub(crate) mod transfer;

use std::ops::Range;
use std::sync::Arc;

use genie_memory::{Data, DataMut, Direction};
use genie_sys::fork::Maker;

use crate::carrier::Caller;
use crate::contract::{Contract, DEEPEST};
use crate::incoming::pin::{InputPin, OutputPin, Pinned};
use crate::kept::allowance::Allowance;
use crate::request::id::Slot;
use crate::server::service::Access;
use crate::work::location::{Location, Locations, part};
use crate::work::{Seen, Work};
use crate::{Client, Error, Fragment, RequestId, ServerError, Service, ServiceId, panics, telemetry};

pub use anticipated::Anticipated;
pub use filling::Filled;
pub(crate) use origin::Origin;

/// A request in a server's hands, which owns its buffers until it replies.
///
/// Output is read from [`Incoming::output`], input is filled by [`Incoming::fill`]. Dropping a request replies with an error.
#[derive(Debug)]
pub struct Incoming {
    /// The work that the server owns, and where the reply goes; none once there is a reply.
    held: Option<(Box<Work>, Origin)>,
    /// Some once parts of the request have been forwarded or pinned.
    contract: Option<Arc<Contract>>,
    service: ServiceId,
    access: Access,
    maker: Maker,
}

impl Incoming {
    pub(crate) fn new(work: Box<Work>, origin: Origin, service: ServiceId, access: Access) -> Self {
        let maker = Maker::this_process();
        Self { held: Some((work, origin)), contract: None, service, access, maker }
    }

    /// A request that a carrier brings, for one of its server's services: the reply goes back by `caller`, which knows the request as
    /// `slot`. `id` is the name that the server knows it by, which is no other request's.
    #[inline]
    pub fn brought(
        work: Box<Work>,
        (caller, slot, id): (Arc<dyn Caller>, Slot, RequestId),
        (number, service): (ServiceId, &Service),
    ) -> Self {
        Self::new(work, Origin::There(caller, slot, id), number, service.access())
    }

    /// The request's name, by which the client may abort it.
    pub fn id(&self) -> RequestId {
        self.origin().id()
    }

    /// Whether the request is being aborted: its time is over, or its client has given it up or is gone. A server that works
    /// long on a request may ask now and then, and drop the request; [`Server::abort`](crate::Server::abort) is called only
    /// when [`Server::request`](crate::Server::request) has returned.
    ///
    /// While the server's code is called with the request of a client in another process, this becomes true some milliseconds
    /// after the abort; if no thread is free to relieve the one in which it is called, not before the call is over.
    /// It is true in a child made by fork, whose copy gets no reply.
    pub fn is_aborted(&self) -> bool {
        self.is_inherited() || self.origin().is_aborted()
    }

    /// The client that asks. A request that another server forwards comes from that server's own interface.
    pub fn client(&self) -> &Client {
        let (work, origin) = self.held();
        origin
            .client()
            .or_else(|| work.client())
            .expect("a request of this process was admitted by its interface")
    }

    /// What servers may keep of the client's outputs.
    pub(crate) fn allowance(&self) -> &Arc<Allowance> {
        let (work, origin) = self.held();
        let allowance = origin.allowance().or_else(|| work.allowance());
        allowance.expect("a request of this process was admitted by its interface")
    }

    /// The service requested.
    pub fn service(&self) -> ServiceId {
        self.service
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> usize {
        self.work().count()
    }

    /// The direction of buffer `index`.
    ///
    /// # Errors
    /// There is no such buffer.
    pub fn direction(&self, index: usize) -> Result<Direction, Error> {
        self.work().direction(index).ok_or_else(|| missing(index, Direction::Out, false))
    }

    /// The client's argument; empty where the client gave none.
    pub fn argument(&self) -> &[u8] {
        &self.work().arguments.request
    }

    /// How long an argument the client takes back with the reply.
    pub fn room(&self) -> usize {
        self.work().arguments.room
    }

    /// Sets the argument that goes back to the client with the reply, if that is a success.
    ///
    /// # Errors
    /// [`Error::ArgumentTooLong`]: the client made too little room, and the argument stays what it was. If the server replies
    /// with this error, or another one with its code (EMSGSIZE), as `?` makes it do, the client gets it as it is, not as the server's
    /// error.
    pub fn set_argument(&mut self, argument: &[u8]) -> Result<(), Error> {
        self.work_mut().arguments.set_reply(argument)
    }

    /// The number of data bytes that buffer `index` holds or has room for; 0 if the request has no such buffer.
    pub fn len(&self, index: usize) -> usize {
        self.work().buffer(index).map_or(0, Seen::len)
    }

    /// How many elements buffer `index` has; 0 if the request has no such buffer.
    pub fn elements(&self, index: usize) -> usize {
        self.work().buffer(index).map_or(0, Seen::elements)
    }

    /// How long element `element` of buffer `index` is: for a server that has data of its own for each element
    /// ([`Incoming::overlay`]). 0 if there is no such element.
    pub fn element_len(&self, index: usize, element: usize) -> usize {
        self.work().buffer(index).and_then(|buffer| buffer.element_len(element)).unwrap_or(0)
    }

    /// Whether the request has no buffers.
    pub fn is_empty(&self) -> bool {
        self.buffers() == 0
    }

    /// The data of output buffer `index`, to be read. Under share and the weak moves the client could still change it.
    ///
    /// ```
    /// # use genie_io::{Error, Incoming};
    /// fn serve(request: Incoming) -> Result<(), Error> {
    ///     let data = request.output(0)?;
    ///     data.copy_to(&mut [0; 100]);
    ///     request.reply(Ok(()));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The data borrows the request:
    ///
    /// ```compile_fail,E0505
    /// # use genie_io::{Error, Incoming};
    /// fn serve(request: Incoming) -> Result<(), Error> {
    ///     let data = request.output(0)?;
    ///     request.reply(Ok(()));
    ///     data.copy_to(&mut [0; 100]); // too late: the memory is the client's again
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The server can't change the data:
    ///
    /// ```compile_fail,E0599
    /// # use genie_io::{Error, Incoming};
    /// fn serve(request: &Incoming) -> Result<(), Error> {
    ///     request.output(0)?.fill(0x99);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// There is no such output buffer, or the service's mapping flags do not allow reading; [`Error::Kept`]: the server has kept it.
    pub fn output(&self, index: usize) -> Result<Data<'_>, Error> {
        if !self.access.reads {
            return Err(Error::Unmapped { service: self.service.0, access: "read" });
        }
        Ok(self.buffer(index, Direction::Out)?.output(&self.work().store))
    }

    /// Makes input buffer `index` ready and returns its memory, to be filled. To be called when the data is about to
    /// come: until then a request for input holds no system buffer. [`Incoming::set_actual`] then says how many bytes came; a
    /// success without that is the server's error ([`Error::Untold`]). An input that is never made ready is no error: its client
    /// gets a success with 0 bytes. A server that has more data than the input has room for gives what fits; if that is no use,
    /// it replies with an error, or says in the reply's argument how long the data is, since the client sees only how many bytes
    /// came.
    ///
    /// [`Incoming::fill`] is both calls in one. What this one returns borrows the whole request. To read an output while filling an
    /// input, make the input ready first:
    ///
    /// ```
    /// # use genie_io::{Error, Incoming};
    /// fn copy(request: &mut Incoming) -> Result<(), Error> {
    ///     request.ready(1)?;
    ///     let (output, input) = (request.output(0)?, request.input(1)?);
    ///     let len = input.copy_data(&output);
    ///     request.set_actual(1, len)
    /// }
    /// ```
    ///
    /// # Errors
    /// There is no such input buffer, the service's mapping flags do not allow writing, there is no memory, or a
    /// transfer from outboard memory that the server has linked to the buffer failed.
    pub fn ready(&mut self, index: usize) -> Result<DataMut<'_>, Error> {
        Ok(self.prepare(index)?.input(index))
    }

    /// Makes an input ready, and its server owe how much came of it.
    #[inline]
    fn prepare(&mut self, index: usize) -> Result<&mut Work, Error> {
        self.require_writes()?;
        if !self.work_mut().make_short_ready(index) {
            self.make_ready(index)?;
            self.work_mut().owe(index);
        }
        Ok(self.work_mut())
    }

    /// The memory of input buffer `index`, while other buffers are shown, too. It has no bytes before [`Incoming::ready`] was
    /// called for that buffer.
    ///
    /// # Errors
    /// There is no such input buffer, or the service's mapping flags do not allow writing.
    pub fn input(&self, index: usize) -> Result<DataMut<'_>, Error> {
        self.require_writes()?;
        Ok(self.buffer(index, Direction::In)?.input(&self.work().store))
    }

    fn require_writes(&self) -> Result<(), Error> {
        match self.access.writes {
            true => Ok(()),
            false => Err(Error::Unmapped { service: self.service.0, access: "write" }),
        }
    }

    fn make_ready(&mut self, index: usize) -> Result<(), Error> {
        self.buffer(index, Direction::In)?;
        self.work_mut().make_ready(index)
    }

    /// Bytes `range` of buffer `index`, to be forwarded in a request of this server's own: fragment subcontracting. The
    /// service needs no mapping flag for that. The reply to this request takes effect when all its fragments have been let
    /// go.
    ///
    /// [`Incoming::set_actual`] still has to say how many bytes of an input came.
    ///
    /// This makes the memory of an input buffer ready, unless the bytes are exactly those of one element. In that case the
    /// server that gets the fragment has the memory made ready, or puts a buffer of its own in the memory's place, as if the
    /// client had asked that server. (That is so in the client's process; elsewhere the server's buffer is copied.)
    ///
    /// A server in another process gets parts only if their memory can be named to it. It cannot if this server's client is in another
    /// process and does not trust this server, which then has private copies; or if the other server is itself not trusted, and the
    /// client is in another process than this one; or if the client is in this process and has another interface than the one that
    /// asks the other server. Requests with such parts fail with [`Error::Unforwardable`]; the server copies the data, and passes the
    /// copy. A server in this process gets any part.
    ///
    /// Once this request is being aborted, requests with parts of it are refused, for the reason of the abort.
    ///
    /// # Errors
    /// There is no such buffer, it is shorter, there is no memory, or a transfer from outboard memory that the server has linked to
    /// it failed; [`Error::Kept`]: the server has kept it; [`Error::TooDeep`]: this is the 64th request in a chain of
    /// requests of this process, each of which forwards parts of the one before.
    pub fn fragment(&mut self, index: usize, range: Range<usize>) -> Result<Fragment, Error> {
        self.ensure_own()?;
        let (direction, len) = (self.direction(index)?, self.len(index));
        self.buffer(index, direction)?;
        check_range(&range, len)?;
        if self.work().depth() >= DEEPEST {
            return Err(Error::TooDeep { limit: DEEPEST });
        }
        let locations = self.locations(index, range.clone())?;
        let contract = self.contract();
        let contractor = self.id();
        Ok(Fragment { contract, contractor, direction, locations, len: range.len() })
    }

    /// Pins bytes `range` of output buffer `index`, for the server to read wherever it likes: in another thread, say, or by an
    /// operation in flight. The server may reply first: the client gets the reply when the last pin has been dropped.
    ///
    /// # Errors
    /// As [`Incoming::output`]; or there are fewer bytes.
    pub fn pin_output(&mut self, index: usize, range: Range<usize>) -> Result<OutputPin, Error> {
        self.ensure_own()?;
        check_range(&range, self.output(index)?.len())?;
        let segments = self.output(index)?.part(range).segments().clone();
        Ok(OutputPin(Pinned { segments, contract: self.contract() }))
    }

    /// Makes input buffer `index` ready and pins its bytes `range` for the server to fill, as [`Incoming::pin_output`] does
    /// for reading. [`Incoming::set_actual`] still has to say how many bytes came.
    ///
    /// # Errors
    /// As [`Incoming::ready`]; or there are fewer bytes.
    pub fn pin_input(&mut self, index: usize, range: Range<usize>) -> Result<InputPin, Error> {
        self.ensure_own()?;
        check_range(&range, self.input(index).map(|_| self.len(index))?)?;
        let segments = self.ready(index)?.part(range).segments().clone();
        Ok(InputPin(Pinned { segments, contract: self.contract() }))
    }

    /// The contract, which defers the reply; made here if there is none yet.
    fn contract(&mut self) -> Arc<Contract> {
        match &self.contract {
            Some(contract) => Arc::clone(contract),
            None => {
                let contract = Contract::new(self.work().depth() + 1);
                // An abort that came before this found no contract to end.
                if self.origin().contracted(&contract) {
                    contract.end(&Error::Aborted);
                }
                Arc::clone(self.contract.insert(contract))
            }
        }
    }

    /// Where bytes `range` of a buffer are, or will be.
    fn locations(&mut self, index: usize, range: Range<usize>) -> Result<Locations, Error> {
        let access = self.access;
        let buffer = &mut self.work_mut().whole_mut()[index];
        let locations = match buffer.forward(&range, access)? {
            Some(input) => Locations::from_iter([Location::Forwarded(input)]),
            None => {
                if buffer.direction == Direction::In {
                    self.make_ready(index)?;
                }
                let (work, find) = (self.work(), |named: &_| self.origin().locations(named));
                part(&work.buffers()[index].locations(find, &work.store)?, range)
            }
        };
        self.work_mut().owe(index);
        Ok(locations)
    }

    /// Says how many bytes of buffer `index` were really passed, as [`Incoming::fill`] does by itself. The client finds the number
    /// in [`ReplyBuffer::actual`](crate::ReplyBuffer::actual), and has no other means to see that less came than it asked for. A
    /// server that has made an input ready, overlaid or forwarded it says the number, even if it is 0, before it replies with
    /// success.
    ///
    /// # Errors
    /// There is no such buffer, or it is shorter.
    pub fn set_actual(&mut self, index: usize, actual: usize) -> Result<(), Error> {
        self.work_mut().set_actual(index, actual)
    }

    /// Replies. After a success the outputs' buffers are the client's again, or the server's for good, and the inputs' data is
    /// delivered when the client takes the reply; after a failure nothing has been passed.
    ///
    /// Where the client is in this process, what follows the reply may run in this call, and make requests of this server
    /// ([`Pending::then`](crate::Pending::then)): reply without locks that [`Server::request`](crate::Server::request) takes.
    ///
    /// A success is made a failure, [`Error::Untold`], if an input was made ready, overlaid or forwarded, and was not told how many
    /// bytes of it came.
    pub fn reply(mut self, result: Result<(), ServerError>) {
        let arguments = &self.work().arguments;
        let error = match result {
            Ok(()) => self.untold(),
            Err(error) => Some(arguments.refusal(&error).unwrap_or(Error::Server(error))),
        };
        self.finish(error);
        // Nothing is left in it that would have to be dropped.
        std::mem::forget(self);
    }

    /// The server's mistake, if it has not said how much of an input came.
    fn untold(&self) -> Option<Error> {
        let buffer = self.work().untold()?;
        let error = Error::Untold { buffer };
        telemetry::mistaken(self.client(), self.service, &error);
        Some(error)
    }

    /// Replies with success now, and keeps the outputs until the result is dropped.
    ///
    /// This side does not know which buffers a client in another process shares: a client that shares some gets its reply
    /// when the result is dropped.
    ///
    /// # Errors
    /// The request comes back if it may not be anticipated.
    pub fn anticipate(self) -> Result<Anticipated, Self> {
        if !self.may_be_anticipated() {
            return Err(self);
        }
        self.origin().anticipate(self.work());
        Ok(Anticipated(self))
    }

    /// Whether [`Incoming::anticipate`] replies: not if the client awaits inputs, or buffers that it shared.
    pub fn may_be_anticipated(&self) -> bool {
        self.work().may_be_anticipated() && !self.is_inherited()
    }

    /// Ends the request for a reason of the interface's own.
    pub(crate) fn fail(mut self, error: Error) {
        self.finish(Some(error));
    }

    /// Whether this process is a child, made by fork, of the one that serves the request.
    fn is_inherited(&self) -> bool {
        !self.maker.is_this_process()
    }

    /// Fails in a child made by fork.
    pub(crate) fn ensure_own(&self) -> Result<(), Error> {
        if self.is_inherited() { Err(Error::Inherited) } else { Ok(()) }
    }

    /// The buffer, if it is there and the server has not kept it.
    pub(crate) fn buffer(&self, index: usize, direction: Direction) -> Result<Seen<'_>, Error> {
        match self.work().buffer(index).filter(|buffer| buffer.direction() == direction) {
            Some(buffer) if buffer.is_kept() => Err(Error::Kept { buffer: index }),
            buffer => buffer.ok_or_else(|| missing(index, direction, index < self.buffers())),
        }
    }

    /// Whether parts were forwarded or pinned.
    pub(crate) fn is_contracted(&self) -> bool {
        self.contract.is_some()
    }

    fn held(&self) -> &(Box<Work>, Origin) {
        self.held.as_ref().expect("a request has its work until it replies")
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.held().1
    }

    pub(crate) fn work(&self) -> &Work {
        &self.held().0
    }

    pub(crate) fn work_mut(&mut self) -> &mut Work {
        &mut self.held.as_mut().expect("a request has its work until it replies").0
    }

    fn finish(&mut self, error: Option<Error>) {
        if self.is_inherited() {
            // The reply, and whatever it would free, belongs to the parent.
            return std::mem::forget((self.held.take(), self.contract.take()));
        }
        let Some((mut work, origin)) = self.held.take() else { return };
        match self.contract.take() {
            // The reply takes effect when the last fragment has been let go, which may be now.
            Some(contract) => contract.defer(move |failure| {
                work.take_back();
                origin.reply(work, error.or(failure));
            }),
            None => origin.reply(work, error),
        }
    }
}

fn check_range(range: &Range<usize>, len: usize) -> Result<(), Error> {
    Error::check_len(range.end, len)?;
    Error::check_len(range.start, range.end)
}

/// Called only where a buffer is missing: making and dropping an error costs more than looking up the buffer.
#[cold]
fn missing(index: usize, direction: Direction, is_other: bool) -> Error {
    Error::NoSuchBuffer { index, direction, is_other }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.held.is_some() && std::thread::panicking() {
            let (held, contract) = (self.held.take(), self.contract.take());
            let unwound = Self { held, contract, ..*self };
            return panics::end_unwound(|error| unwound.fail(error));
        }
        // What is final of a request that is given up is the client's.
        let is_partial = self.held.is_some()
            && !self.is_inherited()
            && self.work().has_come()
            && self.is_aborted()
            && self.work_mut().check_inputs().is_ok();
        self.finish((!is_partial).then_some(Error::Dropped));
    }
}
