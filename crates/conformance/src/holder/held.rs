//! The holder's own side: the requests that it keeps, and what it does with them when told to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use genie_io::{
    Anticipated, Client, Error, Incoming, InputPin, OutputPin, RequestId, Server, ServerError, Service,
    ServiceId, Transfer,
};
use genie_memory::{Data, DataMut, Direction};
use genie_passing::{Chain, Outboard, Overlays, Preferred};
use genie_sys::Condvar;
use genie_sys::lock::{Mutex, MutexGuard};

use super::{ARRIVAL, Answer, Command, Control, Name, PASS};
use crate::machine::{backed, frames};

/// What the server holds, shared between its two faces.
#[derive(Default)]
pub struct Held {
    pool: Option<Pool>,
    requests: Mutex<BTreeMap<RequestId, Kept>>,
    pins: Mutex<BTreeMap<RequestId, Pinned>>,
    aborts: Mutex<Aborts>,
    /// All requests that ever came, in order.
    arrivals: Mutex<Vec<RequestId>>,
    arrived: Condvar,
}

/// Buffers of the server's own.
struct Pool {
    overlays: Overlays,
    /// How long granules are, if data is put into two buffers.
    cut_by: Option<usize>,
}

#[derive(Default)]
struct Aborts {
    asked: Vec<RequestId>,
    obliging: bool,
}

/// One request under way.
enum Kept {
    Request { incoming: Incoming, overlays: BTreeMap<usize, Chain> },
    Anticipated(Anticipated),
}

/// A pinned buffer.
enum Pinned {
    Output(OutputPin),
    Input(InputPin),
    Transfer(Transfer),
}

impl Pinned {
    fn data(&self) -> Data<'_> {
        match self {
            Self::Output(pin) => pin.data(),
            Self::Input(pin) => pin.data().into_data(),
            Self::Transfer(transfer) => transfer.data().into_data(),
        }
    }

    fn write(&self, bytes: &[u8]) -> Answer {
        let data = match self {
            Self::Output(_) => return Answer::Refused("it is an output".to_owned()),
            Self::Input(pin) => pin.data(),
            Self::Transfer(transfer) => transfer.data(),
        };
        data.copy_from(bytes);
        Answer::Done
    }
}

/// The server itself, which keeps every request until the test's side says what to do with it.
pub struct HoldingServer(pub Arc<Held>);

static SERVICES: [Service; 3] = [
    Service::new("hold", true, true),
    Service::new("unmapped", false, false),
    Service::new("pass", false, false),
];

impl Server for HoldingServer {
    fn name(&self) -> &str {
        "holder"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, incoming: Incoming) {
        if incoming.service() == PASS {
            return incoming.reply(Ok(()));
        }
        let id = incoming.id();
        let kept = Kept::Request { incoming, overlays: BTreeMap::new() };
        self.0.requests().insert(id, kept);
        self.0.arrivals().push(id);
        self.0.arrived.notify_all();
    }

    fn abort(&self, request: RequestId) {
        let mut aborts = self.0.aborts.lock();
        aborts.asked.push(request);
        let obliging = aborts.obliging;
        drop(aborts);
        if obliging {
            let let_go = self.0.requests().remove(&request);
            let_go.into_iter().for_each(Kept::let_go);
        }
    }

    fn preferred(&self, _client: &Client, _service: ServiceId, _argument: &[u8]) -> Option<Preferred> {
        self.0.pool.as_ref().map(|pool| pool.overlays.preferred())
    }
}

impl Control for Held {
    fn held(&self) -> Vec<Name> {
        self.requests().keys().copied().map(Name::Client).collect()
    }

    fn aborted(&self) -> Vec<Name> {
        self.all_aborted().into_iter().map(Name::Client).collect()
    }

    fn set_obliging(&self, obliging: bool) {
        self.aborts.lock().obliging = obliging;
    }

