//! An explanation, as text for people and as JSON for programs.

use std::fmt::Write;

use genie::{Direction, Interface, Reason, Receipt, Scheme};
use genie_lab::call::Call;
use genie_lab::length;
use genie_lab::memory_server::Buffers;
use genie_lab::samples::rounded;
use genie_passing::calibration::Circumstances;
use genie_passing::operation::Operation;
use genie_passing::tables;
use serde::Serialize;

use super::price::Prices;
use crate::circumstances;
use crate::tables::fold;
use crate::thresholds::Both;

/// The operations that would pass some data.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    scheme: &'static str,
    direction: &'static str,
    length: usize,
    /// Bytes from the start of the first granule; none where the interface places the buffer.
    alignment: Option<usize>,
    granule: usize,
    /// By which function the request was made.
    call: &'static str,
    /// The scheme that takes effect.
    effective: &'static str,
    reason: Option<Reason>,
    /// The table of the thesis that lists the operations.
    table: &'static str,
    steps: Vec<Step>,
    predicted_us: f64,
    /// What copy would cost.
    copy_us: f64,
    /// By each call, to each kind of server.
    pub(super) cases: Vec<Case>,
    #[serde(flatten)]
    thresholds: Both,
    /// How the costs were measured.
    circumstances: Option<Circumstances>,
    /// What passing such data once has just done.
    receipt: String,
}

/// One operation.
#[derive(Debug, PartialEq, Serialize)]
struct Step {
    when: &'static str,
    operation: &'static str,
    /// None for an operation that costs too little to be measured, or that was measured together with another operation.
    predicted_us: Option<f64>,
}

/// The question to be explained.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) scheme: Scheme,
    pub(super) direction: Direction,
    pub(super) len: usize,
    /// None where the interface places the buffer.
    pub(super) alignment: Option<usize>,
    pub(super) buffers: Buffers,
    pub(super) manner: Manner,
    pub(super) server: Server,
}

/// How the client makes its request, and how it names its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Send,
    SubmitByValue,
    /// With a borrowed buffer, if the scheme borrows buffers at all.
    Submit,
}

impl From<Call> for Manner {
    fn from(call: Call) -> Self {
        match call {
            Call::Send => Self::Send,
            Call::Submit => Self::Submit,
        }
    }
}

impl Manner {
    pub(super) fn call(self) -> Call {
        if self == Self::Send { Call::Send } else { Call::Submit }
    }
}

impl Question {
    /// The manners that can make a difference.
    pub(super) fn manners(self) -> &'static [Manner] {
        if self.is_emulated_output() {
            &[Manner::Send, Manner::SubmitByValue, Manner::Submit]
        } else {
            &[Manner::Send, Manner::Submit]
        }
    }

    fn is_emulated_output(self) -> bool {
        (self.scheme, self.direction) == (Scheme::EmulatedCopy, Direction::Out)
    }

    fn manner(self) -> &'static str {
        match self.manner {
            Manner::Send => "send",
            Manner::SubmitByValue => "submit by value",
            Manner::Submit if self.is_emulated_output() => "submit borrowed",
            Manner::Submit => "submit",
        }
    }
}

/// Where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    InProcess,
    Process,
}

/// What would be done by one of the calls, to a server of one of the kinds.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    call: &'static str,
    server: &'static str,
    effective: &'static str,
    reason: Option<Reason>,
    predicted_us: f64,
    copy_us: f64,
}

impl Case {
    pub(super) fn new(genie: &Interface, question: Question, receipt: &Receipt) -> Self {
        let call = question.manner();
        let Report { effective, reason, predicted_us, copy_us, .. } = Report::new(genie, question, receipt);
        let server = match question.server {
            Server::InProcess => "in-process",
            Server::Process => "process",
        };
        Self { call, server, effective, reason, predicted_us, copy_us }
    }
}

impl Report {
    pub(super) fn new(genie: &Interface, question: Question, receipt: &Receipt) -> Self {
        let granule = genie.space().for_len(question.len).granule();
        let granules = (question.alignment.unwrap_or(0) + question.len).div_ceil(granule);
        let costs = genie.passing().costs_for(question.len);
        let between = costs.between();
        let thresholds = Both::of(costs, granule);
        let costs = if question.server == Server::Process { &between } else { costs };
        let prices = Prices { costs, granule, len: question.len, granules, receipt };
        let (table, columns) = columns(question, receipt);
        let mut steps: Vec<_> = columns
            .iter()
            .flat_map(|(when, column)| column.iter().map(|operation| Step::new(when, *operation, &prices)))
            .collect();
        if let Some(edges) = prices.edges() {
            steps.insert(0, Step::priced("request", "copy in what fills no whole granule", edges));
        }
        if let Some(later) = prices.reinstatement() {
            steps.push(Step::priced("later", "give write permission back, with the next stores", later));
        }
        let copying = match question.direction {
            Direction::Out => Operation::CopyinData,
            Direction::In => Operation::CopyoutData,
        };
        Self {
            scheme: question.scheme.name(),
            direction: if question.direction == Direction::Out { "out" } else { "in" },
            length: question.len,
            alignment: question.alignment,
            granule,
            call: question.manner.call().name(),
            effective: receipt.effective.name(),
            reason: receipt.reason,
            table,
            predicted_us: rounded(steps.iter().filter_map(|step| step.predicted_us).sum()),
            steps,
            copy_us: microseconds(prices.copy(copying)),
            cases: Vec::new(),
            thresholds,
            circumstances: genie.passing().circumstances(),
            receipt: receipt.to_string(),
        }
    }

