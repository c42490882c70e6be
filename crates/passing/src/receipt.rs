//! Receipts: what was really done to pass a buffer's data.
//!
//! Why: whether data was copied decides what a program costs, and cannot be seen from the bytes.

use std::ffi::CStr;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::Scheme;

mod total;

pub use total::TotalReceipt;

/// Why data was copied under a scheme that avoids it, or a region was not wired under a scheme that wires it.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Shorter than the threshold below which copying is cheaper.
    Short,
    /// Only the parts of the data that fill no whole granule, at its beginning and end, were copied: they are shorter than the
    /// threshold.
    Edges,
    /// No data was copied, but what the program has beside it on the same granules was: that had to stay when the granules were
    /// swapped.
    Beside,
    /// Not memory of the interface's regions (stack, heap, mapped file).
    Foreign,
    /// Borrowed memory cannot be shared; share takes its buffer by value.
    Borrowed,
    /// Client and system buffer start at different offsets in their granules, or their granules are of different sizes.
    Unaligned,
    /// Shorter than what the server may be shown of the client's own memory.
    Hidden,
    /// Other data of the program lies on the same granules, and may be stored into although the data to be passed is borrowed;
    /// without write protection, an output could then not outlive the borrow, nor could an input change places with it.
    Neighbours,
    /// Genie cannot catch stores here, so it cannot protect output: [`Protection::None`](genie_memory::Protection::None) says why.
    Unprotectable,
    /// Faults in this region have lately cost more than copying.
    Faults,
    /// Too little memory is free for replacing granules that the client stores into while the output is pending; or clients have as many
    /// of the server's frames as they may.
    Irreplaceable,
    /// The kernel refused to protect or to map (too many mappings, no memory).
    Kernel,
    /// The client peeked at the data, or had it delivered to another buffer.
    Redelivered,
    /// Memory that another process may store into, so that it cannot be protected.
    Lent,
    /// The channel to the server is in untrusted mode: neither side maps the other's memory.
    Untrusted,
    /// The data came in a buffer of the server's own, which is not shared with this client, or lay there on a granule with data of
    /// another part of that buffer, which is still in use.
    Overlaid,
    /// The data lay in memory that the server, in another process, must not be shown: in frames of another server's, or, of a subcontractor,
    /// with other data of the client's that was passed by copy, or in another server's pool.
    Unshown,
    /// The region could not be wired (the memory-lock limit is too low), so the emulated scheme of the same semantics took
    /// effect, which wires nothing.
    Unwired,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::Short,
        Self::Edges,
        Self::Beside,
        Self::Foreign,
        Self::Borrowed,
        Self::Unaligned,
        Self::Hidden,
        Self::Neighbours,
        Self::Unprotectable,
        Self::Faults,
        Self::Irreplaceable,
        Self::Kernel,
        Self::Redelivered,
        Self::Lent,
        Self::Untrusted,
        Self::Overlaid,
        Self::Unshown,
        Self::Unwired,
    ];

    /// The reason in a few words.
    pub const fn phrase(self) -> &'static str {
        match self.c_phrase().to_str() {
            Ok(phrase) => phrase,
            Err(_) => panic!("a phrase is ASCII"),
        }
    }

    /// The same for programs in C.
    pub const fn c_phrase(self) -> &'static CStr {
        match self {
            Self::Short => c"shorter than the threshold",
            Self::Edges => c"what fills no whole granule is shorter than the threshold",
            Self::Beside => c"to keep other data on the same granules",
            Self::Foreign => c"foreign memory",
            Self::Borrowed => c"borrowed memory",
            Self::Unaligned => c"unaligned",
            Self::Hidden => c"too short for the server to be shown the client's memory",
            Self::Neighbours => c"on granules with other data, without write protection; see `genie doctor`",
            Self::Unprotectable => c"no write protection; see `genie doctor`",
            Self::Faults => c"faults cost more than copying",
            Self::Irreplaceable => c"no free memory for replacements",
            Self::Kernel => c"refused by the kernel",
            Self::Redelivered => c"delivered elsewhere",
            Self::Lent => c"memory open to another process",
            Self::Untrusted => c"server not trusted",
            Self::Overlaid => c"the server's own buffer",
            Self::Unshown => c"from memory that the server may not be shown",
            Self::Unwired => c"memory-lock limit too low to wire it",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.phrase())
    }
}

/// What was done for one element of a buffer, in the client's process.
///
/// A server in another process does not tell what it has done: what it copies from a buffer of its own (an overlay) to where the client
/// takes the data from is in that server's counts, which `genie top` shows, and in no receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The scheme that the client asked for.
    pub asked: Scheme,
    /// The scheme that took effect: `asked`, or the one it was converted to.
    pub effective: Scheme,
    /// Bytes copied by the interface, in whatever direction.
    pub copied: usize,
    /// Bytes zeroed before a granule changed its owner, or was shown to a server that did not lend it. A granule that is cut
    /// into parts for short data is zeroed once, when it is cut; no receipt counts that.
    pub zeroed: usize,
    /// Granules referenced in place.
    pub referenced: u32,
    /// Whether the data in the referenced granules was borrowed, or owned by the request, so that nobody could store into it.
    pub held: bool,
    /// Granules whose write permission was removed: at the request, or, if the data was held, when the borrow ended before the
    /// output did. Fewer than were referenced if some had no write permission.
    pub protected: u32,
    /// Granules that were replaced by copies in the client's window when the borrow ended before the output did.
    pub replaced: u32,
    /// Granules that changed places between client and system buffer.
    pub swapped: u32,
    /// Granules mapped into, hidden from, or shown again to the client.
    pub mapped: u32,
    /// Write faults that the buffer's region took while the request was pending.
    pub faults: u32,
    /// Why data was copied although the scheme asked for avoids it, or why the scheme's emulated twin took effect.
    pub reason: Option<Reason>,
}