    fn command(&self, request: Name, command: Command) -> Answer {
        match request {
            Name::Client(id) => self.obey(id, command),
            Name::Arrival(number) => match self.arrival(number) {
                Some(id) => self.obey(id, command),
                None => Answer::Refused(format!("{request} did not happen")),
            },
        }
    }
}

impl Held {
    /// Holds nothing yet. Input is put into these buffers, if there are any and the input fits.
    pub fn new(overlays: Option<Overlays>) -> Self {
        Self { pool: overlays.map(|overlays| Pool { overlays, cut_by: None }), ..Self::default() }
    }

    /// The same, but puts each input that fits into two of these buffers, cut at a place that is no multiple of anything. If the
    /// client's buffer begins with a granule, which is `granule` bytes long, the second part can mostly be swapped, too.
    pub fn in_parts(overlays: Overlays, granule: usize) -> Self {
        Self { pool: Some(Pool { overlays, cut_by: Some(granule) }), ..Self::default() }
    }

    /// The request that arrived as number `number`, as soon as it does; none, when it does not for long.
    pub fn arrival(&self, number: usize) -> Option<RequestId> {
        let end = Instant::now() + ARRIVAL;
        let waited = self.arrived.wait_until(self.arrivals(), Some(end), |arrivals| arrivals.len() > number);
        waited.0.get(number).copied()
    }

    /// Which of the requests that arrived are held, once `expected` have arrived.
    pub fn arrivals_held(&self, expected: usize) -> Vec<usize> {
        if let Some(last) = expected.checked_sub(1) {
            self.arrival(last);
        }
        let requests = self.requests();
        let arrivals = self.arrivals();
        arrivals.iter().enumerate().filter(|(_, id)| requests.contains_key(id)).map(|(at, _)| at).collect()
    }

    /// Which of the requests that arrived it was asked to let go, in the order in which it was asked.
    pub fn arrivals_aborted(&self) -> Vec<usize> {
        let arrivals = self.arrivals();
        let position = |id: RequestId| arrivals.iter().rposition(|arrival| *arrival == id);
        self.all_aborted().into_iter().filter_map(position).collect()
    }

    fn all_aborted(&self) -> Vec<RequestId> {
        self.aborts.lock().asked.clone()
    }

    fn obey(&self, request: RequestId, command: Command) -> Answer {
        let command = match self.obey_pinned(request, command) {
            Ok(answer) => return answer,
            Err(other) => other,
        };
        let kept = self.requests().remove(&request);
        let Some(mut kept) = kept else { return Answer::Refused(format!("{request} is not held")) };
        let answer = match command {
            Command::Reply => return kept.reply(Ok(())),
            Command::Fail(message) => return kept.reply(Err(ServerError::new(message))),
            Command::Drop => return Answer::Done,
            Command::Anticipate => match kept.anticipate() {
                Ok(anticipated) => {
                    kept = anticipated;
                    Ok(Answer::Done)
                }
                Err(refused) => {
                    kept = refused;
                    Err("it cannot be anticipated".to_owned())
                }
            },
            Command::Read { buffer } => kept.output(buffer).map(|data| Answer::Bytes(data.to_vec())),
            Command::Frames { buffer, granule } => {
                kept.output(buffer).map(|data| Answer::Frames(frames_of(&data, granule)))
            }
            Command::Places { buffer } => kept.output(buffer).map(|data| Answer::Places(places(&data))),
            Command::Backings { buffer } => kept.output(buffer).map(|data| backings(&data)),
            Command::Pin { buffer } | Command::BeginTransfer { buffer } => {
                kept.pin(buffer, matches!(command, Command::BeginTransfer { .. })).map(|pin| {
                    self.pins.lock().insert(request, pin);
                    Answer::Done
                })
            }
            other => kept.change(self.pool.as_ref(), other),
        };
        self.requests().insert(request, kept);
        answer.unwrap_or_else(Answer::Refused)
    }

