//! The primitive operations of which every data passing scheme is made.
//!
//! Why: schemes differ only in which of these run when. Named as data, they can be compared with the thesis's tables,
//! executed by one engine, priced one by one, and shown to the user.
//! How: [`Operation::phrase`] is the wording of the tables, [`Operation::primitive`] the row of table 8.2 that prices
//! it. "Client pages" are granules here: 4 KiB, or 2 MiB where the memory object is huge-paged.
//! Source: thesis §7.4, tables 7.1 to 7.3 and 8.2. Differs: what each does is what Linux lets a process do, as said there.

/// A primitive data passing operation.
///
/// # Source
/// Thesis tables 7.1 (output), 7.2 and 7.3 (input), §7.4.4 (outboard input).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Takes a system buffer for the data from the lender's pool (§5.2, §7.4.1).
    AllocateSystemBuffer,
    /// Copies the data from the client's buffer into the system buffer (§7.4.1).
    CopyinData,
    /// Returns the system buffer to the pool it came from (§7.4.1).
    DeallocateSystemBuffer,
    /// Checks the access rights to each granule of the buffer, makes it resident, and adds to its input or output
    /// reference count; a granule with references is never reused (§3.2.1, §3.2.2).
    ReferenceClientPages,
    /// Write-protects the granules by userfaultfd, so that a later store replaces the granule for the client and
    /// leaves the data under output unchanged: TCOW (§4.2).
    ReadOnlyClientPages,
    /// Takes the references back; a granule whose region has gone and whose last reference goes is freed (§3.2.2).
    UnreferenceClientPages,
    /// Keeps the region in physical memory by mlock. Only the plain in-place schemes do (§3.2.3).
    WireRegion,
    /// Undoes the wiring by munlock (§3.2.3).
    UnwireRegion,
    /// Marks the region as leaving: the client may not name it any more, and its addresses stay taken until the reply,
    /// so that a failed request can give it back (§3.3, §7.4.1).
    MarkRegionEmigrating,
    /// Takes all access to the region away by mprotect: a stray access faults (§3.3.2).
    InvalidateClientPages,
    /// Unmaps the region and frees its granules as far as they have no references (§7.4.1).
    RemoveRegion,
    /// Marks the hidden region and puts it into the queue from which emulated move takes input regions (§3.3.2).
    MarkRegionEmigrantAndEnqueue,
    /// Marks the region, still accessible, and puts it into the queue from which the weak moves take input regions
    /// (§3.3.1).
    MarkRegionWeakEmigrantAndEnqueue,
    /// Takes a system buffer that starts at the client buffer's offset in its granule and has its length, so that
    /// granules can be swapped: server-aligned buffering (§4.1).
    AllocateAlignedBuffer,
    /// Copies the data from the system buffer into the client's buffer (§7.4.2).
    CopyoutData,
    /// Exchanges the granules of the system buffer and of the client's buffer, by moving page tables. A partial first
    /// or last granule is completed by reverse copyout and swapped, or copied out below the threshold t_i (§4.1).
    SwapPages,
    /// Returns the aligned buffer, now made of the client's former granules (§4.1).
    DeallocateAlignedBuffer,
    /// Takes addresses for a new region in the client (§7.4.2).
    CreateRegion,
    /// Writes zeros to what the data doesn't fill of the system buffer's granules, so that the client sees nobody
    /// else's data, and makes them the new region's granules (§7.4.2).
    ZeroCompleteSystemPagesAndFillRegion,
    /// Maps the filled region and gives it to the client (§3.3).
    MapRegionAndMarkImmigrant,
    /// Takes a hidden region of a suitable length from the queue, or allocates one (§3.3.2, §7.4.2).
    DequeueEmigrantRegion,
    /// Takes a cached, accessible region of a suitable length from the queue, or allocates one (§3.3.1, §7.4.2).
    DequeueWeakEmigrantRegion,
    /// Marks the region as arriving: it is linked to a request as system buffer and not yet the client's (§7.4.2).
    MarkRegionImmigrating,
    /// Checks that the region is still there; where the client removed it, maps its granules at a new place, so that
    /// the location in the reply holds the data (§7.4.2).
    CheckRegion,
    /// Gives the client access to the hidden region again by mprotect (§3.3.2).
    ReinstatePageAccesses,
    /// Marks the region as the client's (§3.3).
    MarkRegionImmigrant,
    /// Takes a buffer from the pool of the device or server into which input goes unasked (§7.4.3).
    AllocateOverlayBuffer,
    /// Links that buffer, holding the data, to the client's input buffer (§7.4.3).
    OverlayBuffer,
    /// Swaps granules as [`Operation::SwapPages`] where client and overlay buffer have the same offset, else copies the
    /// data out (§4.1, §7.4.3).
    SwapPagesIfAlignedElseCopyout,
    /// Completes the overlay buffer's granules with zeros, makes them the new region's granules, and puts as many fresh
    /// ones into the overlay buffer, so that the pool doesn't run dry (§7.4.3).
    ZeroCompleteOverlayPagesFillRegionAndRefill,
    /// Returns the overlay buffer to its pool (§7.4.3).
    DeallocateOverlayBuffer,
    /// Asks the driver to transfer the data from the device's own memory into host memory: the system buffer, or the
    /// client's granules that serve as one (§7.4.4).
    DmaFromOutboard,
    /// Asks the driver to free the buffer in the device's own memory (§7.4.4).
    DeallocateOutboardBuffer,
}

