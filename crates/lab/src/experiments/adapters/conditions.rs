//! The conditions of table 6.1, and which of them hold in a trial.

use genie_net::adapter::Support;

/// The numbers of the conditions.
pub(super) const ALL: [u8; 7] = [1, 2, 3, 4, 5, 6, 7];

/// The conditions, in the thesis's order.
pub(super) const TEXTS: [&str; 7] = [
    "input is requested before it comes",
    "client buffers have the preferred alignment and length",
    "headers have a fixed length",
    "all packets but the last have data of length L",
    "client buffers and transfers are multiples of L",
    "the lengths of transfers are known",
    "lengths of headers, data and trailers follow from the transfer's",
];

/// With early demultiplexing, transfers and client buffers that are multiples of L: where packets are alike, and where they are not.
pub(super) const MULTIPLES: [Held; 2] = [Held::of(&[1, 3, 4, 5, 7]), Held::of(&[1, 5, 7])];

/// The conditions that hold; all others are broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held(u8);

/// What a level's column of the table has beside a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Free,
    Required,
    /// This one or the other one.
    Either,
}

impl Held {
    pub(super) const fn of(numbers: &[u8]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < numbers.len() {
            bits |= 1 << numbers[index];
            index += 1;
        }
        Self(bits)
    }

    /// Whether a condition holds.
    pub(super) fn has(self, number: u8) -> bool {
        self.0 >> number & 1 != 0
    }

    fn without(self, number: u8) -> Self {
        Self(self.0 & !(1 << number))
    }

    /// The name in stored results: `1, 6, 7 hold`.
    pub(super) fn name(self) -> String {
        let numbers = ALL.into_iter().filter(|number| self.has(*number)).map(|number| number.to_string());
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        if numbers.is_empty() { "none hold".to_owned() } else { format!("{numbers} hold") }
    }
}

impl Mark {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Free => "",
            Self::Required => "x",
            Self::Either => "y",
        }
    }
}

/// The level's column of table 6.1; header/data splitting has that of pooled buffering.
pub(super) fn thesis(support: Support) -> [Mark; 7] {
    use Mark::{Either as Y, Free as O, Required as X};
    match support {
        Support::Pooled | Support::Splitting => [O, X, X, X, Y, Y, O],
        Support::EarlyDemultiplexing => [X, O, O, O, O, X, X],
        Support::SnapOff => [X, O, O, O, O, O, O],
        Support::Outboard => [O; 7],
    }
}

/// What a level needs according to the thesis; of two conditions of which either is required, the second.
pub(super) fn needed(support: Support) -> Held {
    let is_needed =
        |(number, mark): &(u8, Mark)| *mark == Mark::Required || *mark == Mark::Either && *number == 6;
    let numbers: Vec<_> =
        ALL.into_iter().zip(thesis(support)).filter(is_needed).map(|(number, _)| number).collect();
    Held::of(&numbers)
}

/// The same with one condition broken. Where another one will do, that one holds.
pub(super) fn broken(support: Support, number: u8) -> Held {
    let held = needed(support).without(number);
    match neither(support) {
        Some(neither) if number == 6 => Held(neither.0 | Held::of(&[5]).0),
        _ => held,
    }
}

/// The same with both conditions broken of which either is required.
pub(super) fn neither(support: Support) -> Option<Held> {
    thesis(support).contains(&Mark::Either).then(|| needed(support).without(5).without(6))
}

/// All sets of conditions that are tried with a level.
pub(super) fn sets(support: Support) -> Vec<Held> {
    let mut sets = vec![needed(support)];
    sets.extend(ALL.map(|number| broken(support, number)));
    sets.extend(neither(support));
    if support == Support::EarlyDemultiplexing {
        sets.extend(MULTIPLES);
    }
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// The column that follows from where copying was avoided; none where that was not tried.
pub(super) fn marks(support: Support, avoids: impl Fn(Held) -> Option<bool>) -> Option<[Mark; 7]> {
    let is_either = neither(support).map_or(Some(false), |neither| avoids(neither).map(|avoids| !avoids))?;
    let mut marks = [Mark::Free; 7];
    for (number, mark) in ALL.into_iter().zip(&mut marks) {
        *mark = match avoids(broken(support, number))? {
            false => Mark::Required,
            true if is_either && (number == 5 || number == 6) => Mark::Either,
            true => Mark::Free,
        };
    }
    Some(marks)
}
