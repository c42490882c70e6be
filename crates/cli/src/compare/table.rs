//! The result as tables for people: one for each length and direction.

use std::fmt::Write;

use comfy_table::Table;
use genie::Reason;
use genie_lab::length;
use genie_lab::samples::Spread;
use owo_colors::OwoColorize;

use super::bench::Place;
use super::conclusion;
use super::document::{Document, EMPTY, Limits, Row};
use super::overhead;
use super::throughput::Throughput;
use crate::tables;

/// The columns, in order; all but the first are numbers.
const COLUMNS: [&str; 9] = ["scheme", "reply", "p95", "cycle", "CPU", "copied", "prot", "swap", "flt"];

/// The tables, with a heading and an explanation.
pub(super) fn text(document: &Document, coloured: bool) -> String {
    let heading = format!("{}\ndata: {}; {}", document.machine.line(), document.file, limits(document));
    let mut text = tables::fold(&heading) + &conclusion::doubt(document);
    for rows in document.results.chunk_by(|a, b| a.at() == b.at()) {
        block(&mut text, rows, document, coloured);
    }
    control(&mut text, document);
    in_flight(&mut text, &document.throughput);
    difference(&mut text, document);
    text.push_str(&tables::fold(EXPLANATION));
    if document.baselines.iter().any(|row| row.direction != EMPTY) {
        text.push_str(&tables::fold(BASELINES));
    }
    text + &conclusion::text(document)
}

/// The conclusion alone.
pub(super) fn screen(document: &Document, _: bool) -> String {
    conclusion::screen(document, &limits(document))
}

/// Round trips without data, and the limits that they cannot beat.
fn control(text: &mut String, document: &Document) {
    let empty: Vec<_> = document.baselines.iter().filter(|row| row.direction == EMPTY).collect();
    let limits = &document.limits;
    if limits.futex_hand_over_us.is_none() {
        return;
    }
    let _ = writeln!(text, "\nround trips without data, 64 bytes each way");
    let mut table = tables::new(["", "us", "(p5-p95)"], 1..3);
    for row in &empty {
        let server = if row.name() == "genie" { format!(", {}", row.server) } else { String::new() };
        let name = format!("  {}{server}", row.name());
        table.add_row([name, short(row.latency_us.median), spread(row.latency_us)]);
    }
    let limit = |name: &str, time: f64| [format!("  limit: {name}"), short(time), String::new()];
    if let Some(time) = limits.ping_pong_us {
        table.add_row(limit("a cache line there and back", time));
    }
    if let Some(time) = limits.futex_hand_over_us {
        table.add_row(limit("a word by futex there and back", time));
    }
    text.push_str(&tables::text(&table));
}

/// Throughput with several requests in flight.
fn in_flight(text: &mut String, rows: &[Throughput]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\none way, with requests in flight");
    let mut table =
        tables::new(["", "server", "length", "in flight", "recycling", "buffers", "MB/s", "a ms"], 1..8);
    for row in rows {
        table.add_row([
            format!("  {}", row.by),
            row.server.to_owned(),
            length::format(row.length),
            row.outstanding.to_string(),
            row.recycling.to_owned(),
            row.buffers.to_string(),
            format!("{:.0}", row.mb_s),
            format!("{:.0}", row.mb_s * 1e3 / row.length as f64),
        ]);
    }
    text.push_str(&tables::text(&table));
}

/// The cost of having the server in another process.
fn difference(text: &mut String, document: &Document) {
    if document.overhead.is_empty() {
        return;
    }
    text.push_str(&tables::fold(
        "\na server in a process of its own takes so much longer to reply (median and range):",
    ));
    for line in overhead::lines(&document.overhead) {
        let _ = writeln!(text, "{line}");
    }
}

const EXPLANATION: &str = "
* the fastest cycle among schemes of strong integrity: copy, emulated copy, move, emulated move.
Times are in microseconds. reply: from request to reply, the median; p95: at most this in 95 of 100 cases; cycle: \
    with what the client does to its buffer, faults and fresh mappings included; CPU: the client's time in a cycle.
submit: the client goes on while the server reads, so what it outputs is protected; otherwise it waits, and nothing \
    has to be. here: a server in the client's process.
copied: how much of the data; prot, swap: granules write-protected, swapped; flt: write faults in a cycle. Every \
    byte was verified.
";

const BASELINES: &str = "-: the same data to and from a process on another CPU by other means, verified alike. The \
    limit is shared-memory, which is used in place. Those named -polled spin, as genie does here, the others sleep, \
    as genie-blocking does.
";

