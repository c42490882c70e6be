//! The link, over rings whose other end is the test.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genie_conformance::{Guard, Setup};
use genie_io::{Error, In, Interface, Limits, Out, ServerHandle};
use genie_memory::{Data, GranuleKind};
use genie_net::adapter::{Pool, Pooled};
use genie_net::datagram::{Datagrams, Open, Options, SEND, Socket, send_argument};
use genie_net::driver::{self, Counters, Link, Rings};
use genie_net::wire::TRANSMIT;
use genie_net::{Frame, Wire, wire};
use genie_passing::Thresholds;
use genie_sys::Errno;
use genie_sys::event::Event;
use genie_sys::lock::Mutex;

/// The kernel's end of rings.
#[derive(Clone)]
struct Far(Arc<Inner>);

struct Inner {
    /// Frames that were put, and those of them that the kernel was told of.
    put: Mutex<Vec<Vec<u8>>>,
    sent: Mutex<Vec<Vec<u8>>>,
    coming: Mutex<VecDeque<Vec<u8>>>,
    /// How many frames there is room for.
    room: AtomicUsize,
    calls: AtomicUsize,
    claimed: Mutex<Vec<(u16, bool)>>,
    /// Whether what is sent comes back.
    is_loop: AtomicBool,
    failure: Mutex<Option<Errno>>,
    event: Event,
}

impl Far {
    fn new() -> Self {
        Self(Arc::new(Inner {
            put: Mutex::default(),
            sent: Mutex::default(),
            coming: Mutex::default(),
            room: AtomicUsize::new(usize::MAX),
            calls: AtomicUsize::new(0),
            claimed: Mutex::default(),
            is_loop: AtomicBool::new(false),
            failure: Mutex::new(None),
            event: Event::new().expect("an event"),
        }))
    }

    fn bring(&self, frame: Vec<u8>) {
        self.0.coming.lock().push_back(frame);
        self.0.event.signal().expect("a signal");
    }

    fn sent(&self) -> usize {
        self.0.sent.lock().len()
    }

    fn fail(&self, errno: Option<Errno>) {
        *self.0.failure.lock() = errno;
        self.0.event.signal().expect("a signal");
    }
}

impl Rings for Far {
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno> {
        let mut put = self.0.put.lock();
        if put.len() >= self.0.room.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if frame.len() > 1514 {
            return Err(Errno::MSGSIZE);
        }
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        put.push(bytes);
        Ok(true)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        Ok(self.0.room.load(Ordering::Relaxed).saturating_sub(self.0.put.lock().len()))
    }

