//! `genie net echo`: sends back what comes.

use super::Stop;
use super::figures::Figures;
use super::means::Means;
use super::receive::LOOK;
use crate::failure::Failure;
use crate::number;

/// Send every datagram that comes back to its sender, until interrupted.
///
/// A datagram's data goes back from the buffer into which it has come.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port.
    #[arg(value_parser = number::within::<u16>(1..=65_535))]
    port: u16,
    #[command(flatten)]
    means: Means,
}

/// Sends back until a signal comes, and prints the figures.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::at_signal()?;
    let mut end = args.means.open(args.port, None)?;
    eprintln!("genie: sending back what comes to port {} by {}; interrupt to stop", args.port, end.name());
    let mut figures = Figures::new(args.means.json);
    while !stop.is_asked() {
        if let Some(arrival) = end.receive(LOOK)? {
            figures.gone(arrival.len);
            end.send(arrival.load, arrival.from)?;
            figures.say()?;
        } else {
            end.flush()?;
        }
    }
    end.flush()?;
    figures.summary("sent back", &*end, false).print(args.means.json)
}
