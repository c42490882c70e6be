//! The peer process: this program once more, on another CPU, which serves the baselines.
//!
//! Why: data that is passed between threads of one process says nothing about what it costs to pass it between two.
//! How: the peer is given the data to keep and, for each baseline, the ends of what passes data; then it is told which
//! baseline to serve next, and serves that one alone until a request says *leave*. Between baselines it sleeps.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use genie_lab::error::{Error, Result};
use genie_lab::peer::{Link, Said, obey, say};
use serde::{Deserialize, Serialize};

use crate::exchange::Kept;
use crate::{Means, Service, Setting, attach};

/// The role in which a peer process must call [`run`].
pub const ROLE: &str = "baselines";

/// What the peer is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Keep the data in the attached file.
    Keep,
    /// Open the other end of a baseline, with the attached descriptors.
    Open { means: Means, setting: Setting },
    /// Serve the baseline opened as number so and so, until a request says to leave. This is not answered.
    Serve(usize),
}

/// Is the peer, on `cpu` if there is one, until the process that started it goes.
///
/// # Errors
/// It was started by nobody, or could not do what it was told; the process that told it has heard of that.
pub fn run(cpu: Option<usize>) -> Result<()> {
    let mut serving = Serving::default();
    obey(cpu, |order, descriptors, link| serving.obey(order, descriptors, link))
}

/// The peer's ends, and the data.
#[derive(Default)]
struct Serving {
    kept: Kept,
    services: Vec<Box<dyn Service>>,
}

impl Serving {
    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>, link: &Link) -> Result<()> {
        match order {
            Order::Keep => self.kept = keep(descriptors)?,
            Order::Open { means, setting } => match attach(means, &setting, descriptors) {
                Ok(service) => self.services.push(service),
                // The others can do without it.
                Err(error) => {
                    return say(link, &Said::Failed(format!("{} cannot be opened: {error}", means.name())));
                }
            },
            Order::Serve(index) => {
                let unknown = || Error::Peer("no such baseline".to_owned());
                return self.services.get_mut(index).ok_or_else(unknown)?.serve(&self.kept).map_err(
                    |error| Error::Peer(format!("the peer process could not go on serving: {error}")),
                );
            }
        }
        say(link, &Said::Ready)
    }
}

fn keep(descriptors: Vec<OwnedFd>) -> Result<Kept> {
    let mut data = Vec::new();
    for descriptor in descriptors {
        let read = File::from(descriptor).read_to_end(&mut data);
        read.map_err(|error| Error::Peer(format!("the data cannot be read: {error}")))?;
    }
    Ok(Kept::new(data))
}
