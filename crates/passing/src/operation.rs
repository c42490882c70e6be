//! The primitive operations of which every data passing scheme is made.
//!
//! Why: schemes differ only in which of these run when. Named as data, they can be compared with the thesis's tables,
//! executed by one engine, priced one by one, and shown to the user.
//! How: [`Operation::phrase`] is the wording of the tables, [`Operation::primitive`] the row of table 8.2 that prices
//! it. "Client pages" are granules here: 4 KiB, or 2 MiB where the memory object is huge-paged.
//! Source: thesis §7.4, tables 7.1 to 7.3 and 8.2. Differs: each operation does what Linux lets a process do, as its
//! documentation says.

/// Makes the type of operations from one line for each operation: its name, the tables' wording and, if it has one, its row
/// of table 8.2.
macro_rules! operations {
    ($($(#[$doc:meta])+ $name:ident: $phrase:literal $(, priced as $row:literal)?;)+) => {
        /// A primitive data passing operation.
        ///
        /// # Source
        /// Thesis tables 7.1 (output), 7.2 and 7.3 (input), §7.4.4 (outboard input).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation {
            $($(#[$doc])+ $name,)+
        }

        impl Operation {
            /// Every operation.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];

            /// Gives the thesis's wording, as inside a sentence.
            pub const fn phrase(self) -> &'static str {
                match self {
                    $(Self::$name => $phrase,)+
                }
            }

            /// Gives the row of table 8.2 that prices the operation when it runs by itself, if there is one.
            ///
            /// These have no row: operations that the thesis's latencies don't contain, because they overlap with the
            /// transfer; operations of devices; and the reinstatement of accesses, which is priced together with its
            /// neighbours. [`Operation::SwapPagesIfAlignedElseCopyout`] is priced as aligned. [`crate::tables::primitives`]
            /// prices a column.
            pub const fn primitive(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => operations!(@row $($row)?),)+
                }
            }
        }
    };
    (@row) => { None };
    (@row $row:literal) => { Some($row) };
}

