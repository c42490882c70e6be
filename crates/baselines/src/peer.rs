//! The peer process: this program once more, on another CPU, which serves the baselines.
//!
//! Why: data that is passed between threads of one process says nothing about what it costs to pass it between two.
//! How: the peer is given the data to keep and, for each baseline, its ends of what passes data; then it is told which
//! baseline to serve next, and serves that baseline alone until a request says *leave*. Between baselines it sleeps.

use std::io;
use std::os::fd::OwnedFd;

use genie_lab::error::{Error, Result};
use genie_lab::peer::{Link, Said, obey, say};
use serde::{Deserialize, Serialize};

use crate::ends::{Service, Setting};
use crate::exchange::{Kept, nonsense};
use crate::{Kind, Means, limits, process_vm, shared, stream};
#[cfg(feature = "peers")]
use crate::{iceoryx, zeromq};

/// The role in which a peer process must call [`run`].
pub const ROLE: &str = "baselines";

/// An order to the peer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Keep this many bytes of data, which are in the attached memory.
    Keep(usize),
    /// Open the other end of a baseline, with the attached descriptors.
    Open { means: Means, setting: Setting },
    /// Serve a baseline that was opened, until a request says to leave. This is not answered.
    Serve(Means),
}

/// Acts as the peer, on `cpu` if there is one, until the process that started it ends.
///
/// # Errors
/// The process was not started as a peer, or could not do what it was told; then that process has been told why.
pub fn run(cpu: Option<usize>) -> Result<()> {
    let mut serving = Serving::default();
    obey(cpu, |order, descriptors, link| serving.obey(order, descriptors, link))
}

/// The peer's ends, and the data.
#[derive(Default)]
struct Serving {
    kept: Kept,
    services: Vec<(Means, Box<dyn Service>)>,
}

impl Serving {
    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>, link: &Link) -> Result<()> {
        let failed = |what: &str, error| Error::Peer(format!("{what}: {error}"));
        match order {
            Order::Keep(len) => {
                let kept = descriptors.into_iter().next().ok_or_else(nonsense);
                let kept = kept.and_then(|memory| Kept::copied(memory, len));
                self.kept = kept.map_err(|error| failed("the data cannot be read", error))?;
            }
            Order::Open { means, setting } => match attach(means, &setting, descriptors) {
                Ok(service) => self.services.push((means, service)),
                // The other baselines can do without this one.
                Err(error) => {
                    return say(link, &Said::Failed(format!("{} cannot be opened: {error}", means.name())));
                }
            },
            Order::Serve(means) => {
                let found = self.services.iter_mut().find(|(opened, _)| *opened == means);
                let served = found.ok_or_else(nonsense).and_then(|(_, service)| service.serve(&self.kept));
                return served.map_err(|error| failed("the peer process could not go on serving", error));
            }
        }
        say(link, &Said::Ready)
    }
}

/// Opens the peer's end.
fn attach(means: Means, setting: &Setting, descriptors: Vec<OwnedFd>) -> io::Result<Box<dyn Service>> {
    let Means { kind, waiting } = means;
    let longest = setting.longest;
    Ok(match kind {
        Kind::UnixStream | Kind::Pipe | Kind::TcpLoopback => {
            let stream = stream::Stream::attach(descriptors, waiting)?;
            Box::new(stream::Buffered::new(stream, longest))
        }
        Kind::ProcessVm => {
            Box::new(process_vm::ProcessVmPeer::attach(descriptors, waiting, longest, setting.address)?)
        }
        Kind::SharedMemory | Kind::SharedMemoryCopy => {
            Box::new(shared::SharedPeer::attach(descriptors, waiting)?)
        }
        Kind::Limits => Box::new(limits::Limits::attach(descriptors, waiting)?),
        #[cfg(feature = "peers")]
        Kind::IceoryxLoan | Kind::IceoryxCopy => Box::new(iceoryx::Peer::open(means, setting)?),
        #[cfg(feature = "peers")]
        Kind::ZeromqIpc => Box::new(zeromq::Peer::open(setting)?),
        #[cfg(not(feature = "peers"))]
        Kind::IceoryxLoan | Kind::IceoryxCopy | Kind::ZeromqIpc => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    })
}