impl Receipt {
    /// Notes why data is copied, unless that follows from why the server may not work in the client's memory itself.
    pub(crate) fn copied_because(&mut self, reason: Reason) {
        if self.reason != Some(Reason::Neighbours) {
            self.reason = Some(reason);
        }
    }

    /// A receipt that says that nothing was done yet.
    pub const fn new(asked: Scheme) -> Self {
        Self {
            asked,
            effective: asked,
            copied: 0,
            zeroed: 0,
            referenced: 0,
            held: false,
            protected: 0,
            replaced: 0,
            swapped: 0,
            mapped: 0,
            faults: 0,
            reason: None,
        }
    }

    /// Puts on record that a region cannot be wired: the emulated scheme of the same semantics takes effect, whose operations
    /// are the same but for the wiring and for what becomes of a moved region.
    pub(crate) fn leave_unwired(&mut self) {
        self.effective = self.effective.emulated();
        self.reason = Some(Reason::Unwired);
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TotalReceipt::from(self).fmt(f)
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_reads_as_a_sentence() {
        let mut receipt = Receipt::new(Scheme::EmulatedCopy);
        receipt.referenced = 8;
        receipt.protected = 8;
        assert_eq!(
            receipt.to_string(),
            "emulated copy: 0 bytes copied, 8 granules referenced, 8 granules protected"
        );
        receipt = Receipt { effective: Scheme::Copy, copied: 64, ..Receipt::new(Scheme::EmulatedCopy) };
        receipt.reason = Some(Reason::Short);
        assert_eq!(
            receipt.to_string(),
            "emulated copy, done as copy: 64 bytes copied (shorter than the threshold)"
        );
    }

    #[test]
    fn one_of_a_thing_is_named_in_the_singular() {
        let receipt = Receipt { copied: 1, referenced: 1, faults: 1, ..Receipt::new(Scheme::EmulatedCopy) };
        assert_eq!(receipt.to_string(), "emulated copy: 1 byte copied, 1 granule referenced, 1 fault");
    }

    #[test]
    fn a_total_is_of_all_elements_and_names_each_scheme_and_reason_once() {
        let held = Receipt { referenced: 2, held: true, ..Receipt::new(Scheme::EmulatedCopy) };
        let copied = |reason| Receipt {
            effective: Scheme::Copy,
            copied: 64,
            reason: Some(reason),
            ..Receipt::new(Scheme::EmulatedCopy)
        };
        let total: TotalReceipt = [held, copied(Reason::Foreign), copied(Reason::Foreign)].iter().collect();
        assert_eq!((total.elements, total.converted, total.copied), (3, 2, 128));
        assert!(total.effective().eq([Scheme::Copy, Scheme::EmulatedCopy]));
        assert_eq!(
            total.to_string(),
            "emulated copy, 2 of 3 elements done as copy: 128 bytes copied, 2 granules referenced while held (foreign memory)"
        );
        let shared = Receipt { referenced: 3, ..Receipt::new(Scheme::Share) };
        let total: TotalReceipt =
            [held, shared, copied(Reason::Short), copied(Reason::Foreign)].iter().collect();
        assert_eq!(
            total.to_string(),
            "emulated copy and share, 2 of 4 elements done as copy: 128 bytes copied, 5 granules referenced, 2 granules held \
             (shorter than the threshold; foreign memory)"
        );
    }

    #[test]
    fn a_total_of_equal_elements_reads_as_a_receipt_does() {
        let copied = Receipt { effective: Scheme::Copy, copied: 64, ..Receipt::new(Scheme::EmulatedCopy) };
        let total: TotalReceipt = [copied; 2].iter().collect();
        assert_eq!(total.to_string(), "emulated copy, done as copy: 128 bytes copied");
        assert_eq!(TotalReceipt::default().to_string(), "no elements: 0 bytes copied");
    }

    /// The sum of receipts that a program had made itself overflowed, which is a panic where overflow is checked.
    #[test]
    fn a_total_that_is_too_high_stays_at_the_highest_number() {
        let most = Receipt {
            copied: usize::MAX,
            zeroed: usize::MAX,
            referenced: u32::MAX,
            held: true,
            protected: u32::MAX,
            replaced: u32::MAX,
            swapped: u32::MAX,
            mapped: u32::MAX,
            faults: u32::MAX,
            ..Receipt::new(Scheme::EmulatedCopy)
        };
        let total: TotalReceipt = [most; 2].iter().collect();
        assert_eq!((total.copied, total.zeroed), (usize::MAX, usize::MAX));
        let granules = [total.referenced, total.held, total.protected, total.replaced];
        assert_eq!(granules, [u32::MAX; 4]);
        assert_eq!([total.swapped, total.mapped, total.faults], [u32::MAX; 3]);
    }

    #[test]
    fn every_reason_is_among_all_at_its_number() {
        assert!(Reason::ALL.iter().enumerate().all(|(number, reason)| *reason as usize == number));
        assert_eq!(Reason::ALL.len(), Reason::Unwired as usize + 1);
    }
}
