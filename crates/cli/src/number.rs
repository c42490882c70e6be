//! Numbers on the command line, whose refusal names the range that is accepted.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// A parser of numbers in this range.
pub(crate) fn within<T: FromStr>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let is_accepted = text.parse().is_ok_and(|number| range.contains(&number));
        let number = text.parse().ok().filter(|_| is_accepted);
        number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
    }
}
