//! Servers, which serve requests.
//!
//! Source: thesis §7.2.

mod bell;
pub(crate) mod code;
pub(crate) mod completer;
pub(crate) mod handle;
pub(crate) mod preferences;
pub(crate) mod service;

use genie_passing::Preferred;

use crate::{Client, ClientId, Completer, Incoming, Preferences, RequestId, Service, ServiceId};

/// Something that serves requests.
///
/// A server in its client's process works in the client's thread, as a kernel-level server does. For clients in other
/// processes, threads of Genie's do the work: one client's requests are served one after the other, in their order, unless
/// `channel::ServeOptions::threads` is raised, and a request that takes long keeps no other client
/// waiting (`channel::ServeOptions::most_threads`). A server may also keep a request and
/// reply later, from any thread. `series::PerClient` gives each client a server of its own.
///
/// ```
/// # use genie_io as genie;
/// use genie::{Incoming, RequestId, Server, ServerError, Service};
///
/// struct Capitals;
///
/// /// Its only service reads output buffers, and fills input buffers.
/// static SERVICES: [Service; 1] = [Service::new("capitals", true, true)];
///
/// impl Server for Capitals {
///     fn name(&self) -> &str {
///         "capitals"
///     }
///
///     fn services(&self) -> &[Service] {
///         &SERVICES
///     }
///
///     fn request(&self, mut request: Incoming) {
///         let result = capitalize(&mut request);
///         request.reply(result);
///     }
///
///     fn abort(&self, _request: RequestId) {} // each request was replied to at once
/// }
///
/// /// Fills buffer 1, an input, with the text of buffer 0, an output.
/// fn capitalize(request: &mut Incoming) -> Result<(), ServerError> {
///     let mut text = request.keep(0)?;
///     text.make_ascii_uppercase();
///     request.fill(1, |room| room.copy_from(&text))?;
///     Ok(())
/// }
/// ```
///
/// Clients find the service by its name: [`ServerHandle::service`](crate::ServerHandle::service).
///
/// A panic of the server's code ends the request that the code had in its hands: the client gets [`Error::Panicked`](crate::Error::Panicked) with
/// the panic's message, in process and over a channel alike. The panic hook reports the panic, as any other. The server goes
/// on with the next request, and finds its own locks poisoned as the panic left them. In a program whose panics abort
/// (`panic = "abort"`), they still do.
///
/// If the server's code forks and the child returns from that code, the thread in which the code was called ends, and with
/// it the child, unless that thread is the program's own. While a child lives that has not executed another program, the
/// clients of its parent process are not told when the parent dies.
pub trait Server: Send + Sync + 'static {
    /// The server's name, for messages.
    fn name(&self) -> &str;

    /// The services, numbered by their place. Genie asks once, when the server is made reachable.
    fn services(&self) -> &[Service];

    /// Takes a request. The server owns it until it replies, which it may do now or later, from any thread; dropping it
    /// is a reply, too: an error.
    fn request(&self, request: Incoming);

    /// Asks the server to let go of a request that it keeps, by replying to it or by dropping it. The server may have
    /// replied already. A reply of success still counts; in place of an error the client is told that the request was
    /// aborted, or has timed out.
    ///
    /// It is called in the thread of the client that aborts, or in a thread of Genie's. Unless the client has left, it is called
    /// only when [`Server::request`] has returned with the request; until then [`Incoming::is_aborted`] tells. It must return
    /// soon: where the client is in another process, other clients of the server wait meanwhile.
    fn abort(&self, request: RequestId);

    /// Tells the server that a client has left: no more requests of that client come. It is called once for each client that
    /// [`Incoming::client`] could name, or that asked for a layout. The server may let go of whatever it keeps for the client. Requests of the client
    /// keep their memory until then.
    ///
    /// A client in another process has left when its channel has ended; [`Server::abort`] was called for its requests before. A
    /// client in this process has left when the last clone of its interface has been dropped, and each
    /// [`Pending`](crate::Pending) that the server did not reply to at once. Requests whose `Pending` was dropped run on,
    /// unless the server ends them here.
    ///
    /// It is called in a thread of Genie's, or in the thread that drops the last handle of a client in this process. It must
    /// return soon, as [`Server::abort`] must.
    fn departed(&self, client: ClientId) {
        let _ = client;
    }

    /// The completer of the server's requests, if no thread of the server completes them: it reaps a ring of the kernel's,
    /// say, or takes the replies to the server's own requests. While clients in this process wait for replies, one of the
    /// waiting threads calls [`Completer::collect`] and [`Completer::wait`]. Return a completer always, or never.
    ///
    /// For clients in other processes, Genie's threads collect: those that take requests, while they are awake, and else the one that
    /// attends to clients, which the completer's descriptor wakes. Where there is no descriptor that can be waited for, they look every
    /// 2 ms while a client has a request pending. In a server that may start one thread only for requests, nobody looks while that
    /// thread is in [`Server::request`], unless the descriptor becomes readable. A server that the program drives collects each time that it
    /// serves.
    ///
    /// If a thread replies all the same, waiting threads notice the reply within a tenth of a second, and event loops at
    /// once.
    fn completer(&self) -> Option<&dyn Completer> {
        None
    }

    /// How a client should lay out input buffers for requests of a service with this argument, when that makes a difference
    /// (client-aligned buffering). It is called each time that a client asks by
    /// [`Interface::preferred`](crate::Interface::preferred). If the answers change, the server says so by its
    /// [`Server::preferences`].
    ///
    /// It is called in the client's thread, or in a thread of Genie's. It must return soon, as [`Server::abort`] must. A panic is taken
    /// for `None`. A client that has asked may never make a request; [`Server::departed`] is called for it all the same.
    fn preferred(&self, client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        let _ = (client, service, argument);
        None
    }

    /// By what the server tells its clients that [`Server::preferred`] has new answers, if the answers change. Genie asks once, when
    /// the server is made reachable; return handles of the same [`Preferences`] always.
    fn preferences(&self) -> Option<&Preferences> {
        None
    }
}
