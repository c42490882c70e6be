//! What experiments of transfers conclude in the same way: figures, the papers' throughput beside ours, and what thresholds are worth.

use genie_net::Rate;

use super::latency::PAPER_LEN;
use super::reading::{MISSING, Reading, bytes, slug};
use super::transfers::{Course, Passing, setting};
use crate::amounts::significant;
use crate::findings::{Conclusion, Figure, Finding, Scale, Table, row};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::papers::Printed;

/// A figure of the paper's, with its curves, and their throughput there.
pub(super) struct Paper {
    pub(super) figure: &'static str,
    pub(super) title: &'static str,
    pub(super) curves: Vec<(String, Option<Printed>)>,
}

impl Paper {
    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.curves.iter().map(|(name, _)| name.as_str())
    }
}

impl Course {
    pub(super) fn reading<'m>(
        self,
        measurements: &'m Measurements,
        (rate, passing): (Rate, Passing),
        figure: &str,
        quantity: Quantity,
    ) -> Reading<'m> {
        Reading::of(measurements, self.id, setting(rate, passing, figure), quantity)
    }

    /// Figures, tables, and how much longer than copying the curves take of which `is_one` is true.
    pub(super) fn conclude(
        self,
        measurements: &Measurements,
        papers: &[Paper],
        is_one: fn(&str) -> bool,
        verdicts: Vec<Finding>,
    ) -> Conclusion {
        let here = "Sender, wire and receiver are in one process, with granules of 4 KiB; without a limit of the rate, one thread does all work. The wire copies the data \
                    once; that copy stands for DMA, and is in every latency. Bytes copied are those of both hosts.";
        let beside = papers.iter().flat_map(|paper| self.beside_copying(measurements, paper, is_one));
        Conclusion {
            figures: self.figures(measurements, papers),
            tables: papers.iter().flat_map(|paper| self.tables(measurements, paper)).collect(),
            verdicts,
            notes: std::iter::once(here.to_owned()).chain(beside).collect(),
        }
    }

    /// A figure for each setting in which something was measured.
    fn figures(self, measurements: &Measurements, papers: &[Paper]) -> Vec<Figure> {
        let of = |paper: &Paper| {
            self.settings().map(|how| {
                let reading = self.reading(measurements, how, paper.figure, Quantity::Latency);
                let name = format!("{}-{}", self.id, slug(&reading.setting));
                let title = format!("{}: {}, {}", paper.title, how.0.name(), how.1.name());
                reading.figure(&name, &title, "end-to-end latency in µs", Scale::Linear, paper.names())
            })
        };
        papers.iter().flat_map(of).flatten().collect()
    }

    /// Throughput beside the paper's, and what was copied for it.
    fn tables(self, measurements: &Measurements, paper: &Paper) -> [Table; 2] {
        let of = |how, quantity| self.reading(measurements, how, paper.figure, quantity);
        let throughput = |(name, printed): &(String, Option<Printed>)| {
            let here = self.settings().map(|how| of(how, Quantity::Latency).throughput(name, PAPER_LEN));
            let printed = printed.map_or_else(|| MISSING.to_owned(), |printed| printed.to_string());
            row(name, std::iter::once(printed).chain(here))
        };
        let copied = |(name, _): &(String, Option<Printed>)| {
            let amount = |how| of(how, Quantity::Bytes).at(name, PAPER_LEN);
            let cell = |how| {
                amount(how).map_or_else(|| MISSING.to_owned(), |bytes| length::approximate(bytes as u64))
            };
            row(name, unpaced().map(cell))
        };
        let rates = self.settings().map(|(rate, passing)| format!("{}, {}", rate.name(), passing.short()));
        let columns = ["curve".to_owned(), format!("paper, {}", self.rate.name())];
        let title = format!(
            "{}: Mbit/s at 60 KiB by rate of the network, thresholds off and calibrated",
            paper.title
        );
        let throughputs =
            Table::new(title, columns.into_iter().chain(rates), paper.curves.iter().map(throughput));
        let headings = ["curve"].into_iter().chain(unpaced().map(|(_, passing)| passing.name()));
        let title = format!("{}: bytes copied at both ends for 60 KiB", paper.title);
        [throughputs, Table::new(title, headings, paper.curves.iter().map(copied))]
    }

    /// How much longer than copying one of these curves takes at worst, with thresholds calibrated and off.
    fn beside_copying(
        self,
        measurements: &Measurements,
        paper: &Paper,
        is_one: fn(&str) -> bool,
    ) -> Vec<String> {
        let sentence = |how: (Rate, Passing)| {
            let reading = self.reading(measurements, how, paper.figure, Quantity::Latency);
            let of = |name: &str| {
                let ratio =
                    |(len, us): (u64, f64)| Some((us / reading.at("copy", len)?, name.to_owned(), len));
                reading.medians(name).into_iter().filter_map(ratio).collect::<Vec<_>>()
            };
            let all = paper.names().filter(|name| *name != "copy" && is_one(name)).flat_map(of);
            let (ratio, name, len) = all.max_by(|one, other| one.0.total_cmp(&other.0))?;
            Some(format!(
                "{}: at worst a transfer takes {} times as long as by copy ({name}, {}).",
                reading.setting,
                significant(ratio),
                bytes(len)
            ))
        };
        unpaced().into_iter().filter_map(sentence).collect()
    }
}

/// Without a limit of the rate, with thresholds off and calibrated.
fn unpaced() -> [(Rate, Passing); 2] {
    [Passing::Off, Passing::Calibrated].map(|passing| (Rate::Unlimited, passing))
}
