//! State per client: a server of its own for each client.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use genie_io::{Client, ClientId, Incoming, Preferences, RequestId, Server, Service, ServiceId};
use genie_passing::Preferred;
use genie_sys::primitive::RwLock;

/// A server that makes another server for each client, which serves that client alone: what it holds is the client's state.
///
/// It is made when the client first asks for something, and dropped when the client has left and none of its requests is being served.
///
/// ```
/// # mod genie { pub use genie_io::*; pub use genie_series::PerClient; }
/// # use genie::{Incoming, PerClient, RequestId, Server, Service};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Tells its client how often the client has asked.
/// #[derive(Default)]
/// struct Count(AtomicU64);
///
/// static SERVICES: [Service; 1] = [Service::new("count", false, false)];
///
/// impl Server for Count {
///     fn name(&self) -> &str {
///         "count"
///     }
///
///     fn services(&self) -> &[Service] {
///         &SERVICES
///     }
///
///     fn request(&self, mut request: Incoming) {
///         let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
///         let told = request.set_argument(&count.to_le_bytes());
///         request.reply(told.map_err(Into::into));
///     }
///
///     fn abort(&self, _request: RequestId) {}
/// }
///
/// let server = PerClient::new(|client| {
///     println!("{} has come", client.name);
///     Count::default()
/// });
/// # let _ = server;
/// ```
///
/// A server with a [`completer`](Server::completer), which completes requests only when clients look, cannot be made for each
/// client: its requests are refused.
///
/// # Cost
/// For each request, a look into a table behind a lock that requests share.
pub struct PerClient<S, F> {
    make: F,
    /// Serves nobody; it says what all of them are.
    model: S,
    has_completer: bool,
    servers: RwLock<HashMap<ClientId, Arc<S>>>,
}

impl<S: Server, F: Fn(&Client) -> S + Send + Sync + 'static> PerClient<S, F> {
    /// Has `make` make a server for each client. `make` is called once at first for no client, with a description of this
    /// program, since clients that connect are told of the services before any server is made for them: all servers must
    /// offer the same, and have the same [`Preferences`], if any. `make` must return soon, as [`Server::preferred`] must: where a client
    /// in another process asks for a layout first, other clients of the server wait meanwhile.
    pub fn new(make: F) -> Self {
        let model = make(&Client::here());
        let has_completer = model.completer().is_some();
        Self { make, model, has_completer, servers: RwLock::default() }
    }

    /// The client's server, if the client has asked and not left.
    pub fn of(&self, client: ClientId) -> Option<Arc<S>> {
        let servers = self.servers.read();
        servers.get(&client).cloned()
    }

    /// The client's server, which is made if there is none.
    fn of_client(&self, client: &Client) -> Arc<S> {
        self.of(client.id).unwrap_or_else(|| self.made(client))
    }

    fn made(&self, client: &Client) -> Arc<S> {
        let server = Arc::new((self.make)(client));
        let mut servers = self.servers.write();
        // Another thread may have made one meanwhile. Then this one is dropped when the lock is free: it may ask something, too.
        Arc::clone(servers.entry(client.id).or_insert_with(|| Arc::clone(&server)))
    }
}

impl<S: Server, F: Fn(&Client) -> S + Send + Sync + 'static> Server for PerClient<S, F> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn services(&self) -> &[Service] {
        self.model.services()
    }

    fn preferred(&self, client: &Client, service: ServiceId, argument: &[u8]) -> Option<Preferred> {
        match self.has_completer {
            true => None,
            false => self.of_client(client).preferred(client, service, argument),
        }
    }

    fn preferences(&self) -> Option<&Preferences> {
        self.model.preferences()
    }

    fn request(&self, request: Incoming) {
        if self.has_completer {
            return request.reply(Err("a server with a completer cannot be made for each client".into()));
        }
        self.of_client(request.client()).request(request);
    }

    fn abort(&self, request: RequestId) {
        // Without the lock: the server's code may take long.
        let servers = self.servers.read().values().cloned().collect::<Vec<_>>();
        // Names of requests are different for all clients; the other servers do not know this one.
        servers.iter().for_each(|server| server.abort(request));
    }

    fn departed(&self, client: ClientId) {
        let gone = self.servers.write().remove(&client);
        if let Some(server) = gone {
            server.departed(client);
        }
    }
}

impl<S, F> fmt::Debug for PerClient<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerClient").finish_non_exhaustive()
    }
}
