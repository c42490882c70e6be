//! What is said of flows each second, and at the end.

use std::time::{Duration, Instant};

use genie::net::streaming::Statistics;
use genie_lab::length;
use serde::Serialize;

use super::Running;
use crate::failure::Failure;
use crate::net::figures::second;
use crate::{output, tables};

/// Figures of all flows of a command.
pub(super) struct Figures {
    is_json: bool,
    /// Whether standard output has data.
    is_data_there: bool,
    begun: Instant,
    seconds: u64,
    said: Statistics,
}

/// What is printed at the end.
#[derive(Serialize)]
pub(super) struct Summary {
    #[serde(skip)]
    is_json: bool,
    #[serde(skip)]
    is_data_there: bool,
    seconds: f64,
    flows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    flow: String,
    packets: u64,
    bytes: u64,
    kb_per_s: f64,
    /// Bytes that were copied, each time.
    copied: u64,
    dropped: u64,
    /// Frames that the kernel has dropped at the source, since its ring was full.
    dropped_by_kernel: u64,
    /// How often the flow waited for room.
    held: u64,
    /// Whether its source has ended, and all is in its sink.
    over: bool,
}

impl Figures {
    /// Of flows that begin now.
    pub(super) fn new(is_json: bool, is_data_there: bool) -> Self {
        Self { is_json, is_data_there, begun: Instant::now(), seconds: 0, said: Statistics::default() }
    }

    /// Says the figures of the last second, if it is over.
    pub(super) fn say(&mut self, flows: &[Running]) -> Result<(), Failure> {
        if self.begun.elapsed() < Duration::from_secs(self.seconds + 1) || self.is_json {
            return Ok(());
        }
        self.seconds = self.begun.elapsed().as_secs();
        let mut now = Statistics::default();
        for statistics in flows.iter().map(|flow| flow.flow.statistics()) {
            now.packets += statistics.packets;
            now.bytes += statistics.bytes;
        }
        let (packets, bytes) = (now.packets - self.said.packets, now.bytes - self.said.bytes);
        self.said = now;
        say(&second(self.seconds as usize, bytes as f64 / 1024.0, packets, "packets"), self.is_data_there)
    }

    /// All that was counted.
    pub(super) fn summary(&self, flows: &[Running]) -> Summary {
        let seconds = self.begun.elapsed().as_secs_f64();
        let row = |Running { name, ends, flow, ended }: &Running| {
            let Statistics { packets, bytes, copied, dropped, held, .. } = flow.statistics();
            Row {
                flow: name.clone(),
                packets,
                bytes,
                kb_per_s: bytes as f64 / 1024.0 / seconds,
                copied,
                dropped,
                dropped_by_kernel: ends.from.counters().dropped,
                held,
                over: *ended == Some(true),
            }
        };
        let (is_json, is_data_there) = (self.is_json, self.is_data_there);
        Summary { is_json, is_data_there, seconds, flows: flows.iter().map(row).collect() }
    }
}

impl Summary {
    /// Prints it, as a table or as a document.
    pub(super) fn print(&self) -> Result<(), Failure> {
        if self.is_json { output::print_json(self) } else { say(&self.text(), self.is_data_there) }
    }

    /// Of each flow, its figures and which one it is.
    fn text(&self) -> String {
        self.flows.iter().map(|row| row.text(self.seconds)).collect()
    }
}

impl Row {
    fn text(&self, seconds: f64) -> String {
        let headings = ["packets", "bytes", "seconds", "KB/s", "packets/s", "copied", "dropped", "held"];
        let mut table = tables::new(headings, 0..8);
        table.add_row([
            self.packets.to_string(),
            length::approximate(self.bytes),
            format!("{seconds:.3}"),
            format!("{:.0}", self.kb_per_s),
            format!("{:.0}", self.packets as f64 / seconds),
            length::approximate(self.copied),
            self.dropped.to_string(),
            self.held.to_string(),
        ]);
        let mut notes = format!("from {}", self.flow);
        if !self.over {
            notes += "; ended before all was in its sink";
        }
        if self.dropped_by_kernel > 0 {
            notes += &format!("; {} frames by the kernel for want of room", self.dropped_by_kernel);
        }
        tables::text(&table) + &tables::fold(&notes)
    }
}

/// Prints text to where no data goes.
fn say(text: &str, is_data_there: bool) -> Result<(), Failure> {
    if is_data_there {
        eprint!("{text}");
        return Ok(());
    }
    output::print(text)
}
