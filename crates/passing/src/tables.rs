//! Which operations pass the data of a buffer under each scheme, and when: the thesis's tables as data.
//!
//! Why: the tables are the specification of the schemes. Code that is the table can be compared with it line by line.
//! How: each function is one table, each arm one row, each field one column; operations run from left to right.
//! A *step* is one sentence of a cell: mostly one operation, sometimes a few operations that share one walk over the
//! granules.
//! Invariants: references, wiring and buffers that one column takes are given back by a later column (tested for every
//! row).
//! Source: thesis §7.4, tables 7.1, 7.2, 7.3; §7.4.4.

use crate::operation::Operation::{self, *};
use crate::scheme::Scheme;

/// The operations that pass data from a client's output buffer to a system buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputOperations {
    /// When the client makes the request.
    pub request: &'static [Operation],
    /// When the reply is returned.
    pub reply: &'static [Operation],
}

/// The operations that pass data from a system buffer to a client's input buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputOperations {
    /// When the client makes the request.
    pub request: &'static [Operation],
    /// When the server first needs the buffer.
    pub ready: &'static [Operation],
    /// When the reply is returned.
    pub reply: &'static [Operation],
}

/// Gives the operations of output: table 7.1.
pub const fn output(scheme: Scheme) -> OutputOperations {
    match scheme {
        Scheme::Copy => OutputOperations {
            request: &[AllocateSystemBuffer, CopyinData],
            reply: &[DeallocateSystemBuffer],
        },
        Scheme::EmulatedCopy => OutputOperations {
            request: &[ReferenceClientPages, ReadOnlyClientPages],
            reply: &[UnreferenceClientPages],
        },
        Scheme::Share => OutputOperations {
            request: &[ReferenceClientPages, WireRegion],
            reply: &[UnwireRegion, UnreferenceClientPages],
        },
        Scheme::EmulatedShare => {
            OutputOperations { request: &[ReferenceClientPages], reply: &[UnreferenceClientPages] }
        }
        Scheme::Move => OutputOperations {
            request: &[ReferenceClientPages, WireRegion, MarkRegionEmigrating, InvalidateClientPages],
            reply: &[UnwireRegion, UnreferenceClientPages, RemoveRegion],
        },
        Scheme::EmulatedMove => OutputOperations {
            request: &[ReferenceClientPages, MarkRegionEmigrating, InvalidateClientPages],
            reply: &[UnreferenceClientPages, MarkRegionEmigrantAndEnqueue],
        },
        Scheme::WeakMove => OutputOperations {
            request: &[ReferenceClientPages, WireRegion, MarkRegionEmigrating],
            reply: &[UnwireRegion, UnreferenceClientPages, MarkRegionWeakEmigrantAndEnqueue],
        },
        Scheme::EmulatedWeakMove => OutputOperations {
            request: &[ReferenceClientPages, MarkRegionEmigrating],
            reply: &[UnreferenceClientPages, MarkRegionWeakEmigrantAndEnqueue],
        },
        // §7.5: the system buffers hold the data already.
        Scheme::Fragment => OutputOperations { request: &[], reply: &[] },
    }
}

/// Gives the operations of output whose data nobody can store into before the output ends. Emulated copy then has nothing to
/// protect, and does what emulated share does.
pub const fn held_output(scheme: Scheme) -> OutputOperations {
    match scheme {
        Scheme::EmulatedCopy => output(Scheme::EmulatedShare),
        other => output(other),
    }
}

/// Gives the operations of input through system buffers that are made for the request: table 7.2.
pub const fn customized_input(scheme: Scheme) -> InputOperations {
    match scheme {
        Scheme::Copy => InputOperations {
            request: &[],
            ready: &[AllocateSystemBuffer],
            reply: &[CopyoutData, DeallocateSystemBuffer],
        },
        Scheme::EmulatedCopy => InputOperations {
            request: &[],
            ready: &[AllocateAlignedBuffer],
            reply: &[SwapPages, DeallocateAlignedBuffer],
        },
        Scheme::Share => InputOperations {
            request: &[ReferenceClientPages, WireRegion],
            ready: &[],
            reply: &[UnwireRegion, UnreferenceClientPages],
        },
        Scheme::EmulatedShare => {
            InputOperations { request: &[ReferenceClientPages], ready: &[], reply: &[UnreferenceClientPages] }
        }
        Scheme::Move => InputOperations {
            request: &[],
            ready: &[AllocateSystemBuffer],
            reply: &[CreateRegion, ZeroCompleteSystemPagesAndFillRegion, MapRegionAndMarkImmigrant],
        },
        Scheme::EmulatedMove => InputOperations {
            request: &[DequeueEmigrantRegion, MarkRegionImmigrating, ReferenceClientPages],
            ready: &[],
            reply: &[CheckRegion, UnreferenceClientPages, ReinstatePageAccesses, MarkRegionImmigrant],
        },
        Scheme::WeakMove => InputOperations {
            request: &[DequeueWeakEmigrantRegion, MarkRegionImmigrating, ReferenceClientPages, WireRegion],
            ready: &[],
            reply: &[CheckRegion, UnwireRegion, UnreferenceClientPages, MarkRegionImmigrant],
        },
        Scheme::EmulatedWeakMove => InputOperations {
            request: &[DequeueWeakEmigrantRegion, MarkRegionImmigrating, ReferenceClientPages],
            ready: &[],
            reply: &[CheckRegion, UnreferenceClientPages, MarkRegionImmigrant],
        },
        // §7.5: the subcontractor fills the system buffers of the contractor's request.
        Scheme::Fragment => InputOperations { request: &[], ready: &[], reply: &[] },
    }
}

