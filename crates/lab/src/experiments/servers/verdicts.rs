//! Verdicts on the claims of `servers`.

use super::super::reading::{Reading, bytes, ends, findings, per_cent};
use super::{DECLARATION, Overhead, PLACES, series, shortest};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};

/// An overhead is control, not data, if its line gains no more, from no data to the longest, than this share of the time that the
/// longest data takes in process. One that falls with the length is none of data.
const OF_DATA: f64 = 0.1;
/// Emulated copy and emulated share are alike up to this factor (in the paper: 1.07 and 1.04).
const ALIKE: f64 = 1.1;

/// A finding for each claim, in the order of the claims. The reading is of the papers' setting.
pub(super) fn all(reading: &Reading<'_>, overheads: &[Overhead]) -> Vec<Finding> {
    let longest = reading.lengths([series("copy", PLACES[0].1)]).last().copied();
    let judgements = longest.and_then(|longest| {
        Some(vec![
            Ok(overhead_constant(overheads)?),
            user_level_beats_copy(reading),
            Ok(emulated_alike(reading, longest)?),
            Err(of_one_processor(overheads)?),
        ])
    });
    findings(&DECLARATION, judgements.ok_or("not all servers were measured"))
}

fn overhead_constant(overheads: &[Overhead]) -> Option<(bool, String)> {
    let gain = |overhead: &Overhead| {
        let ((longest, us, _), line) = (*overhead.points.last()?, overhead.line()?);
        Some((line.factor * longest as f64 / us, longest, line.fixed, overhead.name()))
    };
    let gains = overheads.iter().map(gain).collect::<Option<Vec<_>>>()?;
    let (least, most) = ends(gains.iter().map(|(_, _, fixed, _)| *fixed))?;
    let (worst, longest, _, name) = gains.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    let found = format!(
        "The fixed terms are {} to {} µs. What grows with the data is at most {} of the time in process at {} ({name}).",
        significant(least),
        significant(most),
        per_cent(worst),
        bytes(longest),
    );
    Some((worst <= OF_DATA, found))
}

fn user_level_beats_copy(reading: &Reading<'_>) -> Judgement {
    let copied = reading.medians(&series("copy", PLACES[0].1));
    let emulated = series("emulated copy", PLACES[1].1);
    let pairs: Vec<_> =
        copied.into_iter().filter_map(|(x, us)| Some((x, us, reading.at(&emulated, x)?))).collect();
    let (longest, copy, user) = pairs
        .last()
        .copied()
        .ok_or("copy in process and emulated copy at user level were not both measured")?;
    let loses = pairs.iter().rposition(|(_, copy, user)| user >= copy);
    let from = pairs.get(loses.map_or(0, |index| index + 1)).map(|(x, ..)| *x);
    let (copy, user, longest) = (significant(copy), significant(user), bytes(longest));
    let found = match from {
        Some(from) => format!(
            "From {} on emulated copy through user-level servers takes less time than copy in process: {user} against \
             {copy} µs at {longest}.",
            bytes(from)
        ),
        None => format!(
            "At {longest} emulated copy through user-level servers takes {user} µs, copy in process {copy} µs."
        ),
    };
    Ok((from.is_some(), found))
}

fn emulated_alike(reading: &Reading<'_>, longest: u64) -> Option<(bool, String)> {
    let factor = |place: &str| {
        let [copy, share] =
            ["emulated copy", "emulated share"].map(|one| reading.at(&series(one, place), longest));
        Some(copy? / share?)
    };
    let [here, there] = PLACES.map(|(_, place)| factor(place));
    let (here, there) = (here?, there?);
    let found = format!(
        "At {} emulated copy takes {} times as long as emulated share in process, and {} times in processes of their own.",
        bytes(longest),
        significant(here),
        significant(there)
    );
    Some((here.max(there) <= ALIKE, found))
}

/// Why one run does not show how the overhead scales with the processor.
fn of_one_processor(overheads: &[Overhead]) -> Option<String> {
    let (x, us) = shortest(overheads, "emulated copy")?;
    Some(format!(
        "One run is of one processor. Its overhead is {} µs for {} by emulated copy; run `genie lab run servers` on others, and \
         compare the runs.",
        significant(us),
        bytes(x)
    ))
}
