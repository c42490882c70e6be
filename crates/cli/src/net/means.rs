//! The options that say what brings the datagrams.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::ValueEnum;
use genie::net::datagram::{Summing, Verifying};
use genie::net::driver::{Driver, Host};
use genie::{Connect, Interface, Scheme, ServerHandle};
use genie_lab::interface::Granule;
use genie_passing::calibration;
use genie_sys::udp::MANY;

use super::end::{End, LONGEST};
use super::kernel::Kernel;
use super::port::{Port, Use};
use crate::failure::Failure;
use crate::number;

/// Opens an interface, and tells who looks on if costs are measured first, which takes a while.
pub(super) fn opened(granule: Granule) -> Result<Interface, Failure> {
    if io::stderr().is_terminal() && calibration::load(&granule.space()?.alone()).is_none() {
        eprintln!("genie: measuring what passing data costs on this machine, once: this takes a few seconds");
    }
    Ok(granule.open()?)
}

/// As many as a link sends in one call.
const BATCH: NonZeroUsize = NonZeroUsize::new(32).unwrap();
/// How long the headers are before a datagram's data, over IPv4.
const HEADERS: usize = 28;

/// The options of all that send and receive.
#[derive(Debug, clap::Args)]
pub(super) struct Means {
    #[command(flatten)]
    end: Ends,
    /// How data is passed between this command and the datagram server, such as copy; by emulated copy, if nothing is said.
    #[arg(long)]
    scheme: Option<Scheme>,
    /// How many datagrams are under way at a time; with --socket, how many one call sends (sendmmsg), at most 32.
    #[arg(long, value_name = "N", default_value_t = BATCH, value_parser = number::within::<NonZeroUsize>(1..=64))]
    batch: NonZeroUsize,
    /// The kind of pages of the buffers; the best that can be had, if nothing is said.
    #[arg(long, value_enum)]
    granule: Option<Granule>,
    #[command(flatten)]
    wishes: Wishes,
    /// Print one JSON document at the end, and nothing before.
    #[arg(long)]
    pub(super) json: bool,
}

/// What brings the datagrams: the user names one of these.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Ends {
    /// Drive this interface in this process.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// Ask the datagram server of this name, which genie net serve has started.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Use a UDP socket of the kernel's: a call sends a batch, and receives one datagram.
    #[arg(long)]
    socket: bool,
}

/// How an interface is driven.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Wishes {
    /// By what the interface is driven.
    #[arg(long, value_enum, default_value_t = By::Best)]
    driver: By,
    /// What is done for checksums: nothing when sending, reading the data, or summing while it is copied.
    #[arg(long, value_enum, default_value_t = Sums::Separate)]
    checksum: Sums,
}

/// By what an interface is driven.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// By AF_XDP where that can be, else by a packet socket.
    #[default]
    Best,
    /// By AF_XDP.
    Xdp,
    /// By AF_XDP, with headers apart, so that data begins where a page does.
    Splitting,
    /// By a packet socket.
    Packet,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Sums {
    /// None when sending; what comes with one is verified.
    None,
    /// The data is read once more.
    #[default]
    Separate,
    /// The data is summed while it is copied.
    Integrated,
}

impl By {
    /// The driver, if one was named.
    pub(crate) fn driver(self) -> Option<Driver> {
        match self {
            Self::Best => None,
            Self::Xdp => Some(Driver::Xdp),
            Self::Splitting => Some(Driver::Splitting),
            Self::Packet => Some(Driver::PacketSocket),
        }
    }
}

impl Wishes {
    /// Opens an interface, and says on standard error how.
    pub(super) fn open(self, genie: &Interface, interface: &str) -> Result<Host, Failure> {
        let (summing, verifying) = match self.checksum {
            Sums::None => (Summing::None, Verifying::Separate),
            Sums::Separate => (Summing::Separate, Verifying::Separate),
            Sums::Integrated => (Summing::Integrated, Verifying::Integrated),
        };
        let host = Host::open(genie, interface, self.driver.driver(), |options| {
            options.summing = summing;
            options.verifying = verifying;
        });
        let host = host.map_err(Failure::could_not)?;
        eprintln!("genie: {host}");
        Ok(host)
    }
}

impl Means {
    /// How many datagrams are under way at a time.
    pub(super) fn batch(&self) -> usize {
        self.batch.get()
    }

    /// Opens a port; 0 for any that is free. If it is known where the datagrams go, to that kind of address.
    pub(super) fn open(&self, number: u16, to: Option<SocketAddr>) -> Result<Box<dyn End>, Failure> {
        let Ends { interface, server, .. } = &self.end;
        if interface.is_none() && self.wishes != Wishes::default() {
            return Err(Failure::usage(
                "--driver and --checksum say how --interface is driven, which is not given",
            ));
        }
        if interface.is_none() && server.is_none() {
            if self.scheme.is_some() || self.granule.is_some() {
                return Err(Failure::usage(
                    "--scheme and --granule say how data is passed to a datagram server (--interface, --server); a \
                     socket of the kernel's has no schemes",
                ));
            }
            if self.batch.get() > MANY {
                return Err(Failure::usage(format!(
                    "--batch {}: with --socket, a call sends {MANY} datagrams at most",
                    self.batch
                )));
            }
            return Ok(Box::new(Kernel::bind(number, to, self.batch.get())?));
        }
        let genie = opened(self.granule.unwrap_or(Granule::Best))?;
        let scheme = self.scheme.unwrap_or(Scheme::EmulatedCopy);
        let mut how = Use { number, scheme, batch: self.batch.get(), longest: LONGEST };
        let (server, link, name) = match (interface, server) {
            (Some(interface), _) => {
                let Host { datagrams, link, interface, driver, .. } = self.wishes.open(&genie, interface)?;
                how.longest = LONGEST.min((interface.mtu as usize).saturating_sub(HEADERS));
                (ServerHandle::new(datagrams), Some(link), format!("interface {} ({driver})", interface.name))
            }
            (None, server) => {
                let name = server.as_deref().unwrap_or_default();
                let server = genie.connect(name).map_err(Failure::could_not)?;
                (server, None, format!("the server \"{name}\""))
            }
        };
        Ok(Box::new(Port::open(genie, server, link, name, how)?))
    }
}
