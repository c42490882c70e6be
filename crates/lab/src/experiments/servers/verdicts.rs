//! Verdicts on the claims of `servers`.

use super::super::reading::{Reading, beside, bytes, findings};
use super::{DECLARATION, Overhead, PLACES, series, shortest};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};

/// The schemes of figure 9.2, which shows overheads by length.
const FIGURE_9_2: [&str; 2] = ["copy", "emulated copy"];
/// An overhead is control, not data, if its line gains no more, from the shortest data to the longest, than this share of its fixed term.
/// One that falls with the length is none of data.
const OF_DATA: f64 = 0.5;
/// Emulated copy and emulated share are alike up to this factor (in the paper: 1.07 and 1.04).
const ALIKE: f64 = 1.1;

/// What was measured over one medium: a reading with thresholds off, and all overheads.
type Measured<'m> = (&'m Reading<'m>, &'m [Overhead]);

/// A finding for each claim, in the order of the claims, over the wire, with that over AF_XDP beside it. The wire's reading is of the papers'
/// setting.
pub(super) fn all(wire: Measured<'_>, xdp: Measured<'_>) -> Vec<Finding> {
    let wire = judgements(wire).map(|wire| beside(wire, judgements(xdp).unwrap_or_default()));
    findings(&DECLARATION, wire.ok_or("not all servers were measured"))
}

fn judgements((reading, overheads): Measured<'_>) -> Option<Vec<Judgement>> {
    let longest = reading.lengths([series("copy", PLACES[0].1)]).last().copied()?;
    Some(vec![
        Ok(overhead_constant(overheads)?),
        user_level_beats_copy(reading),
        Ok(emulated_alike(reading, longest)?),
        Err(of_one_processor(overheads)?),
    ])
}

fn overhead_constant(overheads: &[Overhead]) -> Option<(bool, String)> {
    let gain = |overhead: &Overhead| {
        let ((shortest, ..), (longest, ..)) = (overhead.points.first()?, overhead.points.last()?);
        let line = overhead.line()?;
        Some((line.factor * (longest - shortest) as f64, line.fixed, *longest, overhead.name()))
    };
    let of_figure = overheads.iter().filter(|overhead| FIGURE_9_2.contains(&overhead.scheme));
    let gains = of_figure.map(gain).collect::<Option<Vec<_>>>()?;
    let share = |(gained, fixed, ..): &(f64, f64, u64, String)| gained / fixed.max(f64::MIN_POSITIVE);
    let worst = gains.into_iter().max_by(|one, other| share(one).total_cmp(&share(other)))?;
    let is_constant = share(&worst) <= OF_DATA;
    let (gained, fixed, longest, name) = worst;
    let found = format!(
        "The overhead that grows most up to {}, that of {name}, grows by {} µs, beside a fixed term of {} µs.",
        bytes(longest),
        significant(gained),
        significant(fixed),
    );
    Some((is_constant, found))
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