    /// Does what concerns pins alone; returns other commands.
    fn obey_pinned(&self, request: RequestId, command: Command) -> Result<Answer, Command> {
        let mut pins = self.pins.lock();
        let elsewhere = |pin: &Pinned, act: &(dyn Fn(&Pinned) -> Answer + Sync)| {
            std::thread::scope(|scope| scope.spawn(|| act(pin)).join()).expect("no panic")
        };
        let refused = Answer::Refused(format!("nothing of {request} is pinned"));
        Ok(match command {
            Command::ReadPinned => pins
                .get(&request)
                .map_or(refused, |pin| elsewhere(pin, &|pin| Answer::Bytes(pin.data().to_vec()))),
            Command::PinnedBackings => pins.get(&request).map_or(refused, |pin| backings(&pin.data())),
            Command::WritePinned { bytes } => {
                pins.get(&request).map_or(refused, |pin| elsewhere(pin, &|pin| pin.write(&bytes)))
            }
            Command::Unpin => pins.remove(&request).map_or(refused, |_| Answer::Done),
            Command::EndTransfer { error } => match pins.remove(&request) {
                Some(Pinned::Transfer(transfer)) => {
                    transfer.end(error.map_or(Ok(()), |message| Err(ServerError::new(message))));
                    Answer::Done
                }
                _ => refused,
            },
            other => return Err(other),
        })
    }

    fn requests(&self) -> MutexGuard<'_, BTreeMap<RequestId, Kept>> {
        self.requests.lock()
    }

    fn arrivals(&self) -> MutexGuard<'_, Vec<RequestId>> {
        self.arrivals.lock()
    }
}

impl Kept {
    fn output(&self, buffer: usize) -> Result<Data<'_>, String> {
        let data = match self {
            Self::Request { incoming, .. } => incoming.output(buffer),
            Self::Anticipated(anticipated) => anticipated.output(buffer),
        };
        data.map_err(|error| error.to_string())
    }

    fn pin(&mut self, buffer: usize, transfers: bool) -> Result<Pinned, String> {
        let Self::Request { incoming, .. } = self else {
            return Err("its client has the reply already".to_owned());
        };
        let len = incoming.len(buffer);
        let pinned = match incoming.direction(buffer) {
            Ok(Direction::Out) => incoming.pin_output(buffer, 0..len).map(Pinned::Output),
            Ok(Direction::In) if transfers => incoming.begin_transfer(buffer, 0..len).map(Pinned::Transfer),
            Ok(Direction::In) => incoming.pin_input(buffer, 0..len).map(Pinned::Input),
            Err(error) => Err(error),
        };
        pinned.map_err(|error| error.to_string())
    }

    fn reply(self, result: Result<(), ServerError>) -> Answer {
        let Self::Request { mut incoming, overlays } = self else { return Answer::Done };
        match overlay(&mut incoming, overlays) {
            Ok(()) => incoming.reply(result),
            Err(error) => return Answer::Refused(error.to_string()),
        }
        Answer::Done
    }

    /// Drops a request, with what is final of it.
    fn let_go(self) {
        if let Self::Request { mut incoming, overlays } = self {
            let _ = overlay(&mut incoming, overlays);
        }
    }

    fn anticipate(self) -> Result<Self, Self> {
        match self {
            Self::Request { incoming, overlays } => match incoming.anticipate() {
                Ok(anticipated) => Ok(Self::Anticipated(anticipated)),
                Err(incoming) => Err(Self::Request { incoming, overlays }),
            },
            other => Err(other),
        }
    }

    fn change(&mut self, pool: Option<&Pool>, command: Command) -> Result<Answer, String> {
        let Self::Request { incoming, overlays } = self else {
            return Err("its client has the reply already".to_owned());
        };
        let result = match command {
            Command::Argument => return Ok(Answer::Bytes(incoming.argument().to_vec())),
            Command::SetArgument { argument } => incoming.set_argument(&argument),
            Command::SetActual { buffer, actual } => incoming.set_actual(buffer, actual),
            Command::Progress { buffer, len } => incoming.progress(buffer, len),
            Command::Outboard { buffer, bytes } => incoming.outboard(buffer, 0, Box::new(Device(bytes))),
            Command::Write { buffer, offset, bytes } => {
                let data = input(pool, incoming, overlays, buffer);
                data.map(|data| {
                    data.part(offset..offset + bytes.len()).copy_from(&bytes);
                })
            }
            Command::InputFrames { buffer, granule } => {
                let data = input(pool, incoming, overlays, buffer).map_err(|error| error.to_string())?;
                return Ok(Answer::Frames(frames_of(&data, granule)));
            }
            Command::InputBackings { buffer } => {
                let data = input(pool, incoming, overlays, buffer).map_err(|error| error.to_string())?;
                return Ok(backings(&data));
            }
            other => unreachable!("{other:?} ends a request or only looks at it"),
        };
        result.map(|()| Answer::Done).map_err(|error| error.to_string())
    }
}

