//! The predicted cost of each operation of a column.
//!
//! How: a receipt says how much each operation had to do; the calibrated cost of that amount is the operation's price. Where
//! several operations were measured as one, the first of them bears the price of all.
//! Limits: operations that cost too little to be measured have no price: marking, linking, checking.

use genie::mechanism::Costs;
use genie::{Receipt, Scheme};
use genie_passing::operation::Operation;

/// The data from which prices are calculated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices<'a> {
    pub(super) costs: &'a Costs,
    pub(super) granule: usize,
    /// Bytes of data.
    pub(super) len: usize,
    /// Granules that the buffer touches.
    pub(super) granules: usize,
    pub(super) receipt: &'a Receipt,
}

impl Prices<'_> {
    /// Nanoseconds, where the operation has a price of its own.
    pub(super) fn of(&self, operation: Operation) -> Option<f64> {
        let (costs, all) = (self.costs, self.granules * self.granule);
        Some(match operation {
            Operation::AllocateSystemBuffer if self.receipt.effective == Scheme::Move => {
                costs.aligned_buffer.at(all)
            }
            Operation::AllocateSystemBuffer => costs.system_buffer.at(self.len),
            Operation::AllocateAlignedBuffer => costs.aligned_buffer.at(all),
            Operation::CopyinData => costs.copyin.at(self.len),
            Operation::CopyoutData => costs.copyout.at(self.len),
            Operation::ReferenceClientPages => costs.reference.at(self.referenced()),
            Operation::UnreferenceClientPages => costs.unreference.at(self.referenced()),
            Operation::ReadOnlyClientPages => costs.read_only.at(self.referenced()),
            Operation::WireRegion => costs.wire.at(all),
            Operation::UnwireRegion => costs.unwire.at(all),
            Operation::InvalidateClientPages => costs.invalidate.at(all),
            Operation::ReinstatePageAccesses => costs.restore.at(all),
            Operation::RemoveRegion => costs.region_remove.at(all),
            Operation::CreateRegion => costs.region_create.at(all),
            Operation::DequeueEmigrantRegion
            | Operation::DequeueWeakEmigrantRegion
            | Operation::MarkRegionEmigrantAndEnqueue
            | Operation::MarkRegionWeakEmigrantAndEnqueue => costs.region_queue.at(all),
            Operation::SwapPages | Operation::SwapPagesIfAlignedElseCopyout => self.swap(),
            _ => return None,
        })
    }

    /// The later cost of an output: giving write permission back, which the client's next stores pay together.
    pub(super) fn reinstatement(&self) -> Option<f64> {
        (self.receipt.protected > 0).then(|| self.costs.reinstate.at(self.referenced()))
    }

    /// Copying the parts of an output that fill no whole granule, and are not worth protecting.
    pub(super) fn edges(&self) -> Option<f64> {
        let (costs, copied) = (self.costs, self.receipt.copied);
        let mixed =
            self.receipt.effective == Scheme::EmulatedCopy && copied > 0 && self.receipt.referenced > 0;
        mixed.then(|| costs.system_buffer.at(copied) + costs.copyin.at(copied))
    }

    /// What plain copying would cost, out or in.
    pub(super) fn copy(&self, copying: Operation) -> f64 {
        let copied = match copying {
            Operation::CopyinData => &self.costs.copyin,
            _ => &self.costs.copyout,
        };
        copied.at(self.len) + self.costs.system_buffer.at(self.len)
    }

    fn referenced(&self) -> usize {
        self.receipt.referenced as usize * self.granule
    }

    /// The cost of a swap, and of copying the data that is not swapped.
    fn swap(&self) -> f64 {
        let costs = self.costs;
        if self.receipt.swapped == 0 {
            return costs.copyout.at(self.receipt.copied);
        }
        let swapped = self.receipt.swapped as usize * self.granule;
        // The explained buffer has its granules for itself, so that none of them has to be completed.
        let copied = if self.receipt.copied > 0 { costs.copyout.at(self.receipt.copied) } else { 0.0 };
        costs.swap.at(swapped) + copied
    }
}