/// The rows of table 8.2 that price data passing, in its order; its first row, the base latency, is not an operation.
///
/// Two rows price several operations at once, because one walk over the granules does them together; see
/// [`crate::tables::primitives`].
pub const PRIMITIVES: [&str; 21] = [
    "Copyin",
    "Reference",
    "Wire",
    "Read only",
    "Invalidate",
    "Region mark out",
    "Copyout",
    "Unreference",
    "Unwire",
    "Swap",
    "Region create",
    "Region fill",
    "Region fill & overlay refill",
    "Region map",
    "Region check, unreference, reinstate, mark in",
    "Region check, unreference, mark in",
    "Region check",
    "Region mark in",
    "Overlay allocate",
    "Overlay",
    "Overlay deallocate",
];

impl Operation {
    /// Every operation, in the order in which the tables first name them.
    pub const ALL: [Self; 33] = [
        Self::AllocateSystemBuffer,
        Self::CopyinData,
        Self::DeallocateSystemBuffer,
        Self::ReferenceClientPages,
        Self::ReadOnlyClientPages,
        Self::UnreferenceClientPages,
        Self::WireRegion,
        Self::UnwireRegion,
        Self::MarkRegionEmigrating,
        Self::InvalidateClientPages,
        Self::RemoveRegion,
        Self::MarkRegionEmigrantAndEnqueue,
        Self::MarkRegionWeakEmigrantAndEnqueue,
        Self::CopyoutData,
        Self::AllocateAlignedBuffer,
        Self::SwapPages,
        Self::DeallocateAlignedBuffer,
        Self::CreateRegion,
        Self::ZeroCompleteSystemPagesAndFillRegion,
        Self::MapRegionAndMarkImmigrant,
        Self::DequeueEmigrantRegion,
        Self::MarkRegionImmigrating,
        Self::CheckRegion,
        Self::ReinstatePageAccesses,
        Self::MarkRegionImmigrant,
        Self::DequeueWeakEmigrantRegion,
        Self::AllocateOverlayBuffer,
        Self::OverlayBuffer,
        Self::DeallocateOverlayBuffer,
        Self::SwapPagesIfAlignedElseCopyout,
        Self::ZeroCompleteOverlayPagesFillRegionAndRefill,
        Self::DmaFromOutboard,
        Self::DeallocateOutboardBuffer,
    ];

