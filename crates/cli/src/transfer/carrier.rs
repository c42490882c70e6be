//! The carrier: passes the chunks of files to and from the server, several of them in flight.
//!
//! How: a chunk's buffer is given to its request by value and comes back with the reply, so that each scheme can carry it;
//! migrant schemes get a new buffer each time. A chunk *departs* when its request is made, and *lands* when the reply is
//! taken; chunks land in the order in which they departed.
//! Limits: [`IN_FLIGHT`] chunks for each job, [`IN_FLIGHT`] times [`CHUNK`] bytes for all jobs together; fewer when the
//! interface or the server admits no more, or when other clients' data takes the server's memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use genie::file::{self, Checksum};
use genie::mechanism::model::{Allocation, Integrity};
use genie::{Buffer, In, Migrant, Out, Pending, Request, Scheme, ServiceId};

use super::client::{Client, read_checksum};
use super::summary::Tally;
use crate::failure::Failure;

/// The longest chunk: long enough for swapping to pay, short enough for a few to be in flight.
pub(super) const CHUNK: usize = 8 << 20;
/// How many chunks are in flight.
const IN_FLIGHT: usize = 4;
/// The shortest buffer; buffers of small files are reused for other files.
pub(super) const SHORTEST: usize = 64 << 10;
/// How long a request that is not admitted is tried again, and how often.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

/// Some bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// The buffer or length that a chunk's request takes along, or that its reply brings.
#[derive(Debug)]
enum Load {
    /// The first bytes of a buffer.
    Native(Buffer, usize),
    /// A buffer that moves.
    Migrant(Migrant),
    /// Only the length of the data that is to come.
    Expected(usize),
}

impl Load {
    /// The buffer that came back, if one did, with data of `len` bytes.
    fn of(buffer: Option<Buffer>, migrant: Option<Migrant>, len: usize) -> Self {
        match (buffer, migrant) {
            (Some(buffer), _) => Self::Native(buffer, len),
            (None, Some(migrant)) => Self::Migrant(migrant),
            (None, None) => Self::Expected(len),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Native(buffer, len) => &mut buffer[..*len],
            Self::Migrant(migrant) => migrant,
            Self::Expected(_) => &mut [],
        }
    }
}

/// The file that chunks go to or come from.
#[derive(Debug, Clone, Copy)]
struct Route<'p> {
    service: ServiceId,
    path: &'p Path,
}

/// A chunk that has departed.
#[derive(Debug)]
struct Flight {
    chunk: Chunk,
    answer: Pending<'static>,
    /// The server's checksum of the same bytes.
    checksum: Option<Pending<'static>>,
}

/// One job's buffers, and the tally of what the job did.
#[derive(Debug)]
pub(super) struct Carrier<'c> {
    pub(super) client: &'c Client,
    pub(super) tally: Tally,
    scheme: Scheme,
    chunk_len: usize,
    idle: Vec<Buffer>,
}

impl<'c> Carrier<'c> {
    /// The carrier of one of `jobs` jobs.
    pub(super) fn new(client: &'c Client, scheme: Scheme, jobs: usize) -> Self {
        let chunk_len = (CHUNK / jobs.next_power_of_two()).max(SHORTEST);
        Self { client, tally: Tally::default(), scheme, chunk_len, idle: Vec::new() }
    }

    /// Cuts a range of a file into chunks.
    pub(super) fn chunks(&self, bytes: Range<u64>) -> impl Iterator<Item = Chunk> + use<> {
        let (Range { start, end }, longest) = (bytes, self.chunk_len);
        (start..end).step_by(longest).map(move |offset| {
            let len = usize::try_from(end - offset).map_or(longest, |left| left.min(longest));
            Chunk { offset, len }
        })
    }

    /// Fetches chunks of the file at `path`, and hands over each chunk, in order, with as many bytes as the file has there;
    /// with `verify`, only after their checksum has been found equal to the server's.
    pub(super) fn fetch(
        &mut self,
        path: &Path,
        chunks: impl Iterator<Item = Chunk>,
        verify: bool,
        mut take: impl FnMut(Chunk, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let load = |carrier: &mut Self, chunk: Chunk| {
            Ok(Some(match carrier.scheme.allocation() {
                Allocation::Native => Load::Native(carrier.buffer(chunk.len)?, chunk.len),
                Allocation::Migrant => Load::Expected(chunk.len),
            }))
        };
        let route = Route { service: file::FETCH, path };
        self.carry(route, chunks, verify, load, |carrier, flight| carrier.arrive(route, flight, &mut take))
    }

    /// Stores chunks into the file at `path`. `fill` puts each chunk's bytes into its buffer, in order, and says whether
    /// they need to be stored.
    pub(super) fn store(
        &mut self,
        path: &Path,
        chunks: impl Iterator<Item = Chunk>,
        mut fill: impl FnMut(Chunk, &mut [u8]) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let load = |carrier: &mut Self, chunk: Chunk| {
            let mut load = match carrier.scheme.allocation() {
                Allocation::Native => Load::Native(carrier.buffer(chunk.len)?, chunk.len),
                Allocation::Migrant => Load::Migrant(carrier.migrant(chunk.len)?),
            };
            if fill(chunk, load.bytes())? {
                return Ok(Some(load));
            }
            carrier.tally.kept += chunk.len as u64;
            carrier.recycle(load);
            Ok(None)
        };
        self.carry(Route { service: file::STORE, path }, chunks, false, load, Self::complete)
    }

    /// Has chunks depart with what `load` gives them, none for a chunk that needs not go, and has `land` take their replies.
    fn carry(
        &mut self,
        route: Route<'_>,
        chunks: impl Iterator<Item = Chunk>,
        verify: bool,
        mut load: impl FnMut(&mut Self, Chunk) -> Result<Option<Load>, Failure>,
        mut land: impl FnMut(&mut Self, Flight) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut flights = VecDeque::new();
        for chunk in chunks {
            let Some(load) = load(self, chunk)? else { continue };
            let answer = self.depart(route, chunk, load, &mut flights, &mut land)?;
            let checksum = if verify { Some(self.ask_checksum(route.path, chunk)?) } else { None };
            flights.push_back(Flight { chunk, answer, checksum });
            if flights.len() == IN_FLIGHT {
                flights.pop_front().map_or(Ok(()), |flight| land(self, flight))?;
            }
        }
        flights.into_iter().try_for_each(|flight| land(self, flight))
    }

    /// Makes a chunk's request. If the request is not admitted now, all chunks in flight land first, which makes room. If
    /// other clients take the room, this waits for their requests to end.
    fn depart(
        &mut self,
        route: Route<'_>,
        chunk: Chunk,
        mut load: Load,
        flights: &mut VecDeque<Flight>,
        land: &mut impl FnMut(&mut Self, Flight) -> Result<(), Failure>,
    ) -> Result<Pending<'static>, Failure> {
        let place = file::at(route.path, chunk.offset);
        let begun = Instant::now();
        loop {
            let mut failed = match self.request(route, load, &place).submit() {
                Ok(pending) => return Ok(pending),
                Err(failed) => failed,
            };
            let may_wait = !flights.is_empty() || begun.elapsed() < PATIENCE;
            if !(failed.error.is_congestion() && may_wait) {
                return Err(failed.into());
            }
            load = Load::of(failed.take_buffer(), failed.take_migrant(), chunk.len);
            if flights.is_empty() {
                std::thread::sleep(PAUSE);
            }
            flights.drain(..).try_for_each(|flight| land(self, flight))?;
        }
    }

