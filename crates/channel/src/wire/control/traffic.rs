//! What a server has passed for its clients: the second message of its answer to a query.
//!
//! Why: the status of as many clients as a status lists, with their counts, would exceed a message.

use super::bounds::MAX_CLIENTS;
use super::layout::{ClientCountsPart, CountsPart, TrafficHead};
use super::part::{Part, fixed, read_head, read_list};
use crate::counts::Counts;
use crate::wire::cursor::Cursor;
use crate::wire::{Malformed, TooLarge, count};

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
