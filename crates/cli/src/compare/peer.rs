//! The peer process of a comparison: this program once more, on another CPU, in the other party's role.
//!
//! Why: data that is passed between threads of one process says nothing about what it costs to pass it between two.
//! How: `genie compare` starts `genie peer`, whose standard input is a [`Link`]. Over it the peer is given the data
//! to keep and, for each baseline, the ends of what passes data; then it is told which baseline to serve next, and serves
//! that one alone until a request says *leave*. Between baselines it sleeps. A second peer hosts the memory server, when that
//! is to be in another process.
//! Invariants: the peer ends with the comparison, even one that is killed.

mod host;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use genie_lab::error::Error;
use genie_lab::peer::{Link, Said, begin, say};
use serde::{Deserialize, Serialize};

use super::baseline::exchange::Kept;
use super::baseline::{Means, Service, Setting, attach};
use crate::failure::Failure;

pub(super) use host::{Hosting, POLLED};

/// The hidden command that this program is started with as a peer.
pub(super) const COMMAND: &str = "peer";

/// Serve the other side of a comparison; `genie compare` starts this.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
}

/// What the comparison tells its peer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Keep the data in the attached file.
    Keep,
    /// Open the other end of a baseline, with the attached descriptors.
    Open { means: Means, setting: Setting },
    /// Serve the baseline opened as number so and so, until a request says to leave. This is not answered.
    Serve(usize),
    /// Host a server for clients in other processes, too.
    Host(Hosting),
}

/// Is the peer.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (link, _pinned) = begin(args.cpu).map_err(|error| match error {
        Error::NoLink => Failure::usage(error),
        other => other.into(),
    })?;
    let result = serve(&link);
    if let Err(failure) = &result {
        // Where the comparison has gone as well, nobody needs to know.
        let _ = say(&link, &Said::Failed(failure.message.clone()));
    }
    result
}

/// Carries out orders until the comparison goes.
fn serve(link: &Link) -> Result<(), Failure> {
    let mut kept = Kept::default();
    let mut services: Vec<Box<dyn Service>> = Vec::new();
    let mut hosted = Vec::new();
    while let Some((order, descriptors)) = link.receive::<Order>().map_err(Failure::could_not)? {
        match order {
            Order::Keep => kept = keep(descriptors)?,
            Order::Host(hosting) => hosted.push(hosting.start()?),
            Order::Open { means, setting } => match attach(means, &setting, descriptors) {
                Ok(service) => services.push(service),
                Err(error) => {
                    say(link, &Said::Failed(format!("{} cannot be opened: {error}", means.name())))?;
                    continue;
                }
            },
            Order::Serve(index) => {
                let service =
                    services.get_mut(index).ok_or_else(|| Failure::could_not("no such baseline"))?;
                service.serve(&kept).map_err(|error| {
                    Failure::could_not(format!("the peer process could not go on serving: {error}"))
                })?;
                continue;
            }
        }
        say(link, &Said::Ready)?;
    }
    Ok(())
}

fn keep(descriptors: Vec<OwnedFd>) -> Result<Kept, Failure> {
    let mut data = Vec::new();
    for descriptor in descriptors {
        File::from(descriptor).read_to_end(&mut data).map_err(Failure::could_not)?;
    }
    Ok(Kept::new(data))
}
