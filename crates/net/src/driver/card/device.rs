//! The card's own side: a process or a thread that stands for the processor on the adapter.
//!
//! How: it looks at the FIFO from the host, generates what is due, and sleeps when nothing is. The numbered and time-stamped packets of its
//! generator, and its sink, are those of [`traffic`](crate::traffic); the sink keeps its time stamps until it is asked for them.
//! Trust: a host that names a buffer that it does not have ends the device.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use genie_ring::{Bells, Broken, Ends, Mode, Record, Side, Spin, create};
use genie_sys::event::Event;
use genie_sys::machine::monotonic_time;
use genie_sys::poll::any_readable;
use genie_sys::socket::Socket;
use genie_sys::{Errno, Error, GranuleKind, Object, Result};

use super::memory::Memory;
use super::words::{BUFFER, CAME, Command, FIFOS, GIVE, HELLO, MEMORY, POOL, Report, SENT, TRANSMIT};
use super::words::{parse, words};
use crate::Frame;
use crate::traffic::{Generator, STAMP, Sink};
use crate::wire::{Clock, Station};

/// How many packets or records it goes on with before it looks at the rest.
const BATCH: usize = 32;
/// The kernel wakes a thread that sleeps up to this late; so the rest of a wait is spun, unless it is told otherwise.
const SPIN: Duration = Duration::from_micros(100);
/// How many latencies a part of a report has.
const PART: usize = 4096;

/// The card's own side.
#[derive(Debug)]
pub struct Device {
    memory: Memory,
    ends: Ends,
    control: Socket,
    /// Buffers into which frames may come.
    free: VecDeque<u32>,
    generating: Generating,
    sink: Sink,
    reflects: bool,
    record: Record,
    spin: Duration,
    /// Whether others may run between two looks.
    yields: bool,
}

#[derive(Debug, Default)]
struct Generating {
    packet: Vec<u8>,
    /// The next one's number, and how many there are.
    next: u64,
    count: u64,
    begun: Duration,
    interval: Duration,
    generated: u64,
}

impl Generating {
    /// When the next packet is due.
    fn due(&self) -> Option<Duration> {
        let after = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX).saturating_mul(self.next);
        (self.next < self.count).then(|| self.begun.saturating_add(Duration::from_nanos(after)))
    }
}

impl Device {
    /// Makes a card's memory and FIFOs, and hands them to the host at the other end of the socket.
    ///
    /// # Errors
    /// The limits on memory and descriptors; the host is gone.
    pub fn attach(control: Socket) -> Result<Self> {
        let memory = Object::create(GranuleKind::Base, MEMORY)?;
        let fifos = create(FIFOS).map_err(failed)?;
        let (own, hosts) = Event::pair()?;
        control.send(HELLO, &[memory.as_fd(), fifos.as_fd(), hosts.as_fd()])?;
        Ok(Self {
            memory: Memory::map(&memory)?,
            ends: Ends::attach(&fifos, FIFOS, Side::Server, Bells::end(own)).map_err(failed)?,
            control,
            free: VecDeque::with_capacity(POOL as usize),
            generating: Generating::default(),
            sink: Sink::new(0, 0, Clock::default()),
            reflects: false,
            record: Record::new(),
            spin: SPIN,
            yields: false,
        })
    }

    /// Has it look for so long before it sleeps, in place of 100 µs, and let others run between two looks: it shares its CPU with other devices.
    #[must_use]
    pub fn yielding_for(self, spin: Duration) -> Self {
        Self { spin, yields: true, ..self }
    }

    /// Works until the host has gone.
    ///
    /// # Errors
    /// The host has broken the rules; the kernel's.
    pub fn run(mut self) -> Result<()> {
        let (spin, mut busy) = (Spin::new(self.spin), monotonic_time());
        for turn in 0u64.. {
            let worked = self.serve_host()? + self.generate()?;
            if worked > 0 {
                busy = if self.yields { monotonic_time() } else { busy };
            } else if self.yields && monotonic_time() < busy + self.spin {
                std::thread::yield_now();
            } else {
                let due = self.next_due();
                let until = |_: &Self| due.is_some_and(|due| monotonic_time() >= due);
                if self.yields || !spin.until(|| self.ends.consumer.is_ready() || until(&self)) {
                    self.sleep(due)?;
                    busy = monotonic_time();
                }
            }
            if (worked == 0 || turn.is_multiple_of(64)) && !self.obey()? {
                break;
            }
        }
        Ok(())
    }

    /// When there is something to do, whatever the host does.
    fn next_due(&self) -> Option<Duration> {
        self.generating.due().filter(|_| !self.free.is_empty())
    }

