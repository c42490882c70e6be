//! What follows from a comparison: emulated copy beside copy, a Unix socket and shared memory in one table, and in sentences
//! what it gains over copy, and where it loses.

use genie::Scheme;
use genie_lab::length;

use super::document::{Document, OfCopy, Row};
use super::table::short;
use crate::tables;

/// Ratios of times that are this close to 1 say that two means take about as long.
const ABOUT: f64 = 0.1;
/// The other means that the table shows: the usual one, and the limit.
const SHOWN: [&str; 2] = ["unix-stream", "shared-memory-polled"];

/// Means that promise nothing to either side.
const IN_PLACE: [&str; 2] = ["shared-memory", "shared-memory-polled"];

/// The conclusion with the least that must be known of how it was found: one screen.
pub(super) fn screen(document: &Document, conditions: &str) -> String {
    let heading = format!(
        "{}; {conditions}. The server is another process; both sides touch every byte, and every byte was verified. `genie \
         compare --all` prints all schemes and means.",
        document.machine.name()
    );
    tables::fold(&heading) + &text(document)
}

/// The conclusion; empty where emulated copy was not measured.
pub(super) fn text(document: &Document) -> String {
    let directions = ["out", "in"].map(|direction| of(document, direction));
    directions.into_iter().flatten().collect()
}

/// The conclusion for one direction.
fn of(document: &Document, direction: &str) -> Option<String> {
    let rows: Vec<_> = document.results.iter().chain(&document.baselines).collect();
    let there = rows.iter().copied().filter(|row| row.direction == direction);
    // Where servers of both kinds were measured, the baselines compare with the one in another process.
    let last = there.clone().rfind(|row| row.receipt.is_some())?.server;
    let there: Vec<_> = there.filter(|row| row.server == last).collect();
    let copy = named(&there, Scheme::Copy.name());
    let labels = [Scheme::EmulatedCopy.name().to_owned(), format!("{}, submit", Scheme::EmulatedCopy)];
    let emulated = labels.map(|label| named(&there, &label));
    if emulated.iter().all(Vec::is_empty) {
        return None;
    }
    let others = SHOWN.map(|name| named(&there, name));
    let shown: Vec<_> = [&others[0], &copy, &emulated[0], &emulated[1], &others[1]]
        .into_iter()
        .filter(|rows| !rows.is_empty())
        .collect();
    let way = if direction == "out" { "output" } else { "input" };
    let mut text = format!("\nconclusion, {way}: microseconds from request to reply\n{}", table(&shown));
    for emulated in emulated.iter().filter(|rows| rows.iter().any(|row| row.of_copy.is_some())) {
        let label = emulated[0].label();
        let latency = sentence(emulated, |of_copy| of_copy.latency);
        let cycle = sentence(emulated, |of_copy| of_copy.cycle);
        text += &tables::fold(&format!(
            "{label} takes {latency}; with what the client does to its buffer {cycle}."
        ));
    }
    if let Some(faster) = faster(&there, emulated.iter().find(|rows| !rows.is_empty())?) {
        text += &tables::fold(&format!(
            "Of the means that copy, these were faster than {}: {faster}.",
            Scheme::EmulatedCopy
        ));
    }
    Some(text)
}

/// The rows of one means, which has one for each length.
fn named<'d>(rows: &[&'d Row], label: &str) -> Vec<&'d Row> {
    rows.iter().copied().filter(|row| row.label() == label).collect()
}

fn table(shown: &[&Vec<&Row>]) -> String {
    let lengths = shown[0].iter().map(|row| length::format(row.length));
    let headings: Vec<_> = std::iter::once(String::new()).chain(lengths).collect();
    let mut table = tables::new(&headings, 1..headings.len());
    for rows in shown {
        let name = format!("  {}", rows[0].label());
        table.add_row(std::iter::once(name).chain(rows.iter().map(|row| short(row.latency_us.median))));
    }
    tables::text(&table)
}

/// "36 % of copy's time at 64 KiB, 18 % at 2 MiB; about as long as copy at 4 KiB; 115 % of copy's time at 64 B"
fn sentence(rows: &[&Row], time: fn(OfCopy) -> f64) -> String {
    let (mut less, mut alike, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for (row, of_copy) in rows.iter().filter_map(|row| Some((row, row.of_copy?))) {
        let (length, ratio) = (length::format(row.length), time(of_copy));
        let list = match ratio {
            ratio if ratio < 1.0 - ABOUT => &mut less,
            ratio if ratio > 1.0 + ABOUT => &mut more,
            _ => {
                alike.push(length);
                continue;
            }
        };
        let of = if list.is_empty() { " of copy's time" } else { "" };
        list.push(format!("{:.0} %{of} at {length}", ratio * 100.0));
    }
    let part =
        |words: &str, list: Vec<String>| (!list.is_empty()).then(|| format!("{words}{}", list.join(", ")));
    if alike.len() == rows.len() {
        return "about as long as copy".to_owned();
    }
    let parts = [part("", less), part("about as long as copy at ", alike), part("", more)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// At which lengths a means that copies was faster than emulated copy, and the fastest there. Shared memory used in place is no such
/// means.
fn faster(rows: &[&Row], emulated: &[&Row]) -> Option<String> {
    let copies = |row: &&&Row| row.receipt.is_none() && !IN_PLACE.contains(&row.name());
    let losses = emulated.iter().filter_map(|ours| {
        let others = rows.iter().filter(copies).filter(|row| row.length == ours.length);
        let best = others.min_by(|a, b| a.latency_us.median.total_cmp(&b.latency_us.median))?;
        let ratio = best.latency_us.median / ours.latency_us.median;
        let (length, percent) = (length::format(ours.length), ratio * 100.0);
        (ratio < 1.0 - ABOUT).then(|| format!("{} at {length} ({percent:.0} % of its time)", best.name()))
    });
    let losses = losses.collect::<Vec<_>>().join(", ");
    (!losses.is_empty()).then_some(losses)
}