    /// The explanation for people.
    pub(super) fn text(&self) -> String {
        let mut text = self.heading();
        let mut before = "";
        for step in &self.steps {
            let when = if step.when == before { "" } else { step.when };
            before = step.when;
            let price = step.predicted_us.map_or("-".to_owned(), |us| format!("{us:.3}"));
            let _ = writeln!(text, "  {when:8} {:56} {price:>10}", step.operation);
        }
        let _ = writeln!(text, "  {:8} {:56} {:>10.3}", "in all", "", self.predicted_us);
        let _ = writeln!(text, "  {:8} {:56} {:>10.3}", "copy", "would cost", self.copy_us);
        text.push('\n');
        text += &fold(&format!("one such operation, just done in this process: {}", self.receipt));
        text += &self.other_cases();
        let _ = write!(text, "\n{}", self.thresholds.text());
        if let Some(sentence) = self.circumstances.and_then(circumstances::sentence) {
            text += &fold(&format!("\n{sentence}"));
        }
        text
    }

    /// All calls, to servers of both kinds, of which the steps above are one.
    fn other_cases(&self) -> String {
        let mut text = format!(
            "\n  {:15} {:14} {:24} {:>10} {:>10}\n",
            "call", "server", "is done as", "cost us", "copy costs"
        );
        for case in &self.cases {
            let server = if case.server == "process" { "other process" } else { "same process" };
            let _ = writeln!(
                text,
                "  {:15} {server:14} {:24} {:>10.3} {:>10.3}",
                case.call, case.effective, case.predicted_us, case.copy_us
            );
            if let Some(reason) = case.reason {
                text += &fold(&format!("    because: {reason}"));
            }
        }
        text
    }

    fn heading(&self) -> String {
        let place = match self.alignment {
            Some(offset) => {
                format!("starting {offset} bytes into a granule of {}", length::format(self.granule))
            }
            None => format!("in granules of {}, placed by the interface", length::format(self.granule)),
        };
        let direction = match (self.direction, self.call) {
            ("out", "submit") => "output, submitted,",
            ("out", _) => "output",
            _ => "input",
        };
        let mut text =
            fold(&format!("{} {direction} of {}, {place}", self.scheme, length::format(self.length)));
        let because = self.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        let effect = match (self.effective == self.scheme, self.reason) {
            (true, None) => "takes effect as asked".to_owned(),
            (true, Some(_)) => format!("takes effect in part{because}"),
            (false, _) => format!("is done as {}{because}", self.effective),
        };
        text += &fold(&format!("{effect}, in one process: thesis, {}", self.table));
        let _ = writeln!(text, "\n  {:8} {:56} {:>10}", "when", "operation", "cost us");
        text
    }
}

impl Step {
    fn new(when: &'static str, operation: Operation, prices: &Prices<'_>) -> Self {
        Self { when, operation: operation.phrase(), predicted_us: prices.of(operation).map(microseconds) }
    }

    fn priced(when: &'static str, operation: &'static str, nanoseconds: f64) -> Self {
        Self { when, operation, predicted_us: Some(microseconds(nanoseconds)) }
    }
}

type Column = (&'static str, &'static [Operation]);

/// The columns of the table that holds for the scheme in effect.
fn columns(question: Question, receipt: &Receipt) -> (&'static str, Vec<Column>) {
    match (question.direction, question.buffers) {
        (Direction::Out, _) => {
            let row = if receipt.held { tables::held_output } else { tables::output }(receipt.effective);
            ("table 7.1", vec![("request", row.request), ("reply", row.reply)])
        }
        (Direction::In, Buffers::Customized) => {
            let row = tables::customized_input(receipt.effective);
            ("table 7.2", vec![("request", row.request), ("ready", row.ready), ("reply", row.reply)])
        }
        (Direction::In, Buffers::Pooled) => {
            // A swap that turned out to be a copy is still an operation of the scheme that was asked for.
            let row = tables::overlaid_input(question.scheme);
            ("table 7.3", vec![("request", row.request), ("ready", row.ready), ("reply", row.reply)])
        }
    }
}

fn microseconds(nanoseconds: f64) -> f64 {
    nanoseconds.round() / 1e3
}
