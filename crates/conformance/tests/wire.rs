//! A carrier by the seam of `genie_io::carrier` that makes bytes of every request and every reply, as one between machines would.
//!
//! How: two threads stand for the two machines. What goes from one to the other is bytes alone; the server's end has a space of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use genie_conformance::holder::{Held, Holder, HoldingServer};
use genie_conformance::{Need, Servers, Subject};
use genie_io::carrier::{
    Awaited, Carrier, Carries, Code, LoopWaker, Outgoing, Patience, Work, WorkBuffer, wake_task,
};
use genie_io::servers::memory::Memory;
use genie_io::{Client, Error, RequestId, Server, ServerError, Service, ServiceId};
use genie_memory::{Direction, Space};
use genie_passing::{Parties, Passing, Preferred};
use genie_sys::lock::Mutex;
use genie_sys::poll::Poller;
use serde::{Deserialize, Serialize};

use server_end::There;

mod server_end;

/// What goes to the server's end.
#[derive(Serialize, Deserialize)]
enum ToServer {
    Request { number: u32, service: u32, argument: Vec<u8>, room: usize, buffers: Vec<Buffer> },
    Abort(u32),
}

/// A buffer: the lengths of its elements, and the bytes of an output.
#[derive(Serialize, Deserialize)]
struct Buffer {
    output: Option<Vec<u8>>,
    elements: Vec<usize>,
}

/// What comes back.
#[derive(Serialize, Deserialize)]
enum ToClient {
    Reply { number: u32, is_anticipated: bool, outcome: Result<Success, Failure> },
    Progress { number: u32, buffer: usize, len: usize },
    Done(u32),
}

/// The argument, and of each buffer how many bytes were passed, and those of an input.
#[derive(Serialize, Deserialize)]
struct Success {
    argument: Vec<u8>,
    buffers: Vec<(usize, Vec<u8>)>,
}

#[derive(Serialize, Deserialize)]
enum Failure {
    Dropped,
    Panicked(String),
    ArgumentTooLong(usize),
    Untold(usize),
    Server(i32, String),
}

fn send(to: &Sender<Vec<u8>>, message: &impl Serialize) -> bool {
    to.send(postcard::to_stdvec(message).expect("bytes, numbers and text can be written")).is_ok()
}

fn received<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> T {
    postcard::from_bytes(bytes).expect("either end is this file's")
}

/// The client's end.
struct Wire {
    code: Code,
    space: Space,
    numbers: AtomicU32,
    to: Mutex<Option<Sender<Vec<u8>>>>,
    pending: Arc<Pending>,
}

/// The requests that are under way, and the loop that waits for their end.
struct Pending {
    requests: Mutex<HashMap<u32, Outgoing>>,
    waker: Mutex<LoopWaker>,
    is_over: AtomicBool,
}

impl Wire {
    /// Connects requests with memory of `space` to a server.
    fn connect(space: &Space, server: impl Server) -> Arc<Self> {
        let code = Code::new(server);
        let ((to, requests), (replies, from)) = (channel(), channel());
        let there = There::new(code.clone(), replies);
        thread::spawn(move || there.serve(&requests));
        let pending = Arc::new(Pending {
            requests: Mutex::default(),
            waker: Mutex::new(LoopWaker::new().expect("a descriptor")),
            is_over: AtomicBool::new(false),
        });
        let heard = Arc::clone(&pending);
        thread::spawn(move || heard.hear(&from));
        let (numbers, to) = (AtomicU32::new(0), Mutex::new(Some(to)));
        Arc::new(Self { code, space: space.clone(), numbers, to, pending })
    }

    fn say(&self, message: &ToServer) -> bool {
        self.to.lock().as_ref().is_some_and(|to| send(to, message))
    }

