//! Verdicts on the claims of `fbufs-rw`.

use super::super::partners::PLACES;
use super::super::reading::{Reading, bytes, ends, findings, per_cent};
use super::{DECLARATION, DISCARD, HALVED, LOOPBACK, MEANS, PAPER_LEN, ROUND_TRIP, STREAM, between, pair};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};
use crate::papers::thadani;

/// Times are the same where the greatest is at most so many times the least, or so many µs more: what the machine's noise and the
/// clock's resolution explain.
const SAME: (f64, f64) = (1.25, 0.05);

/// A finding for each claim, in the order of the claims.
pub(super) fn all(readings: &[Reading<'_>]) -> Vec<Finding> {
    let processes = |place| [ROUND_TRIP, STREAM].map(|what| between(what, place));
    let both = PLACES.into_iter().flat_map(processes).collect::<Vec<_>>();
    let judgements = vec![
        constant(readings, &[DISCARD.to_owned(), LOOPBACK.to_owned()]),
        as_in_the_paper(readings, DISCARD),
        as_in_the_paper(readings, LOOPBACK),
        constant(readings, &both),
        halved(readings, &processes(PLACES[0])),
        halved(readings, &processes(PLACES[1])),
    ];
    findings(&DECLARATION, Ok(judgements))
}

fn of<'r, 'm>(readings: &'r [Reading<'m>], setting: &str) -> Result<&'r Reading<'m>, String> {
    let found = readings.iter().find(|reading| reading.setting == setting);
    let found = found.filter(|reading| !reading.medians(&MEANS[0].name()).is_empty());
    found.ok_or_else(|| format!("This was not measured: {setting}."))
}

fn constant(readings: &[Reading<'_>], settings: &[String]) -> Judgement {
    let mut holds = true;
    let each = settings.iter().map(|setting| {
        let times = of(readings, setting)?.medians(&MEANS[0].name()).into_iter().map(|(_, us)| us);
        let (least, greatest) = ends(times).ok_or("There are no times.")?;
        holds &= greatest <= (least * SAME.0).max(least + SAME.1);
        Ok(format!("{setting} {} to {} µs", significant(least), significant(greatest)))
    });
    let each = each.collect::<Result<Vec<_>, String>>()?.join("; ");
    Ok((holds, format!("With fbufs, from the shortest to the longest buffers: {each}.")))
}

fn as_in_the_paper(readings: &[Reading<'_>], setting: &str) -> Judgement {
    let (ours, theirs) = pair(of(readings, setting)?, PAPER_LEN).ok_or("8 KiB were not measured.")?;
    let share = ours / theirs;
    let found = format!(
        "{} µs with fbufs and {} µs with the fastest of the standard calls: {}.",
        significant(ours),
        significant(theirs),
        per_cent(share)
    );
    Ok(((share * 100.0).round() <= thadani::share(setting).value(), found))
}

fn halved(readings: &[Reading<'_>], settings: &[String]) -> Judgement {
    let mut holds = true;
    let mut each = Vec::new();
    for setting in settings {
        let reading = of(readings, setting)?;
        for len in HALVED {
            let (ours, theirs) =
                pair(reading, len).ok_or_else(|| format!("{} were not measured.", bytes(len)))?;
            holds &= ours <= theirs / 2.0;
            let [ours, theirs, share] = [significant(ours), significant(theirs), per_cent(ours / theirs)];
            each.push(format!("{setting}, {}: {ours} against {theirs} µs, {share}", bytes(len)));
        }
    }
    Ok((holds, format!("{}.", each.join("; "))))
}