operations! {
    /// Takes a system buffer for the data from the lender's pool (§5.2, §7.4.1).
    AllocateSystemBuffer: "allocate system buffer";
    /// Copies the data from the client's buffer into the system buffer (§7.4.1).
    CopyinData: "copyin data", priced as "Copyin";
    /// Returns the system buffer to the pool it came from (§7.4.1).
    DeallocateSystemBuffer: "deallocate system buffer";
    /// Checks the access rights to each granule of the buffer, makes it resident, and adds to its input or output
    /// reference count; a granule with references is never reused (§3.2.1, §3.2.2).
    ReferenceClientPages: "reference client pages", priced as "Reference";
    /// Write-protects the granules by userfaultfd, so that a later store replaces the granule for the client and
    /// leaves the data under output unchanged: TCOW (§4.2).
    ReadOnlyClientPages: "read-only client pages", priced as "Read only";
    /// Takes the references back; a granule whose region has gone and whose last reference goes is freed (§3.2.2).
    UnreferenceClientPages: "unreference client pages", priced as "Unreference";
    /// Keeps the region in physical memory by mlock. Only the plain in-place schemes do this (§3.2.3).
    WireRegion: "wire region", priced as "Wire";
    /// Undoes the wiring by munlock (§3.2.3).
    UnwireRegion: "unwire region", priced as "Unwire";
    /// Marks the region as leaving: the client may not name it any more, and its addresses stay taken until the reply,
    /// so that a failed request can give it back (§3.3, §7.4.1).
    MarkRegionEmigrating: "mark region emigrating", priced as "Region mark out";
    /// Takes all access to the region away by mprotect: a stray access faults (§3.3.2).
    InvalidateClientPages: "invalidate client pages", priced as "Invalidate";
    /// Unmaps the region and frees its granules as far as they have no references (§7.4.1).
    RemoveRegion: "remove region";
    /// Marks the hidden region and puts it into the queue from which emulated move takes input regions (§3.3.2).
    MarkRegionEmigrantAndEnqueue: "mark region emigrant and enqueue";
    /// Marks the region, still accessible, and puts it into the queue from which the weak moves take input regions
    /// (§3.3.1).
    MarkRegionWeakEmigrantAndEnqueue: "mark region weak emigrant and enqueue";
    /// Takes a system buffer that starts at the client buffer's offset in its granule and has its length, so that
    /// granules can be swapped: server-aligned buffering (§4.1).
    AllocateAlignedBuffer: "allocate aligned buffer";
    /// Copies the data from the system buffer into the client's buffer (§7.4.2).
    CopyoutData: "copyout data", priced as "Copyout";
    /// Swaps the granules of the system buffer and of the client's buffer, by moving page tables. A partial first
    /// or last granule is completed by reverse copyout and swapped, or copied out below the threshold t_i (§4.1). Differs: short
    /// data of an overlay buffer is copied into the region of a migrant buffer, where table 7.3 always swaps.
    SwapPages: "swap pages", priced as "Swap";
    /// Returns the aligned buffer, now made of the client's former granules (§4.1).
    DeallocateAlignedBuffer: "deallocate aligned buffer";
    /// Takes addresses for a new region in the client (§7.4.2).
    CreateRegion: "create region", priced as "Region create";
    /// Writes zeros to the parts of the system buffer's granules that the data doesn't fill, so that the client sees
    /// nobody else's data, and makes them the new region's granules (§7.4.2).
    ZeroCompleteSystemPagesAndFillRegion: "zero-complete system pages and fill region", priced as "Region fill";
    /// Maps the filled region and gives it to the client (§3.3).
    MapRegionAndMarkImmigrant: "map region and mark immigrant", priced as "Region map";
    /// Takes a hidden region of a suitable length from the queue, or allocates one (§3.3.2, §7.4.2).
    DequeueEmigrantRegion: "dequeue emigrant region";
    /// Takes a cached, accessible region of a suitable length from the queue, or allocates one (§3.3.1, §7.4.2).
    DequeueWeakEmigrantRegion: "dequeue weak emigrant region";
    /// Marks the region as arriving: it is linked to a request as system buffer and not yet the client's (§7.4.2).
    MarkRegionImmigrating: "mark region immigrating";
    /// Checks that the region is still there; where the client removed it, maps its granules at a new place, so that
    /// the location in the reply holds the data (§7.4.2).
    CheckRegion: "check region", priced as "Region check";
    /// Gives the client access to the hidden region again by mprotect (§3.3.2).
    ReinstatePageAccesses: "reinstate page accesses";
    /// Marks the region as the client's (§3.3).
    MarkRegionImmigrant: "mark region immigrant", priced as "Region mark in";
    /// Takes a buffer from the pool of the device or server into which input goes unasked (§7.4.3).
    AllocateOverlayBuffer: "allocate overlay buffer", priced as "Overlay allocate";
    /// Links that buffer, holding the data, to the client's input buffer (§7.4.3).
    OverlayBuffer: "overlay buffer", priced as "Overlay";
    /// Swaps granules as [`Operation::SwapPages`] where client and overlay buffer have the same offset, else copies the
    /// data out (§4.1, §7.4.3).
    SwapPagesIfAlignedElseCopyout: "if aligned, swap pages, else copy out", priced as "Swap";
    /// Completes the overlay buffer's granules with zeros, makes them the new region's granules, and puts as many fresh
    /// ones into the overlay buffer, so that the pool doesn't run dry (§7.4.3).
    ZeroCompleteOverlayPagesFillRegionAndRefill: "zero-complete overlay pages, fill region and refill overlay buffer", priced as "Region fill & overlay refill";
    /// Returns the overlay buffer to its pool (§7.4.3).
    DeallocateOverlayBuffer: "deallocate overlay buffer", priced as "Overlay deallocate";
    /// Asks the driver to transfer the data from the device's own memory into host memory: the system buffer, or the
    /// client's granules that serve as one (§7.4.4).
    DmaFromOutboard: "DMA the data from outboard buffer to host memory";
    /// Asks the driver to free the buffer in the device's own memory (§7.4.4).
    DeallocateOutboardBuffer: "deallocate the outboard buffer";
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
