//! The baselines of one comparison: their ends here, the peer process, and one exchange by one baseline.
//!
//! Invariants: at most one of the peer's services runs at a time, so that none polls while another is measured. When
//! `Baselines` is dropped, nothing remains of the process or of its files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use genie::Direction;
use genie_lab::data::{Data, Verdict};
use genie_lab::error::{Error, Result};
use genie_lab::peer::{self, Peer};
use genie_lab::touch::Touch;
use genie_sys::GranuleKind;
use tempfile::TempDir;

use super::ends::{Client, Setting};
use super::exchange::Ask;
use super::limits::Limits;
use super::line::Line;
use super::means::{Kind, Means, Waiting};
use super::memory::{Memory, SharedMemory};
use super::process_vm::ProcessVm;
use super::shared::Shared;
use super::stream::{Buffered, Stream};
use crate::peer::Order;

/// How many round trips are timed together, so that the clock is precise enough.
const PING_PONGS: u32 = 1000;
const HAND_OVERS: u32 = 20;
/// How many empty requests are timed together, after as many that are not timed.
const EMPTY: u32 = 16;

/// One baseline, and the client's end of it.
struct Opened {
    means: Means,
    client: Box<dyn Client>,
}

/// All baselines that are measured.
pub struct Baselines {
    // Declared in the order in which they are to go: the peer lets go of the things that the clients clean up.
    peer: Peer,
    clients: Vec<Opened>,
    /// The limits where both sides sleep; and, if there are two CPUs, where they spin.
    blocking: Limits,
    polled: Option<Limits>,
    /// Only where some baseline needs names.
    _folder: Option<TempDir>,
    left_out: Vec<String>,
}

/// The times of one exchange, and what the peer found.
#[derive(Debug, Clone, Copy)]
pub struct Exchanged {
    /// From sending the request to having the answer.
    pub latency: Duration,
    /// The same, with the time that the client spends on its buffer.
    pub cycle: Duration,
    /// The sum of known data that the peer answered, where it was asked for a sum.
    pub sum: Option<u64>,
}

/// What an exchange does.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    /// Whether the data goes to the peer or comes from it.
    pub direction: Direction,
    /// The data.
    pub data: &'a [u8],
    /// The sides that touch it.
    pub touch: Touch,
}

impl Baselines {
    /// Starts the peer on `cpu`, if there is one beside this process's, and opens both ends of each of `means`. Those that
    /// cannot be opened here are left out. Of data that is passed many times, `queue` may be on its way at once.
    pub fn open(
        means: &[Means],
        data: &Data,
        granules: GranuleKind,
        cpu: Option<usize>,
        queue: usize,
    ) -> Result<Self> {
        let peer = Peer::start(crate::peer::ROLE, cpu)?;
        keep(&peer, data)?;
        let folder = means.iter().any(|one| one.needs_names()).then(peer::folder).transpose()?;
        let path = folder.as_ref().map(|folder| folder.path().to_string_lossy().into_owned());
        let setting = Setting {
            longest: data.all().len(),
            queue,
            folder: path.unwrap_or_default(),
            address: data.all().as_ptr().expose_provenance(),
        };
        let opening = Opening { peer: &peer, setting: &setting, granules };
        let blocking = opening.limits(Waiting::Blocking)?;
        let polled = cpu.map(|_| opening.limits(Waiting::Polled)).transpose()?;
        let (mut clients, mut left_out) = (Vec::with_capacity(means.len()), Vec::new());
        for one in means {
            if cpu.is_none() && one.waiting == Waiting::Polled {
                left_out.push(format!("{} needs a second CPU", one.name()));
                continue;
            }
            match opening.client(*one) {
                Ok(client) => clients.push(Opened { means: *one, client }),
                Err(error) if peer.watch().check().is_err() => return Err(error),
                Err(error) => left_out.push(error.to_string()),
            }
        }
        Ok(Self { peer, clients, blocking, polled, _folder: folder, left_out })
    }