    fn sleep(&mut self, due: Option<Duration>) -> Result<()> {
        let time = due.map(|due| due.saturating_sub(monotonic_time()).saturating_sub(self.spin));
        let consumer = &mut self.ends.consumer;
        if time != Some(Duration::ZERO) && consumer.arm(Mode::Descriptor) {
            let slept = any_readable([consumer.as_fd(), self.control.as_fd()], time);
            consumer.disarm();
            slept?;
        }
        Ok(())
    }

    /// Takes what the host has put into its FIFO; returns how much.
    fn serve_host(&mut self) -> Result<usize> {
        let mut count = 0;
        while count < BATCH && self.ends.consumer.pop(&mut self.record).map_err(broken)? {
            match parse(&self.record) {
                Some((TRANSMIT, buffer, len)) if buffer < POOL && len > 0 => self.transmit(buffer, len)?,
                Some((GIVE, buffer, _))
                    if (POOL..2 * POOL).contains(&buffer) && !self.free.contains(&buffer) =>
                {
                    self.free.push_back(buffer);
                }
                _ => return Err(rules()),
            }
            count += 1;
        }
        if count > 0 {
            self.ends.producer.ring_bell();
        }
        Ok(count)
    }

    fn transmit(&mut self, buffer: u32, len: usize) -> Result<()> {
        let frame = self.memory.buffer(buffer).into_data().part(0..len);
        if self.reflects
            && let Some(into) = self.free.pop_front()
        {
            self.memory.buffer(into).copy_data(&frame);
            self.tell(CAME, into, len)?;
        }
        self.sink.arrive(&Frame::new(self.memory.buffer(buffer).into_data().part(0..len)));
        self.tell(SENT, buffer, 0)
    }

    /// Has the packets come that are due, as far as there are buffers; returns how many.
    fn generate(&mut self) -> Result<usize> {
        let mut count = 0;
        while count < BATCH
            && let Some(now) = self.generating.due().map(|_| monotonic_time())
            && self.generating.due().is_some_and(|due| due <= now)
            && let Some(buffer) = self.free.pop_front()
        {
            let Generating { packet, next, generated, .. } = &mut self.generating;
            Generator::fill(*next, now, packet);
            self.memory.buffer(buffer).copy_from(packet);
            (*next, *generated) = (*next + 1, *generated + 1);
            let len = packet.len();
            self.tell(CAME, buffer, len)?;
            self.ends.producer.ring_bell();
            count += 1;
        }
        Ok(count)
    }

    fn tell(&mut self, kind: u8, buffer: u32, len: usize) -> Result<()> {
        self.ends.producer.publish(kind, &words(buffer, len)).map_err(|_| rules())
    }

    /// Does what the host has asked for; false when the host has gone.
    fn obey(&mut self) -> Result<bool> {
        let mut bytes = [0; 64];
        let Some(received) = self.control.try_receive(&mut bytes)? else { return Ok(true) };
        if received.len == 0 {
            return Ok(false);
        }
        match postcard::from_bytes(&bytes[..received.len]).map_err(|_| rules())? {
            Command::Generate { len, count, interval_ns } => {
                let packet = vec![0; (len as usize).clamp(STAMP, BUFFER)];
                let (begun, interval) = (monotonic_time(), Duration::from_nanos(interval_ns));
                let generated = self.generating.generated;
                self.generating = Generating { packet, next: 0, count, begun, interval, generated };
            }
            Command::Expect { count } => self.sink = Sink::new(count.min(1 << 28), 0, Clock::default()),
            Command::Reflect => self.reflects = true,
            Command::Report => return self.report().map(|()| true),
        }
        self.control.send(&[0], &[]).map(|()| true)
    }

    fn report(&self) -> Result<()> {
        let mut tally = self.sink.tally();
        let latencies = std::mem::take(&mut tally.latencies);
        let mut parts = latencies.chunks(PART);
        loop {
            tally.latencies = parts.next().unwrap_or_default().to_vec();
            let (generated, free, left) =
                (self.generating.generated, self.free.len() as u32, parts.len() as u64);
            let part = Report { generated, free, tally, left };
            let bytes = postcard::to_allocvec(&part).map_err(|_| rules())?;
            self.control.send(&bytes, &[])?;
            if left == 0 {
                return Ok(());
            }
            tally = part.tally;
        }
    }
}

fn rules() -> Error {
    Error::new("check", "what the host of a card says", Errno::PROTO)
}

fn broken(_: Broken) -> Error {
    rules()
}

/// The rings' error as one of the kernel's.
pub(super) fn failed(error: genie_ring::Error) -> Error {
    match error {
        genie_ring::Error::System(error) => error,
        _ => Error::new("check", "the FIFOs of a card", Errno::PROTO),
    }
}
