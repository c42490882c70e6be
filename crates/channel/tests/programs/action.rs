//! Actions: the steps of a random program, in terms of granules, so that one program fits every granule size.

use std::ops::Range;

use genie_passing::Thresholds;
use proptest::prelude::*;

/// A place in a buffer: so many bytes before or after a granule boundary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    granule: u8,
    delta: i16,
}

/// From one place to another, in whichever order they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part(Place, Place);

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Failure,
    Dropped,
    Aborted,
    /// Aborted by the client; the server keeps the request and reads it later.
    AbortedInVain,
}

/// How an input is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Normal,
    Peeked,
    /// To the other buffer, at the same place, if that is there and reaches so far.
    Redirected,
    /// In two elements that meet somewhere.
    Split,
    /// Normally; meanwhile the client stores into the bytes behind it, outputs them and stores there again.
    Beside,
}

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Store { buffer: usize, part: Part, byte: u8 },
    KernelRead { buffer: usize, part: Part, seed: u64 },
    Output { buffer: usize, part: Part },
    OutputTwice { buffer: usize, parts: [Part; 2] },
    TimedOut { buffer: usize, part: Part },
    Read { output: usize },
    Complete { output: usize, end: End },
    Anticipate { output: usize },
    Input { buffer: usize, part: Part, seed: u64, less: u16, delivery: Delivery, end: End },
    Free { buffer: usize },
    Reallocate { buffer: usize, offset: u16, short: bool },
    Fork { buffer: usize },
}

/// How many buffers a program has.
pub(crate) const BUFFERS: usize = 2;
/// How many bytes are stored behind an input that is pending, and how many are output from there.
pub(crate) const BESIDE: [usize; 2] = [40, 90];
/// What is stored there, before the output and after it.
pub(crate) const BESIDE_BYTES: [u8; 2] = [0xb5, 0xb6];
/// How many outputs servers hold at most.
pub(crate) const OUTPUTS: usize = 3;

impl Place {
    fn index(self, granule: usize, len: usize) -> usize {
        let boundary = usize::from(self.granule) % (len / granule + 2) * granule;
        boundary.saturating_add_signed(isize::from(self.delta)).min(len)
    }
}

impl Part {
    /// The bytes of a buffer of `len` that it means.
    pub(crate) fn of(self, granule: usize, len: usize) -> Range<usize> {
        let (one, two) = (self.0.index(granule, len), self.1.index(granule, len));
        one.min(two)..one.max(two)
    }
}

fn place() -> impl Strategy<Value = Place> {
    let delta = prop_oneof![3 => Just(0i16), 3 => -20..20i16, 2 => any::<i16>()];
    (0..8u8, delta).prop_map(|(granule, delta)| Place { granule, delta })
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        1 => Just(Part(Place { granule: 0, delta: 0 }, Place { granule: 0, delta: i16::MAX })),
        5 => (place(), place()).prop_map(|(one, two)| Part(one, two)),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        6 => Just(End::Success),
        1 => Just(End::Failure),
        1 => Just(End::Dropped),
        1 => Just(End::Aborted),
        1 => Just(End::AbortedInVain),
    ]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        4 => Just(Delivery::Normal),
        1 => Just(Delivery::Peeked),
        2 => Just(Delivery::Redirected),
        2 => Just(Delivery::Split),
        3 => Just(Delivery::Beside),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let buffer = || 0..BUFFERS;
    let output = || 0..OUTPUTS;
    let less = prop_oneof![3 => Just(0u16), 1 => any::<u16>()];
    prop_oneof![
        6 => (buffer(), part(), any::<u8>()).prop_map(|(buffer, part, byte)| Action::Store { buffer, part, byte }),
        3 => (buffer(), part(), any::<u64>())
            .prop_map(|(buffer, part, seed)| Action::KernelRead { buffer, part, seed }),
        6 => (buffer(), part()).prop_map(|(buffer, part)| Action::Output { buffer, part }),
        2 => (buffer(), [part(), part()]).prop_map(|(buffer, parts)| Action::OutputTwice { buffer, parts }),
        1 => (buffer(), part()).prop_map(|(buffer, part)| Action::TimedOut { buffer, part }),
        3 => output().prop_map(|output| Action::Read { output }),
        5 => (output(), end()).prop_map(|(output, end)| Action::Complete { output, end }),
        1 => output().prop_map(|output| Action::Anticipate { output }),
        6 => (buffer(), part(), any::<u64>(), less, delivery(), end()).prop_map(
            |(buffer, part, seed, less, delivery, end)| Action::Input { buffer, part, seed, less, delivery, end }
        ),
        1 => buffer().prop_map(|buffer| Action::Free { buffer }),
        2 => (buffer(), prop_oneof![Just(0), any::<u16>()], any::<bool>())
            .prop_map(|(buffer, offset, short)| Action::Reallocate { buffer, offset, short }),
        1 => buffer().prop_map(|buffer| Action::Fork { buffer }),
    ]
}

/// Thresholds: mostly those that avoid every copy; also some that copy what is short, in terms of granules.
pub(crate) fn thresholds(granule: usize) -> impl Strategy<Value = Thresholds> {
    let some = (1..granule * 2, [1..granule, 1..granule, 1..granule], 1..granule * 4);
    let some = some.prop_map(|(output, [input, input_alone, input_edge], input_run)| Thresholds {
        output,
        input,
        input_alone,
        input_run,
        input_edge,
        ..Thresholds::ALWAYS
    });
    prop_oneof![3 => Just(Thresholds::ALWAYS), 2 => some]
}

/// Programs of at most 40 steps.
pub(crate) fn program() -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec(action(), 1..40)
}