    /// The baselines, by their numbers.
    pub fn means(&self) -> impl Iterator<Item = Means> + '_ {
        self.clients.iter().map(|opened| opened.means)
    }

    /// The baselines that were left out, and why: a sentence each.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Passes data by baseline `index` several times: `turn` gets the client's end, and does so.
    fn turn<T>(&mut self, index: usize, turn: impl FnOnce(&mut dyn Client) -> io::Result<T>) -> Result<T> {
        let Opened { means, client } = &mut self.clients[index];
        served(&self.peer, *means, || {
            let found = turn(client.as_mut())?;
            client.exchange(Ask::Leave, 0)?;
            Ok(found)
        })
    }

    /// Makes an exchange that is not measured, an empty one, and a measured one, as a scheme's turn does. `timed` makes the
    /// measured exchange.
    pub fn exchange<T>(
        &mut self,
        index: usize,
        passing: Passing<'_>,
        timed: impl FnOnce(&mut dyn FnMut() -> io::Result<Exchanged>) -> io::Result<T>,
    ) -> Result<T> {
        let warming = match passing.direction {
            Direction::Out => passing.ask(),
            Direction::In => Ask::Fetch,
        };
        self.turn(index, |client| {
            operate(client, passing, warming)?;
            client.exchange(Ask::Nothing, 0)?;
            timed(&mut || operate(client, passing, passing.ask()))
        })
    }

    /// Times empty round trips, of 64 bytes each way; returns their mean.
    pub fn empty(&mut self, index: usize) -> Result<Duration> {
        self.turn(index, |client| mean_of_empty(|| client.exchange(Ask::Nothing, 0).map(drop)))
    }

    /// Passes data out `count` times by baseline `index`, which [passes many](Means::passes_many), after `warming` times that are not
    /// timed. Returns the time until the peer had looked at all of it, and how often the peer found the data right.
    pub fn pass_many(
        &mut self,
        index: usize,
        data: &[u8],
        warming: usize,
        count: usize,
    ) -> Result<(Duration, u64)> {
        self.turn(index, |client| {
            client.pass_many(data, warming)?;
            client.pass_many(data, count)
        })
    }

    /// Passes the data once and compares every byte.
    pub fn verify(&mut self, index: usize, passing: Passing<'_>, data: &Data) -> Result<Verdict> {
        let (len, right) = (passing.data.len(), passing.data);
        let wrong = data.opposite(len);
        self.turn(index, |client| match passing.direction {
            Direction::Out => {
                client.prepare(len, &mut |memory| memory.fill(wrong))?;
                client.exchange(Ask::Take, len)?;
                client.prepare(len, &mut |memory| memory.fill(right))?;
                let difference = client.exchange(Ask::Check, len)?.difference();
                Ok(difference
                    .map_or(Ok(()), |at| Err(format!("as the peer saw it, the data differs at offset {at}"))))
            }
            Direction::In => {
                client.prepare(len, &mut |memory| memory.fill(wrong))?;
                client.exchange(Ask::Fetch, len)?;
                Ok(compared(client, len, right))
            }
        })
    }

    /// Compares what timed inputs delivered.
    pub fn verify_after(&mut self, index: usize, passing: Passing<'_>) -> Result<Verdict> {
        let len = passing.data.len();
        if passing.direction == Direction::Out {
            return Ok(Ok(()));
        }
        self.turn(index, |client| {
            operate(client, passing, Ask::Fetch)?;
            client.exchange(passing.ask(), len)?;
            if passing.ask() == Ask::Give && !client.keeps_data() {
                client.finish(len, &mut |_| {});
                return Ok(Ok(()));
            }
            Ok(compared(client, len, passing.data))
        })
    }

    /// The time for a cache line to go to the peer and back, where there are two CPUs.
    pub fn ping_pong(&mut self) -> Result<Option<Duration>> {
        let Some(limits) = &mut self.polled else { return Ok(None) };
        measured(&self.peer, Waiting::Polled, limits, |limits| limits.hand_over(PING_PONGS)).map(Some)
    }

    /// The time for a word to go to the peer and back by two futex calls each way.
    pub fn futex_hand_over(&mut self) -> Result<Duration> {
        let limits = &mut self.blocking;
        measured(&self.peer, Waiting::Blocking, limits, |limits| limits.hand_over(HAND_OVERS))
    }

    /// Bytes a second through `buffers` buffers of shared memory, one after the other, in at most `turns` turns; none
    /// without two CPUs, or if the buffers are too long.
    pub fn rotate(&mut self, buffers: usize, len: usize, turns: usize) -> Result<Option<f64>> {
        let Some(limits) = &mut self.polled else { return Ok(None) };
        measured(&self.peer, Waiting::Polled, limits, |limits| limits.rotate(buffers, len, turns))
    }
}

/// The mean time of requests without data, after as many that are not timed.
pub fn mean_of_empty<E>(
    mut request: impl FnMut() -> std::result::Result<(), E>,
) -> std::result::Result<Duration, E> {
    let mut requests = || (0..EMPTY).try_for_each(|_| request());
    requests()?;
    let start = Instant::now();
    requests()?;
    Ok(start.elapsed() / EMPTY)
}

impl std::fmt::Debug for Baselines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.means().map(Means::name)).finish()
    }
}

impl Passing<'_> {
    /// What a measured exchange asks the peer for.
    fn ask(self) -> Ask {
        match (self.direction, self.touch.by_server()) {
            (Direction::Out, true) => Ask::Sum,
            (Direction::Out, false) => Ask::Take,
            (Direction::In, true) => Ask::Fetch,
            (Direction::In, false) => Ask::Give,
        }
    }
}

