//! A carrier that serializes every request, as one between machines would, well or badly: a server that takes the bytes out of
//! its client's buffers, asks another server in its client's place, and puts what came into the client's buffers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use genie_conformance::holder::{Held, Holder, HoldingServer};
use genie_conformance::{Need, Servers, Subject};
use genie_io::servers::memory::Memory;
use genie_io::{
    Failed, In, Incoming, Interface, Out, Pending, Reply, RequestId, Server, ServerError, ServerHandle,
    Service,
};
use genie_memory::Direction;
use genie_passing::Scheme;
use genie_sys::lock::Mutex;

use crate::store;

/// What a carrier does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    SendsOldBytes,
    StoresIntoOutputs,
    SaysAllCame,
    HidesFailures,
    ForgetsAborts,
    RepliesAtOnce,
    FillsOneElement,
    RepliesTwoBytesShort,
}

/// The carrier, as the server that its clients see.
struct Loopback {
    interface: Interface,
    inner: ServerHandle,
    wrong: Option<Wrong>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    aborted: Mutex<HashSet<RequestId>>,
    under_way: AtomicUsize,
    first: Mutex<Option<Vec<u8>>>,
}

/// A loopback before the suite's own servers, as a subject.
pub(crate) fn subject(wrong: Option<Wrong>) -> Subject<'static> {
    Subject::new("a loopback", move |interface, _| {
        let shared = Arc::new(Shared::default());
        let behind = |inner: ServerHandle| {
            let (interface, shared) = (interface.clone(), Arc::clone(&shared));
            ServerHandle::new(Loopback { interface, inner, wrong, shared })
        };
        let held = Arc::new(Held::new(None));
        let holder = behind(ServerHandle::new(HoldingServer(Arc::clone(&held))));
        let memory = behind(ServerHandle::new(Memory::customized()));
        let shared = Arc::clone(&shared);
        Ok(Servers::carried(Holder::elsewhere(interface, holder, held), memory)
            .lacking(Need::InPlace, "it copies all bytes")
            .settling(move || {
                let deadline = Instant::now() + Duration::from_secs(1);
                while shared.under_way.load(Ordering::Acquire) > 0 {
                    assert!(Instant::now() < deadline, "requests are under way for ever");
                    thread::sleep(Duration::from_millis(1));
                }
            }))
    })
}

impl Server for Loopback {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn services(&self) -> &[Service] {
        self.inner.services()
    }

    fn request(&self, incoming: Incoming) {
        let asked = match self.ask(&incoming) {
            Ok(asked) => asked,
            Err(error) => return incoming.reply(Err(error)),
        };
        if self.wrong == Some(Wrong::RepliesAtOnce) {
            return incoming.reply(Ok(()));
        }
        if asked.is_replied() {
            return finish(incoming, asked.sync(), self.wrong);
        }
        let (shared, wrong) = (Arc::clone(&self.shared), self.wrong);
        shared.under_way.fetch_add(1, Ordering::AcqRel);
        thread::spawn(move || {
            attend(incoming, asked, &shared, wrong);
            shared.under_way.fetch_sub(1, Ordering::AcqRel);
        });
    }

    fn abort(&self, request: RequestId) {
        if self.wrong != Some(Wrong::ForgetsAborts) {
            self.shared.aborted.lock().insert(request);
        }
    }
}

impl Loopback {
    /// Makes the same request with bytes of the carrier's own.
    fn ask(&self, incoming: &Incoming) -> Result<Pending<'static>, ServerError> {
        let mut outputs = Vec::new();
        for index in 0..incoming.buffers() {
            let is_output = incoming.direction(index)? == Direction::Out;
            outputs.push(if is_output { self.taken(incoming, index)? } else { Vec::new() });
        }
        let argument = incoming.argument().to_vec();
        let mut request = self.interface.request(&self.inner, incoming.service()).argument(&argument);
        request = request.room(incoming.room());
        for (index, bytes) in outputs.iter().enumerate() {
            request = match incoming.direction(index)? {
                Direction::Out => request.out(Out::copy(bytes)),
                Direction::In => {
                    let len = incoming.len(index);
                    let buffer = self.interface.allocate(len.max(1)).map_err(ServerError::from)?;
                    request.input(In::owned(Scheme::EmulatedCopy, buffer).part(0..len))
                }
            };
        }
        request.submit().map_err(|failed| ServerError::new(failed.to_string()))
    }

    /// The bytes of an output.
    fn taken(&self, incoming: &Incoming, index: usize) -> Result<Vec<u8>, ServerError> {
        let data = incoming.output(index)?;
        let bytes = data.to_vec();
        match self.wrong {
            Some(Wrong::SendsOldBytes) => {
                let mut first = self.shared.first.lock();
                let mut old = first.get_or_insert_with(|| bytes.clone()).clone();
                old.resize(bytes.len(), 0);
                Ok(old)
            }
            Some(Wrong::StoresIntoOutputs) => {
                data.segments().iter().for_each(|span| store(span.addr()));
                Ok(bytes)
            }
            _ => Ok(bytes),
        }
    }
}

/// Waits for the reply, or until the client wants none.
fn attend(mut incoming: Incoming, asked: Pending<'static>, shared: &Shared, wrong: Option<Wrong>) {
    while !asked.wait(Duration::from_millis(1)) {
        for index in 0..incoming.buffers() {
            incoming.progress(index, asked.progress(index)).expect("the buffers are of the same lengths");
        }
        if shared.aborted.lock().remove(&incoming.id()) {
            return finish(incoming, asked.abort(), wrong);
        }
    }
    finish(incoming, asked.sync(), wrong);
}

fn finish(mut incoming: Incoming, replied: Result<Reply, Failed>, wrong: Option<Wrong>) {
    match replied {
        Ok(reply) if reply.anticipated => drop(incoming.anticipate()),
        Ok(reply) => {
            let delivered = deliver(&mut incoming, reply, wrong);
            incoming.reply(delivered);
        }
        Err(_) if wrong == Some(Wrong::HidesFailures) => incoming.reply(Ok(())),
        Err(failed) => incoming.reply(Err(ServerError::new(failed.to_string()))),
    }
}

/// Puts what came into the client's buffers.
fn deliver(incoming: &mut Incoming, mut reply: Reply, wrong: Option<Wrong>) -> Result<(), ServerError> {
    if !reply.argument().is_empty() {
        incoming.set_argument(reply.argument())?;
    }
    for index in 0..incoming.buffers() {
        let actual = reply.buffers[index].actual;
        if incoming.direction(index)? == Direction::Out {
            continue;
        }
        let buffer = reply.take_buffer().expect("it was given by value");
        incoming.fill(index, |room| {
            let first = room.segments().first().map_or(0, |span| span.len());
            let filled = if wrong == Some(Wrong::FillsOneElement) { actual.min(first) } else { actual };
            room.copy_from(&buffer[..filled]);
            match wrong {
                Some(Wrong::SaysAllCame) => room.len(),
                Some(Wrong::RepliesTwoBytesShort) => actual.saturating_sub(2),
                _ => actual,
            }
        })?;
    }
    Ok(())
}
