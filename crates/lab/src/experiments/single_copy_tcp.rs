//! `single-copy-tcp`: models how fast a stream protocol is that copies data twice or once.
//!
//! How: the paper's constants give the paper's tables; this machine's constants, measured here, take their places. Sending
//! copies from a buffer in the cache to memory outside it, receiving copies the other way. A call is the shortest system
//! call. Handling a packet takes the time of a datagram of one byte over the loopback network, less its two calls; half of
//! that counts for each end.
//! Limits: no stack is measured yet, only its parts. The checksum is assumed to cost nothing when it is computed while
//! copying, as in the paper.
//! Source: C. Dalton and others, *Afterburner*, tables 1 and 2.

mod conclusion;
mod costs;

use super::described::{Described, Measuring};
use crate::experiment::{Claim, Declaration};

/// The name on the command line.
const ID: &str = "single-copy-tcp";

/// The experiment.
pub(super) static SINGLE_COPY_TCP: Described = Described {
    declaration: &DECLARATION,
    measuring: Measuring::Own { steps: costs::steps, sit: costs::sit },
    conclude: conclusion::conclude,
};

static DECLARATION: Declaration = Declaration {
    id: ID,
    title: "Stream protocols with two copies and one: the model",
    source: "C. Dalton and others, Afterburner: Architectural Support for High-Performance Protocols, HPL-93-46, tables 1 and 2",
    claims: &[
        Claim {
            id: "order",
            text: "In packets of 4 Kbyte, the single-copy stack is faster than the two-copy one, and that faster than the conventional \
                   one: 17.1, 12.8 and 11.6 Mbyte/s sending, 17.1, 13.1 and 10.8 receiving.",
            source: "tables 1 and 2",
        },
        Claim {
            id: "ratio",
            text: "The single-copy stack has 1.47 times the throughput of the conventional one sending and 1.58 times receiving, even \
                   with such small packets and large overheads for each of them.",
            source: "tables 1 and 2",
        },
        Claim {
            id: "bounds",
            text: "Moving data alone would allow 2.4 times the throughput with one copy: 50 Mbyte/s, and 21 with two copies and a \
                   checksum, of which the checksum is only about one sixth.",
            source: "section on copying",
        },
    ],
    axes: &["stack", "sending or receiving"],
    needs: &[],
};
