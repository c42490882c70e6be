//! Receipts and schemes, as numbers of C's.

use std::ffi::c_char;
use std::ptr::null;

use genie_passing::{Receipt, Scheme, TotalReceipt};

use crate::failure::Failure;
use crate::types::{
    self, IO_COPY, IO_DEFAULT, IO_EMULATED_COPY, IO_EMULATED_MOVE, IO_EMULATED_SHARE, IO_EMULATED_WEAK_MOVE,
    IO_FRAGMENT, IO_MOVE, IO_SHARE, IO_WEAK_MOVE, io_scheme_t,
};

const SCHEMES: [(io_scheme_t, Scheme); 9] = [
    (IO_COPY, Scheme::Copy),
    (IO_EMULATED_COPY, Scheme::EmulatedCopy),
    (IO_SHARE, Scheme::Share),
    (IO_EMULATED_SHARE, Scheme::EmulatedShare),
    (IO_MOVE, Scheme::Move),
    (IO_EMULATED_MOVE, Scheme::EmulatedMove),
    (IO_WEAK_MOVE, Scheme::WeakMove),
    (IO_EMULATED_WEAK_MOVE, Scheme::EmulatedWeakMove),
    (IO_FRAGMENT, Scheme::Fragment),
];

/// The scheme of this number.
pub(crate) fn scheme(number: io_scheme_t) -> Result<Scheme, Failure> {
    let index = (number as usize).wrapping_sub(1);
    let found = SCHEMES.get(index).map(|(_, scheme)| *scheme);
    found.ok_or_else(|| {
        Failure::misuse(format!("there is no scheme {number}; they are IO_COPY (1) to IO_FRAGMENT (9)"))
    })
}

fn number(scheme: Scheme) -> io_scheme_t {
    SCHEMES.iter().find(|(_, other)| *other == scheme).map_or(0, |(number, _)| *number)
}

/// The receipt for C.
pub(crate) fn receipt(receipt: &Receipt) -> types::Receipt {
    types::Receipt {
        asked: number(receipt.asked),
        effective: number(receipt.effective),
        copied: receipt.copied,
        zeroed: receipt.zeroed,
        referenced: receipt.referenced,
        write_protected: receipt.protected,
        replaced: receipt.replaced,
        swapped: receipt.swapped,
        mapped: receipt.mapped,
        faults: receipt.faults,
        reason: receipt.reason.map_or(null(), phrase),
    }
}

/// The total of all elements for C.
pub(crate) fn total(total: &TotalReceipt) -> types::Receipt {
    types::Receipt {
        asked: only(total.asked()),
        effective: only(total.effective()),
        copied: total.copied,
        zeroed: total.zeroed,
        referenced: total.referenced,
        write_protected: total.protected,
        replaced: total.replaced,
        swapped: total.swapped,
        mapped: total.mapped,
        faults: total.faults,
        reason: total.reasons().next().map_or(null(), phrase),
    }
}

/// The number of the scheme, if there is just one.
fn only(mut schemes: impl Iterator<Item = Scheme>) -> io_scheme_t {
    match (schemes.next(), schemes.next()) {
        (Some(scheme), None) => number(scheme),
        _ => IO_DEFAULT,
    }
}

fn phrase(reason: genie_passing::Reason) -> *const c_char {
    reason.c_phrase().as_ptr()
}
