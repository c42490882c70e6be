//! Experiment `primitives`: the cost of each primitive operation, inside real requests, as a*B + b.
//!
//! How: each step is one length. The parties of `latency` pass data by each scheme, with the times of operations recorded at
//! both ends; and by emulated share without recording, for the base latency; then the pooled server of [`arrivals`](self)
//! sends to an interface of its own, since overlay buffers and clients share a space.
//! Shape: the series are the rows of the thesis's tables 8.2 and 12.1, and some that it doesn't have, of quantity
//! `OperationTime`. A setting is a side, `sender` or `receiver`, and whatever else the time may depend on, that is, the
//! scheme, and the buffering where buffers are pooled: `sender, copy`; `receiver, share, pooled, unaligned`. Only times of
//! operations that a scheme itself ran are kept, not those of a scheme that it was converted to. Series `emulated share` of
//! quantity `Latency` is the end-to-end latency from which the base is derived; series `granule` of quantity `Bytes` is the
//! size of the granules.
//! Source: J. C. Brustoloni's thesis, §8.2.2, tables 8.2 to 8.5, 12.1. Differs: lines are laid through averages over
//! schemes, which gives the same as averaging their lines.

mod arrivals;
mod conclusion;
mod pooled;
mod sitting;
mod verdicts;

use super::described::{Described, Measuring};
use super::latency::LENGTHS;
use crate::error::Result;
use crate::experiment::{Claim, Declaration, Options, Sitting, Step};
use conclusion::conclude;

/// The experiment.
pub(super) static PRIMITIVES: Described =
    Described { declaration: &DECLARATION, measuring: Measuring::Own { steps, sit }, conclude };

static DECLARATION: Declaration = Declaration {
    id: "primitives",
    title: "What each primitive operation costs",
    source: brustoloni!("§8.2.2, tables 8.2 to 8.5, and table 12.1"),
    claims: &[
        Claim {
            id: "linear",
            text: "The time of an operation is a line in the length, a factor for each byte and a fixed term, unless \
                   it is constant or very short.",
            source: "§8.2.2",
        },
        Claim {
            id: "copying-dominates",
            text: "For each byte, copying costs several times what any operation on virtual memory does: 18 to 22 ns \
                   against 0.1 to 1.6 ns on the Micron P166, eleven times as much or more.",
            source: "table 8.2",
        },
        Claim {
            id: "copyin-is-cheaper",
            text: "Copying in costs less than copying out, since what the client has just stored is still in the cache: \
                   18.0 against 22.0 ns a byte on the Micron P166.",
            source: "§8.2.2, table 8.2",
        },
    ],
    axes: &["data length in bytes", "operation", "scheme", "side: sender or receiver", "buffering"],
    needs: &[],
};

const LENGTHS_SMOKE: [usize; 3] = [64, 2 << 20, 4 << 20];

fn lengths(options: &Options) -> &'static [usize] {
    if options.smoke { &LENGTHS_SMOKE } else { &LENGTHS }
}

fn steps(options: &Options) -> Vec<Step> {
    Step::each(lengths(options), |len| sitting::seconds(len, options.smoke))
}

fn sit(options: &Options) -> Result<Box<dyn Sitting + '_>> {
    Ok(Box::new(sitting::Operations::open(options)?))
}
