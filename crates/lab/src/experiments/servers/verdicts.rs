//! What the measurements say about the claims of `servers`.

use super::super::reading::{Reading, judged, per_cent, untested};
use super::{DECLARATION, LONGEST, Overhead, PLACES, series, shortest};
use crate::amounts::significant;
use crate::findings::Finding;
use crate::length;

/// An overhead is control, not data, if what it gains from the shortest to the longest data is no more than this share of
/// the time that these take in process.
const OF_DATA: f64 = 0.1;
/// Emulated copy and emulated share are alike up to that factor (in the paper: 1.07 and 1.04).
const ALIKE: f64 = 1.1;

/// One for each claim, in their order.
pub(super) fn all(reading: &Reading<'_>, overheads: &[Overhead]) -> Vec<Finding> {
    let longest = reading.lengths([series("copy", PLACES[0].1).as_str()]).last().copied();
    let judgements = longest.and_then(|longest| {
        Some(vec![
            overhead_constant(overheads)?,
            user_level_beats_copy(reading),
            emulated_alike(reading, longest)?,
            scales_with_cpu(overheads)?,
        ])
    });
    judgements.unwrap_or_else(|| {
        DECLARATION.claims.iter().map(|claim| untested(claim.id, "not all servers were measured")).collect()
    })
}

fn overhead_constant(overheads: &[Overhead]) -> Option<Finding> {
    let gains: Option<Vec<_>> = overheads
        .iter()
        .map(|overhead| {
            let (first, last) = (overhead.points.first()?, overhead.points.last()?);
            Some((overhead.scheme, first, last, (last.2 - first.2) / last.1))
        })
        .collect();
    let gains = gains.filter(|gains| !gains.is_empty())?;
    let each = gains.iter().map(|(scheme, first, last, gain)| {
        format!(
            "{scheme} {} µs at {} and {} µs at {}, a gain of {} of the time in process",
            significant(first.2),
            length::format(first.0 as usize),
            significant(last.2),
            length::format(last.0 as usize),
            per_cent(*gain)
        )
    });
    let found = format!("Overheads: {}.", each.collect::<Vec<_>>().join("; "));
    Some(judged("overhead-constant", gains.iter().all(|gain| gain.3.abs() <= OF_DATA), found))
}

fn user_level_beats_copy(reading: &Reading<'_>) -> Finding {
    let claim = "user-level-beats-copy";
    let copied = reading.medians(&series("copy", PLACES[0].1));
    let emulated = series("emulated copy", PLACES[1].1);
    let pairs: Vec<_> =
        copied.into_iter().filter_map(|(x, us)| Some((x, us, reading.at(&emulated, x)?))).collect();
    let Some((longest, copy, user)) = pairs.last().copied() else {
        return untested(claim, "copy in process and emulated copy at user level were not both measured");
    };
    let loses = pairs.iter().rposition(|(_, copy, user)| user >= copy);
    let from = pairs.get(loses.map_or(0, |index| index + 1)).map(|(x, ..)| *x);
    let found = match from {
        Some(from) => format!(
            "From {} on emulated copy through user-level servers takes less time than copy in process: {} against {} µs at \
             {}.",
            length::format(from as usize),
            significant(user),
            significant(copy),
            length::format(longest as usize)
        ),
        None => format!(
            "At {} emulated copy through user-level servers takes {} µs, copy in process {} µs.",
            length::format(longest as usize),
            significant(user),
            significant(copy)
        ),
    };
    judged(claim, from.is_some(), found)
}

fn emulated_alike(reading: &Reading<'_>, longest: u64) -> Option<Finding> {
    let factor = |place: &str| {
        let [copy, share] =
            ["emulated copy", "emulated share"].map(|one| reading.at(&series(one, place), longest));
        Some(copy? / share?)
    };
    let [here, there] = PLACES.map(|(_, place)| factor(place));
    let (here, there) = (here?, there?);
    let found = format!(
        "At {} emulated copy takes {} times as long as emulated share in process, and {} times in processes of their own.",
        length::format(longest.min(LONGEST) as usize),
        significant(here),
        significant(there)
    );
    Some(judged("emulated-alike", here.max(there) <= ALIKE, found))
}

fn scales_with_cpu(overheads: &[Overhead]) -> Option<Finding> {
    let (x, us) = shortest(overheads, "emulated copy")?;
    let found = format!(
        "One run is of one processor. Its overhead is {} µs for {} by emulated copy; run `genie lab run servers` on others, and \
         compare the runs.",
        significant(us),
        length::format(x as usize)
    );
    Some(untested("overhead-scales-with-cpu", found))
}
