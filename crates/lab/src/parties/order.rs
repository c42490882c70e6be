//! The orders that the sender gives the other parties, and their answers.

use std::time::Duration;

use genie::{Interface, Reason, Receipt};
use genie_net::Rate;
use genie_net::datagram::Summing;
use genie_passing::Thresholds;
use serde::{Deserialize, Serialize};

use super::meter::{Measure, Metered};
use crate::interface::Granule;
use crate::medium::{Copied, Medium};
use crate::memory_server;
use crate::operations::OperationTime;

/// The role in which a peer process must call [`run`](super::run).
pub const ROLE: &str = "party";

/// The name of the device in the folder of a run.
pub(super) const DEVICE: &str = "device";

/// An order to a party.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Be the device.
    Host(Hosting),
    /// Be a memory server.
    HostMemory(memory_server::Hosting),
    /// Be the receiver. With the order comes the network namespace in which its end of a link is, if there is one.
    Attend(Attending),
    /// Be a datagram server. With the order comes the same.
    Serve(Serving),
    /// As the receiver, post an input, and report its outcome.
    Receive(Posting),
}

/// What is between the two clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// A device, with a wire of this rate.
    Device(Rate),
    /// A medium, and datagram servers at both its ends.
    Datagrams(Network),
}

/// Which of two clients one is, or is a server of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    Sender,
    Receiver,
}

/// Two hosts with datagram servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// What brings frames from one to the other.
    pub medium: Medium,
    /// Whether data is copied where that takes less time on this machine; else copying is avoided always.
    pub calibrated: bool,
    /// Where the datagram servers are.
    pub place: Place,
    /// What they do for checksums.
    pub summing: Summing,
}

/// Where a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In its client's process, as one in the kernel would be.
    InProcess,
    /// In a process of its own, on its client's CPU. It sleeps while it has nothing to do.
    OwnProcess,
}

impl Route {
    /// The network, where there is one.
    pub(super) fn network(self) -> Option<Network> {
        match self {
            Self::Device(_) => None,
            Self::Datagrams(network) => Some(network),
        }
    }

    /// What is between the hosts.
    pub(crate) fn medium(self) -> Medium {
        match self {
            Self::Device(rate) => Medium::Wire(rate),
            Self::Datagrams(Network { medium, .. }) => medium,
        }
    }

    /// Has an interface decide as the clients are to.
    pub(super) fn adjust(self, genie: &Interface) {
        if self.network().is_some_and(|network| !network.calibrated) {
            genie.passing().adjust_thresholds(|thresholds| *thresholds = Thresholds::ALWAYS);
        }
    }
}

/// How the device is to be hosted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hosting {
    /// The folder that holds names.
    pub(super) folder: String,
    /// The longest data.
    pub(super) longest: usize,
    /// How fast its wire is.
    pub(super) rate: Rate,
    /// How long the device looks for requests before it sleeps.
    pub(super) spin: Duration,
}

/// How a client is to connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Attending {
    /// The folder that holds names.
    pub(super) folder: String,
    /// The client's granules.
    pub(super) granule: Granule,
    /// How long the client looks for replies before it sleeps.
    pub(super) spin: Duration,
    /// Whether the client hands the CPU over between looks.
    pub(super) yields: bool,
    /// What is between it and the other client.
    pub(super) route: Route,
    /// Which client it is.
    pub(super) end: End,
    /// The name of what it has in other processes: the device, a datagram server, or the wire.
    pub(super) server: String,
}

/// How a datagram server is to serve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Serving {
    /// Its name.
    pub(super) name: String,
    /// How it uses the wire.
    pub(super) attending: Attending,
}

/// An input to be posted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Posting {
    /// The scheme's name.
    pub(super) scheme: String,
    pub(super) len: usize,
    /// The data that is expected.
    pub(super) seed: u64,
    /// What is to be measured.
    pub(super) measure: Measure,
}

/// The receiver's report on an input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Heard {
    /// The input is posted.
    Posted,
    /// The data has been delivered.
    Received(Received),
    /// The input failed, for this reason.
    Failed {
        /// A sentence.
        reason: String,
    },
}

/// How an input went.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Received {
    /// The time when the client had its data, by the clock that all processes share.
    pub(super) delivered_ns: u64,
    /// The time when the client went on after the longest pause between two looks for its reply.
    pub(super) resumed_ns: u64,
    pub(super) metered: Metered,
    /// The times of operations; empty where they were not asked for.
    pub(super) operations: Vec<OperationTime>,
    pub(super) effect: Effect,
    /// What the receiver's process has copied, and the kernel for it, to take the frames off a link of the kernel's.
    pub(super) brought: Option<Copied>,
    /// The first offset at which the data is not what was sent.
    pub(super) damaged_at: Option<usize>,
}

/// What passing the data really did, as its receipt says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The scheme that took effect, by its name.
    pub effective: String,
    /// Bytes copied.
    pub copied: usize,
    /// Granules swapped.
    pub swapped: u32,
    /// Granules referenced in place.
    pub referenced: u32,
    /// Whether a region could not be wired.
    pub is_unwired: bool,
}

impl Effect {
    pub(super) fn of(receipt: &Receipt) -> Self {
        Self {
            effective: receipt.effective.name().to_owned(),
            copied: receipt.copied,
            swapped: receipt.swapped,
            referenced: receipt.referenced,
            is_unwired: receipt.reason == Some(Reason::Unwired),
        }
    }
}
