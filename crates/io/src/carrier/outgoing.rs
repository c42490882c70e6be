//! Requests on their way to a server elsewhere, as their carrier keeps them.
//!
//! Why: the client's side does less with a request than a server does, and does other things: it names the data, waits, and
//! hands the reply to the client.
//! Invariants: an outgoing request has its work until it is over; dropping the request ends it.

use std::sync::Arc;
use std::task::Waker;

use genie_memory::Direction;
use genie_passing::{Parties, Passing};

use crate::carrier::Carrier;
use crate::exchange::{Awaited, Exchange};
use crate::work::located::Viewer;
use crate::work::{Transfer, Work};
use crate::{Error, RequestId, ServiceId};

/// A request in its carrier's hands, which owns the request's memory until one of the methods that take it by value is called.
///
/// The carrier keeps it until the server surely has no part of its memory any more, whatever the client gives up meanwhile. Dropping
/// it ends the request with [`Error::Dropped`].
#[derive(Debug)]
pub struct Outgoing {
    /// None when the request is over.
    held: Option<(Box<Work>, Arc<Exchange>)>,
    service: ServiceId,
    is_told_later: bool,
    /// The client has its reply, and the server goes on with the outputs.
    is_anticipated: bool,
}

impl Outgoing {
    pub(crate) fn new(
        work: Box<Work>,
        exchange: Arc<Exchange>,
        service: ServiceId,
        is_told_later: bool,
    ) -> Self {
        Self { held: Some((work, exchange)), service, is_told_later, is_anticipated: false }
    }

    /// The request's name in this process, by which [`Carrier::abort`] asks for it.
    pub fn id(&self) -> RequestId {
        self.exchange().id()
    }

    /// The service that is asked for.
    pub fn service(&self) -> ServiceId {
        self.service
    }

    /// Whether the carrier need not wake a server that sleeps for this request: [`Carrier::tell`] will be called.
    pub fn is_told_later(&self) -> bool {
        self.is_told_later
    }

    /// The request's argument and buffers.
    pub fn work(&self) -> &Work {
        &self.held().0
    }

    fn exchange(&self) -> &Exchange {
        &self.held().1
    }

    fn held(&self) -> &(Box<Work>, Arc<Exchange>) {
        self.held.as_ref().expect("a request has its work until it is over")
    }

    /// Makes the inputs ready, since their memory goes along with the request, and copies what is forwarded and the server may
    /// not be shown. To be called once, before the carrier looks where data is.
    ///
    /// # Errors
    /// No memory.
    pub fn make_ready(&mut self, carrier: &impl Carrier) -> Result<(), Error> {
        let (space, parties, is_silent) = (carrier.space(), carrier.parties(), carrier.is_untrusted());
        let viewer = Viewer { space, parties, is_silent };
        self.work_mut().unfold();
        for buffer in self.work_mut().wrapped_mut() {
            for element in &mut buffer.elements {
                match (&mut element.transfer, buffer.direction) {
                    (Transfer::Located(located), direction) => located.show_to(&viewer, direction)?,
                    (_, Direction::In) => element.make_ready()?,
                    (_, Direction::Out) => {}
                }
            }
        }
        Ok(())
    }

    /// Has the outputs passed through memory that were to be carried ([`Carries`](crate::carrier::Carries)), and for which the carrier
    /// turns out to have no room.
    ///
    /// # Errors
    /// No memory.
    #[cold]
    pub fn wrap_outputs(&mut self, passing: &Passing, parties: Parties) -> Result<(), Error> {
        self.work_mut().wrap_outputs(passing, parties)
    }

    /// The same, for the reply to be entered.
    pub fn work_mut(&mut self) -> &mut Work {
        &mut self.held.as_mut().expect("a request has its work until it is over").0
    }

    /// Notes that the first `len` bytes of buffer `index` are final, as the server says. Returns the task that is to be woken once the carrier
    /// holds no lock ([`wake_task`](crate::carrier::wake_task)). Threads that wait for the request are to look again.
    ///
    /// # Errors
    /// No honest server says that: there is no such buffer, it is shorter, or as much was final before.
    pub fn progress(&mut self, index: usize, len: usize) -> Result<Option<Waker>, Error> {
        match self.work_mut().progress(index, len)? {
            true => Ok(self.held().1.come_to(index, len)),
            false => Err(Error::Backwards { come: len, actual: len }),
        }
    }

    /// Whether the client aborted the request before the server got it: then it is not sent any more.
    pub fn is_aborting(&self) -> bool {
        self.exchange().is_aborting()
    }

    /// Whether the client has stopped waiting.
    pub fn is_abandoned(&self) -> bool {
        self.exchange().is_replied()
    }

    /// Ends the client's waiting, while the server may still have the memory: the carrier goes on keeping the request.
    pub fn give_up(&self, error: &Error) {
        self.exchange().give_up(error);
    }

    /// Gives the client its reply before the server is done, unless the reply is to bring the client its buffers back.
    pub fn anticipate(&mut self) {
        let (work, exchange) = self.held();
        if work.may_be_anticipated() {
            exchange.anticipate(work.interim());
            self.is_anticipated = true;
        }
    }

    /// The server is done: the client gets what was entered of the reply.
    pub fn succeed(mut self) {
        self.finish(None);
    }

    /// Whether the thread that takes the reply off the carrier waits for it, and [`Outgoing::succeed_for`] gives it to that thread.
    #[inline]
    pub fn is_awaited_by(&self, awaited: &Awaited<'_>) -> bool {
        awaited.takes(self.exchange())
    }

    /// As [`Outgoing::succeed`], under a lock of the carrier's: it gives the reply straight to the thread that takes it off the carrier, if
    /// that thread waits for it, and else [puts off](Awaited::put_off) what follows.
    pub fn succeed_for(mut self, awaited: &mut Awaited<'_>) {
        if self.is_awaited_by(awaited)
            && let Some((work, exchange)) = self.held.take()
        {
            awaited.leave(work, exchange);
        } else {
            awaited.put_off(|| self.finish(None));
        }
    }

    /// There will be no reply, or the reply is an error. A client that has an anticipated reply keeps it.
    pub fn fail(mut self, error: Error) {
        self.finish(Some(error));
    }

    fn finish(&mut self, error: Option<Error>) {
        if let Some((work, exchange)) = self.held.take() {
            exchange.reply(work, error.filter(|_| !self.is_anticipated));
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.finish(Some(Error::Dropped));
    }
}
