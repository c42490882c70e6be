//! The baselines of one comparison: their ends here, the peer process, and one exchange by one of them.
//!
//! Invariants: of all services of the peer at most one runs at a time, so that no one polls while another is measured.
//! Nothing remains of the process, nor of its files, when this is dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use genie::Direction;
use genie_lab::data::{Data, Verdict};
use genie_lab::error::{Error, Result};
use genie_lab::peer::{Folder, Peer};
use genie_lab::touch::Touch;
use genie_sys::GranuleKind;
use rustix::fs::MemfdFlags;

use super::exchange::Ask;
use super::hand_over::HandOver;
use super::line::Line;
use super::memory::SharedMemory;
use super::process_vm::ProcessVm;
use super::rotation::Rotation;
use super::shared::Shared;
use super::stream::{Buffered, Stream};
use super::{Client, Kind, Means, Setting, Waiting};
use crate::peer::Order;

/// Round trips that are timed together, so that the clock is exact enough.
const PING_PONGS: u32 = 1000;
const HAND_OVERS: u32 = 20;
/// Empty requests that are timed together, after as many that are not.
pub const EMPTY: u32 = 16;

/// One baseline's end here.
struct Lane {
    means: Means,
    /// Its number at the peer.
    number: usize,
    client: Box<dyn Client>,
}

/// All that are measured.
pub struct Baselines {
    // Declared in the order in which they are to go: the peer lets go of what the clients clean up.
    peer: Peer,
    lanes: Vec<Lane>,
    ping_pong: Option<(usize, HandOver)>,
    hand_over: (usize, HandOver),
    rotation: Option<(usize, Rotation)>,
    /// Only where some baseline needs names.
    folder: Option<Folder>,
    opened: usize,
    left_out: Vec<String>,
}

/// The times of one exchange, and what the peer found.
#[derive(Debug, Clone, Copy)]
pub struct Exchanged {
    /// From sending to having the answer.
    pub latency: Duration,
    /// The same with what the client does to its buffer.
    pub cycle: Duration,
    /// The sum that the peer answered of data that is known, where it was asked for one.
    pub sum: Option<u64>,
}

/// What an exchange is.
#[derive(Debug, Clone, Copy)]
pub struct Passing {
    /// Whether the data goes to the peer or comes from it.
    pub direction: Direction,
    /// How much.
    pub len: usize,
    /// The sides that touch it.
    pub touch: Touch,
}

impl Baselines {
    /// Starts the peer on `cpu`, if there is one beside this process's, and opens both ends of each of `means`. Those that
    /// cannot be opened here are left out.
    pub fn open(means: &[Means], data: &Data, granules: GranuleKind, cpu: Option<usize>) -> Result<Self> {
        let peer = Peer::start(crate::ROLE, cpu)?;
        keep(&peer, data)?;
        let needs_names = means.iter().any(|one| one.needs_names());
        let folder = needs_names.then(Folder::create).transpose()?;
        let blocking = Means { kind: Kind::HandOver, waiting: Waiting::Blocking };
        let hand_over = open_hand_over(&peer, 0, blocking)?;
        let mut opened = 1;
        let (mut ping_pong, mut rotation) = (None, None);
        if cpu.is_some() {
            let polled = Means { kind: Kind::HandOver, waiting: Waiting::Polled };
            ping_pong = Some(open_hand_over(&peer, 1, polled)?);
            rotation = Some((2, open_rotation(&peer, granules)?));
            opened = 3;
        }
        let lanes = Vec::with_capacity(means.len());
        let left_out = Vec::new();
        let mut all = Self { peer, lanes, ping_pong, hand_over, rotation, folder, opened, left_out };
        for one in means {
            if cpu.is_none() && one.waiting == Waiting::Polled {
                all.left_out.push(format!("{} needs a second CPU", one.name()));
                continue;
            }
            match all.lane(*one, data.all().len(), granules) {
                Ok(lane) => all.lanes.push(lane),
                Err(error) => {
                    if all.peer.watch().check().is_err() {
                        return Err(error);
                    }
                    all.left_out.push(error.to_string());
                }
            }
        }
        Ok(all)
    }

