//! A stage, which the parties of one sitting share: the device, their CPUs, and the folder with all their names.
//!
//! Why: subjects that are compared must use the same device; otherwise a device that is not in use would take CPU time from
//! the other.
//! Invariants: once the stage is closed, the folder is gone, and an experiment that is killed leaves nothing behind.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use genie_sys::machine::{self, Pinned};
use tempfile::TempDir;

use super::order::{Attending, DEVICE, Hosting, Order, ROLE, Relaying, Route};
use super::seats::Seats;
use crate::error::{Error, Result};
use crate::interface::Granule;
use crate::peer::{self, Peer};
use crate::probe;

/// A device for one or more senders and receivers, which take turns in using it.
#[derive(Debug)]
pub struct Stage {
    // Declared in the order in which they are to go.
    pub(super) device: Peer,
    /// The folder of names, until the stage is closed.
    folder: RefCell<Option<TempDir>>,
    pub(super) seats: Seats,
    granule: Granule,
    longest: usize,
    /// How many protocol servers there were.
    relays: Cell<u32>,
    _pinned: Pinned,
}

impl Stage {
    /// Starts a device for data up to `longest`, and takes the sender's seat for this thread.
    ///
    /// # Errors
    /// A process does not start.
    pub fn open(granule: Granule, longest: usize) -> Result<Rc<Self>> {
        let seats = Seats::among(probe::cpus()?)?;
        let pinned = machine::pin_thread(seats.sender)?;
        let folder = peer::folder()?;
        let device = Peer::start(ROLE, Some(seats.device))?;
        let path = folder.path().to_string_lossy().into_owned();
        let hosting = Hosting { folder: path, longest, spin: seats.spin() };
        device.order(&Order::Host(hosting), &[], "it opened the device")?;
        let relays = Cell::new(0);
        Ok(Rc::new(Self {
            device,
            folder: RefCell::new(Some(folder)),
            seats,
            granule,
            longest,
            relays,
            _pinned: pinned,
        }))
    }

    /// Lets no more parties join.
    pub fn close(&self) {
        drop(self.folder.take());
    }

    /// How a client on `cpu` is to connect, and the protocol server that was started for it.
    pub(super) fn attending(&self, route: Route, cpu: usize) -> Result<(Attending, Option<Peer>)> {
        let folder = self.folder.borrow();
        let path = folder.as_ref().map(|folder| folder.path().to_string_lossy().into_owned());
        let to_device = Attending {
            folder: path.ok_or_else(|| Error::Peer("the stage is closed".to_owned()))?,
            granule: self.granule,
            spin: self.seats.spin(),
            yields: self.seats.clients_share(),
            route,
            server: DEVICE.to_owned(),
        };
        let Route::Process(check) = route else { return Ok((to_device, None)) };
        let number = self.relays.replace(self.relays.get() + 1);
        let name = format!("protocol-{number}");
        let relay = Peer::start(ROLE, Some(cpu))?;
        let relaying =
            Relaying { name: name.clone(), check, longest: self.longest, attending: to_device.clone() };
        relay.order(&Order::Relay(relaying), &[], "it opened a protocol server")?;
        // The relay is on the client's own CPU, and needs that to reply: neither spins.
        Ok((Attending { server: name, yields: true, spin: Duration::ZERO, ..to_device }, Some(relay)))
    }
}
