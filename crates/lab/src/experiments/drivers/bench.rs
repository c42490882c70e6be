//! The drivers, each over a card of its own, and what a packet takes each way.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use genie_net::Frame;
use genie_net::driver::Card;
use genie_net::driver::card::Control;
use genie_net::network::stream::Stream;
use genie_net::network::{Counters, Management, Network, Packet};
use genie_net::traffic::{Generator, Sink, Tally};
use genie_net::wire::{Clock, Station};
use genie_sys::machine::monotonic_time;

use crate::cards;
use crate::error::{Error, Result};
use crate::peer::Peer;
use crate::probe::Probe;
use crate::samples::nanoseconds;

/// How long a packet may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long a card has sent a packet, and still looks for the next one.
const GAP: Duration = Duration::from_micros(20);
/// Between packets that wake the application up: longer than anything goes on from the one before.
const PAUSE: Duration = Duration::from_millis(1);
/// Of how many packets each way all bytes are compared.
const VERIFIED: u64 = 16;
/// The memory that is swept to have nothing else in the caches.
const SWEPT: usize = 64 << 20;

/// How a driver copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Two,
    One,
    None(Management),
}

pub(super) const DRIVERS: [Driver; 4] =
    [Driver::Two, Driver::One, Driver::None(Management::SystemCall), Driver::None(Management::SharedRing)];

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timed {
    /// From the allocation of a packet until the card has been told of it.
    Sending,
    /// From the look at a packet that has come until it is released.
    Receiving,
    /// The same from when the card makes the packet: the application sleeps.
    Awakened,
}

impl Driver {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Two => "two copies",
            Self::One => "one copy",
            Self::None(Management::SystemCall) => "no copy, system call",
            Self::None(Management::SharedRing) => "no copy, shared ring",
        }
    }

    fn open(self, card: Card) -> genie_sys::Result<Network> {
        match self {
            Self::Two => Network::two_copies(card, Stream::new()),
            Self::One => Network::one_copy(card),
            Self::None(management) => Network::no_copy(card, management),
        }
    }
}

/// A driver, and what tells its card what to do.
pub(super) struct Bench {
    network: Network,
    control: Control,
    _device: Peer,
}

impl Bench {
    /// Opens a card whose processor is a process on the other CPU, if there is one.
    pub(super) fn open(driver: Driver, probe: &Probe) -> Result<Self> {
        let (card, device) = cards::card(probe.other().unwrap_or(probe.here()))?;
        let control = card.control();
        Ok(Self { network: driver.open(card)?, control, _device: device })
    }

    /// Compares all bytes of some packets each way.
    pub(super) fn verify(&mut self, len: usize) -> Result<()> {
        self.control.expect(VERIFIED)?;
        for number in 0..VERIFIED {
            let mut bytes = vec![0; len];
            Generator::fill(number, monotonic_time(), &mut bytes);
            self.send(&bytes)?;
        }
        let begun = Instant::now();
        let sent = loop {
            let tally = self.control.report()?.tally;
            if tally.missing == 0 || begun.elapsed() > PATIENCE {
                break tally;
            }
            thread::sleep(PAUSE);
        };
        whole(&sent)?;
        let sink = Sink::new(VERIFIED, 0, Clock::default());
        self.control.generate(len, VERIFIED, Duration::ZERO)?;
        for _ in 0..VERIFIED {
            sink.arrive(&Frame::new(self.awaited()?.data()));
        }
        whole(&sink.tally())
    }

    /// What has been copied so far, and which calls there were.
    pub(super) fn counters(&self) -> Result<Counters> {
        self.network.counters().map_err(failed)
    }

    /// Times `count` packets of `len` bytes, one at a time; with `swept`, it is swept before each.
    pub(super) fn run(
        &mut self,
        timed: Timed,
        (len, count): (usize, usize),
        mut swept: Option<&mut Sweep>,
    ) -> Result<Vec<u64>> {
        let payload = vec![7; len];
        if timed == Timed::Awakened {
            self.control.generate(len, count as u64, PAUSE)?;
        }
        let mut one = |_| {
            match timed {
                Timed::Sending => rest(GAP),
                Timed::Receiving => {
                    self.control.generate(len, 1, Duration::ZERO)?;
                    self.network.wait(Some(PATIENCE)).map_err(failed)?;
                }
                Timed::Awakened => {}
            }
            if let Some(sweep) = &mut swept {
                sweep.sweep();
                // Has the code and the driver's own memory in the caches, and the card awake.
                self.send(&[0])?;
                rest(GAP);
            }
            let begun = Instant::now();
            match timed {
                Timed::Sending => {
                    self.send(&payload)?;
                    Ok(nanoseconds(begun.elapsed()))
                }
                Timed::Receiving => {
                    let packet = self.awaited()?;
                    consume(packet);
                    Ok(nanoseconds(begun.elapsed()))
                }
                Timed::Awakened => {
                    let packet = self.awaited()?;
                    let mut stamp = [0; 16];
                    packet.data().copy_to(&mut stamp);
                    consume(packet);
                    let made = u64::from_le_bytes(std::array::from_fn(|at| stamp[8 + at]));
                    Ok(nanoseconds(monotonic_time()).saturating_sub(made))
                }
            }
        };
        (0..count).map(&mut one).collect()
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        let full = || Error::Peer("the card takes no more packets".to_owned());
        let mut packet = self.network.allocate(bytes.len()).map_err(failed)?.ok_or_else(full)?;
        packet.data_mut().copy_from(bytes);
        self.network.send(packet).map_err(failed)
    }

    fn awaited(&self) -> Result<Packet> {
        let none = || Error::Peer("no packet has come within 10 s".to_owned());
        self.network.receive_timeout(Some(PATIENCE)).map_err(failed)?.ok_or_else(none)
    }
}

/// The application looks at all bytes.
fn consume(packet: Packet) {
    black_box(packet.data().sum());
}

fn whole(tally: &Tally) -> Result<()> {
    // A packet without a stamp may still be on its way, which had the card awake.
    match tally.missing + tally.damaged + tally.duplicated {
        0 => Ok(()),
        _ => Err(Error::Peer(format!("packets have not come as they were sent: {tally:?}"))),
    }
}

/// Waits without sleeping.
fn rest(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Memory that is longer than any cache.
pub(super) struct Sweep(Vec<u64>);

impl Sweep {
    pub(super) fn new() -> Self {
        Self(vec![1; SWEPT / size_of::<u64>()])
    }

    /// Stores into each line.
    fn sweep(&mut self) {
        self.0.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
        black_box(&self.0);
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
}
