//! What experiments of transfers conclude in the same way: figures, the papers' throughput beside ours, and what thresholds are worth.

use genie_net::Rate;

use super::latency::PAPER_LEN;
use super::reading::{MISSING, Reading, beside, bytes, findings, left_out, slug};
use super::transfers::{Course, Passing, setting};
use crate::amounts::significant;
use crate::experiment::Declaration;
use crate::findings::{Conclusion, Figure, Finding, Judgement, Scale, Table, row};
use crate::length;
use crate::measurement::{Measurements, Quantity};
use crate::medium::{BY_DRIVER, BY_KERNEL, Medium};
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
        (medium, passing): (Medium, Passing),
        figure: &str,
        quantity: Quantity,
    ) -> Reading<'m> {
        Reading::of(measurements, self.id, setting(medium, passing, figure), quantity)
    }

    /// Findings on the claims: what `judge` finds over the wire, and beside it over AF_XDP, both without a limit of the rate and with
    /// thresholds off, where the schemes differ most.
    pub(super) fn findings<'m>(
        self,
        declaration: &Declaration,
        measurements: &'m Measurements,
        judge: impl Fn(&dyn Fn(&str, Quantity) -> Reading<'m>) -> Vec<Judgement>,
    ) -> Vec<Finding> {
        let over = |medium| {
            judge(&|figure, quantity| self.reading(measurements, (medium, Passing::Off), figure, quantity))
        };
        findings(declaration, Ok(beside(over(Medium::Wire(Rate::Unlimited)), over(Medium::Xdp))))
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
        let xdp = "Over AF_XDP frames pass between two network namespaces, in the same thread. There pooled buffers are the kernel's own, of which \
                   each holds 3,840 bytes of a frame; the other adapters copy frames out of these.";
        let xdp = left_out(measurements).unwrap_or_else(|| xdp.to_owned());
        let beside = papers.iter().flat_map(|paper| self.beside_copying(measurements, paper, is_one));
        Conclusion {
            figures: self.figures(measurements, papers),
            tables: papers.iter().flat_map(|paper| self.tables(measurements, paper)).collect(),
            verdicts,
            notes: [here.to_owned(), xdp].into_iter().chain(beside).collect(),
        }
    }

    /// A figure for each setting in which something was measured.
    fn figures(self, measurements: &Measurements, papers: &[Paper]) -> Vec<Figure> {
        let settings = || self.settings().into_iter();
        let all = papers.iter().flat_map(|paper| settings().map(move |how| (paper, how)));
        let figure = |(paper, how): (&Paper, (Medium, Passing))| {
            let reading = self.reading(measurements, how, paper.figure, Quantity::Latency);
            let name = format!("{}-{}", self.id, slug(&reading.setting));
            let title = format!("{}: {}, {}", paper.title, how.0.name(), how.1.name());
            reading.figure(&name, &title, "end-to-end latency in µs", Scale::Linear, paper.names())
        };
        all.filter_map(figure).collect()
    }

    /// Throughput beside the paper's, and what was copied for it.
    fn tables(self, measurements: &Measurements, paper: &Paper) -> Vec<Table> {
        let of = |how, quantity| self.reading(measurements, how, paper.figure, quantity);
        let is_measured = |how: &(Medium, Passing)| {
            how.0 != Medium::Xdp || !of(*how, Quantity::Latency).lengths(paper.names()).is_empty()
        };
        let settings: Vec<_> = self.settings().into_iter().filter(is_measured).collect();
        let unpaced: Vec<_> = settings.iter().copied().filter(|how| is_unpaced(*how)).collect();
        let throughput = |(name, printed): &(String, Option<Printed>)| {
            let here = settings.iter().map(|how| of(*how, Quantity::Latency).throughput(name, PAPER_LEN));
            let printed = printed.map_or_else(|| MISSING.to_owned(), |printed| printed.to_string());
            row(name, std::iter::once(printed).chain(here))
        };
        let amount = |setting: String, name: &str| {
            let reading = Reading::of(measurements, self.id, setting, Quantity::Bytes);
            let amount = reading.at(name, PAPER_LEN);
            amount.map_or_else(|| MISSING.to_owned(), |bytes| length::approximate(bytes as u64))
        };
        let setting_of = |how: &(Medium, Passing)| setting(how.0, how.1, paper.figure);
        let copied = |(name, _): &(String, Option<Printed>)| {
            row(name, unpaced.iter().map(|how| amount(setting_of(how), name)))
        };
        let heading = |how: &(Medium, Passing)| format!("{}, {}", how.0.name(), how.1.short());
        let columns = ["curve".to_owned(), format!("paper, {}", self.rate.name())];
        let title = format!(
            "{}: Mbit/s at 60 KiB by rate of the network, thresholds off and calibrated",
            paper.title
        );
        let columns = columns.into_iter().chain(settings.iter().map(heading));
        let mut tables = vec![Table::new(title, columns, paper.curves.iter().map(throughput))];
        let title = format!("{}: bytes copied at both ends for 60 KiB", paper.title);
        let columns = row("curve", unpaced.iter().map(heading));
        tables.push(Table::new(title, columns, paper.curves.iter().map(copied)));
        let xdp: Vec<_> = unpaced.iter().filter(|how| how.0 == Medium::Xdp).collect();
        if !xdp.is_empty() {
            let who = [BY_DRIVER, BY_KERNEL];
            let both = || xdp.iter().flat_map(|how| who.map(|who| (how, who)));
            let cells = |(name, _): &(String, Option<Printed>)| {
                row(name, both().map(|(how, who)| amount(setting_of(how) + who, name)))
            };
            let columns = row("curve", both().map(|(how, who)| format!("{}{who}", how.1.short())));
            let title = format!(
                "{}: bytes copied for 60 KiB between the hosts and the link, over AF_XDP",
                paper.title
            );
            tables.push(Table::new(title, columns, paper.curves.iter().map(cells)));
        }
        tables
    }

    /// How much longer than copying one of these curves takes at worst, with thresholds calibrated and off.
    fn beside_copying(
        self,
        measurements: &Measurements,
        paper: &Paper,
        is_one: fn(&str) -> bool,
    ) -> Vec<String> {
        let sentence = |how: (Medium, Passing)| {
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
        self.settings().into_iter().filter(|how| is_unpaced(*how)).filter_map(sentence).collect()
    }
}

/// Whether nothing limits the rate.
fn is_unpaced((medium, _): (Medium, Passing)) -> bool {
    medium.rate() == Rate::Unlimited
}