    /// The baselines, by their numbers.
    pub fn means(&self) -> impl Iterator<Item = Means> + '_ {
        self.lanes.iter().map(|lane| lane.means)
    }

    /// What was left out, and why: a sentence each.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Opens both ends.
    fn lane(&mut self, means: Means, longest: usize, granules: GranuleKind) -> Result<Lane> {
        let cannot = |error: io::Error| unopened(means, &error);
        let folder = self.folder.as_ref().map(|folder| folder.path().to_string_lossy().into_owned());
        let mut setting = Setting { longest, folder: folder.unwrap_or_default(), address: 0 };
        let probe = [0u8; 1];
        setting.address = probe.as_ptr().expose_provenance();
        let open = |descriptors: &[BorrowedFd<'_>]| {
            let order = Order::Open { means, setting: setting.clone() };
            self.peer.order(&order, descriptors, &format!("it opened {}", means.name()))
        };
        let line = || Line::create(means.waiting, self.peer.watch()).map_err(cannot);
        let client: Box<dyn Client> = match means.kind {
            Kind::UnixStream | Kind::Pipe | Kind::TcpLoopback => {
                let [ours, theirs] = Stream::pair(means.kind).map_err(cannot)?;
                open(&theirs.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
                let stream = Stream::attach(ours, means.waiting).map_err(cannot)?;
                Box::new(Buffered::new(stream, longest))
            }
            Kind::ProcessVm => {
                let line = line()?;
                let client = ProcessVm::new(line, longest, self.peer.pid());
                open(&[client.line().memory().descriptor()])?;
                Box::new(client)
            }
            Kind::SharedMemory | Kind::SharedMemoryCopy => {
                let line = line()?;
                let memory = SharedMemory::create(granules, longest).map_err(cannot)?;
                open(&[line.memory().descriptor(), memory.descriptor()])?;
                let own = (means.kind == Kind::SharedMemoryCopy).then(|| vec![0; longest]);
                Box::new(Shared::new(line, memory, own))
            }
            #[cfg(feature = "peers")]
            Kind::IceoryxLoan | Kind::IceoryxCopy => {
                let client =
                    super::iceoryx::Client::open(means, &setting, self.peer.watch()).map_err(cannot)?;
                open(&[])?;
                client.connect().map_err(cannot)?;
                Box::new(client)
            }
            #[cfg(feature = "peers")]
            Kind::ZeromqIpc => {
                open(&[])?;
                Box::new(super::zeromq::Client::open(&setting, self.peer.watch()).map_err(cannot)?)
            }
            _ => return Err(cannot(io::ErrorKind::Unsupported.into())),
        };
        let number = self.opened;
        self.opened += 1;
        Ok(Lane { means, number, client })
    }

    /// Passes data by baseline `index` several times: `turn` is given what does it.
    fn turn<T>(&mut self, index: usize, turn: impl FnOnce(&mut dyn Client) -> io::Result<T>) -> Result<T> {
        let Lane { means, number, client } = &mut self.lanes[index];
        let doing = format!("it served {}", means.name());
        self.peer.tell(&Order::Serve(*number), &[], &doing)?;
        let result = turn(client.as_mut()).and_then(|found| {
            client.ask(Ask::Leave)?;
            Ok(found)
        });
        result.map_err(|error| self.peer.failure(&error, &doing))
    }

    /// One measured exchange, after one that is not, and an empty one: as a scheme's turn is. `timed` is what makes the
    /// measured one.
    pub fn exchange<T>(
        &mut self,
        index: usize,
        passing: Passing,
        timed: impl FnOnce(&mut dyn FnMut() -> io::Result<Exchanged>) -> io::Result<T>,
    ) -> Result<T> {
        let warming = match passing.direction {
            Direction::Out => passing.ask(),
            Direction::In => Ask::Fetch,
        };
        self.turn(index, |client| {
            operate(client, passing, warming)?;
            client.ask(Ask::Nothing)?;
            timed(&mut || operate(client, passing, passing.ask()))
        })
    }

    /// Times empty round trips, of 64 bytes each way: their mean.
    pub fn empty(&mut self, index: usize) -> Result<Duration> {
        self.turn(index, |client| {
            (0..EMPTY).try_for_each(|_| client.ask(Ask::Nothing))?;
            let start = Instant::now();
            (0..EMPTY).try_for_each(|_| client.ask(Ask::Nothing))?;
            Ok(start.elapsed() / EMPTY)
        })
    }

    /// Passes the data once and compares every byte.
    pub fn verify(&mut self, index: usize, passing: Passing, data: &Data) -> Result<Verdict> {
        let (len, right, wrong) = (passing.len, data.of(passing.len), data.opposite(passing.len));
        self.turn(index, |client| match passing.direction {
            Direction::Out => {
                client.prepare(len, &mut |memory| memory.fill(wrong))?;
                client.put(Ask::Take, len)?;
                client.prepare(len, &mut |memory| memory.fill(right))?;
                let difference = client.put(Ask::Check, len)?.difference();
                Ok(difference
                    .map_or(Ok(()), |at| Err(format!("as the peer saw it, the data differs at offset {at}"))))
            }
            Direction::In => {
                client.prepare(len, &mut |memory| memory.fill(wrong))?;
                client.get(Ask::Fetch, len)?;
                Ok(compared(client, len, right))
            }
        })
    }

    /// Compares what timed inputs delivered.
    pub fn verify_after(&mut self, index: usize, passing: Passing, data: &Data) -> Result<Verdict> {
        if passing.direction == Direction::Out {
            return Ok(Ok(()));
        }
        self.turn(index, |client| {
            operate(client, passing, Ask::Fetch)?;
            client.get(passing.ask(), passing.len)?;
            if passing.ask() == Ask::Give && !client.keeps_data() {
                client.finish(passing.len, &mut |_| {});
                return Ok(Ok(()));
            }
            Ok(compared(client, passing.len, data.of(passing.len)))
        })
    }

    /// A cache line's way to the peer and back, where there are two CPUs.
    pub fn ping_pong(&mut self) -> Result<Option<Duration>> {
        let Some((number, hand_over)) = &mut self.ping_pong else { return Ok(None) };
        measure(&self.peer, *number, hand_over, PING_PONGS).map(Some)
    }

    /// A word's way to the peer and back by two futex calls each way.
    pub fn futex_hand_over(&mut self) -> Result<Duration> {
        let (number, hand_over) = &mut self.hand_over;
        measure(&self.peer, *number, hand_over, HAND_OVERS)
    }

    /// Bytes a second through so many buffers of shared memory in turn, where there are two CPUs; by at most `turns` turns.
    pub fn rotate(&mut self, buffers: usize, len: usize, turns: usize) -> Result<Option<f64>> {
        let Some((number, rotation)) = &mut self.rotation else { return Ok(None) };
        if !rotation.fits(buffers, len) {
            return Ok(None);
        }
        let doing = "it served a rotation";
        self.peer.tell(&Order::Serve(*number), &[], doing)?;
        rotation.measure(buffers, len, turns).map(Some).map_err(|error| self.peer.failure(&error, doing))
    }
}