    fn request<'r, 'o>(&'r self, route: Route<'_>, load: Load, place: &'o [u8]) -> Request<'r, 'o, 'static> {
        let request = self.client.genie.request(&self.client.server, route.service);
        let request = match load {
            Load::Native(buffer, len) if route.service == file::FETCH => {
                request.input(In::owned(self.scheme, buffer).part(0..len))
            }
            Load::Native(buffer, len) => request.out(Out::owned(self.scheme, buffer).part(0..len)),
            Load::Migrant(migrant) => request.out(Out::migrant(self.scheme, migrant)),
            Load::Expected(len) => request.input(In::migrant(self.scheme, len)),
        };
        request.argument(place)
    }

    /// Takes a fetched chunk's reply and checks the bytes.
    fn arrive(
        &mut self,
        route: Route<'_>,
        flight: Flight,
        take: &mut impl FnMut(Chunk, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (path, Chunk { offset, len }) = (route.path, flight.chunk);
        let mut reply = flight.answer.sync()?;
        let actual = reply.actual();
        // Where the file ended before the chunk, nothing was passed, by whatever means.
        if actual > 0 {
            self.tally.add(actual, &reply.buffers[0].elements[0].receipt);
        }
        let mut load = Load::of(reply.take_buffer(), reply.take_migrant(), len);
        let bytes = &load.bytes()[..actual];
        if let Some(pending) = flight.checksum {
            let reply = pending.sync()?;
            let expected = read_checksum(reply.argument(), path, offset, actual as u64)?;
            let found = Checksum::of(bytes);
            if found != expected {
                return Err(Failure::could_not(format!(
                    "{actual} bytes from offset {offset} of {path:?} have the checksum {found}, the server's have \
                     {expected}: the file was changed meanwhile, or the data was damaged; fetch it again, \
                     by --no-verify if it is never twice the same"
                )));
            }
        }
        take(flight.chunk, bytes)?;
        self.recycle(load);
        Ok(())
    }

    /// Takes a stored chunk's reply.
    fn complete(&mut self, flight: Flight) -> Result<(), Failure> {
        let mut reply = flight.answer.sync()?;
        self.tally.add(flight.chunk.len, &reply.buffers[0].elements[0].receipt);
        self.recycle(Load::of(reply.take_buffer(), reply.take_migrant(), 0));
        Ok(())
    }

    fn ask_checksum(&self, path: &Path, chunk: Chunk) -> Result<Pending<'static>, Failure> {
        let argument = file::range(path, chunk.offset, chunk.len as u64);
        let request = self.client.genie.request(&self.client.server, file::CHECKSUM);
        let request = request.argument(&argument).room(file::CHECKSUM_ROOM);
        Ok(request.submit()?)
    }

    /// The shortest idle buffer that is long enough, or a new one.
    fn buffer(&mut self, len: usize) -> Result<Buffer, Failure> {
        let fitting = self.idle.iter().enumerate().filter(|(_, buffer)| buffer.len() >= len);
        if let Some((index, _)) = fitting.min_by_key(|(_, buffer)| buffer.len()) {
            return Ok(self.idle.swap_remove(index));
        }
        // Short buffers make room; a job never has more buffers than chunks in flight.
        if self.idle.len() >= IN_FLIGHT {
            self.idle.clear();
        }
        self.client.genie.allocate(len.next_power_of_two().max(SHORTEST)).map_err(Failure::could_not)
    }

    fn migrant(&self, len: usize) -> Result<Migrant, Failure> {
        let strong = self.scheme.integrity() == Integrity::Strong;
        self.client.genie.allocate_migrant(len, strong).map_err(Failure::could_not)
    }

    fn recycle(&mut self, load: Load) {
        if let Load::Native(buffer, _) = load {
            self.idle.push(buffer);
        }
    }
}
