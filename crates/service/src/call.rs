//! Calls: requests whose arguments and results have types.
//!
//! How: a call is an untyped request and the encoded arguments. It is composed by inlined functions, as requests are.
//! Invariants: a call of a method that the server lacks names a service that no server has. So the request is refused where all
//! requests are, its buffers come back, and only then its error is replaced.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll};
use std::time::Duration;

use genie_io::{Batch, In, Interface, Out, Request};
use serde::de::DeserializeOwned;

use crate::ROOM;
use crate::codec::{Bytes, Decode, Encode, Serde, decode_all};
use crate::error::{Error, Failed, Mismatch, Never};

/// What a method returns, its error, and how these are encoded.
type Returned<R, E, C> = PhantomData<fn() -> (R, E, C)>;

/// The arguments of a call, as they are encoded.
#[derive(Debug, Default)]
pub struct Arguments {
    bytes: Bytes,
    /// Why an argument could not be encoded.
    refused: Option<String>,
}

impl Arguments {
    /// Adds an argument.
    #[inline(always)]
    #[must_use]
    pub fn and<C: Encode<T>, T: ?Sized>(mut self, value: &T) -> Self {
        if let Err(why) = C::encode(value, &mut self.bytes) {
            self.refused.get_or_insert(why);
        }
        self
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }
}

/// A call of a method, under composition: a client's methods return one, and nothing is done before it is sent.
///
/// `R` is what the method returns, `E` its error, and `C` how `R` is encoded: [`Serde`] or [`Plain`](crate::Plain). [`Call::send`]
/// waits for the result, and [`Call::submit`] does not; `genie::tokio::Interface::call`, with the feature `tokio`, awaits it.
#[derive(Debug)]
#[must_use = "a call does nothing until it is sent or submitted"]
pub struct Call<'c, 'o, 'i, R, E = Never, C = Serde> {
    request: Request<'c, 'o, 'i>,
    arguments: Arguments,
    method: &'static str,
    mismatch: Option<&'c Mismatch>,
    result: Returned<R, E, C>,
}

impl<'c, 'o, 'i, R, E, C> Call<'c, 'o, 'i, R, E, C>
where
    C: for<'r> Decode<'r, R>,
    E: DeserializeOwned,
{
    #[inline(always)]
    pub(crate) fn new(
        request: Request<'c, 'o, 'i>,
        arguments: Arguments,
        method: &'static str,
        mismatch: Option<&'c Mismatch>,
    ) -> Self {
        Self { request: request.room(ROOM), arguments, method, mismatch, result: PhantomData }
    }

    /// Adds an output.
    #[doc(hidden)]
    #[inline(always)]
    pub fn out(mut self, element: Out<'o>) -> Self {
        self.request = self.request.out(element);
        self
    }

    /// Adds an input.
    #[doc(hidden)]
    #[inline(always)]
    pub fn input(mut self, element: In<'i>) -> Self {
        self.request = self.request.input(element);
        self
    }

    /// Limits the time for the call, as [`Request::timeout`] does.
    #[inline(always)]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request = self.request.timeout(timeout);
        self
    }

    /// Has the call aborted when it is dropped before its result is there, as [`Request::abort_on_drop`] does: the [`Pending`], or a
    /// future that awaits the result.
    #[inline(always)]
    pub fn abort_on_drop(mut self) -> Self {
        self.request = self.request.abort_on_drop();
        self
    }

    /// Makes the call in a batch, as [`Request::batched`] does.
    #[inline(always)]
    pub fn batched(mut self, batch: &mut Batch) -> Self {
        self.request = self.request.batched(batch);
        self
    }

    /// Calls the method and waits for its result, as [`Request::send`] does.
    ///
    /// # Errors
    /// See [`Error`]; buffers that were given by value come back in [`Failed`].
    #[inline(always)]
    pub fn send(self) -> Result<Reply<R>, Failed<E>> {
        let Self { request, arguments, method, mismatch, .. } = self;
        match request.argument(&arguments.bytes).send() {
            Ok(reply) => Reply::of::<E, C>(reply, method),
            Err(failed) => Err(refused(failed, method, mismatch, arguments)),
        }
    }

    /// Calls the method and does not wait, as [`Request::submit`] does: what the call borrows to be read may be overwritten at
    /// once; what it borrows to be filled is borrowed until the result is taken.
    ///
    /// # Errors
    /// As [`Call::send`], as far as they are known at once.
    #[inline(always)]
    pub fn submit(self) -> Result<Pending<'i, R, E, C>, Failed<E>> {
        self.submitted(|request| request.submit())
    }

    /// As [`Call::submit`], but waits where the limits leave no room now; see [`Request::submit_when_room`].
    ///
    /// # Errors
    /// As [`Call::submit`].
    pub fn submit_when_room(self) -> Result<Pending<'i, R, E, C>, Failed<E>> {
        self.submitted(|request| request.submit_when_room())
    }

    /// As [`Call::submit`], for a program that takes the replies of `interface` alone; see [`Request::submit_by`].
    ///
    /// # Errors
    /// As [`Call::submit`]; the client is of another interface.
    pub fn submit_by(self, interface: &Interface) -> Result<Pending<'i, R, E, C>, Failed<E>> {
        self.submitted(|request| request.submit_by(interface))
    }

    /// As [`Request::has_room`].
    pub fn has_room(&self) -> bool {
        self.request.has_room()
    }

    /// As [`Request::poll_room`].
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        self.request.poll_room(context)
    }

    #[inline(always)]
    fn submitted(
        self,
        submit: impl FnOnce(Request<'_, '_, 'i>) -> Result<genie_io::Pending<'i>, genie_io::Failed>,
    ) -> Result<Pending<'i, R, E, C>, Failed<E>> {
        let Self { request, arguments, method, mismatch, .. } = self;
        match submit(request.argument(&arguments.bytes)) {
            Ok(pending) => Ok(Pending { pending, method, result: PhantomData }),
            Err(failed) => Err(refused(failed, method, mismatch, arguments)),
        }
    }
}

