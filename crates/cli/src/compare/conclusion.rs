//! What follows from a comparison: emulated copy beside copy, a Unix socket and shared memory in one table, and in words
//! what it gains over copy, and where it loses.

use genie::{Reason, Scheme};
use genie_lab::length;

use super::document::{Document, OfCopy, Row};
use super::table::short;
use crate::{circumstances, tables};

/// Ratios of times that are this close to 1 say that two means take about as long.
const ABOUT: f64 = 0.1;
/// The other means that the table shows: the usual one, and the limit.
const SHOWN: [&str; 2] = ["unix-stream", "shared-memory-polled"];

/// How many lengths fit side by side.
const ABREAST: usize = 7;
/// Follows a figure of emulated copy that was done as copy.
const COPIED: char = 'c';

/// Means that promise nothing to either side.
const IN_PLACE: [&str; 2] = ["shared-memory", "shared-memory-polled"];

/// The conclusion with the least that must be known of how it was found: one screen.
pub(super) fn screen(document: &Document, conditions: &str) -> String {
    let heading = format!(
        "{}; {conditions}. The server is another process. Both sides touch every byte, and every byte was verified. `genie \
         compare --all` prints all schemes and means.",
        document.machine.name()
    );
    tables::fold(&heading) + &doubt(document) + &text(document)
}

/// What makes the costs doubtful that decide what is copied; empty where nothing does.
pub(super) fn doubt(document: &Document) -> String {
    let sentence = document.costs.and_then(circumstances::sentence);
    sentence.map(|sentence| tables::fold(&sentence)).unwrap_or_default()
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
    let mut text = format!("\nconclusion, {way}: median microseconds from request to reply\n");
    for from in (0..shown[0].len()).step_by(ABREAST) {
        text += &table(&shown, from);
    }
    text += &why_copied(&emulated);
    for emulated in emulated.iter().filter(|rows| rows.iter().any(|row| row.of_copy.is_some())) {
        let does = if direction == "out" { "storing the data" } else { "loading the data" };
        let latency = sentence(emulated, |of_copy| of_copy.latency);
        let cycle = sentence(emulated, |of_copy| of_copy.cycle);
        text += &tables::fold(&format!("{}, from request to reply: {latency}", emulated[0].label()));
        text += &tables::fold(&format!("  and with the client {does}: {cycle}"));
    }
    if let Some(faster) = faster(&there, emulated.iter().find(|rows| !rows.is_empty())?) {
        let apart = if others[1].is_empty() { "" } else { ", apart from shared memory used in place" };
        text += &tables::fold(&format!(
            "faster than {}, in % of its time{apart}: {faster}",
            Scheme::EmulatedCopy
        ));
    }
    Some(text)
}

/// The rows of one means, which has one for each length.
fn named<'d>(rows: &[&'d Row], label: &str) -> Vec<&'d Row> {
    rows.iter().copied().filter(|row| row.label() == label).collect()
}

/// The times of these means, from the length of this index on as many lengths as fit.
fn table(shown: &[&Vec<&Row>], from: usize) -> String {
    let lengths = shown[0].iter().map(|row| length::format(row.length));
    let headings: Vec<_> = std::iter::once(String::new()).chain(lengths.skip(from).take(ABREAST)).collect();
    let mut table = tables::new(&headings, 1..headings.len());
    for rows in shown {
        let name = format!("  {}", rows[0].label());
        let figures = rows.iter().skip(from).take(ABREAST).map(|row| figure(row));
        table.add_row(std::iter::once(name).chain(figures));
    }
    tables::text(&table)
}

fn figure(row: &Row) -> String {
    let mark = if is_copied(row) { COPIED } else { ' ' };
    format!("{}{mark}", short(row.latency_us.median))
}

/// Whether emulated copy was done as copy.
fn is_copied(row: &Row) -> bool {
    let done = row.receipt.as_ref().map(|receipt| receipt.effective);
    row.name() == Scheme::EmulatedCopy.name() && done == Some(Scheme::Copy.name())
}

/// What the mark behind figures means, if there is one.
fn why_copied(emulated: &[Vec<&Row>]) -> String {
    let copied = emulated.iter().flatten().filter(|row| is_copied(row));
    let mut reasons: Vec<_> = copied
        .filter_map(|row| match row.receipt.as_ref()?.reason? {
            Reason::Short => Some("copying is cheaper".to_owned()),
            other => Some(other.to_string()),
        })
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    if reasons.is_empty() {
        return String::new();
    }
    tables::fold(&format!("{COPIED}: done as copy ({})", reasons.join("; ")))
}

/// "36 % of copy's time at 64 KiB, 18 % at 2 MiB; 115 % of copy's time at 64 B; elsewhere about as long as copy"
fn sentence(rows: &[&Row], time: fn(OfCopy) -> f64) -> String {
    let (mut less, mut alike, mut more) = (Vec::new(), false, Vec::new());
    for (row, of_copy) in rows.iter().filter_map(|row| Some((row, row.of_copy?))) {
        let ratio = time(of_copy);
        let list = match ratio {
            ratio if ratio < 1.0 - ABOUT => &mut less,
            ratio if ratio > 1.0 + ABOUT => &mut more,
            _ => {
                alike = true;
                continue;
            }
        };
        let of = if list.is_empty() { " of copy's time" } else { "" };
        list.push(format!("{:.0} %{of} at {}", ratio * 100.0, length::format(row.length)));
    }
    let mut parts: Vec<_> =
        [less, more].iter().filter(|list| !list.is_empty()).map(|list| list.join(", ")).collect();
    if alike {
        let elsewhere = if parts.is_empty() { "" } else { "elsewhere " };
        parts.push(format!("{elsewhere}about as long as copy"));
    }
    parts.join("; ")
}

/// The fastest means that copies at each length, where it is faster than emulated copy, with its part of emulated copy's time:
/// "pipe-polled (72 % at 64 B, 80 % at 4 KiB)". Shared memory used in place is no such means.
fn faster(rows: &[&Row], emulated: &[&Row]) -> Option<String> {
    let copies = |row: &&&Row| row.receipt.is_none() && !IN_PLACE.contains(&row.name());
    let mut means: Vec<(&str, Vec<String>)> = Vec::new();
    for ours in emulated {
        let others = rows.iter().filter(copies).filter(|row| row.length == ours.length);
        let best = others.min_by(|a, b| a.latency_us.median.total_cmp(&b.latency_us.median))?;
        let ratio = best.latency_us.median / ours.latency_us.median;
        if ratio >= 1.0 - ABOUT {
            continue;
        }
        let said = format!("{:.0} % at {}", ratio * 100.0, length::format(ours.length));
        match means.iter_mut().find(|(name, _)| *name == best.name()) {
            Some((_, list)) => list.push(said),
            None => means.push((best.name(), vec![said])),
        }
    }
    let means: Vec<_> = means.iter().map(|(name, list)| format!("{name} ({})", list.join(", "))).collect();
    (!means.is_empty()).then(|| means.join(", "))
}
