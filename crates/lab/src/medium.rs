//! What brings frames from one host to the other: a wire of Genie's own, or a link of the kernel's, driven by AF_XDP.
//!
//! How: the kernel's link is a virtual one (veth) between two network namespaces, of which nothing is left. For AF_XDP the kernel copies
//! each frame there twice: out of the sender's ring, and into the receiver's.

use std::sync::OnceLock;

use genie::mechanism::Space;
use genie_net::Rate;
use genie_net::driver::{self, Counters, Queue, Xdp, interfaces};
use genie_net::namespaces::{Namespace, Pair};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::interface::Granule;

/// The MTU of the kernel's links, by which the papers' longest data is one frame.
pub(crate) const MTU: u32 = 65_535;
/// Room for some transfers of that length.
const QUEUE: Queue =
    Queue { number: 0, receiving: 160, sending: 64, reserve: 32, away: 64, mode: None, splits: false };

/// With what a setting ends in which bytes were copied for bringing frames over a link of the kernel's.
pub(crate) const BY_DRIVER: &str = ", by the driver";
pub(crate) const BY_KERNEL: &str = ", by the kernel";

/// What brings frames from one host to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// A wire of this rate.
    Wire(Rate),
    /// A link of the kernel's, by AF_XDP.
    Xdp,
}

impl Medium {
    /// The name in settings: a wire's is its rate.
    pub fn name(self) -> String {
        match self {
            Self::Wire(rate) => rate.name(),
            Self::Xdp => "AF_XDP".to_owned(),
        }
    }

    /// How fast it is.
    pub fn rate(self) -> Rate {
        match self {
            Self::Wire(rate) => rate,
            Self::Xdp => Rate::Unlimited,
        }
    }

    /// Whether this process may have it.
    pub(crate) fn is_there(self) -> bool {
        self != Self::Xdp || xdp_lack().is_none()
    }
}

/// Why this process cannot have a link of the kernel's with AF_XDP at its ends, with the right that is missing; none where it can.
pub fn xdp_lack() -> Option<&'static str> {
    static LACK: OnceLock<Option<String>> = OnceLock::new();
    let tried = || -> std::result::Result<Xdp, String> {
        let pair = Pair::new(MTU).map_err(|error| error.to_string())?;
        let space = Granule::Base.space().map_err(|error| error.to_string())?;
        let end = &pair.ends[0];
        open(&space, &end.namespace, &end.interface.name).map_err(|error| error.to_string())
    };
    LACK.get_or_init(|| tried().err()).as_deref()
}

/// The rings of an interface in a namespace.
///
/// # Errors
/// A right is missing, or there is no such interface.
pub(crate) fn open(space: &Space, namespace: &Namespace, name: &str) -> Result<Xdp> {
    let open = || {
        let interface = interfaces::interface(name).map_err(|error| error.to_string())?;
        Xdp::open(space, name, &interface.hosts, &QUEUE).map_err(|error| error.to_string())
    };
    namespace.enter(open).map_err(Error::Peer)
}

/// How many bytes were copied to bring frames over a link of the kernel's: none over a wire, whose one copy stands for that of two devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// By Genie: into the sender's ring, and out of the receiver's, unless the buffers are taken as they are.
    pub driver: u64,
    /// By the kernel.
    pub kernel: u64,
}

impl Copied {
    /// What was copied for the frames that one end has sent and received so far; `stores` says whether its adapter copies them out of the ring.
    pub(crate) fn at(link: &driver::Link, stores: bool) -> Self {
        let Counters { sent_bytes, received_bytes, copied_by_kernel, .. } = link.counters();
        Self { driver: sent_bytes + if stores { received_bytes } else { 0 }, kernel: copied_by_kernel }
    }
}

impl std::ops::Add for Copied {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { driver: self.driver + other.driver, kernel: self.kernel + other.kernel }
    }
}

impl std::ops::Sub for Copied {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { driver: self.driver - before.driver, kernel: self.kernel - before.kernel }
    }
}