/// A device with these bytes in its own memory.
#[derive(Debug)]
pub struct Device(pub Vec<u8>);

impl Outboard for Device {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn may_fail(&self) -> bool {
        false
    }

    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> std::io::Result<()> {
        into.copy_from(&self.0[offset..]);
        Ok(())
    }
}

/// Puts the server's buffers in the places of the client's elements.
fn overlay(incoming: &mut Incoming, overlays: BTreeMap<usize, Chain>) -> Result<(), Error> {
    overlays.into_iter().try_for_each(|(buffer, chain)| incoming.overlay(buffer, 0, chain))
}

/// Where the data of input buffer `buffer` is to be written.
fn input<'r>(
    pool: Option<&Pool>,
    incoming: &'r mut Incoming,
    overlays: &'r mut BTreeMap<usize, Chain>,
    buffer: usize,
) -> Result<DataMut<'r>, Error> {
    if overlays.contains_key(&buffer) {
        return Ok(overlays[&buffer].data());
    }
    let len = incoming.len(buffer);
    let is_one = incoming.direction(buffer) == Ok(Direction::In) && incoming.elements(buffer) == 1;
    match pool.filter(|pool| is_one && pool.fits(len)) {
        Some(pool) => Ok(overlays.entry(buffer).or_insert_with(|| pool.take(len)).data()),
        None => incoming.ready(buffer),
    }
}

impl Pool {
    /// The parts of buffers that an input of `len` bytes is put into.
    fn parts(&self, len: usize) -> Vec<Range<usize>> {
        let (room, cut) = (self.overlays.preferred().len, len / 2 + 77);
        let Some(granule) = self.cut_by.filter(|_| cut < len) else {
            return std::iter::once(0..room).collect();
        };
        let (from, rest) = (cut % granule, len - cut);
        let from = if from + rest <= room { from } else { 0 };
        vec![0..cut, from..from + rest]
    }

    fn fits(&self, len: usize) -> bool {
        let (room, parts) = (self.overlays.preferred().len, self.parts(len));
        parts.iter().all(|part| part.end <= room) && parts.iter().map(Range::len).sum::<usize>() >= len
    }

    fn take(&self, len: usize) -> Chain {
        let taken = |part| self.overlays.allocate().expect("a free overlay buffer").part(part);
        self.parts(len).into_iter().map(taken).collect()
    }
}

/// The memory objects that hold data.
fn backings(data: &Data<'_>) -> Answer {
    // Memory that was never touched here may be in no page table of this process yet.
    data.sum();
    backed(data).map_or_else(Answer::Refused, Answer::Backings)
}

/// Where data is: (address, length) of each piece.
fn places(data: &Data<'_>) -> Vec<(usize, usize)> {
    data.segments().iter().map(|span| (span.addr(), span.len())).collect()
}

/// The page frames of data, one for each granule.
fn frames_of(data: &Data<'_>, granule: usize) -> Option<Vec<u64>> {
    // A page that was never touched here is in no page table of this process yet.
    data.to_vec();
    let each = places(data).into_iter().map(|(addr, len)| frames(addr, len, granule));
    each.collect::<Option<Vec<_>>>().map(|frames| frames.concat())
}
