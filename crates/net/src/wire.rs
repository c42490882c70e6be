//! The wire: one direction of a link, from a sender's request to the station at its far end.
//!
//! Why: adapters, and what is above them, must be tried at any rate, with frames that are late, lost, cut or damaged, in one process or
//! two, and the same run must be had again.
//! How: a wire is a Genie server. A frame is output buffer 0 of a request ([`TRANSMIT`]), of as many elements as the sender likes. While it
//! is in flight its bytes stay where they are, in the sender's memory: the wire holds the request, and at last shows the bytes to its
//! [`Station`], which stores them. That is the one copy; it stands for DMA. The sender gets its reply when the frame has arrived, or is
//! lost. Where sender and station are in different processes, the station's one has the wire, behind a listener. A link is two wires.
//!
//! What becomes of a frame depends on the seed, and on which frame it is, not on when it comes. A frame without rate and delay arrives in
//! its sender's call. Frames that come while a thread shows one to the station wait in line, and that thread goes on with them: a station
//! that answers each frame by a frame takes no more stack for many than for one. Frames that are due within 100 µs are waited for
//! in the sender's call, by spinning, too; later ones by a thread of the wire's, which is there only while frames are in flight, or by a
//! program that polls ([`Clock::polled`]). Frames
//! arrive whole, when their last bit would have: unlike a device, a station stores no byte before, which makes a difference only at rates
//! near that of copying.
//! Invariants: no frame arrives under a lock that sending takes, and never two at once. Frames arrive in the order in which they were
//! sent, unless the wire is to put them into another.
//! Trust: senders are anybody. A wire takes frames as long as its MTU allows, and as many as [`Options::in_flight`].
//! Limits: a frame that is to come later than those behind it, where none follow, comes 20 ms late. Between threads that send
//! without end, the one that delivers does so without end.
//! Source: none; thesis §6.4 and §8.1 have the networks that it stands for.

mod clock;
mod fate;
mod flights;
mod options;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_io::{ClientId, Incoming, RequestId, Server, ServerError, Service, ServiceId};
use genie_sys::Condvar;
use genie_sys::fork::Maker;
use genie_sys::lock::{Mutex, MutexGuard};

use crate::Frame;
use clock::{SPIN, Timed};
use flights::{Flight, Flights};

pub use clock::Clock;
pub use flights::Counters;
pub use options::{DAMAGED_BITS_MAX, LINK_HEADER, MTU_MAX, Options, Unusable};

/// Sends output buffer 0 as a frame.
pub const TRANSMIT: ServiceId = ServiceId(0);

static SERVICES: [Service; 1] = [Service::new("transmit", true, false)];

/// What is attached to a wire's far end.
pub trait Station: Send + Sync + 'static {
    /// A frame arrives. The station may send frames, by this wire too, if it does not wait until they have arrived.
    ///
    /// It is called in a sender's thread, or in the wire's.
    fn arrive(&self, frame: &Frame<'_>);

    /// No frames come at the moment, since the interface by which they would has failed. Requests that wait for frames may be ended.
    fn failed(&self, error: &ServerError) {
        let _ = error;
    }
}

/// One direction of a link. Clones are handles of the same wire.
#[derive(Clone)]
pub struct Wire(Arc<Inner>);

struct Inner {
    clock: Clock,
    options: Options,
    flights: Mutex<Flights<Incoming>>,
    /// Told when frames are in flight that the wire's thread is to see to.
    changed: Condvar,
    station: Box<dyn Station>,
    maker: Maker,
}

impl Wire {
    /// A wire that leads to `station`.
    ///
    /// # Errors
    /// An option makes no sense.
    pub fn new(options: Options, clock: Clock, station: impl Station) -> Result<Self, Unusable> {
        options.check()?;
        let flights = Mutex::new(Flights::new(options.clone()));
        let (changed, station) = (Condvar::new(), Box::new(station));
        let maker = Maker::this_process();
        let inner = Arc::new(Inner { clock, options, flights, changed, station, maker });
        let timed: Arc<dyn Timed> = Arc::clone(&inner) as _;
        inner.clock.attach(&timed);
        Ok(Self(inner))
    }

