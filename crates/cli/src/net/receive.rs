//! `genie net receive`: counts, times and verifies what one sender sends.

use std::time::Duration;

use super::Stop;
use super::end::End;
use super::figures::Figures;
use super::means::Means;
use super::numbered::{Header, Kind};
use crate::failure::Failure;
use crate::number;

/// How long one look for a datagram takes at most: then it is seen whether the user has asked for the end.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Receive what genie net send sends, until it ends or an interrupt comes.
///
/// The rate is the receiver's: from the first datagram that has come to the last one. Loss, duplicates and order are known by the
/// datagrams' numbers. Data is verified if the sender was asked for data that can be.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port.
    #[arg(value_parser = number::within::<u16>(1..=65_535))]
    port: u16,
    #[command(flatten)]
    means: Means,
}

/// Receives until the end, and prints the figures.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::at_signal()?;
    let mut end = args.means.open(args.port, None)?;
    eprintln!("genie: receiving at port {} by {}; interrupt to stop", args.port, end.name());
    let mut figures = Figures::new(args.means.json);
    let is_verified = receive(&mut *end, &stop, &mut figures)?;
    figures.summary("received", &*end, is_verified).print(args.means.json)
}

/// Receives one sender's datagrams; returns whether their data was verified.
fn receive(end: &mut dyn End, stop: &Stop, figures: &mut Figures) -> Result<bool, Failure> {
    let (mut run, mut is_over, mut is_verified) = (None, false, false);
    while !stop.is_asked() {
        let Some(arrival) = end.receive(LOOK)? else {
            if is_over {
                break;
            }
            continue;
        };
        let header = Header::read(&arrival.load);
        match header.filter(|header| *run.get_or_insert(header.run) == header.run) {
            None => figures.strange(),
            Some(Header { kind: Kind::End, number, .. }) => {
                figures.total(number);
                is_over = true;
            }
            Some(header) => {
                is_verified |= header.kind == Kind::Verified;
                figures.came(header, &arrival.load, arrival.len);
            }
        }
        end.recycle(arrival.load);
        figures.say()?;
    }
    Ok(is_verified)
}