    /// Gives the thesis's wording, as inside a sentence.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::AllocateSystemBuffer => "allocate system buffer",
            Self::CopyinData => "copyin data",
            Self::DeallocateSystemBuffer => "deallocate system buffer",
            Self::ReferenceClientPages => "reference client pages",
            Self::ReadOnlyClientPages => "read-only client pages",
            Self::UnreferenceClientPages => "unreference client pages",
            Self::WireRegion => "wire region",
            Self::UnwireRegion => "unwire region",
            Self::MarkRegionEmigrating => "mark region emigrating",
            Self::InvalidateClientPages => "invalidate client pages",
            Self::RemoveRegion => "remove region",
            Self::MarkRegionEmigrantAndEnqueue => "mark region emigrant and enqueue",
            Self::MarkRegionWeakEmigrantAndEnqueue => "mark region weak emigrant and enqueue",
            Self::AllocateAlignedBuffer => "allocate aligned buffer",
            Self::CopyoutData => "copyout data",
            Self::SwapPages => "swap pages",
            Self::DeallocateAlignedBuffer => "deallocate aligned buffer",
            Self::CreateRegion => "create region",
            Self::ZeroCompleteSystemPagesAndFillRegion => "zero-complete system pages and fill region",
            Self::MapRegionAndMarkImmigrant => "map region and mark immigrant",
            Self::DequeueEmigrantRegion => "dequeue emigrant region",
            Self::DequeueWeakEmigrantRegion => "dequeue weak emigrant region",
            Self::MarkRegionImmigrating => "mark region immigrating",
            Self::CheckRegion => "check region",
            Self::ReinstatePageAccesses => "reinstate page accesses",
            Self::MarkRegionImmigrant => "mark region immigrant",
            Self::AllocateOverlayBuffer => "allocate overlay buffer",
            Self::OverlayBuffer => "overlay buffer",
            Self::SwapPagesIfAlignedElseCopyout => "if aligned, swap pages, else copy out",
            Self::ZeroCompleteOverlayPagesFillRegionAndRefill => {
                "zero-complete overlay pages, fill region and refill overlay buffer"
            }
            Self::DeallocateOverlayBuffer => "deallocate overlay buffer",
            Self::DmaFromOutboard => "DMA the data from outboard buffer to host memory",
            Self::DeallocateOutboardBuffer => "deallocate the outboard buffer",
        }
    }

    /// Gives the row of table 8.2 that prices the operation when it runs by itself, if there is one.
    ///
    /// Without a row are the operations that the thesis's latencies don't contain, because they overlap with the
    /// transfer; those of devices; and the reinstatement of accesses, which is priced together with its neighbours.
    /// [`Operation::SwapPagesIfAlignedElseCopyout`] is priced as aligned. [`crate::tables::primitives`] prices a column.
    pub const fn primitive(self) -> Option<&'static str> {
        Some(match self {
            Self::CopyinData => "Copyin",
            Self::ReferenceClientPages => "Reference",
            Self::WireRegion => "Wire",
            Self::ReadOnlyClientPages => "Read only",
            Self::InvalidateClientPages => "Invalidate",
            Self::MarkRegionEmigrating => "Region mark out",
            Self::CopyoutData => "Copyout",
            Self::UnreferenceClientPages => "Unreference",
            Self::UnwireRegion => "Unwire",
            Self::SwapPages | Self::SwapPagesIfAlignedElseCopyout => "Swap",
            Self::CreateRegion => "Region create",
            Self::ZeroCompleteSystemPagesAndFillRegion => "Region fill",
            Self::ZeroCompleteOverlayPagesFillRegionAndRefill => "Region fill & overlay refill",
            Self::MapRegionAndMarkImmigrant => "Region map",
            Self::CheckRegion => "Region check",
            Self::MarkRegionImmigrant => "Region mark in",
            Self::AllocateOverlayBuffer => "Overlay allocate",
            Self::OverlayBuffer => "Overlay",
            Self::DeallocateOverlayBuffer => "Overlay deallocate",
            Self::AllocateSystemBuffer
            | Self::DeallocateSystemBuffer
            | Self::AllocateAlignedBuffer
            | Self::DeallocateAlignedBuffer
            | Self::RemoveRegion
            | Self::MarkRegionEmigrantAndEnqueue
            | Self::MarkRegionWeakEmigrantAndEnqueue
            | Self::DequeueEmigrantRegion
            | Self::DequeueWeakEmigrantRegion
            | Self::MarkRegionImmigrating
            | Self::ReinstatePageAccesses
            | Self::DmaFromOutboard
            | Self::DeallocateOutboardBuffer => return None,
        })
    }
}
