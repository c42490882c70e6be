//! Batches: requests that are made one after the other, and of which their servers are told together.
//!
//! Why: to find out whether a server sleeps, and to wake it, takes longer than to put a short request on its ring.
//! How: each request is on the ring as soon as it is submitted, where a server that is awake finds it. Whether the server sleeps
//! is looked up once for up to [`Batch::MOST`] requests. A thread that looks for a reply of the server, or begins to wait for one, has
//! that looked up before: so a batch can be kept, leaked or forgotten without delaying a reply that its own thread waits for.
//! Source: none in the thesis.

use smallvec::SmallVec;

use crate::{Interface, Plan, Request, ServerHandle};

/// Several requests, for all of which their servers are woken at most once: see [`Interface::batch`].
///
/// Dropping it ends the batch, also when a panic unwinds: what has been submitted is under way then. Dropping a copy in a child made by
/// fork has no effect.
#[derive(Debug, Default)]
#[must_use = "a batch does nothing until requests are submitted in it"]
pub struct Batch {
    /// The servers that have not been told of all requests.
    servers: SmallVec<[ServerHandle; 1]>,
    /// How many requests they have not been told of.
    count: usize,
}

impl Batch {
    /// With each so many requests the servers are told, and the batch goes on.
    pub const MOST: usize = 32;

    /// Wakes those servers that sleep and have been asked something, and goes on with another batch.
    pub fn publish(&mut self) {
        self.servers.drain(..).for_each(|server| server.tell());
        self.count = 0;
    }

    /// Takes in a request for this server; returns whether the server is to be told of it later.
    fn takes(&mut self, server: &ServerHandle) -> bool {
        if self.count + 1 == Self::MOST {
            self.publish();
            return false;
        }
        self.count += 1;
        if server.is_remote() && !self.servers.iter().any(|known| known.is(server)) {
            self.servers.push(server.clone());
        }
        true
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.publish();
    }
}

impl Interface {
    /// Begins a batch: requests that are submitted before a reply to any of them is looked for ([`Request::batched`]). Their servers, in other
    /// processes, are told of them together.
    ///
    /// ```
    /// # use genie_io as genie;
    /// # use genie::servers::memory::{Memory, NULL};
    /// # fn main() -> Result<(), genie::Error> {
    /// # let (interface, server) = (genie::Interface::open()?, genie::ServerHandle::new(Memory::customized()));
    /// let mut batch = interface.batch();
    /// let mut pending = Vec::new();
    /// for _ in 0..8 {
    ///     pending.push(interface.request(&server, NULL).batched(&mut batch).submit()?);
    /// }
    /// drop(batch);
    /// for pending in pending {
    ///     pending.sync()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self) -> Batch {
        Batch::default()
    }
}

impl Request<'_, '_, '_> {
    /// Makes the request in a batch. A server in another process that is awake may begin with it when it is submitted. One that sleeps is
    /// woken when the batch ends ([`Batch::publish`], or by dropping it), or before a thread begins to wait for a reply of that server, or
    /// looks whether there is one. A thread that waits already may not notice: publish the batch before you wait for what another thread
    /// does with the replies, or for room. Submit the request before the batch ends; one that is submitted afterwards has the server woken
    /// when a thread looks for a reply.
    ///
    /// A request that fails when it is submitted leaves the batch as it was: the requests before it are under way, and others may follow.
    /// Where the server's ring is full, the server is woken before the error is returned.
    ///
    /// # Cost
    /// A fence less than without; and a server that sleeps is woken by one system call for the batch.
    #[inline]
    pub fn batched(mut self, batch: &mut Batch) -> Self {
        self.plan.batch(self.server, batch);
        self
    }
}

impl Plan<'_, '_> {
    /// Has the next request of this plan, which is to be made of `server`, made in a batch; see [`Request::batched`].
    #[inline]
    pub fn batch(&mut self, server: &ServerHandle, batch: &mut Batch) {
        self.is_told_later = batch.takes(server);
    }
}