    /// How it was made: with the seed by which what happened can be had again.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// What has become of the frames so far.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn counters(&self) -> Counters {
        self.0.flights.lock_made_by(self.0.maker).map_or_else(Counters::default, |flights| flights.counters)
    }

    /// How many frames are in flight.
    ///
    /// In a child made by fork, it is what it was then; nothing while a thread was inside.
    pub fn in_flight(&self) -> usize {
        self.0.flights.lock_made_by(self.0.maker).map_or(0, |flights| flights.len())
    }

    /// The length of a request's frame.
    fn frame_len(&self, request: &Incoming) -> Result<usize, ServerError> {
        let (len, mtu) = (request.output(0)?.len(), self.0.options.mtu);
        if len > mtu.saturating_add(LINK_HEADER) {
            let message = format!(
                "a frame of {len} bytes is longer than the MTU, {mtu}, and a link header of {LINK_HEADER}"
            );
            return Err(ServerError { code: genie_sys::Errno::MSGSIZE.raw_os_error(), message });
        }
        Ok(len)
    }

    fn let_go(&self, is_gone: impl Fn(&Incoming) -> bool) {
        // They are dropped without the lock, since dropping them replies.
        let mut flights = self.0.flights.lock();
        let gone = flights.remove(is_gone);
        if flights.is_overslept() {
            self.0.changed.notify_one();
        }
        drop(flights);
        drop(gone);
    }
}

impl Inner {
    /// The time, where it makes a difference.
    fn now(&self) -> Duration {
        if self.options.is_timed() { self.clock.now() } else { Duration::ZERO }
    }

    fn send(self: &Arc<Self>, request: Incoming, len: usize) {
        let mut flights = self.flights.lock();
        let refused = flights.send(request, len, self.now());
        match refused {
            None => self.see_to(flights),
            Some(request) => {
                drop(flights);
                let message = format!("{} frames are in flight already", self.options.in_flight);
                let code = genie_sys::Errno::NOBUFS.raw_os_error();
                request.reply(Err(ServerError { code, message }));
            }
        }
    }

    /// Delivers what is due, and has a thread wait for the rest.
    fn see_to(self: &Arc<Self>, flights: MutexGuard<'_, Flights<Incoming>>) {
        if flights.is_delivering {
            return;
        }
        let mut flights = self.deliver(flights);
        if flights.is_overslept() {
            self.changed.notify_one();
        } else if flights.attended.is_none() && flights.len() > 0 && !self.clock.is_called() {
            flights.attended = Some(Duration::ZERO);
            drop(flights);
            let wire = Arc::clone(self);
            // Without a thread the sender waits.
            if genie_sys::thread::spawn("genie-wire", move || wire.attend()).is_err() {
                self.attend();
            }
        }
    }

    /// Delivers what is due now, or at once.
    fn deliver<'f>(
        &'f self,
        mut flights: MutexGuard<'f, Flights<Incoming>>,
    ) -> MutexGuard<'f, Flights<Incoming>> {
        flights.is_delivering = true;
        while let Some(due) = flights.next_due() {
            let now = self.now();
            if now >= due {
                let flight = flights.take();
                drop(flights);
                // A panic of the station's ends its frame's request, and nothing else. The panic hook has reported it.
                let _ = catch_unwind(AssertUnwindSafe(|| self.arrive(flight)));
            } else if !self.clock.is_called() && due - now <= SPIN {
                drop(flights);
                std::hint::spin_loop();
            } else {
                break;
            }
            flights = self.flights.lock();
        }
        flights.is_delivering = false;
        flights
    }

    fn arrive(&self, Flight { sent: request, fate, .. }: Flight<Incoming>) {
        let arrived = request.output(0).map(|bytes| {
            let frame = Frame::damaged(bytes.part(0..fate.len), &fate.flips);
            (0..fate.copies).for_each(|_| self.station.arrive(&frame));
        });
        request.reply(arrived.map_err(ServerError::from));
    }

    /// Sees to the frames in flight until there are none.
    fn attend(&self) {
        let mut flights = self.flights.lock();
        loop {
            flights.attended = if flights.is_delivering { Some(Duration::MAX) } else { flights.next_due() };
            let Some(until) = flights.attended else { return };
            flights = match until.saturating_sub(self.now()).saturating_sub(SPIN) {
                Duration::ZERO => self.deliver(flights),
                left => self.changed.wait(flights, Instant::now().checked_add(left)),
            };
        }
    }
}

impl Timed for Inner {
    fn next_due(&self) -> Option<Duration> {
        let flights = self.flights.lock();
        flights.next_due().filter(|_| !flights.is_delivering)
    }

    fn deliver_due(&self) {
        drop(self.deliver(self.flights.lock()));
    }
}

impl Server for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        match self.frame_len(&request) {
            Ok(len) => self.0.send(request, len),
            Err(error) => request.reply(Err(error)),
        }
    }

    fn abort(&self, request: RequestId) {
        self.let_go(|sent| sent.id() == request);
    }

    fn departed(&self, client: ClientId) {
        self.let_go(|sent| sent.client().id == client);
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("options", &self.0.options).finish_non_exhaustive()
    }
}