    fn send(&mut self) -> Result<(), Errno> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(errno) = *self.0.failure.lock() {
            return Err(errno);
        }
        if self.0.room.load(Ordering::Relaxed) == 0 {
            return Err(Errno::AGAIN);
        }
        for frame in self.0.put.lock().drain(..) {
            if self.0.is_loop.load(Ordering::Relaxed) {
                self.bring(frame.clone());
            }
            self.0.sent.lock().push(frame);
        }
        Ok(())
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        if let Some(errno) = *self.0.failure.lock() {
            return Err(errno);
        }
        let mut coming = self.0.coming.lock();
        let taken: Vec<_> = (0..most).map_while(|_| coming.pop_front()).collect();
        if coming.is_empty() {
            self.0.event.clear().expect("it can be cleared");
        }
        drop(coming);
        taken.iter().for_each(|frame| see(&Frame::new(Data::from(&frame[..]))));
        Ok(taken.len())
    }

    fn claim(&mut self, port: u16, is_ours: bool) -> Result<(), Errno> {
        // Another program has these.
        if is_ours && (port == 7 || port == 49_152) {
            return Err(Errno::ADDRINUSE);
        }
        self.0.claimed.lock().push((port, is_ours));
        Ok(())
    }

    fn has_frames(&self) -> bool {
        !self.0.coming.lock().is_empty()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn interface() -> Interface {
    let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
    setup.interface("link", 64 << 20, Limits::default(), Thresholds::ALWAYS).expect("an interface")
}

fn link(far: &Far, options: driver::Options) -> ServerHandle {
    ServerHandle::new(Link::new("far0", far.clone(), options).expect("descriptors"))
}

/// A host whose datagrams to itself come back.
fn host(genie: &Interface, far: &Far) -> (Datagrams, ServerHandle) {
    far.0.is_loop.store(true, Ordering::Relaxed);
    let (station, host) = ([2, 0, 0, 0, 0, 1], std::net::Ipv4Addr::new(10, 0, 0, 1).into());
    let pool = Pool::reserve(genie.space(), 2048, 64).expect("memory");
    let options = Options::new(station, [host]).neighbour(host, station);
    let server = Datagrams::new(genie.clone(), Box::new(Pooled::new(pool)), options);
    let link = Link::new("far0", far.clone(), driver::Options::default()).expect("descriptors");
    server.attach_link(&link).expect("nobody has either");
    (server.clone(), ServerHandle::new(server))
}

#[test]
fn frames_that_come_together_are_sent_by_one_call() {
    let (genie, far) = (interface(), Far::new());
    let link = link(&far, driver::Options { batch: 8, ..driver::Options::default() });
    let frames: Vec<[u8; 60]> = (0..24).map(|number| [number; 60]).collect();
    let submit = |frame| genie.request(&link, TRANSMIT).out(Out::copy(frame)).submit().expect("it waits");
    let pending: Vec<_> = frames.iter().map(|frame| submit(&frame[..])).collect();
    pending.into_iter().for_each(|pending| drop(pending.sync().expect("it is sent")));
    assert_eq!(*far.0.sent.lock(), frames.iter().map(|frame| frame.to_vec()).collect::<Vec<_>>());
    // The first goes alone. On a machine that is busy, others may.
    assert!(far.0.calls.load(Ordering::Relaxed) < 24, "each was sent alone");
}

#[test]
fn frames_for_whose_replies_nobody_waits_are_sent_all_the_same() {
    let (genie, far) = (interface(), Far::new());
    let link = link(&far, driver::Options::default());
    for _ in 0..10 {
        drop(genie.request(&link, TRANSMIT).out(Out::copy(&[7; 60])).submit().expect("it waits"));
    }
    let end = Instant::now() + Duration::from_secs(10);
    while far.sent() < 10 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(far.sent(), 10);
}

#[test]
fn frames_wait_where_the_ring_is_full_and_keep_their_order() {
    let (genie, far) = (interface(), Far::new());
    far.0.room.store(0, Ordering::Relaxed);
    let link = link(&far, driver::Options { batch: 4, waiting: 12, ..driver::Options::default() });
    let submit = |byte: u8| genie.request(&link, TRANSMIT).out(Out::copy(&[byte; 60])).submit();
    let pending: Vec<_> = (0..12).map(|byte| submit(byte).expect("there is room")).collect();
    assert_eq!(far.sent(), 0);
    // A client that gives up leaves the others where they are.
    let mut pending = pending.into_iter();
    drop(pending.next().expect("the first").abort_on_drop());
    far.0.room.store(3, Ordering::Relaxed);
    for pending in pending {
        drop(pending.sync().expect("it is sent"));
    }
    let first: Vec<_> = far.0.sent.lock().iter().map(|frame| frame[0]).collect();
    assert_eq!(first, (1..12).collect::<Vec<u8>>());
}

#[test]
fn a_datagram_that_waits_to_be_sent_is_aborted_and_counted_and_the_others_go() {
    let (genie, far) = (interface(), Far::new());
    let (_server, handle) = host(&genie, &far);
    let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    far.0.room.store(0, Ordering::Relaxed);
    let argument = send_argument(socket.port(), Some((std::net::Ipv4Addr::new(10, 0, 0, 1), 7).into()));
    let submit =
        |byte: u8| genie.request(&handle, SEND).out(Out::copy(&[byte; 60])).argument(&argument).submit();
    let [first, second, third] = [1, 2, 3].map(|byte| submit(byte).expect("there is room"));
    let aborted = second.abort().expect_err("it waits");
    assert!(matches!(aborted.error, Error::Aborted), "{aborted}");
    far.0.room.store(usize::MAX, Ordering::Relaxed);
    [first, third].into_iter().for_each(|pending| drop(pending.sync().expect("it is sent")));
    let sent: Vec<_> = far.0.sent.lock().iter().map(|frame| frame[42]).collect();
    assert_eq!(sent, [1, 3]);
    let counters = socket.statistics().expect("counters");
    assert_eq!((counters.sent, counters.unsent), (2, 1));
}

#[test]
fn a_link_takes_no_more_frames_than_it_may() {
    let (genie, far) = (interface(), Far::new());
    far.0.room.store(0, Ordering::Relaxed);
    let link = link(&far, driver::Options { waiting: 2, ..driver::Options::default() });
    let submit = || genie.request(&link, TRANSMIT).out(Out::copy(&[1; 60])).submit().expect("a request");
    let pending = [(); 2].map(|()| submit());
    let Err(refused) = submit().sync() else { panic!("a third frame waits") };
    assert!(matches!(&refused.error, Error::Server(error) if error.code == Errno::NOBUFS.raw_os_error()));
    assert!(refused.error.to_string().contains("far0"), "{}", refused.error);
    far.0.room.store(usize::MAX, Ordering::Relaxed);
    pending.into_iter().for_each(|pending| drop(pending.sync().expect("it is sent")));
}

/// Once all that went with it were refused as well.
#[test]
fn a_frame_that_is_too_long_is_refused_alone() {
    let (genie, far) = (interface(), Far::new());
    far.0.room.store(0, Ordering::Relaxed);
    let link = link(&far, driver::Options::default());
    let submit =
        |len| genie.request(&link, TRANSMIT).out(Out::copy(&vec![1; len])).submit().expect("it waits");
    let pending = [60, 61, 1515, 62].map(submit);
    far.0.room.store(usize::MAX, Ordering::Relaxed);
    let errors = pending.map(|pending| pending.sync().err().map(|failed| failed.error));
    let codes = errors.each_ref().map(|error| error.as_ref().map(Error::errno));
    assert_eq!(codes, [None, None, Some(Errno::MSGSIZE.raw_os_error()), None], "{errors:?}");
    let sent: Vec<_> = far.0.sent.lock().iter().map(Vec::len).collect();
    assert_eq!(sent, [60, 61, 62]);
}

#[test]
fn datagrams_pass_by_a_link_and_wake_who_sleeps() {
    let (genie, far) = (interface(), Far::new());
    let (server, handle) = host(&genie, &far);
    let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    let to = (std::net::Ipv4Addr::new(10, 0, 0, 1), socket.port()).into();
    for len in [0, 1, 1000, 1472] {
        let sent: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let mut came = vec![0; len];
        socket.send_to(Out::copy(&sent), to).expect("it is sent");
        socket.receive(In::copy(&mut came)).expect("it comes");
        assert_eq!(sent, came);
    }
    // The frame comes while the client sleeps.
    far.0.is_loop.store(false, Ordering::Relaxed);
    socket.send_to(Out::copy(&[9; 100]), to).expect("it is sent");
    let frame = far.0.sent.lock().last().cloned().expect("a frame");
    let late = far.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        late.bring(frame);
    });
    let mut came = [0; 100];
    socket.receive(In::copy(&mut came)).expect("it comes");
    assert_eq!(came, [9; 100]);
    thread.join().expect("the other end");
    assert_eq!(server.counters().sent, 5);
    drop(socket);
    genie_conformance::assert_idle(&genie, 64);
}