/// Says why a request was not even sent, where that is known better here.
#[cold]
fn refused<E>(
    failed: genie_io::Failed,
    method: &'static str,
    mismatch: Option<&Mismatch>,
    arguments: Arguments,
) -> Failed<E> {
    let error = match (mismatch, arguments.refused) {
        (Some(mismatch), _) => Error::Mismatch(mismatch.clone()),
        (None, Some(why)) => Error::Unencodable { method, why },
        (None, None) => Error::Genie(failed.error),
    };
    Failed { error, buffers: failed.buffers, kept: failed.kept }
}

/// A call that was submitted; see [`genie_io::Pending`].
#[derive(Debug)]
#[must_use = "dropping a pending call discards its result"]
pub struct Pending<'i, R, E = Never, C = Serde> {
    pending: genie_io::Pending<'i>,
    method: &'static str,
    result: Returned<R, E, C>,
}

impl<'i, R, E, C> Pending<'i, R, E, C>
where
    C: for<'r> Decode<'r, R>,
    E: DeserializeOwned,
{
    /// Waits for the reply and takes the result.
    ///
    /// # Errors
    /// As [`Call::send`].
    pub fn sync(self) -> Result<Reply<R>, Failed<E>> {
        Reply::of::<E, C>(self.pending.sync()?, self.method)
    }

    /// Aborts the call; see [`genie_io::Pending::abort`].
    ///
    /// # Errors
    /// [`genie_io::Error::Aborted`], normally.
    pub fn abort(self) -> Result<Reply<R>, Failed<E>> {
        Reply::of::<E, C>(self.pending.abort()?, self.method)
    }

    /// The request behind the call, to be asked whether there is a reply, or to be waited for.
    pub fn request(&self) -> &genie_io::Pending<'i> {
        &self.pending
    }
}

/// The reply to a call: what the method returned, and the untyped reply with receipts and buffers, to which this dereferences.
#[derive(Debug)]
pub struct Reply<R> {
    /// What the method returned.
    pub value: R,
    reply: genie_io::Reply,
}

/// A result as it is encoded begins with one of these.
pub(crate) const OK: u8 = 0;
pub(crate) const ERR: u8 = 1;

impl<R> Reply<R> {
    #[inline]
    fn of<E, C>(reply: genie_io::Reply, method: &'static str) -> Result<Self, Failed<E>>
    where
        C: for<'r> Decode<'r, R>,
        E: DeserializeOwned,
    {
        let decoded = match reply.argument() {
            [OK, value @ ..] => decode_all::<C, R>(value).map(Ok),
            [ERR, error @ ..] => decode_all::<Serde, E>(error).map(|error| Err(Error::Method(error))),
            _ => Err("it says neither that the method succeeded nor that it failed".to_owned()),
        };
        match decoded.unwrap_or_else(|why| Err(Error::Undecodable { method, why })) {
            Ok(value) => Ok(Self { value, reply }),
            Err(error) => Err(Failed { error, buffers: reply.buffers.into_vec(), kept: false }),
        }
    }
}

impl<R> Deref for Reply<R> {
    type Target = genie_io::Reply;

    fn deref(&self) -> &genie_io::Reply {
        &self.reply
    }
}

impl<R> DerefMut for Reply<R> {
    fn deref_mut(&mut self) -> &mut genie_io::Reply {
        &mut self.reply
    }
}
