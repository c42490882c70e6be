//! What is counted, said each second, and summed up.

use std::time::{Duration, Instant};

use genie_lab::length;
use genie_lab::samples::Samples;
use serde::Serialize;

use super::end::{Costs, End};
use super::numbered::{Header, Place, Seen};
use crate::failure::Failure;
use crate::{output, tables};

/// How often figures are said.
const SECOND: Duration = Duration::from_secs(1);

/// Counts of one side's datagrams.
#[derive(Debug)]
pub(super) struct Figures {
    is_quiet: bool,
    counts: Counts,
    /// When the first one came or went, and the last one.
    times: Option<(Instant, Instant)>,
    /// What was counted when the figures were said last, and when the next ones are due.
    said: (Counts, Option<Instant>),
    seconds: Vec<Second>,
    seen: Seen,
    distinct: u64,
    /// How many the other side says that it has sent.
    total: Option<u64>,
    round_trips: Samples,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Counts {
    datagrams: u64,
    bytes: u64,
    /// Those that came after later ones.
    late: u64,
    /// Those that came before.
    duplicates: u64,
    /// Those whose data was not what was sent, or had no room.
    damaged: u64,
    /// Those that are no datagrams of the run.
    strange: u64,
}

/// The figures of a second.
#[derive(Debug, Serialize)]
struct Second {
    datagrams: u64,
    kb_per_s: f64,
}

/// What is printed at the end.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    operation: &'static str,
    by: String,
    #[serde(flatten)]
    counts: Counts,
    /// How many did not come, where that is known.
    lost: Option<u64>,
    seconds: f64,
    /// In units of 1,024 bytes, as ttcp has it.
    kb_per_s: f64,
    datagrams_per_s: f64,
    /// Whether there was data that was to be verified.
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_us: Option<RoundTrips>,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<Costs>,
    each_second: Vec<Second>,
}

#[derive(Debug, Serialize)]
struct RoundTrips {
    median: f64,
    p99: f64,
}

impl Figures {
    /// None yet. If it is quiet, nothing is said each second.
    pub(super) fn new(is_quiet: bool) -> Self {
        Self {
            is_quiet,
            counts: Counts::default(),
            times: None,
            said: (Counts::default(), None),
            seconds: Vec::new(),
            seen: Seen::default(),
            distinct: 0,
            total: None,
            round_trips: Samples::default(),
        }
    }

    /// Counts a datagram that has gone.
    pub(super) fn gone(&mut self, len: usize) {
        self.counts.datagrams += 1;
        self.counts.bytes += len as u64;
        let now = Instant::now();
        self.times.get_or_insert((now, now)).1 = now;
    }

    /// Counts a datagram of the run that has come, of `len` bytes, of which `data` had room.
    pub(super) fn came(&mut self, header: Header, data: &[u8], len: usize) {
        self.gone(len);
        match self.seen.note(header.number) {
            Place::InOrder => self.distinct += 1,
            Place::Late => {
                self.distinct += 1;
                self.counts.late += 1;
            }
            Place::Again => self.counts.duplicates += 1,
        }
        self.counts.damaged += u64::from(len > data.len() || !header.is_intact(data));
    }

    /// Counts what is no datagram of the run.
    pub(super) fn strange(&mut self) {
        self.counts.strange += 1;
    }

    /// Notes how many datagrams there were on the other side.
    pub(super) fn total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// Counts the time of a round trip.
    pub(super) fn round_trip(&mut self, time: Duration) {
        self.round_trips.add(time);
    }

    /// Says the figures of the last second, if it is over.
    pub(super) fn say(&mut self) -> Result<(), Failure> {
        let Some((first, last)) = self.times else { return Ok(()) };
        let (before, due) = &mut self.said;
        let due = due.get_or_insert(first + SECOND);
        if last < *due {
            return Ok(());
        }
        *due = (*due + SECOND).max(last);
        let datagrams = self.counts.datagrams - before.datagrams;
        let kb_per_s = (self.counts.bytes - before.bytes) as f64 / 1024.0;
        *before = self.counts;
        self.seconds.push(Second { datagrams, kb_per_s });
        if self.is_quiet {
            return Ok(());
        }
        output::print(&second(self.seconds.len(), kb_per_s, datagrams, "datagrams"))
    }

    /// All that was counted.
    pub(super) fn summary(self, operation: &'static str, end: &dyn End, is_verified: bool) -> Summary {
        let seconds = self.times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let has_numbers = self.distinct > 0 || self.total.is_some();
        let total = self.total.unwrap_or(self.seen.count());
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let round_trip_us = (self.round_trips.count() > 0).then(|| RoundTrips {
            median: self.round_trips.median_us(),
            p99: microseconds(self.round_trips.quantile(0.99)),
        });
        Summary {
            operation,
            by: end.name(),
            counts: self.counts,
            lost: has_numbers.then(|| total.saturating_sub(self.distinct)),
            seconds,
            kb_per_s: rate(self.counts.bytes as f64 / 1024.0),
            datagrams_per_s: rate(self.counts.datagrams as f64),
            verified: is_verified,
            round_trip_us,
            costs: end.costs(),
            each_second: self.seconds,
        }
    }
}

/// The line that says how much there was of `what` in a second.
pub(crate) fn second(second: usize, kb_per_s: f64, amount: u64, what: &str) -> String {
    format!("{second:6} s {kb_per_s:14.0} KB/s {amount:12} {what}/s\n")
}

impl Summary {
    /// Prints it, as a table or as a document.
    pub(super) fn print(&self, is_json: bool) -> Result<(), Failure> {
        if is_json { output::print_json(self) } else { output::print(&self.text()) }
    }

    fn text(&self) -> String {
        let Self { counts, .. } = self;
        let mut table = tables::new(
            ["datagrams", "bytes", "seconds", "KB/s", "datagrams/s", "lost", "twice", "late", "damaged"],
            0..9,
        );
        table.add_row([
            counts.datagrams.to_string(),
            length::approximate(counts.bytes),
            format!("{:.3}", self.seconds),
            format!("{:.0}", self.kb_per_s),
            format!("{:.0}", self.datagrams_per_s),
            self.lost.map_or("-".to_owned(), |lost| lost.to_string()),
            counts.duplicates.to_string(),
            counts.late.to_string(),
            counts.damaged.to_string(),
        ]);
        let mut text = tables::text(&table);
        let none = if counts.datagrams == 0 { "nothing was " } else { "" };
        let mut notes = format!("{none}{} by {}", self.operation, self.by);
        if self.verified {
            notes += "; the data was verified";
        }
        if let Some(RoundTrips { median, p99 }) = self.round_trip_us {
            notes += &format!("; round trip: median {median:.1} us, 99th percentile {p99:.1} us");
        }
        if counts.strange > 0 {
            notes += &format!("; {} datagrams of other senders are not counted", counts.strange);
        }
        if let Some(costs) = self.costs {
            notes += &format!("; copied by data passing: {}", length::approximate(costs.copied_by_passing));
            if let Some(by_driver) = costs.copied_by_driver {
                notes += &format!(", by driver and kernel: {}", length::approximate(by_driver));
            }
            let dropped = [
                ("datagrams were dropped by the server", Some(costs.dropped_by_server)),
                ("frames by the kernel", costs.dropped_by_kernel),
            ];
            for (what, count) in dropped {
                if let Some(count) = count.filter(|count| *count > 0) {
                    notes += &format!("; {count} {what} for want of room");
                }
            }
        }
        text += &tables::fold(&notes);
        text
    }
}
