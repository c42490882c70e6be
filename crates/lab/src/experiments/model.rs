//! `model`: latencies predicted from the costs of single operations, beside those measured.
//!
//! How: the base is the latency of emulated share without its own operations. To it the breakdown model adds the costs that
//! `primitives` measured of each scheme's operations. The experiment concludes from `primitives` and from `latency` at an
//! unlimited rate, for lengths that are multiples of the granule. Its own step measures the equivalent of table 8.1: the
//! figures of the machine, which the scaling model needs when two runs are compared.
//! Limits: lines are fitted to absolute errors, as the thesis's are. Lengths here differ by a factor of thousands, so a line
//! tells little about short ones; beside it are estimates from the medians at the same length.
//! Source: Brustoloni, section 8.2.2, tables 8.1 to 8.9.

mod circumstances;
mod conclusion;
mod estimates;
mod machine;

pub use machine::figures;

use super::described::{Described, Measuring};
use crate::experiment::{Claim, Declaration};

/// The name on the command line.
const ID: &str = "model";

/// The experiment.
pub(super) static MODEL: Described = Described {
    declaration: &DECLARATION,
    measuring: Measuring::Own { steps: machine::steps, sit: machine::sit },
    conclude: conclusion::conclude,
};

/// How far an estimate may be off, as a fraction.
const TOLERANCE: f64 = 0.15;

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Latency predicted from the costs of single operations",
    source: brustoloni!("section 8.2.2, tables 8.6 to 8.9"),
    claims: &[
        Claim {
            id: "sum",
            text: "A latency is the sum of a base, which no scheme changes, and of those operations that hold the data up: the \
                   sender's at request time and the receiver's at reply time. Estimates were within a few per cent; here within 15 % \
                   of the median at every length, with the operations' medians at that length.",
            source: "§8.2.2, tables 8.6 and 8.7",
        },
        Claim {
            id: "lines",
            text: "A straight line for each operation, a factor for each byte and a fixed term, is enough for that: summed lines and \
                   the lines of measured latencies differed by a few per cent for multiples of the page size up to 60 KiB; here by at \
                   most 15 % at every length.",
            source: "§8.2.2, tables 8.2 to 8.7",
        },
        Claim {
            id: "scaling",
            text: "From one machine to another, copyout's cost scales as the copying rate of memory, copyin's between those of \
                   cache and memory, and all other operations' as the speed of integer programs: with a factor of 2.40 expected and 2.43 \
                   found for memory, and of more than 1.57 expected and 1.79 and 1.83 found for the CPU.",
            source: "§8.2.2, tables 8.8 and 8.9",
        },
    ],
    axes: &["data length in bytes, multiples of the granule", "scheme"],
    needs: &["primitives", "latency"],
};