impl std::fmt::Debug for Baselines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.means().map(Means::name)).finish()
    }
}

impl Passing {
    /// What a measured exchange asks for.
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
fn operate(client: &mut dyn Client, passing: Passing, ask: Ask) -> io::Result<Exchanged> {
    let Passing { direction, len, touch } = passing;
    let begun = Instant::now();
    match direction {
        Direction::Out => {
            client.prepare(len, &mut |memory| {
                if touch.by_client() {
                    memory.store_words();
                }
            })?;
            let sent = Instant::now();
            let answer = client.put(ask, len)?;
            let replied = Instant::now();
            let sum = (ask == Ask::Sum && client.keeps_data()).then(|| answer.sum());
            Ok(Exchanged { latency: replied - sent, cycle: replied - begun, sum })
        }
        Direction::In => {
            client.get(ask, len)?;
            let replied = Instant::now();
            client.finish(len, &mut |view| {
                if touch.by_client() {
                    view.load_words();
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

fn unopened(means: Means, error: &io::Error) -> Error {
    Error::Peer(format!("{} cannot be opened: {error}", means.name()))
}

/// Gives the peer the data.
fn keep(peer: &Peer, data: &Data) -> Result<()> {
    let file = rustix::fs::memfd_create("genie-compare", MemfdFlags::CLOEXEC)
        .map_err(|errno| Error::Peer(format!("no file for the data can be had: {errno}")))?;
    let mut file = std::fs::File::from(file);
    let written = io::Write::write_all(&mut file, data.all()).and_then(|()| io::Seek::rewind(&mut file));
    written.map_err(|error| Error::Peer(format!("the data cannot be given to the peer: {error}")))?;
    peer.order(&Order::Keep, &[file.as_fd()], "it took the data")
}

fn open_hand_over(peer: &Peer, number: usize, means: Means) -> Result<(usize, HandOver)> {
    let client = HandOver::create(means.waiting, peer.watch()).map_err(|error| unopened(means, &error))?;
    open_plain(peer, means, &[client.line().memory().descriptor()])?;
    Ok((number, client))
}

fn open_rotation(peer: &Peer, granules: GranuleKind) -> Result<Rotation> {
    let means = Means { kind: Kind::Rotation, waiting: Waiting::Polled };
    let client = Rotation::create(granules, peer.watch()).map_err(|error| unopened(means, &error))?;
    open_plain(peer, means, &client.descriptors())?;
    Ok(client)
}

fn open_plain(peer: &Peer, means: Means, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let setting = Setting { longest: 0, folder: String::new(), address: 0 };
    let doing = format!("it opened {}", means.name());
    peer.order(&Order::Open { means, setting }, descriptors, &doing)
}

fn measure(peer: &Peer, number: usize, hand_over: &mut HandOver, rounds: u32) -> Result<Duration> {
    let doing = "it served hand-overs";
    peer.tell(&Order::Serve(number), &[], doing)?;
    hand_over.measure(rounds).map_err(|error| peer.failure(&error, doing))
}
