//! Totals: what was done for all elements of a request together.
//!
//! Why: a program that reads one line must read of every copy, whichever element was copied.
//! How: counts are added up; schemes and reasons are sets, kept as bits, so that a total allocates nothing.

use std::fmt;

use super::{Reason, Receipt, counted};
use crate::Scheme;

/// What was done for all elements of a request together: the total of their [`Receipt`]s.
///
/// It prints as a receipt does, in the same shape for one element and for many: `emulated copy: 0 bytes copied, 2 granules
/// referenced while held`. Where only some elements were done by another scheme, it says how many of them: `emulated copy, 1 of
/// 2 elements done as copy: 64 bytes copied (foreign memory)`.
///
/// A sum that is higher than its type's highest number stays at that number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TotalReceipt {
    /// How many elements there were.
    pub elements: u32,
    /// How many of them were done by another scheme than the client asked for.
    pub converted: u32,
    /// Bytes copied by the interface, in whatever direction.
    pub copied: usize,
    /// Bytes zeroed; see [`Receipt::zeroed`].
    pub zeroed: usize,
    /// Granules referenced in place. A granule that several elements reference counts for each.
    pub referenced: u32,
    /// Those of the referenced granules whose data nobody could store into; see [`Receipt::held`].
    pub held: u32,
    /// Granules whose write permission was removed; see [`Receipt::protected`].
    pub protected: u32,
    /// Granules that were replaced by copies in the client's window; see [`Receipt::replaced`].
    pub replaced: u32,
    /// Granules that changed places between client and system buffer.
    pub swapped: u32,
    /// Granules mapped into, hidden from, or shown again to the client.
    pub mapped: u32,
    /// Write faults; see [`Receipt::faults`].
    pub faults: u32,
    asked: Set,
    /// The schemes of the converted elements.
    instead: Set,
    effective: Set,
    reasons: Set,
}

/// Bits, by the numbers of an enumeration's variants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Set(u32);

impl Set {
    fn add(&mut self, variant: usize) {
        self.0 |= 1 << variant;
    }

    fn has(self, variant: usize) -> bool {
        self.0 & 1 << variant != 0
    }

    fn schemes(self) -> impl Iterator<Item = Scheme> {
        Scheme::ALL.into_iter().chain([Scheme::Fragment]).filter(move |scheme| self.has(*scheme as usize))
    }
}

impl TotalReceipt {
    /// The schemes that the client asked for, each once.
    pub fn asked(&self) -> impl Iterator<Item = Scheme> + use<> {
        self.asked.schemes()
    }

    /// The schemes that took effect, each once.
    pub fn effective(&self) -> impl Iterator<Item = Scheme> + use<> {
        self.effective.schemes()
    }

    /// Why data was copied although the scheme asked for avoids it, or why a scheme's emulated twin took effect: each reason once.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> + use<> {
        let reasons = self.reasons;
        Reason::ALL.into_iter().filter(move |reason| reasons.has(*reason as usize))
    }

    fn add(&mut self, receipt: &Receipt) {
        self.elements = self.elements.saturating_add(1);
        self.copied = self.copied.saturating_add(receipt.copied);
        self.zeroed = self.zeroed.saturating_add(receipt.zeroed);
        self.referenced = self.referenced.saturating_add(receipt.referenced);
        self.held = self.held.saturating_add(if receipt.held { receipt.referenced } else { 0 });
        self.protected = self.protected.saturating_add(receipt.protected);
        self.replaced = self.replaced.saturating_add(receipt.replaced);
        self.swapped = self.swapped.saturating_add(receipt.swapped);
        self.mapped = self.mapped.saturating_add(receipt.mapped);
        self.faults = self.faults.saturating_add(receipt.faults);
        self.asked.add(receipt.asked as usize);
        self.effective.add(receipt.effective as usize);
        if receipt.effective != receipt.asked {
            self.converted = self.converted.saturating_add(1);
            self.instead.add(receipt.effective as usize);
        }
        receipt.reason.into_iter().for_each(|reason| self.reasons.add(reason as usize));
    }
}

impl<'r> FromIterator<&'r Receipt> for TotalReceipt {
    fn from_iter<I: IntoIterator<Item = &'r Receipt>>(receipts: I) -> Self {
        let mut total = Self::default();
        receipts.into_iter().for_each(|receipt| total.add(receipt));
        total
    }
}

impl From<&Receipt> for TotalReceipt {
    fn from(receipt: &Receipt) -> Self {
        [receipt].into_iter().collect()
    }
}

impl fmt::Display for TotalReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.elements {
            0 => f.write_str("no elements")?,
            _ => list(f, self.asked(), " and ")?,
        }
        if self.converted > 0 {
            f.write_str(", ")?;
            if self.converted < self.elements {
                write!(f, "{} of {} elements ", self.converted, self.elements)?;
            }
            f.write_str("done as ")?;
            list(f, self.instead.schemes(), " and ")?;
        }
        write!(f, ": {} copied", counted(self.copied, "byte"))?;
        let is_all_held = self.held == self.referenced;
        let counts = [
            (if is_all_held { "referenced while held" } else { "referenced" }, self.referenced),
            ("held", if is_all_held { 0 } else { self.held }),
            ("protected", self.protected),
            ("replaced", self.replaced),
            ("swapped", self.swapped),
            ("mapped", self.mapped),
        ];
        for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            write!(f, ", {} {what}", counted(count as usize, "granule"))?;
        }
        if self.faults > 0 {
            write!(f, ", {}", counted(self.faults as usize, "fault"))?;
        }
        if self.reasons().next().is_some() {
            f.write_str(" (")?;
            list(f, self.reasons(), "; ")?;
            f.write_str(")")?;
        }
        Ok(())
    }
}

fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    mut items: impl Iterator<Item = T>,
    between: &str,
) -> fmt::Result {
    if let Some(first) = items.next() {
        write!(f, "{first}")?;
    }
    items.try_for_each(|item| write!(f, "{between}{item}"))
}