/// Gives the operations of input through a buffer in host memory that the device or server filled unasked: table 7.3.
///
/// The request column, which table 7.3 leaves out, is that of [`customized_input`]: at that time it is not known how the
/// data will come. Only the ready and reply columns replace those of table 7.2. There, emulated move has no reinstatement
/// of accesses: the swap makes all of the hidden region accessible again, also past the end of the data.
pub const fn overlaid_input(scheme: Scheme) -> InputOperations {
    let reply: &'static [Operation] = match scheme {
        Scheme::Copy => &[CopyoutData, DeallocateOverlayBuffer],
        Scheme::EmulatedCopy => &[SwapPagesIfAlignedElseCopyout, DeallocateOverlayBuffer],
        Scheme::Share => {
            &[UnwireRegion, UnreferenceClientPages, SwapPagesIfAlignedElseCopyout, DeallocateOverlayBuffer]
        }
        Scheme::EmulatedShare => {
            &[UnreferenceClientPages, SwapPagesIfAlignedElseCopyout, DeallocateOverlayBuffer]
        }
        Scheme::Move => &[
            CreateRegion,
            ZeroCompleteOverlayPagesFillRegionAndRefill,
            MapRegionAndMarkImmigrant,
            DeallocateOverlayBuffer,
        ],
        Scheme::EmulatedMove | Scheme::EmulatedWeakMove => {
            &[CheckRegion, UnreferenceClientPages, SwapPages, MarkRegionImmigrant, DeallocateOverlayBuffer]
        }
        Scheme::WeakMove => &[
            CheckRegion,
            UnwireRegion,
            UnreferenceClientPages,
            SwapPages,
            MarkRegionImmigrant,
            DeallocateOverlayBuffer,
        ],
        Scheme::Fragment => &[CopyoutData, DeallocateOverlayBuffer],
    };
    let ready = &[AllocateOverlayBuffer, OverlayBuffer];
    InputOperations { request: customized_input(scheme).request, ready, reply }
}

/// Gives the operations of input through a buffer in the device's own memory: table 7.2 as §7.4.4 alters it.
///
/// The data is transferred into host memory at ready time. Emulated copy alone waits for the reply, when the input is
/// known to have succeeded, and transfers straight into the client's granules, with no system buffer.
pub const fn outboard_input(scheme: Scheme) -> InputOperations {
    let table = customized_input(scheme);
    let ready: &'static [Operation] = match scheme {
        Scheme::Copy | Scheme::Move => &[AllocateSystemBuffer, DmaFromOutboard, DeallocateOutboardBuffer],
        Scheme::EmulatedCopy => &[],
        Scheme::Share
        | Scheme::EmulatedShare
        | Scheme::EmulatedMove
        | Scheme::WeakMove
        | Scheme::EmulatedWeakMove
        | Scheme::Fragment => &[DmaFromOutboard, DeallocateOutboardBuffer],
    };
    let reply: &'static [Operation] = match scheme {
        Scheme::EmulatedCopy => {
            &[ReferenceClientPages, DmaFromOutboard, DeallocateOutboardBuffer, UnreferenceClientPages]
        }
        _ => table.reply,
    };
    InputOperations { request: table.request, ready, reply }
}

/// The runs of operations that the tables write as one sentence, a longer one before its own beginning.
const JOINED: [&[Operation]; 5] = [
    &[DequeueEmigrantRegion, MarkRegionImmigrating, ReferenceClientPages],
    &[DequeueWeakEmigrantRegion, MarkRegionImmigrating, ReferenceClientPages],
    &[CheckRegion, UnreferenceClientPages, ReinstatePageAccesses, MarkRegionImmigrant],
    &[CheckRegion, UnreferenceClientPages, MarkRegionImmigrant],
    &[UnreferenceClientPages, MarkRegionImmigrant],
];

/// Splits a column into its steps: the sentences of the table's cell, in order.
pub fn steps(column: &[Operation]) -> impl Iterator<Item = &[Operation]> {
    let mut rest = column;
    std::iter::from_fn(move || {
        let joined = JOINED.iter().find(|run| rest.starts_with(run)).map_or(1, |run| run.len());
        let (step, after) = rest.split_at_checked(joined)?;
        rest = after;
        Some(step)
    })
}

/// Lists the rows of table 8.2 whose sum prices a column.
///
/// `aligned` says whether client and overlay buffer have the same offset: if not, the operation that swaps or copies
/// out is priced as a copyout.
///
/// # Source
/// Thesis §8.2.2: these sums are the estimates of tables 8.6 and 8.7.
pub fn primitives(column: &[Operation], aligned: bool) -> Vec<&'static str> {
    let price = |operation: &Operation| match operation {
        SwapPagesIfAlignedElseCopyout if !aligned => CopyoutData.primitive(),
        other => other.primitive(),
    };
    let mut rows = Vec::new();
    for step in steps(column) {
        match step {
            [CheckRegion, UnreferenceClientPages, ReinstatePageAccesses, MarkRegionImmigrant] => {
                rows.push("Region check, unreference, reinstate, mark in");
            }
            [CheckRegion, UnreferenceClientPages, MarkRegionImmigrant] => {
                rows.push("Region check, unreference, mark in");
            }
            separate => rows.extend(separate.iter().filter_map(price)),
        }
    }
    rows
}
