//! What a server has passed for its clients: the second message of its answer to a query.
//!
//! Why: the status of as many clients as a status lists, with their counts, would exceed a message.

use super::MAX_CLIENTS;
use super::layout::{ClientCountsPart, CountsPart, TrafficHead};
use super::part::{Part, fixed, read_head, read_list};
use crate::channel::wire::cursor::Cursor;
use crate::channel::wire::{Malformed, TooLarge, count};

/// What a server has passed for its clients in other processes, since it began to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// For clients that have left, all together.
    pub departed: Counts,
    /// For each client that the status lists, in the same order.
    pub clients: Vec<ClientCounts>,
}

impl Traffic {
    /// For all clients, those that have left and those that are listed.
    pub fn total(&self) -> Counts {
        self.clients.iter().fold(self.departed, |total, client| total.plus(client.counts))
    }
}

/// What was passed for one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCounts {
    /// Tells the client from all others that this run of the server has or had.
    pub client: u64,
    /// What was passed since the client connected.
    pub counts: Counts,
}

/// Requests, and the bytes of those that succeeded: as many as an output had, and as many as the server says that it has passed
/// by an input ([`Incoming::set_actual`](crate::Incoming::set_actual)).
///
/// A buffer counts as *copied* if the client says with the request that it copies most of the buffer (to the server's pool, or
/// from it), if the server copied it from a buffer of its own, or if the channel is untrusted. Otherwise it counts as *passed*:
/// it lies in memory that both sides see, or changes places. A client that means to swap an input and then copies it after
/// all, because the server has passed little, is not known here; receipts are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that are over for the server: replied to, dropped, or refused because of a limit.
    pub requests: u64,
    /// How many of those did not succeed.
    pub failures: u64,
    /// Bytes of outputs that were copied.
    pub out_copied: u64,
    /// Bytes of outputs that were passed without copying.
    pub out_passed: u64,
    /// Bytes of inputs that were copied.
    pub in_copied: u64,
    /// Bytes of inputs that were passed without copying.
    pub in_passed: u64,
}

impl Counts {
    /// Adds up two counts, or takes the second from the first.
    fn with(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: with(self.requests, other.requests),
            failures: with(self.failures, other.failures),
            out_copied: with(self.out_copied, other.out_copied),
            out_passed: with(self.out_passed, other.out_passed),
            in_copied: with(self.in_copied, other.in_copied),
            in_passed: with(self.in_passed, other.in_passed),
        }
    }

    /// The counts of both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What has been added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }
}

impl From<Counts> for CountsPart {
    fn from(counts: Counts) -> Self {
        Self {
            requests: counts.requests.into(),
            failures: counts.failures.into(),
            out_copied: counts.out_copied.into(),
            out_passed: counts.out_passed.into(),
            in_copied: counts.in_copied.into(),
            in_passed: counts.in_passed.into(),
        }
    }
}

impl From<CountsPart> for Counts {
    fn from(part: CountsPart) -> Self {
        Self {
            requests: part.requests.get(),
            failures: part.failures.get(),
            out_copied: part.out_copied.get(),
            out_passed: part.out_passed.get(),
            in_copied: part.in_copied.get(),
            in_passed: part.in_passed.get(),
        }
    }
}

impl Part for Traffic {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let clients: u16 = count("clients", self.clients.len(), MAX_CLIENTS)?;
        fixed(bytes, TrafficHead { departed: self.departed.into(), clients: clients.into() });
        self.clients.iter().try_for_each(|client| client.write(bytes))
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (_, head) = read_head::<TrafficHead>(cursor, "a server's traffic")?;
        let clients = read_list(cursor, "clients", head.clients.get(), MAX_CLIENTS)?;
        Ok(Self { departed: head.departed.into(), clients })
    }
}

impl Part for ClientCounts {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        fixed(bytes, ClientCountsPart { client: self.client.into(), counts: self.counts.into() });
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (_, part) = read_head::<ClientCountsPart>(cursor, "a client's counts")?;
        Ok(Self { client: part.client.get(), counts: part.counts.into() })
    }
}