    /// The request as it is sent.
    fn encoded(number: u32, request: &Outgoing) -> Result<ToServer, Error> {
        let work = request.work();
        let buffer = |(index, buffer): (usize, &WorkBuffer)| {
            let output = (buffer.direction() == Direction::Out).then(|| work.output(index).to_vec());
            // A fragment of memory that is not this process's would have to be fetched first.
            if let Some(bytes) = &output
                && bytes.len() < buffer.len()
            {
                let (server, why) = ("wire".to_owned(), "its data is elsewhere");
                return Err(Error::Unforwardable { server, len: buffer.len(), why });
            }
            Ok(Buffer { output, elements: buffer.elements().iter().map(|element| element.len()).collect() })
        };
        let buffers = work.buffers().iter().enumerate().map(buffer).collect::<Result<_, _>>()?;
        let (service, argument) = (request.service().0, work.argument().to_vec());
        Ok(ToServer::Request { number, service, argument, room: work.room(), buffers })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.to.get_mut().take();
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Carrier for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn services(&self) -> &[Service] {
        self.code.services()
    }

    fn preferred(&self, service: ServiceId, argument: &[u8]) -> Result<(Option<Preferred>, u64), Error> {
        let changes = self.changes();
        Ok((self.code.preferred(&Client::here(), service, argument), changes))
    }

    fn changes(&self) -> u64 {
        self.code.changes()
    }

    fn is_untrusted(&self) -> bool {
        true
    }

    fn is_gone(&self) -> bool {
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.pending.is_over.load(Ordering::Acquire)
    }

    fn is_inherited(&self) -> bool {
        self.space.is_inherited()
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn parties(&self) -> Parties {
        Parties::OWN
    }

    fn carries(&self, _room: usize, _buffers: usize) -> Carries {
        Carries { outputs: true, inputs: usize::MAX }
    }

    fn adjust(&self, bytes: usize, requests: u32) -> Result<(usize, u32), Error> {
        Ok((bytes, requests))
    }

    fn has_room(&self, _bytes: usize, _record: usize) -> bool {
        true
    }

    fn poll_room(&self, _bytes: usize, _record: usize, _task: &Waker) -> bool {
        true
    }

    fn request(&self, mut request: Outgoing, _passing: &Passing, _patience: Patience) -> bool {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let encoded = match request.is_aborting() {
            true => Err(Error::Dropped),
            false => request.make_ready(self).and_then(|()| Self::encoded(number, &request)),
        };
        let message = match encoded {
            Ok(message) => message,
            Err(error) => {
                request.fail(error);
                return false;
            }
        };
        self.pending.requests.lock().insert(number, request);
        if self.say(&message) {
            return true;
        }
        let unsent = self.pending.requests.lock().remove(&number);
        unsent
            .into_iter()
            .for_each(|request| request.fail(Error::gone("wire", "its thread ended").unasked()));
        false
    }

    fn abort(&self, request: RequestId) {
        let number = self
            .pending
            .requests
            .lock()
            .iter()
            .find(|(_, kept)| kept.id() == request)
            .map(|(number, _)| *number);
        if let Some(number) = number {
            self.say(&ToServer::Abort(number));
        }
    }

    fn wait(&self, awaited: &mut Awaited<'_>, deadline: Option<Instant>) -> bool {
        awaited.sleep(deadline)
    }

    fn flush(&self, before: RequestId, deadline: Option<Instant>) -> bool {
        while self.pending.requests.lock().values().any(|kept| kept.id() < before) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
        true
    }

    fn collect(&self) -> usize {
        0
    }

    fn collect_watched(&self) -> usize {
        self.pending.waker.lock().begin_look();
        0
    }

    fn tend(self: Arc<Self>) {}

    fn wake(&self, is_over: bool) {
        if is_over {
            self.pending.waker.lock().tell();
        }
    }

    fn arm(&self) -> bool {
        self.pending.waker.lock().arm()
    }

    fn watch_by(&self, poller: &Poller, token: u64) -> Result<(), Error> {
        Ok(poller.add(self.pending.waker.lock().event(), token)?)
    }

    fn unwatch_by(&self, poller: &Poller) {
        let _ = poller.remove(self.pending.waker.lock().event());
    }

    fn silence_bell(&self, _poller: &Poller) {}
}

impl Pending {
    /// Ends requests as replies come, and all that are left when no more can come.
    fn hear(&self, from: &Receiver<Vec<u8>>) {
        for bytes in from {
            match received(&bytes) {
                ToClient::Reply { number, is_anticipated, outcome } => {
                    self.replied(number, is_anticipated, outcome);
                }
                ToClient::Progress { number, buffer, len } => {
                    let told = self.requests.lock().get_mut(&number).map(|kept| kept.progress(buffer, len));
                    let task = told.expect("progress of a request").expect("it fits its request");
                    task.into_iter().for_each(wake_task);
                }
                ToClient::Done(number) => {
                    let done = self.requests.lock().remove(&number);
                    done.expect("it was anticipated").succeed();
                }
            }
            self.waker.lock().tell();
        }
        self.is_over.store(true, Ordering::Release);
        let left = std::mem::take(&mut *self.requests.lock());
        left.into_values().for_each(|request| request.fail(Error::gone("wire", "its thread ended")));
        self.waker.lock().tell();
    }

    fn replied(&self, number: u32, is_anticipated: bool, outcome: Result<Success, Failure>) {
        let mut request = self.requests.lock().remove(&number).expect("a reply to a request");
        let room = request.work().room();
        match outcome.map(|success| entered(request.work_mut(), success)) {
            Ok(Ok(())) if is_anticipated => {
                request.anticipate();
                self.requests.lock().insert(number, request);
            }
            Ok(Ok(())) => request.succeed(),
            Ok(Err(error)) => request.fail(error),
            Err(Failure::Dropped) => request.fail(Error::Dropped),
            Err(Failure::Panicked(message)) => request.fail(Error::Panicked { message }),
            Err(Failure::ArgumentTooLong(len)) => request.fail(Error::ArgumentTooLong { len, room }),
            Err(Failure::Untold(buffer)) => request.fail(Error::Untold { buffer }),
            Err(Failure::Server(code, message)) => request.fail(Error::Server(ServerError { code, message })),
        }
    }
}

/// Enters a reply.
fn entered(work: &mut Work, success: Success) -> Result<(), Error> {
    for (index, (actual, bytes)) in success.buffers.iter().enumerate() {
        work.set_actual(index, *actual)?;
        if work.buffers()[index].direction() == Direction::In {
            assert_eq!(work.input(index).copy_from(bytes), *actual, "the client's memory has room");
        }
    }
    work.set_reply_argument(&success.argument)
}

/// The wire before the suite's own servers, as a subject.
pub(crate) fn subject() -> Subject<'static> {
    Subject::new("a wire", move |interface, _| {
        let held = Arc::new(Held::new(None));
        let wires = [
            Wire::connect(interface.space(), HoldingServer(Arc::clone(&held))),
            Wire::connect(interface.space(), Memory::customized()),
        ];
        let pending = wires.each_ref().map(|wire| Arc::clone(&wire.pending));
        let [holder, memory] = wires.map(|wire| interface.attach(wire).expect("a handle"));
        Ok(Servers::carried(Holder::elsewhere(interface, holder, held), memory)
            .lacking(Need::InPlace, "it copies all bytes")
            .settling(move || {
                let deadline = Instant::now() + Duration::from_secs(10);
                while pending.iter().any(|pending| !pending.requests.lock().is_empty()) {
                    assert!(Instant::now() < deadline, "requests are under way for ever");
                    thread::sleep(Duration::from_millis(1));
                }
            }))
    })
}
