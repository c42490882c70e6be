//! Claimed ports: what holds them in the kernel, so that no other program gets them, and nobody is answered that they are closed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use genie_sys::Errno;
use genie_sys::namespace::Namespace;
use genie_sys::packet::Claim;

use super::interfaces::Interface;

/// The ports of one interface that are claimed.
#[derive(Debug)]
pub(super) struct Claims {
    /// The network that the interface is in, where that can be told.
    namespace: Option<Namespace>,
    index: u32,
    hosts: Vec<IpAddr>,
    held: BTreeMap<u16, Vec<Claim>>,
}

impl Claims {
    /// None yet, of an interface in this thread's namespace.
    pub(super) fn of(interface: &Interface, hosts: &[IpAddr]) -> Self {
        let (namespace, hosts) = (Namespace::current().ok(), hosts.to_vec());
        Self { namespace, index: interface.index, hosts, held: BTreeMap::new() }
    }

    /// Holds a port, or lets it go.
    ///
    /// # Errors
    /// EADDRINUSE: another program has it. EADDRNOTAVAIL: the kernel is none of the hosts.
    pub(super) fn set(&mut self, port: u16, is_ours: bool) -> Result<(), Errno> {
        if !is_ours {
            self.held.remove(&port);
            return Ok(());
        }
        if self.held.contains_key(&port) {
            return Ok(());
        }
        let (hosts, scope) = (&self.hosts, self.index);
        let claim = || hosts.iter().map(|host| Claim::new(*host, port, scope)).collect::<Result<_, _>>();
        let elsewhere = self.namespace.as_ref().filter(|namespace| !is_here(namespace));
        self.held.insert(port, elsewhere.map_or_else(claim, |namespace| namespace.enter(claim))?);
        Ok(())
    }

    /// The hosts whose datagrams are ours.
    pub(super) fn hosts(&self) -> &[IpAddr] {
        &self.hosts
    }

    /// The ports.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.held.keys().copied()
    }
}

/// Whether this thread is in that namespace, as nearly all are.
fn is_here(namespace: &Namespace) -> bool {
    let inode = |namespace: &Namespace| rustix::fs::fstat(namespace).map(|found| found.st_ino);
    Namespace::current().is_ok_and(|here| inode(&here) == inode(namespace))
}
