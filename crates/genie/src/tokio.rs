//! Requests that are awaited, in programs that run on tokio.
//!
//! Why: a task that waits for a reply must not block its thread, and one descriptor is enough for all servers of an
//! interface.
//! How: a request is submitted when its future is first polled. The task is woken by the thread that brings the reply or
//! takes it off its channel. All waiting tasks await the interface's descriptor. The first task that runs when the
//! descriptor is readable takes the replies for all, and arms the descriptor for the next reply. So no task depends on the
//! polling of another one, whose future a program may put aside (`select!`) without dropping it. No task is spawned.
//! A future may be forgotten while it borrows, so its outputs are protected or copied when it is first polled, as by
//! [`Request::submit`]: a reply is rarely there already, and what was borrowed until then would have to be protected all the
//! same.
//! For an ordinary user, who cannot protect memory, that means copying; so give long outputs by value
//! ([`Out::owned`](crate::Element::owned)), which costs neither for anybody: the reply brings the buffer back.
//! `use genie::*` makes `tokio` the name of this module, and hides the crate; import [`prelude`](crate::prelude) instead.
//! Requests that are awaited have no continuations ([`Pending::then`]): a future may borrow its buffers, so the data is delivered in the task,
//! and a waker is called where a continuation would run. A program that has requests with continuations spawns [`Interface::attend`].
//! Limits: one of these for each [`crate::Interface`].
//! Replies that come together wake all waiting tasks once.
//!
//! ```
//! # use genie::{Connect, Out, channel::{ConnectOptions, Directory, Listener, ServeOptions}, memory};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let directory = Directory::at(scratch.path().join("run"))?;
//! # let served = Listener::bind_in(&directory, "letters", memory::Memory::customized(), ServeOptions::default())?;
//! # let _running = served.start()?;
//! let genie = genie::Interface::open()?;
//! # let server = genie.connect_with(&directory, "letters", &ConnectOptions::default())?;
//! # #[cfg(any())]
//! let server = genie.connect("letters")?;
//! let client = genie::tokio::Interface::new(genie.clone())?;
//!
//! let mut page = genie.allocate(1 << 20)?;
//! page.fill(b'a');
//! let store = genie.request(&server, memory::STORE).out(Out::emulated_copy(&page)).argument(b"a");
//! println!("{}", client.send(store).await?.receipt());
//! # Ok(())
//! # }
//! ```

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::sync::Notify;
use ::tokio::sync::futures::Notified;
use ::tokio::task::{spawn_blocking, yield_now};
use genie_sys::Errno;
use genie_sys::lock::Mutex;

use crate::channel::{ConnectOptions, Directory};
use crate::{Connect, Error, Failed, Pending, Reconnecting, Reply, Request, ServerHandle};

/// An interface whose replies are awaited. Share it among tasks by reference or in an [`std::sync::Arc`].
#[derive(Debug)]
pub struct Interface {
    genie: crate::Interface,
    replies: AsyncFd<Descriptor>,
    submitting: Mutex<()>,
    /// Tells all tasks that wait to look once more.
    again: Notify,
}

