//! The cost of checksums alone, beside plain copying.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::super::reading::Reading;
use super::ID;
use crate::experiment::Options;
use crate::findings::{Axis, Curve, Figure, Table};
use crate::measurement::{Measured, Measurements, Quantity};
use crate::samples::nanoseconds;
use fastrand::Rng;
use genie_net::checksum::Checksum as Kind;

/// The setting under which these measurements are kept.
const SETTING: &str = "alone";
/// About how long a sample takes; it repeats the work as often as that needs.
const SAMPLE: Duration = Duration::from_micros(50);
const ROUNDS: usize = 40;
const ROUNDS_SMOKE: usize = 3;

/// A kind of work that reads all of the data once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Copy,
    Sum(Kind),
    CopyThenSum(Kind),
    CopyAndSum(Kind),
}

impl Pass {
    fn all() -> Vec<Self> {
        let of = |kind| [Self::Sum(kind), Self::CopyThenSum(kind), Self::CopyAndSum(kind)];
        std::iter::once(Self::Copy).chain(Kind::ALL.into_iter().flat_map(of)).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Copy => "memcpy".to_owned(),
            Self::Sum(kind) => kind.name().to_owned(),
            Self::CopyThenSum(kind) => format!("memcpy, then {}", kind.name()),
            Self::CopyAndSum(kind) => format!("{} while copying", kind.name()),
        }
    }

    fn run(self, from: &[u8], to: &mut [u8]) -> u32 {
        match self {
            Self::Copy => {
                to.copy_from_slice(from);
                0
            }
            Self::Sum(kind) => kind.of(from),
            Self::CopyThenSum(kind) => {
                to.copy_from_slice(from);
                kind.of(black_box(to))
            }
            Self::CopyAndSum(kind) => kind.copy(from, to),
        }
    }
}

/// The nanoseconds that the work takes once, as the mean of `count` times.
fn time(pass: Pass, count: u32, from: &[u8], to: &mut [u8]) -> u64 {
    let begun = Instant::now();
    for _ in 0..count {
        black_box(pass.run(black_box(from), black_box(&mut *to)));
    }
    nanoseconds(begun.elapsed() / count)
}

/// Measures all kinds of work on `len` bytes, which take turns.
pub(super) fn measure(len: usize, options: &Options) -> Vec<Measured> {
    let (from, mut to) = (vec![0x5a; len], vec![0; len]);
    let passes = Pass::all();
    // How often each kind of work is done for a sample follows from the time of a first run, which also warms up.
    let counts: Vec<_> = passes
        .iter()
        .map(|pass| {
            time(*pass, 1, &from, &mut to);
            let once = time(*pass, 1, &from, &mut to).max(1);
            (nanoseconds(SAMPLE) / once).clamp(1, 1000) as u32
        })
        .collect();
    let mut samples = vec![Vec::new(); passes.len()];
    let mut order: Vec<usize> = (0..passes.len()).collect();
    let mut random = Rng::with_seed(options.seed ^ len as u64);
    for _ in 0..if options.smoke { ROUNDS_SMOKE } else { ROUNDS } {
        random.shuffle(&mut order);
        for &index in &order {
            samples[index].push(time(passes[index], counts[index], &from, &mut to));
        }
    }
    let measured = |(pass, samples): (&Pass, Vec<u64>)| {
        Measured::new(SETTING, pass.name(), len, Quantity::OperationTime, samples)
    };
    passes.iter().zip(samples).map(measured).collect()
}

/// The measurements of checksums alone.
pub(super) fn reading(measurements: &Measurements) -> Reading<'_> {
    Reading::of(measurements, ID, SETTING, Quantity::OperationTime)
}

/// The speed, in GB/s, of `bytes` bytes in `us` microseconds.
fn speed(bytes: u64, us: f64) -> f64 {
    bytes as f64 / us.max(1e-3) / 1e3
}

/// Speeds by length.
pub(super) fn figure(reading: &Reading<'_>) -> Option<Figure> {
    let curve = |pass: Pass| {
        let name = pass.name();
        let points = reading.medians(&name).into_iter().map(|(x, us)| (x as f64, speed(x, us)));
        Curve::plain(name, points)
    };
    let axes = [Axis::logarithmic("data length in bytes"), Axis::linear("speed in GB/s")];
    let title = "Speed of checksums and of copying alone";
    Figure::of("checksum-speed", title, axes, Pass::all().into_iter().map(curve))
}

/// Speeds by length.
pub(super) fn table(reading: &Reading<'_>) -> Table {
    let names: Vec<_> = Pass::all().into_iter().map(Pass::name).collect();
    reading.table_of("Speed of checksums and of copying alone, in GB/s", "pass", names, speed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Granule;

    #[test]
    fn passes_that_sum_agree_and_those_that_copy_copy() {
        let from: Vec<u8> = (0..5000).map(|at| at as u8).collect();
        for pass in Pass::all() {
            let mut to = vec![0; from.len()];
            let sum = pass.run(&from, &mut to);
            match pass {
                Pass::Copy => assert_eq!(sum, 0),
                Pass::Sum(kind) | Pass::CopyThenSum(kind) | Pass::CopyAndSum(kind) => {
                    assert_eq!(sum, kind.of(&from));
                }
            }
            let copies = !matches!(pass, Pass::Sum(_));
            assert_eq!(to == from, copies, "{pass:?}");
        }
    }

    #[test]
    fn every_pass_is_measured_and_has_a_row() {
        let options = Options { smoke: true, granule: Granule::Best, seed: 1 };
        let measured = measure(4096, &options);
        assert_eq!(measured.len(), Pass::all().len());
        assert!(measured.iter().all(|one| one.samples.len() == ROUNDS_SMOKE));
        assert!((speed(16_000_000, 1000.0) - 16.0).abs() < 1e-9);
    }
}
