//! Verdicts on the claims of `latency-short`.
//!
//! How: each claim is judged with 4 KiB granules, which the papers had, and with the granules of the run, if those are
//! different. A claim holds if it holds with all granules.

use statrs::statistics::Statistics;

use super::super::latency::schemes;
use super::super::reading::{Reading, bytes, ends, findings};
use super::{DECLARATION, Granules};
use crate::amounts::significant;
use crate::findings::{Finding, Judgement};

/// The factor below which a difference does not count.
const TOLERANCE: f64 = 1.05;
/// Move is apart if it takes at least this many times as long as the slowest other scheme.
const APART: f64 = 1.25;

/// Whether a claim holds with some granules, and what was found; none where not everything that it compares was measured.
type Judged = Option<(bool, String)>;
type Judge<'m> = fn(&With<'m>) -> Judged;

/// A finding for each claim, in the order of the claims.
pub(super) fn all<'m>(readings: &'m [Reading<'m>; 2]) -> Vec<Finding> {
    let judges: [Judge<'m>; 6] = [
        With::copies_below_half,
        With::is_never_worse,
        With::is_better_above_half,
        With::share_is_lowest,
        With::move_is_highest,
        With::wiring_costs,
    ];
    let granules: Vec<_> =
        Granules::ALL.into_iter().zip(readings).map(|(of, reading)| With { of, reading }).collect();
    let judgement = |judge: Judge<'m>| -> Judgement {
        let found = granules.iter().filter_map(|one| Some((one.of.name(), judge(one)?)));
        let found = found.map(|(name, (holds, found))| (holds, format!("With {name}: {found}.")));
        let all = found.reduce(|one, other| (one.0 && other.0, format!("{} {}", one.1, other.1)));
        all.ok_or_else(|| "the schemes that it compares were not all measured".to_owned())
    };
    findings(&DECLARATION, Ok(judges.map(judgement).to_vec()))
}

/// The measurements with some granules.
struct With<'m> {
    of: Granules,
    reading: &'m Reading<'m>,
}

impl With<'_> {
    /// For each length that is `wanted`: the length, and how many times as long `one` takes as `other`.
    fn factors(&self, one: &str, other: &str, wanted: impl Fn(u64) -> bool) -> Vec<(u64, f64)> {
        let factor = |(x, us): (u64, f64)| Some((x, us / self.reading.at(other, x)?));
        self.reading.medians(one).into_iter().filter(|(x, _)| wanted(*x)).filter_map(factor).collect()
    }

    fn half(&self) -> u64 {
        self.of.granule() as u64 / 2
    }

    fn copies_below_half(&self) -> Judged {
        let factors = self.factors("emulated copy", "copy", |x| x <= self.half());
        let (least, most) = ends(factors.into_iter().map(|(_, factor)| factor))?;
        let holds = least >= 1.0 / TOLERANCE && most <= TOLERANCE;
        let (half, [least, most]) = (bytes(self.half()), [least, most].map(significant));
        Some((holds, format!("up to {half} emulated copy takes {least} to {most} times as long as copy")))
    }

    fn is_never_worse(&self) -> Judged {
        let (len, factor) = highest(&self.factors("emulated copy", "copy", |_| true))?;
        let (worst, times) = (bytes(len), significant(factor));
        let found = format!("at worst ({worst}) emulated copy takes {times} times as long as copy");
        Some((factor <= TOLERANCE, found))
    }

    fn is_better_above_half(&self) -> Judged {
        let above = self.factors("emulated copy", "copy", |x| x > self.half() && x <= 2 * self.half());
        let (least, most) = ends(above.into_iter().map(|(_, factor)| factor))?;
        let found = format!(
            "from half a granule to a whole one emulated copy takes {} to {} times as long as copy",
            significant(least),
            significant(most)
        );
        Some((most < 1.0, found))
    }

    fn share_is_lowest(&self) -> Judged {
        let others = schemes().filter(|one| *one != "emulated share");
        let all: Vec<_> = others.flat_map(|one| self.factors("emulated share", one, |_| true)).collect();
        let worst = highest(&all)?;
        let lags = self.factors("emulated copy", "emulated share", |_| true);
        let lag = highest(&lags)?;
        let found = format!(
            "emulated share takes {} times as long as the quickest other one at worst ({}); emulated copy lags behind it \
             most at {}, by a factor of {}",
            significant(worst.1),
            bytes(worst.0),
            bytes(lag.0),
            significant(lag.1)
        );
        Some((worst.1 <= TOLERANCE, found))
    }

    fn move_is_highest(&self) -> Judged {
        let short = |x| x <= self.half();
        let others = schemes().filter(|one| *one != "move");
        let all: Vec<_> = others.flat_map(|one| self.factors("move", one, short)).collect();
        let lowest = |all: Vec<(u64, f64)>| ends(all.into_iter().map(|(_, factor)| factor));
        let ((least, _), (hidden, _)) = (lowest(all)?, lowest(self.factors("move", "emulated move", short))?);
        let found = format!(
            "up to half a granule move takes at least {} times as long as every other scheme, and at least {} times as \
             long as emulated move",
            significant(least),
            significant(hidden)
        );
        Some((least >= APART && hidden >= APART, found))
    }

    fn wiring_costs(&self) -> Judged {
        let pairs = [("share", "emulated share"), ("weak move", "emulated weak move")];
        let means = pairs.map(|(wired, emulated)| mean(&self.factors(wired, emulated, |_| true)));
        let (share, weak_move) = (means[0]?, means[1]?);
        let found = format!(
            "share takes {} times as long as emulated share, weak move {} times as long as emulated weak move, on average",
            significant(share),
            significant(weak_move)
        );
        Some((share > TOLERANCE && weak_move > TOLERANCE, found))
    }
}

fn highest(factors: &[(u64, f64)]) -> Option<(u64, f64)> {
    factors.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))
}

/// The geometric mean, which is the right mean of factors.
fn mean(factors: &[(u64, f64)]) -> Option<f64> {
    (!factors.is_empty()).then(|| factors.iter().map(|(_, factor)| factor).geometric_mean())
}
