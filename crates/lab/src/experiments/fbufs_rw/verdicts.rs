//! Verdicts on the claims of `fbufs-rw`.

use super::super::partners::PLACES;
use super::super::reading::{Reading, bytes, ends, findings, per_cent};
use super::{
    DECLARATION, DISCARD, HALVED, LENGTHS, LOOPBACK, MEANS, PAPER_LEN, ROUND_TRIP, STREAM, beside, between,
    pair,
};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};
use crate::papers::thadani;
use crate::runner::noise::TOLERATED;

/// The clock's resolution, in µs.
const RESOLUTION: f64 = 0.03;

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

/// Holds where no length takes longer than the shortest one, which is measured beside each.
fn constant(readings: &[Reading<'_>], settings: &[String]) -> Judgement {
    let mut holds = true;
    let each = settings.iter().map(|setting| {
        let reading = of(readings, setting)?;
        let beside = |(len, us)| Some((us, reading.at(&beside(), len)?));
        let pairs: Vec<_> = reading.medians(&MEANS[0].name()).into_iter().filter_map(beside).collect();
        holds &= pairs.iter().all(|(us, beside)| *us <= (beside * TOLERATED).max(beside + RESOLUTION));
        let (least, greatest) = ends(pairs.iter().map(|(us, _)| *us)).ok_or("There are no times.")?;
        let (_, most) =
            ends(pairs.iter().map(|(us, beside)| us / beside - 1.0)).ok_or("There are no times.")?;
        let (least, greatest) = (significant(least), significant(greatest));
        Ok(format!("{setting} {least} to {greatest} µs, at most {:+.0} %", most * 100.0))
    });
    let each = each.collect::<Result<Vec<_>, String>>()?.join("; ");
    let shortest = bytes(LENGTHS[0] as u64);
    Ok((
        holds,
        format!("Times of fbufs at all lengths, and what they are beyond {shortest} beside them: {each}."),
    ))
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
