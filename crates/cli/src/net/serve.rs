//! `genie net serve`: a datagram server on an interface, for clients in other processes.

use genie_channel::{Listener, ServeOptions};
use genie_lab::interface::Granule;

use super::means::{self, Wishes};
use crate::failure::Failure;
use crate::signals;

/// Serve datagrams on an interface to other processes, until interrupted.
///
/// Datagrams to the ports that clients open come to them; everything else on the interface stays the kernel's. Clients need no
/// capabilities.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The interface, whose addresses the server has.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// The name by which clients find it; the interface's by default.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    wishes: Wishes,
}

/// Serves until a signal comes.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let genie = means::opened(Granule::Best)?;
    let host = args.wishes.open(&genie, &args.interface)?;
    let name = args.name.as_deref().unwrap_or(&args.interface);
    let serving =
        Listener::bind(name, host.datagrams, ServeOptions::default()).map_err(Failure::could_not)?;
    let stopper = serving.stopper();
    signals::on_first(move || stopper.stop())?;
    eprintln!("genie: serving datagrams of {} as \"{name}\"; interrupt to stop", args.interface);
    serving.run().map_err(Failure::could_not)
}