fn limits(document: &Document) -> String {
    let limits = &document.limits;
    let near = match (limits.pingpong_ns, limits.placement) {
        (Some(time), Some(placement)) => format!("CPUs {placement} ({time} ns there and back)"),
        _ => "one CPU".to_owned(),
    };
    let dropped = match limits.batches_dropped {
        0 => String::new(),
        1 => ", one batch dropped because the CPUs were placed otherwise".to_owned(),
        count => format!(", {count} batches dropped because the CPUs were placed otherwise"),
    };
    let Limits { empty_request_us, argument_us, .. } = limits;
    format!(
        "{near}{dropped}; an empty request takes {empty_request_us} us, and one with 64 bytes of argument {argument_us} us"
    )
}

fn block(text: &mut String, rows: &[Row], document: &Document, coloured: bool) {
    let Some(first) = rows.first() else { return };
    let memcpy = document.limits.memcpy_us.get(&first.length).copied().unwrap_or_default();
    let heading = format!(
        "{} {}, touched by {} (memcpy of as much: {} us)",
        length::format(first.length),
        first.direction,
        match first.touch {
            "none" => "nobody",
            "both" => "client and server",
            "full" => "client and server, every byte",
            one => one,
        },
        short(memcpy),
    );
    text.push('\n');
    text.push_str(&tables::fold(&heading));
    let best = fastest(rows);
    let beside = document.baselines.iter().filter(|row| row.at() == first.at());
    let table = tables::text(&table(rows, best, beside));
    for (index, line) in table.lines().enumerate() {
        // The first line is the header.
        if coloured && index > 0 && best == Some(index - 1) {
            let _ = writeln!(text, "{}", line.bold());
        } else {
            let _ = writeln!(text, "{line}");
        }
    }
    notes(text, rows);
}

/// Why copying happened or wiring did not, below the table: each reason with its schemes.
fn notes(text: &mut String, rows: &[Row]) {
    let mut notes: Vec<(Reason, Vec<String>)> = Vec::new();
    for row in rows {
        let Some(reason) = row.receipt.as_ref().and_then(|receipt| receipt.reason) else { continue };
        match notes.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, schemes)) => schemes.push(row.label()),
            None => notes.push((reason, vec![row.label()])),
        }
    }
    for (reason, schemes) in notes {
        text.push_str(&tables::fold(&format!("  {}: {reason}", schemes.join("; "))));
    }
}

/// The row of a strong scheme with the shortest cycle.
fn fastest(rows: &[Row]) -> Option<usize> {
    let strong = rows.iter().enumerate().filter(|(_, row)| row.strong);
    strong.min_by(|(_, a), (_, b)| a.cycle_us.median.total_cmp(&b.cycle_us.median)).map(|(index, _)| index)
}

fn table<'d>(rows: &[Row], best: Option<usize>, baselines: impl Iterator<Item = &'d Row>) -> Table {
    let several = rows.iter().any(|row| row.server != rows[0].server);
    let mut table = tables::new(COLUMNS, 1..COLUMNS.len());
    // One blank between columns leaves room for the longest baseline's name.
    for column in table.column_iter_mut() {
        column.set_padding((1, 0));
    }
    for (index, row) in rows.iter().enumerate() {
        let mark = if best == Some(index) { "* " } else { "  " };
        let server = if several && row.server == Place::InProcess.name() { ", here" } else { "" };
        table.add_row(cells(format!("{mark}{}{server}{}", row.label(), wrong(row)), row));
    }
    for row in baselines {
        table.add_row(cells(format!("- {}{}", row.name(), wrong(row)), row));
    }
    table
}

fn cells(name: String, row: &Row) -> Vec<String> {
    let times = [
        name,
        short(row.latency_us.median),
        short(row.latency_us.p95),
        short(row.cycle_us.median),
        short(row.cpu_us),
    ];
    let done = row.receipt.iter().flat_map(|receipt| {
        let granules = [receipt.protected, receipt.swapped].map(|count| count.to_string());
        [share(receipt.copied, row.length)].into_iter().chain(granules).chain([receipt.faults.to_string()])
    });
    times.into_iter().chain(done).collect()
}

/// How much of the data was copied.
fn share(copied: usize, len: usize) -> String {
    match 100.0 * copied as f64 / len.max(1) as f64 {
        percent if copied > 0 && percent < 1.0 => "<1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

pub(super) fn spread(spread: Spread) -> String {
    format!("({}-{})", short(spread.p5), short(spread.p95))
}

/// What is said of a row whose bytes were wrong.
fn wrong(row: &Row) -> &'static str {
    if row.wrong.is_some() { " WRONG" } else { "" }
}

/// Microseconds, to about three digits.
pub(super) fn short(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}
