//! The requests of an interface that outlived the call that made them and that a server still has a part of.
//!
//! Why: these requests are timed out, flushed and aborted; and while some of them are at a server that completes requests
//! only when clients look, the clients have to look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::exchange::{Awaited, Exchange, Listing};
use crate::loop_waker::LoopWaker;
use crate::primitive::{Condvar, Mutex};
use crate::server::code::Code;
use crate::{RequestId, ServerHandle};

/// The requests that outlived the call that made them and that a server still has a part of.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    listed: Mutex<Listed>,
    removed: Condvar,
}

/// Requests, and how many of them are at each server that clients have to look at.
#[derive(Debug, Default)]
struct Listed {
    requests: BTreeMap<RequestId, (Arc<Exchange>, ServerHandle)>,
    looked_at: SmallVec<[(ServerHandle, usize); 1]>,
    /// For an event loop, once the program has asked for a descriptor.
    loop_waker: Option<LoopWaker>,
}

impl Listing for Outstanding {
    fn tell(&self) {
        self.listed.lock().loop_waker.iter_mut().for_each(LoopWaker::tell);
    }

    fn look(&self, id: RequestId) {
        let server = self.listed.lock().requests.get(&id).map(|(_, server)| server.clone());
        server.iter().filter_map(ServerHandle::here).for_each(Code::look);
    }

    fn remove(&self, id: RequestId) {
        let mut listed = self.listed.lock();
        let removed = listed.requests.remove(&id);
        let forgotten = removed.as_ref().and_then(|(_, server)| listed.discount(server));
        listed.loop_waker.iter_mut().for_each(LoopWaker::tell);
        self.removed.notify_all();
        drop(listed);
        removed.iter().filter_map(|(_, server)| server.here()).for_each(Code::look);
        drop((removed, forgotten));
    }
}

impl Outstanding {
    /// Lists a request; returns the list.
    pub(crate) fn add(self: &Arc<Self>, exchange: &Arc<Exchange>, server: &ServerHandle) -> Arc<dyn Listing> {
        let mut listed = self.listed.lock();
        let before = listed.requests.insert(exchange.id(), (Arc::clone(exchange), server.clone()));
        if before.is_none() && server.is_looked_at() {
            listed.count(server);
        }
        Arc::<Self>::clone(self)
    }

    /// The servers in this process at which requests are outstanding and which clients have to look at.
    pub(crate) fn looked_at(&self) -> SmallVec<[ServerHandle; 1]> {
        self.listed.lock().looked_at()
    }

    /// Tells an event loop of requests that are over, from now on.
    pub(crate) fn wake_by(&self, loop_waker: LoopWaker) {
        self.listed.lock().loop_waker = Some(loop_waker);
    }

    /// As `looked_at`, when an event loop is about to look.
    pub(crate) fn begin_look(&self) -> SmallVec<[ServerHandle; 1]> {
        let mut listed = self.listed.lock();
        listed.loop_waker.iter_mut().for_each(LoopWaker::begin_look);
        listed.looked_at()
    }

    /// An event loop is about to sleep; returns whether it may.
    pub(crate) fn arm(&self) -> bool {
        self.listed.lock().loop_waker.as_mut().is_none_or(LoopWaker::arm)
    }

    /// Waits until no request numbered below `before` is outstanding at `server`.
    pub(crate) fn wait_for(
        &self,
        server: &ServerHandle,
        before: RequestId,
        deadline: Option<Instant>,
    ) -> bool {
        if server.is_looked_at() {
            server.collect();
            let is_flushed = || !self.listed.lock().has_older(server, before);
            return server.wait(&mut Awaited::until(&is_flushed), deadline);
        }
        let is_flushed = |listed: &Listed| !listed.has_older(server, before);
        self.removed.wait_until(self.listed.lock(), deadline, is_flushed).1
    }
}

impl Listed {
    /// Whether a request numbered below `before` is outstanding at `server`.
    fn has_older(&self, server: &ServerHandle, before: RequestId) -> bool {
        self.requests.range(..before).any(|(_, (_, at))| at.is(server))
    }

    /// Counts one more request at a server that is looked at.
    fn count(&mut self, server: &ServerHandle) {
        match self.looked_at.iter_mut().find(|(known, _)| known.is(server)) {
            Some((_, count)) => *count += 1,
            None => {
                self.looked_at.push((server.clone(), 1));
                // A loop that sleeps does not wait for this server yet.
                self.loop_waker.iter_mut().for_each(LoopWaker::wake);
            }
        }
    }

    fn looked_at(&self) -> SmallVec<[ServerHandle; 1]> {
        self.looked_at.iter().map(|(server, _)| server.clone()).collect()
    }

    /// Counts one less; returns the handle of a server that has none left.
    fn discount(&mut self, server: &ServerHandle) -> Option<ServerHandle> {
        let index = self.looked_at.iter().position(|(known, _)| known.is(server))?;
        self.looked_at[index].1 -= 1;
        (self.looked_at[index].1 == 0).then(|| self.looked_at.swap_remove(index).0)
    }
}
