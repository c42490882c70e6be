//! The receiver: posts inputs when it is told to, and reports their outcome.
//!
//! How: the receiver looks for the reply; where it shares a CPU with the sender, it hands the CPU over between looks. Only
//! the looks, the taking of the reply and the clock are within the time that is measured; the data is compared afterwards.

use std::time::{Duration, Instant};

use genie::{Pending, Scheme};
use genie_net::namespaces::Namespace;

use super::client::{Client, Driver};
use super::meter::{Measure, Meter};
use super::order::{Attending, Effect, Heard, Posting, Received};
use crate::clock::{CpuClock, now_ns};
use crate::error::{Error, Result};
use crate::peer::{Link, say};

/// How long an input may take: after that time the sender has surely failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    client: Client,
    clock: CpuClock,
    yields: bool,
}

impl Receiver {
    pub(super) fn open(attending: &Attending, namespace: Option<&Namespace>) -> Result<Self> {
        Ok(Self {
            client: Client::open(attending, namespace)?,
            clock: CpuClock::of_process(),
            yields: attending.yields,
        })
    }

    /// Posts an input, and reports that; then reports how the input went.
    pub(super) fn receive(&mut self, posting: &Posting, link: &Link) -> Result<()> {
        let heard = match self.input(posting, link) {
            Ok(received) => Heard::Received(received),
            Err(error) => Heard::Failed { reason: error.to_string() },
        };
        say(link, &heard)
    }

    fn input(&mut self, posting: &Posting, link: &Link) -> Result<Received> {
        let unknown = |error: genie_passing::scheme::UnknownScheme| Error::Peer(error.to_string());
        let scheme: Scheme = posting.scheme.parse().map_err(unknown)?;
        let mut meter = Meter::of(posting.measure, self.clock)?;
        let records = posting.measure == Measure::Operations;
        let Self { client, yields, .. } = self;
        let driver = client.driver.clone();
        if records {
            client.record();
        }
        let before = driver.brought();
        let posted = meter.around(|| client.post(scheme, posting.len))?;
        let pending = posted.map_err(|failed| failed.error)?;
        driver.settle()?;
        say(link, &Heard::Posted)?;
        let resumed_ns = look_for(&pending, *yields, &driver)?;
        if !pending.is_replied() {
            let aborted = pending.abort();
            // The reason of the failure is known already.
            let _ = self.client.settle(aborted);
            return Err(Error::Peer(format!("nothing arrived within {PATIENCE:?}")));
        }
        let replied = meter.around(|| pending.sync());
        let delivered_ns = now_ns();
        let brought = driver.brought_since(before);
        let operations = if records { self.client.recorded() } else { Vec::new() };
        let mut reply = self.client.settle(replied)?;
        let metered = meter.finish()?;
        let effect = Effect::of(&reply.buffers[0].elements[0].receipt);
        let is_whole = reply.actual() == posting.len;
        let differs_at = self.client.judge(scheme, &mut reply, posting.seed)?;
        let damaged_at = if is_whole { differs_at } else { Some(reply.actual()) };
        Ok(Received { delivered_ns, resumed_ns, metered, operations, effect, brought, damaged_at })
    }
}

/// Looks until there is a reply, or `PATIENCE` is over; returns the time when the longest pause between two looks ended.
fn look_for(pending: &Pending<'_>, yields: bool, driver: &Driver) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    let (mut before, mut longest, mut resumed) = (now_ns(), 0, now_ns());
    while !pending.is_replied() && Instant::now() < deadline {
        driver.attend()?;
        if yields {
            std::thread::yield_now()
        } else {
            std::hint::spin_loop()
        }
        let now = now_ns();
        if now - before > longest {
            (longest, resumed) = (now - before, now);
        }
        before = now;
    }
    Ok(resumed)
}
