//! A stage, which the parties of one sitting share: the device if they use it, their CPUs, and the folder with all their names.
//!
//! Why: subjects that are compared must use the same device; otherwise a device that is not in use would take CPU time from
//! the other.
//! Invariants: once the stage is closed, the folder is gone, and an experiment that is killed leaves nothing behind.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use genie_net::namespaces::Namespace;
use genie_sys::machine::{self, Pinned};
use tempfile::TempDir;

use super::order::{Attending, DEVICE, End, Hosting, Network, Order, Place, ROLE, Route, Serving};
use super::seats::Seats;
use crate::error::{Error, Result};
use crate::interface::Granule;
use crate::peer::{self, Peer};
use crate::probe;

/// What one or more senders and receivers share, and use in turn.
#[derive(Debug)]
pub struct Stage {
    // Declared in the order in which they are to go.
    /// None where no route leads to it.
    pub(super) device: Option<Peer>,
    /// The folder of names, until the stage is closed.
    folder: RefCell<Option<TempDir>>,
    pub(super) seats: Seats,
    granule: Granule,
    /// How many parties have joined.
    parties: Cell<u32>,
    _pinned: Pinned,
}

impl Stage {
    /// Takes the sender's seat for this thread, and starts the device of the first route that leads to one, for data up to `longest`.
    ///
    /// # Errors
    /// A process does not start.
    pub fn open(granule: Granule, longest: usize, routes: &[Route]) -> Result<Rc<Self>> {
        let seats = Seats::among(probe::cpus()?)?;
        let pinned = machine::pin_thread(seats.sender)?;
        let folder = peer::folder()?;
        let mut device = None;
        if let Some(Route::Device(rate)) = routes.iter().copied().find(|route| route.network().is_none()) {
            let started = device.insert(Peer::start(ROLE, Some(seats.device))?);
            let path = folder.path().to_string_lossy().into_owned();
            let hosting = Hosting { folder: path, longest, rate, spin: seats.spin() };
            started.order(&Order::Host(hosting), &[], "it opened the device")?;
        }
        let (folder, parties) = (RefCell::new(Some(folder)), Cell::new(0));
        Ok(Rc::new(Self { device, folder, seats, granule, parties, _pinned: pinned }))
    }

    /// Lets no more parties join.
    pub fn close(&self) {
        drop(self.folder.take());
    }

    /// The number of parties that join.
    pub(super) fn number(&self) -> u32 {
        self.parties.replace(self.parties.get() + 1)
    }

    /// The CPU of a client, and of a server of its own.
    pub(super) fn seat(&self, route: Route, end: End) -> usize {
        match (route, end) {
            (_, End::Sender) => self.seats.sender,
            // What passes the data, the wire or the device, is on a CPU of its own if there are two.
            (Route::Datagrams(_), End::Receiver) => self.seats.device,
            (_, End::Receiver) => self.seats.receiver,
        }
    }

    /// How a client of these parties is to connect, and the datagram server that was started for it, in the namespace of its end if there
    /// is one.
    pub(super) fn attending(
        &self,
        route: Route,
        number: u32,
        end: End,
        namespace: Option<&Namespace>,
    ) -> Result<(Attending, Option<Peer>)> {
        let folder = self.folder.borrow();
        let path = folder.as_ref().map(|folder| folder.path().to_string_lossy().into_owned());
        let attending = Attending {
            folder: path.ok_or_else(|| Error::Peer("the stage is closed".to_owned()))?,
            granule: self.granule,
            spin: self.seats.spin(),
            yields: self.seats.clients_share(),
            route,
            end,
            server: DEVICE.to_owned(),
        };
        let Route::Datagrams(Network { place, .. }) = route else { return Ok((attending, None)) };
        // The wire has threads on the receiver's CPU.
        let attending = Attending { server: format!("wire-{number}"), yields: true, ..attending };
        if place == Place::InProcess {
            return Ok((attending, None));
        }
        // The server is on the client's own CPU, and needs that to reply: neither spins.
        let attending = Attending { spin: Duration::ZERO, ..attending };
        let name = format!("datagrams-{number}-{}", end as u8);
        let server = Peer::start(ROLE, Some(self.seat(route, end)))?;
        let serving = Serving { name: name.clone(), attending: attending.clone() };
        let descriptors: Vec<_> = namespace.into_iter().map(AsFd::as_fd).collect();
        server.order(&Order::Serve(serving), &descriptors, "it opened a datagram server")?;
        Ok((Attending { server: name, ..attending }, Some(server)))
    }
}
