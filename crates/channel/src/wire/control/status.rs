//! The status of a server: its answer to a query.

use std::time::Duration;

use genie_io::Service;

use super::bounds::{MAX_CLIENTS, MAX_SERVICES};
use super::connection::Limits;
use super::layout::{ClientHead, StatusHead};
use super::part::{Part, fixed, name, read_head, read_list, read_name};
use crate::wire::cursor::Cursor;
use crate::wire::{Malformed, TooLarge, count};

/// The status of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Tells this run of the server from other runs under the same name.
    pub instance: u64,
    /// The server's process number, in its own namespace.
    pub pid: u32,
    /// How long it has run, in whole milliseconds.
    pub uptime: Duration,
    /// Its services, numbered by their place.
    pub services: Vec<Service>,
    /// How many clients there are, whether they are listed or not.
    pub clients_total: u32,
    /// The clients, at most [`MAX_CLIENTS`] of them.
    pub clients: Vec<ClientStatus>,
}

/// The status of one client of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its name.
    pub name: String,
    /// The client's process number, in the server's namespace.
    pub pid: u32,
    /// What it has pending.
    pub pending: Limits,
}

impl Part for Status {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let clients: u16 = count("clients", self.clients.len(), MAX_CLIENTS)?;
        let services: u16 = count("services", self.services.len(), MAX_SERVICES)?;
        let (name_len, name) = name::<u16>(&self.name)?;
        let head = StatusHead {
            instance: self.instance.into(),
            uptime_ms: u64::try_from(self.uptime.as_millis()).unwrap_or(u64::MAX).into(),
            pid: self.pid.into(),
            clients_total: self.clients_total.into(),
            clients: clients.into(),
            services: services.into(),
            name: name_len.into(),
        };
        fixed(bytes, head);
        bytes.extend_from_slice(name);
        self.services.iter().try_for_each(|offer| offer.write(bytes))?;
        self.clients.iter().try_for_each(|client| client.write(bytes))
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, head) = read_head::<StatusHead>(cursor, "a status")?;
        let (listed, clients_total) = (head.clients.get(), head.clients_total.get());
        if clients_total < u32::from(listed) {
            return Err(at.malformed(format!("{listed} clients are listed of {clients_total}")));
        }
        Ok(Self {
            name: read_name(cursor, "a server's name", head.name)?,
            instance: head.instance.get(),
            pid: head.pid.get(),
            uptime: Duration::from_millis(head.uptime_ms.get()),
            services: read_list(cursor, "services", head.services.get(), MAX_SERVICES)?,
            clients_total,
            clients: read_list(cursor, "clients", listed, MAX_CLIENTS)?,
        })
    }
}

impl Part for ClientStatus {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let (name_len, name) = name::<u8>(&self.name)?;
        fixed(bytes, ClientHead { pid: self.pid.into(), limits: self.pending.into(), name: name_len });
        bytes.extend_from_slice(name);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (_, head) = read_head::<ClientHead>(cursor, "a client")?;
        let name = read_name(cursor, "a client's name", head.name)?;
        Ok(Self { name, pid: head.pid.get(), pending: head.limits.into() })
    }
}
