//! The result as tables for people: one for each length and direction.

use std::fmt::Write;

use comfy_table::Table;
use genie_lab::length;
use genie_lab::samples::Spread;
use owo_colors::OwoColorize;

use super::document::{Document, EMPTY, Row};
use super::overhead;
use super::throughput::Throughput;
use crate::tables;

/// The columns, in order; all but the first and the last are numbers.
const COLUMNS: [&str; 11] = [
    "scheme",
    "latency us",
    "(p5-p95)",
    "cycle us",
    "(p5-p95)",
    "MB/s",
    "CPU us",
    "copied",
    "prot",
    "swap",
    "flt",
];
const NOTE: &str = "note";

/// The tables, with a heading and an explanation.
pub(super) fn text(document: &Document, coloured: bool) -> String {
    let mut text = format!("{}\n", document.machine.line());
    let _ = writeln!(text, "data: {}; {}", document.file, limits(document));
    for rows in document.results.chunk_by(|a, b| a.at() == b.at()) {
        block(&mut text, rows, document, coloured);
    }
    control(&mut text, document);
    in_flight(&mut text, &document.throughput);
    difference(&mut text, document);
    text.push_str(EXPLANATION);
    if !document.baselines.is_empty() {
        text.push_str(BASELINES);
    }
    text
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
    let mut table = tables::new(["", "server", "length", "in flight", "recycling", "buffers", "MB/s"], 1..7);
    for row in rows {
        table.add_row([
            format!("  {}", row.by),
            row.server.to_owned(),
            length::format(row.length),
            row.outstanding.to_string(),
            row.recycling.to_owned(),
            row.buffers.to_string(),
            format!("{:.0}", row.mb_s),
        ]);
    }
    text.push_str(&tables::text(&table));
}

/// The cost of having the server in another process.
fn difference(text: &mut String, document: &Document) {
    if document.overhead.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\na server in a process of its own takes so much longer to reply (the middle, and the range, of all schemes):"
    );
    for line in overhead::lines(&document.overhead) {
        let _ = writeln!(text, "{line}");
    }
}

const EXPLANATION: &str = "
* the fastest cycle among the schemes of strong integrity (copy, emulated copy, move, emulated move).
latency: from request to reply; cycle: with what the client does to its buffer, faults and fresh mappings included.
submit: the client goes on while the server reads, so what it outputs is protected; otherwise it waits, and nothing has to be.
copied: bytes; prot, swap: granules write-protected, swapped; flt: write faults in a cycle. Every byte was verified.
";

const BASELINES: &str = "baselines: the same data to and from a process on another CPU by other means, verified alike. shared-memory is used in place: the
limit. Those named -polled spin, as genie does here, the others sleep, as genie-blocking does.
";

fn limits(document: &Document) -> String {
    let limits = &document.limits;
    let near = match (limits.pingpong_ns, limits.placement) {
        (Some(time), Some(placement)) => format!("CPUs {placement} ({time} ns there and back)"),
        _ => "one CPU".to_owned(),
    };
    let dropped = match limits.batches_dropped {
        0 => String::new(),
        count => format!(", {count} batches dropped because the CPUs were placed otherwise"),
    };
    format!("{near}{dropped}; an empty request takes {} us", limits.empty_request_us)
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
    let _ = writeln!(text, "\n{heading}");
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
}

/// The row of a strong scheme with the shortest cycle.
fn fastest(rows: &[Row]) -> Option<usize> {
    let strong = rows.iter().enumerate().filter(|(_, row)| row.strong);
    strong.min_by(|(_, a), (_, b)| a.cycle_us.median.total_cmp(&b.cycle_us.median)).map(|(index, _)| index)
}

fn table<'d>(rows: &[Row], best: Option<usize>, baselines: impl Iterator<Item = &'d Row>) -> Table {
    let several = rows.iter().any(|row| row.server != rows[0].server);
    let noted = rows.iter().any(|row| !note(row).is_empty());
    let mut table = tables::new(COLUMNS.into_iter().chain(noted.then_some(NOTE)), 1..COLUMNS.len());
    for (index, row) in rows.iter().enumerate() {
        let mark = if best == Some(index) { "* " } else { "  " };
        let server = if several { format!(", {}", row.server) } else { String::new() };
        let mut cells = cells(format!("{mark}{}{server}", row.label()), row);
        cells.extend(noted.then(|| note(row)));
        table.add_row(cells);
    }
    for row in baselines {
        let wrong = if row.wrong.is_some() { " WRONG BYTES" } else { "" };
        table.add_row(cells(format!("  - {}{wrong}", row.name()), row));
    }
    table
}

fn cells(name: String, row: &Row) -> Vec<String> {
    let times = [
        name,
        short(row.latency_us.median),
        spread(row.latency_us),
        short(row.cycle_us.median),
        spread(row.cycle_us),
        format!("{:.0}", row.throughput_mb_s),
        short(row.cpu_us),
    ];
    let done = row.receipt.iter().flat_map(|receipt| {
        let granules = [receipt.protected, receipt.swapped].map(|count| count.to_string());
        [receipt.copied.to_string()].into_iter().chain(granules).chain([receipt.faults.to_string()])
    });
    times.into_iter().chain(done).collect()
}

fn spread(spread: Spread) -> String {
    format!("({}-{})", short(spread.p5), short(spread.p95))
}

/// Why copying happened or wiring did not, or that bytes were wrong.
fn note(row: &Row) -> String {
    match (&row.wrong, row.receipt.as_ref().and_then(|receipt| receipt.reason)) {
        (Some(_), _) => "WRONG BYTES".to_owned(),
        (None, reason) => reason.map(|reason| reason.to_string()).unwrap_or_default(),
    }
}

/// Microseconds, to about three digits.
fn short(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}