/// Passes data once, with the client's touching.
fn operate(client: &mut dyn Client, passing: Passing<'_>, ask: Ask) -> io::Result<Exchanged> {
    let Passing { direction, data, touch } = passing;
    let len = data.len();
    let begun = Instant::now();
    match direction {
        Direction::Out => {
            client.prepare(len, &mut |memory| {
                if let Some(amount) = touch.by_client() {
                    memory.touch(amount, data);
                }
            })?;
            let sent = Instant::now();
            let answer = client.exchange(ask, len)?;
            let replied = Instant::now();
            let sum = (ask == Ask::Sum && client.keeps_data()).then(|| answer.sum());
            Ok(Exchanged { latency: replied - sent, cycle: replied - begun, sum })
        }
        Direction::In => {
            client.exchange(ask, len)?;
            let replied = Instant::now();
            client.finish(len, &mut |view| {
                if let Some(amount) = touch.by_client() {
                    view.touch(amount);
                }
            });
            Ok(Exchanged { latency: replied - begun, cycle: begun.elapsed(), sum: None })
        }
    }
}

fn compared(client: &mut dyn Client, len: usize, right: &[u8]) -> Verdict {
    let mut difference = None;
    client.finish(len, &mut |view| difference = view.difference(right));
    difference.map_or(Ok(()), |at| Err(format!("as the client saw it, the data differs at offset {at}")))
}

/// Gives the peer the data to keep.
fn keep(peer: &Peer, data: &Data) -> Result<()> {
    let len = data.all().len();
    let memory = SharedMemory::create(GranuleKind::Base, len)
        .map_err(|error| Error::Peer(format!("no memory for the peer's data can be had: {error}")))?;
    Memory::Shared(memory.part(0, len)).fill(data.all());
    peer.order(&Order::Keep(len), &[memory.descriptor()], "it took the data")
}

/// Has the peer serve a baseline that it has opened, while `work` makes requests and then has the peer leave.
fn served<T>(peer: &Peer, means: Means, work: impl FnOnce() -> io::Result<T>) -> Result<T> {
    let doing = format!("it served {}", means.name());
    peer.tell(&Order::Serve(means), &[], &doing)?;
    work().map_err(|error| peer.failure(&error, &doing))
}

/// Measures a limit.
fn measured<T>(
    peer: &Peer,
    waiting: Waiting,
    limits: &mut Limits,
    measure: impl FnOnce(&mut Limits) -> io::Result<T>,
) -> Result<T> {
    served(peer, Means { kind: Kind::Limits, waiting }, || {
        let found = measure(limits)?;
        limits.leave()?;
        Ok(found)
    })
}

/// What is needed to open both ends of any baseline.
struct Opening<'o> {
    peer: &'o Peer,
    setting: &'o Setting,
    granules: GranuleKind,
}

impl Opening<'_> {
    /// Opens the peer's end.
    fn theirs(&self, means: Means, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let order = Order::Open { means, setting: self.setting.clone() };
        self.peer.order(&order, descriptors, &format!("it opened {}", means.name()))
    }

    fn limits(&self, waiting: Waiting) -> Result<Limits> {
        let means = Means { kind: Kind::Limits, waiting };
        let limits = Limits::create(waiting, self.granules, self.peer.watch());
        let limits = limits.map_err(|error| unopened(means, &error))?;
        self.theirs(means, &limits.descriptors())?;
        Ok(limits)
    }

    /// Opens both ends of a baseline, and returns the client's.
    fn client(&self, means: Means) -> Result<Box<dyn Client>> {
        let cannot = |error: io::Error| unopened(means, &error);
        let Setting { longest, .. } = *self.setting;
        let line = || Line::create(means.waiting, self.peer.watch()).map_err(cannot);
        Ok(match means.kind {
            Kind::UnixStream | Kind::Pipe | Kind::TcpLoopback => {
                let [ours, theirs] = Stream::pair(means.kind).map_err(cannot)?;
                self.theirs(means, &theirs.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
                Box::new(Buffered::new(Stream::attach(ours, means.waiting).map_err(cannot)?, longest))
            }
            Kind::ProcessVm => {
                let client = ProcessVm::new(line()?, longest, self.peer.pid());
                self.theirs(means, &[client.line().memory().descriptor()])?;
                Box::new(client)
            }
            Kind::SharedMemory | Kind::SharedMemoryCopy => {
                let line = line()?;
                let memory = SharedMemory::create(self.granules, longest).map_err(cannot)?;
                self.theirs(means, &[line.memory().descriptor(), memory.descriptor()])?;
                let own = (means.kind == Kind::SharedMemoryCopy).then(|| vec![0; longest]);
                Box::new(Shared::new(line, memory, own))
            }
            #[cfg(feature = "peers")]
            Kind::IceoryxLoan | Kind::IceoryxCopy => {
                let client = super::iceoryx::Client::open(means, self.setting, self.peer.watch());
                let client = client.map_err(cannot)?;
                self.theirs(means, &[])?;
                client.connect().map_err(cannot)?;
                Box::new(client)
            }
            #[cfg(feature = "peers")]
            Kind::ZeromqIpc => {
                self.theirs(means, &[])?;
                Box::new(super::zeromq::Client::open(self.setting, self.peer.watch()).map_err(cannot)?)
            }
            _ => return Err(cannot(io::ErrorKind::Unsupported.into())),
        })
    }
}

fn unopened(means: Means, error: &io::Error) -> Error {
    Error::Peer(format!("{} cannot be opened: {error}", means.name()))
}