#[test]
fn ports_are_claimed_while_they_are_open() {
    let (genie, far) = (interface(), Far::new());
    let (_server, handle) = host(&genie, &far);
    let open = |port| Socket::open(&genie, &handle, &Open { port, ..Open::default() });
    let error = open(7).expect_err("another program has it");
    assert!(error.to_string().contains("far0"), "{error}");
    // 49,152 is another program's, too.
    let any = open(0).expect("any other");
    assert_eq!(any.port(), 49_153);
    drop((open(100).expect("a port"), any));
    let mut claimed = far.0.claimed.lock().clone();
    claimed.sort_unstable();
    assert_eq!(claimed, [(100, false), (100, true), (49_153, false), (49_153, true)]);
}

#[test]
fn what_waits_is_ended_when_the_interface_fails_and_goes_on_when_it_is_back() {
    let (genie, far) = (interface(), Far::new());
    let (_server, handle) = host(&genie, &far);
    let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    let to = (std::net::Ipv4Addr::new(10, 0, 0, 1), socket.port()).into();
    let mut came = [0; 4];
    let pending = socket.submit(In::copy(&mut came)).expect("it waits");
    far.fail(Some(Errno::NETDOWN));
    for error in [pending.sync().err(), socket.send_to(Out::copy(b"lost"), to).err()] {
        let error = error.expect("the interface has failed").error;
        assert!(error.to_string().contains("far0"), "{error}");
        assert_eq!(error.errno(), Errno::NETDOWN.raw_os_error());
    }
    far.fail(None);
    socket.send_to(Out::copy(b"good"), to).expect("it is sent");
    // What was in the ring goes, too.
    for expected in [b"lost", b"good"] {
        socket.receive(In::copy(&mut came)).expect("it comes");
        assert_eq!(&came, expected);
    }
}

/// Once it was sent by while clients looked at the link.
#[test]
fn a_server_that_is_attached_to_a_link_stays_so() {
    let (genie, far) = (interface(), Far::new());
    let (server, handle) = host(&genie, &far);
    let wire = Wire::new(wire::Options::default(), wire::Clock::default(), server.station()).expect("a wire");
    for other in [ServerHandle::new(wire), link(&far, driver::Options::default())] {
        let error = server.attach(other).expect_err("it is attached");
        assert!(error.is_misuse(), "{error}");
    }
    let socket = Socket::open(&genie, &handle, &Open::default()).expect("a port");
    socket
        .send_to(Out::copy(b"sent"), (std::net::Ipv4Addr::new(10, 0, 0, 1), socket.port()).into())
        .expect("it is sent");
    assert_eq!(far.sent(), 1);
}

/// A thread that had pinned itself, as careful programs do before they open anything, got links that never looked: each frame cost a sleep.
#[test]
fn a_link_of_a_thread_with_one_processor_looks_as_long_as_any() {
    let spin = || driver::Options::default().spin;
    let pinned = genie_sys::machine::allowed_cpus().and_then(|cpus| genie_sys::machine::pin_thread(cpus[0]));
    assert_eq!(pinned.map(|_pinned| spin()).expect("a processor"), spin());
    assert_eq!(spin().is_zero(), genie_sys::machine::cpu_count().expect("processors") == 1);
}
