//! Pairs: both holds on the exchange of a request that is about to be made, in memory that an earlier request has left.
//!
//! Why: making and dropping an exchange takes longer than using one again.
//! Invariants: the thread that finds a spare pair holds the exchange alone, and nothing has become of it yet.
//! Limits: 32 for each thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use genie_passing::Spare;

use super::{Exchange, Found, State};
use crate::RequestId;

/// A client's and a server's hold on one new exchange.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: Arc<Exchange>,
    pub(crate) server: Arc<Exchange>,
}

thread_local! {
    /// Exchanges of this thread's requests, of which nothing has become.
    static SPARE: Spare<Pair> = const { Spare::none() };
}

impl Pair {
    /// For a request that is about to be made.
    #[inline]
    pub(crate) fn new(id: RequestId) -> Self {
        match Spare::take(&SPARE) {
            Some(spare) => {
                // Relaxed: whoever gets the exchange gets this with it.
                spare.client.id.store(id.0, Ordering::Relaxed);
                spare
            }
            None => {
                let client = Arc::new(Exchange::new(id));
                Self { server: Arc::clone(&client), client }
            }
        }
    }

    /// Keeps the exchange of a request that is over for this thread's next one, unless others hold it: then it comes back.
    /// The server's hold has come back with the work, so that nothing has become of it.
    #[inline]
    pub(crate) fn keep(client: Arc<Exchange>, server: Arc<Exchange>) -> Option<Arc<Exchange>> {
        if Arc::strong_count(&client) > 2 || Arc::weak_count(&client) > 0 {
            return Some(client);
        }
        Spare::keep(&SPARE, Self { client, server });
        None
    }

    /// Takes a reply that is there, and keeps the exchange likewise. Where this is its only holder, that takes no lock.
    #[inline]
    pub(crate) fn take(mut client: Arc<Exchange>) -> (Found, Option<Arc<Exchange>>) {
        let Some(exchange) = Arc::get_mut(&mut client) else { return (client.take(), Some(client)) };
        let state = exchange.state.get_mut();
        let found = std::mem::replace(state, State::new()).phase.into();
        (exchange.is_replied, exchange.is_aborting) = Default::default();
        Spare::keep(&SPARE, Self { server: Arc::clone(&client), client });
        (found, None)
    }
}