impl Interface {
    /// Has tasks of this run time wait for the interface's replies.
    ///
    /// # Errors
    /// The limit on descriptors is reached.
    ///
    /// # Panics
    /// Outside of a run time, or in one whose I/O is not enabled.
    pub fn new(genie: crate::Interface) -> Result<Self, Error> {
        let replies = Descriptor::of(&genie)?.register().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            genie_sys::Error::new("epoll_ctl", "the interface's descriptor", errno)
        })?;
        Ok(Self { genie, replies, submitting: Mutex::default(), again: Notify::new() })
    }

    /// The interface itself.
    pub fn genie(&self) -> &crate::Interface {
        &self.genie
    }

    /// Makes a request, which must be of this interface, and waits for the reply without blocking a thread.
    ///
    /// Dropping the future lets the request run on unobserved; inputs are discarded, and buffers given by value are freed
    /// when the server has replied. With [`Request::abort_on_drop`], dropping the future aborts the request, without waiting.
    ///
    /// # Errors
    /// As [`Request::submit`] and [`Pending::sync`]; [`Error::OtherInterface`] for a request of another interface;
    /// [`Error::Aborted`] when the run time is shut down meanwhile.
    pub async fn send(&self, request: Request<'_, '_, '_>) -> Result<Reply, Failed> {
        let pending = self.submit(request).await?;
        self.replied(&pending).await?;
        pending.sync()
    }

    /// Submits a request, which must be of this interface, as soon as there is room for it; waits for room without blocking a
    /// thread.
    ///
    /// # Errors
    /// As [`Request::submit`], and for want of room only if the program submits requests by other means, too;
    /// [`Error::OtherInterface`] for a request of another interface; [`Error::Aborted`] when the run time is shut down.
    pub async fn submit<'i>(&self, request: Request<'_, '_, 'i>) -> Result<Pending<'i>, Failed> {
        loop {
            self.taking_replies(|context| request.poll_room(context)).await?;
            // Between the look and the submission no other task takes the room.
            let _turn = self.submitting.lock();
            if request.has_room() {
                return request.submit_by(&self.genie);
            }
        }
    }

    /// Connects to a server in another process, in a thread of the run time for what blocks, which goes on if the future is
    /// dropped.
    ///
    /// # Errors
    /// As [`Connect::connect_with`]; [`Error::Aborted`] when the run time is shut down.
    pub async fn connect_with(
        &self,
        directory: &Directory,
        server: &str,
        options: &ConnectOptions,
    ) -> Result<ServerHandle, Error> {
        let (genie, directory, options) = (self.genie.clone(), directory.clone(), options.clone());
        let server = server.to_owned();
        blocking(move || genie.connect_with(&directory, &server, &options)).await
    }

    /// The same in the run-time directory.
    ///
    /// # Errors
    /// As [`Connect::connect`]; [`Error::Aborted`] when the run time is shut down.
    pub async fn connect(&self, server: &str) -> Result<ServerHandle, Error> {
        self.connect_with(&Directory::open()?, server, &ConnectOptions::default()).await
    }

    /// The handle of a server that may go and come again; connects as [`Connect::connect_with`] does, if need be.
    ///
    /// # Errors
    /// As [`Reconnecting::handle`]; [`Error::Aborted`] when the run time is shut down.
    pub async fn handle(&self, server: &Arc<Reconnecting>) -> Result<ServerHandle, Error> {
        let server = Arc::clone(server);
        blocking(move || server.handle()).await
    }

    /// Calls a method of a typed service, by a client of this interface, and waits for the result without blocking a thread.
    /// Dropping the future lets the call run on, or aborts it if it is made with
    /// [`abort_on_drop`](crate::service::Call::abort_on_drop).
    ///
    /// # Errors
    /// See [`Error`](crate::service::Error), and [`Interface::send`].
    #[cfg(feature = "service")]
    pub async fn call<R, E, C>(
        &self,
        call: crate::service::Call<'_, '_, '_, R, E, C>,
    ) -> Result<crate::service::Reply<R>, crate::service::Failed<E>>
    where
        C: for<'r> crate::service::Decode<'r, R>,
        E: serde::de::DeserializeOwned,
    {
        let pending = loop {
            self.taking_replies(|context| call.poll_room(context)).await?;
            let _turn = self.submitting.lock();
            if call.has_room() {
                break call.submit_by(&self.genie)?;
            }
        };
        self.replied(pending.request()).await?;
        pending.sync()
    }

    /// Waits until a submitted request of this interface is replied to; take the reply by [`Pending::sync`], which then does
    /// not wait. The future may be dropped, and this called again.
    ///
    /// # Errors
    /// [`Error::Aborted`] when the run time is shut down.
    pub async fn replied(&self, pending: &Pending<'_>) -> Result<(), Error> {
        self.taking_replies(|context| pending.poll(context)).await
    }

    /// Waits for something that replies bring about, taking replies for all tasks meanwhile.
    async fn taking_replies(&self, is_so: impl Fn(&mut Context<'_>) -> Poll<()>) -> Result<(), Error> {
        let mut attending = pin!(self.attend());
        poll_fn(|context| {
            if is_so(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let Poll::Ready(Err(_)) = attending.as_mut().poll(context) else {
                // The reply may be among those just taken.
                return is_so(context).map(Ok);
            };
            Poll::Ready(Err(Error::Aborted))
        })
        .await
    }

    /// Takes the replies of this interface, now and whenever some come, until the run time is shut down. Tasks that await something by this
    /// interface do that for one another. A program whose requests are followed by continuations
    /// ([`Pending::then`]) spawns it, since otherwise no task might be waiting when a reply comes.
    ///
    /// # Errors
    /// Always [`Error::Aborted`], when the run time is shut down.
    pub async fn attend(&self) -> Result<Infallible, Error> {
        loop {
            let told = self.again.notified();
            self.genie.collect();
            if self.genie.arm() {
                self.something_to_take(told).await.map_err(|_| Error::Aborted)?;
            } else {
                // There may be replies that the descriptor does not show, and this task may not be polled again.
                self.again.notify_waiters();
                yield_now().await;
            }
        }
    }

    /// Waits until the descriptor is readable, or another task has said that there may be something to take.
    async fn something_to_take(&self, told: Notified<'_>) -> io::Result<()> {
        let mut told = pin!(told);
        loop {
            let mut readable = pin!(self.replies.readable());
            let readable = poll_fn(|context| match told.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Ok(None)),
                Poll::Pending => readable.as_mut().poll(context).map_ok(Some),
            });
            let Some(mut readable) = readable.await? else { return Ok(()) };
            // Every waiting task is woken. If another task came first, it has taken the replies that are there, or is about
            // to.
            if !readable.ready().is_empty() {
                readable.clear_ready();
                return Ok(());
            }
        }
    }
}

/// Does what blocks in a thread for that.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(act).await.unwrap_or(Err(Error::Aborted))
}

/// The one descriptor that becomes readable with a reply, open as long as this value lives.
#[derive(Debug)]
struct Descriptor {
    _genie: crate::Interface,
    raw: RawFd,
}

impl Descriptor {
    fn of(genie: &crate::Interface) -> Result<Self, Error> {
        let raw = genie.descriptor()?.as_fd().as_raw_fd();
        Ok(Self { _genie: genie.clone(), raw })
    }

    #[expect(
        deprecated,
        reason = "its successor asks, by `unsafe`, for what this type sees to: that the descriptor stays"
    )]
    fn register(self) -> io::Result<AsyncFd<Self>> {
        AsyncFd::with_interest(self, Interest::READABLE)
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.raw
    }
}
