//! Shares: how much one client, and one user, may take of things that a server has few of.
//!
//! Why: announcing memory costs a client nothing, and its server a descriptor; an arena also takes one of the process's
//! guards. One client, or one user with many clients, could take them all: others would not be served, nor even be told why.
//! How: the announced objects and arenas are counted. A client may take half of what all other clients leave, and the
//! clients of one user three quarters of what other users leave. The user that the server acts as has no such bound, since
//! that user can end the server anyway. Besides, the process keeps its last descriptors and guards back: the very last ones
//! for connections that only ask for the server's status, and those before them for new clients.
//! Limits: [`OBJECTS`] objects or half of the descriptors; a quarter of the descriptors, or half of the guards, for arenas.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

use genie_sys::{guard, machine};

use super::client_channel::ClientChannel;
use super::wire::control::{Ending, Reason};

/// How many objects all clients together may have announced: each is a mapping, and a process may have 65,530 mappings.
const OBJECTS: usize = 16 << 10;

/// What some clients have.
#[derive(Debug, Clone, Copy, Default)]
struct Holdings {
    clients: usize,
    objects: usize,
    arenas: usize,
}

/// What a client has, what its user's clients have, and what all clients have.
#[derive(Debug)]
pub(super) struct Shares {
    client: Holdings,
    user: Holdings,
    all: Holdings,
    uid: u32,
}

impl Shares {
    /// The shares of the client with this number, if it is a client already, and of its user.
    pub(super) fn of(channels: &HashMap<u64, ClientChannel>, client: Option<u64>, uid: u32) -> Self {
        let none = Holdings::default();
        let mut shares = Self { client: none, user: none, all: none, uid };
        for (token, channel) in channels {
            shares.all.add(channel);
            if channel.session.client().uid == uid {
                shares.user.add(channel);
            }
            if Some(*token) == client {
                shares.client.add(channel);
            }
        }
        shares
    }

    /// Whether this user may have one more client, which came by this connection.
    pub(super) fn client(&self, connection: &impl AsFd, most: usize) -> Result<(), Ending> {
        // `clients` does not count the new client yet.
        let most = Most { count: most, remedy: "" };
        self.user_share("clients", most, |holdings| holdings.clients)?;
        spare_descriptors(connection, machine::descriptors_max() / 32)
    }

    /// Whether there is room for the object that a client announces.
    pub(super) fn object(&self, descriptor: &impl AsFd) -> Result<(), Ending> {
        let most = Most::of(OBJECTS, machine::descriptors_max() / 2);
        self.client_share("objects", most, |holdings| holdings.objects)?;
        self.user_share("objects", most, |holdings| holdings.objects)?;
        spare_descriptors(descriptor, machine::descriptors_max() / 16)
    }

    /// Whether there is room for the arena that a client announces, by its lifeline.
    pub(super) fn arena(&self, lifeline: &impl AsFd) -> Result<(), Ending> {
        let most = Most::of(guard::CAPACITY / 2, machine::descriptors_max() / 4);
        self.client_share("arenas", most, |holdings| holdings.arenas)?;
        self.user_share("arenas", most, |holdings| holdings.arenas)?;
        let taken = guard::taken();
        if taken >= guard::CAPACITY / 4 * 3 {
            let sentence = format!(
                "{taken} of the {} arenas that its process can guard are there, and the others are kept for new clients",
                guard::CAPACITY
            );
            return Err(Ending::new(Reason::Exhausted, sentence));
        }
        spare_descriptors(lifeline, machine::descriptors_max() / 16)
    }

    fn client_share(&self, what: &str, most: Most, of: impl Fn(&Holdings) -> usize) -> Result<(), Ending> {
        let (own, all) = (of(&self.client), of(&self.all));
        if own < most.count.saturating_sub(all) {
            return Ok(());
        }
        let sentence =
            format!("{all} {what} are announced here, {own} of them by this client{}", most.remedy);
        Err(Ending::new(Reason::Exhausted, sentence))
    }

    fn user_share(&self, what: &str, most: Most, of: impl Fn(&Holdings) -> usize) -> Result<(), Ending> {
        let (user, all) = (of(&self.user), of(&self.all));
        if self.uid == machine::effective_uid() || user < most.count.saturating_sub(all).saturating_mul(3) {
            return Ok(());
        }
        let sentence = format!(
            "{all} {what} are here, {user} of them of user {}; others are to have some, too{}",
            self.uid, most.remedy
        );
        Err(Ending::new(Reason::Exhausted, sentence))
    }
}

/// How many of something all clients may have.
#[derive(Debug, Clone, Copy)]
struct Most {
    count: usize,
    /// How an operator gets more of them, as the end of a sentence; empty where there is no way.
    remedy: &'static str,
}

impl Most {
    /// The lesser of `count` and `descriptors`.
    fn of(count: usize, descriptors: usize) -> Self {
        match descriptors < count {
            true => {
                Self { count: descriptors, remedy: "; raise the server's limit on open files: `ulimit -n`" }
            }
            false => Self { count, remedy: "" },
        }
    }
}

impl Holdings {
    fn add(&mut self, channel: &ClientChannel) {
        self.clients += 1;
        self.objects += channel.objects;
        self.arenas += channel.arenas;
    }
}

/// Refuses a descriptor that is among the last `kept` ones that the process may have. The kernel gives the lowest free
/// number, so the process has at least as many descriptors as the number says.
fn spare_descriptors(descriptor: &impl AsFd, kept: usize) -> Result<(), Ending> {
    let number = descriptor.as_fd().as_raw_fd() as usize;
    let most = machine::descriptors_max();
    if number < most.saturating_sub(kept) {
        return Ok(());
    }
    let sentence = format!(
        "process {} has {number} of the {most} descriptors that it may have, and keeps the last ones for others; raise its limit on \
         open files: `ulimit -n`",
        std::process::id()
    );
    Err(Ending::new(Reason::Exhausted, sentence))
}
