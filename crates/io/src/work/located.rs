//! Located data: data that has been passed already, in a contractor's buffers or in memory of a client in another process.
//!
//! How: the client's interface, in this process or its own, has passed the data already. All that is left to do is finding its
//! address, and that only for a service that may touch it.
//! Source: thesis §5.1 (selective mapping), §7.5.

use std::sync::Arc;

use genie_memory::{Extent, Mapped, Segments, Span, SystemBuffer, SystemBytes};
use genie_passing::{Reason, Receipt, Scheme, Spare};
use smallvec::SmallVec;

use crate::Error;
use crate::contract::Contract;
use crate::work::forwarded::{ForwardedInput, Supply};
use crate::work::location::{Location, Locations, Shown};

use shown_copy::ShownCopies;
pub(crate) use shown_copy::Viewer;

mod shown_copy;

/// One element's data that another interface has passed, as the server sees it that it is shown to.
///
/// A carrier makes one for an element of a request that it brings, where the data is not in the record: it says where the data is in
/// this process, adds what keeps it there, and names it as the client does, should the server forward it.
#[derive(Debug)]
pub struct Located {
    /// Mappings that last as long as the request. Dropped before `known`, since the client may withdraw the memory once
    /// `known` is dropped.
    mapped: SmallVec<[Mapped; 1]>,
    known: Known,
    /// The data, as far as it is mapped.
    segments: Segments,
    len: usize,
    /// For an input: how many bytes its server has had memory for; none before it asked for memory, or said where the data is.
    ready: Option<usize>,
    receipt: Receipt,
    /// The buffer of data that the kernel copies from and to another process.
    private: Option<Box<PrivateBuffer>>,
    /// What a server in another process works on, where it may not be shown the data itself.
    shown: ShownCopies,
    /// For an input: where its data is until the request has succeeded or somebody is to work on it, if not in place.
    supply: Option<Box<Supply>>,
}

/// A buffer of this process's own, for data of a client whose memory is not mapped here, and where the data belongs there.
#[derive(Debug)]
pub struct PrivateBuffer {
    /// The buffer, which holds nothing of other clients'.
    pub buffer: SystemBuffer,
    /// Where the client has the data, in order: (address there, length).
    pub places: Vec<(usize, usize)>,
}

/// Memory for more pieces than this is not kept.
const MOST_KEPT: usize = 8;

thread_local! {
    /// A transfer that is over, with nothing in it.
    static SPARE: Spare<Box<Located>> = const { Spare::none() };
}

/// How this process knows where the data is.
#[derive(Debug)]
enum Known {
    /// A client in another process named it: (arena, extent).
    Named(Named),
    /// It is a part of the request that originated this one; that request is not replied to before this one is.
    Fragment(Arc<Contract>, Locations),
    /// It is an input of a client in another process, whose reply carries the data. Its bytes are the work's.
    Carried,
}

/// Data as a client in another process names it.
pub(crate) type Named = SmallVec<[(u16, Extent); 1]>;

impl Located {
    /// Data of `len` bytes that a client has named; `segments` is where it is mapped, if the service may touch it. What keeps it
    /// there is added by [`Located::hold`] or [`Located::keep`], or outlives the request.
    pub fn named(segments: Segments, len: usize, receipt: Receipt) -> Box<Self> {
        Self::from(Known::Named(Named::new()), segments, len, receipt)
    }

    /// An input that its reply carries, in place of which a server has a buffer of its own.
    pub(crate) fn carried(segments: Segments, len: usize) -> Box<Self> {
        Self::from(Known::Carried, segments, len, Receipt::new(Scheme::Fragment))
    }

    pub(crate) fn is_carried(&self) -> bool {
        matches!(self.known, Known::Carried)
    }

    /// A part of a request's buffer.
    pub(crate) fn fragment(
        contract: Arc<Contract>,
        locations: Locations,
        len: usize,
        receipt: Receipt,
    ) -> Box<Self> {
        let mut segments = Segments::new();
        if let [Location::Here(here) | Location::Carried(here)] = locations.as_slice() {
            segments.extend_from_slice(here);
        }
        Self::from(Known::Fragment(contract, locations), segments, len, receipt)
    }

    /// Boxed from the start, as outputs and inputs are, and in the memory of this thread's last transfer.
    #[inline]
    fn from(known: Known, segments: Segments, len: usize, receipt: Receipt) -> Box<Self> {
        match Spare::take(&SPARE) {
            Some(mut spare) => {
                (spare.known, spare.segments, spare.len, spare.receipt) = (known, segments, len, receipt);
                spare
            }
            None => Box::new(Self {
                known,
                segments,
                mapped: SmallVec::new(),
                len,
                ready: None,
                receipt,
                private: None,
                shown: ShownCopies::new(),
                supply: None,
            }),
        }
    }

    /// Lets go of what is left, and keeps the memory for this thread's next transfer.
    pub(crate) fn end(mut self: Box<Self>) {
        self.mapped.clear();
        self.known = Known::Named(Named::new());
        self.ready = None;
        (self.private, self.supply) = (None, None);
        self.shown.clear();
        if self.mapped.capacity().max(self.segments.capacity()) > MOST_KEPT {
            // Otherwise a peer could make this thread hold as much memory as the peer likes.
            return;
        }
        Spare::keep(&SPARE, self);
    }

    /// Adds the span where the next part of the data is mapped, until the request is over.
    pub fn see(&mut self, span: Span) {
        self.segments.push(span);
    }

    /// Adds the extent by which the client names the next part of the data, for [`Caller::locations`](crate::carrier::Caller::locations).
    pub fn name(&mut self, arena: u16, extent: Extent) {
        if let Known::Named(named) = &mut self.known {
            named.push((arena, extent));
        }
    }

    /// Ends the mappings that last only as long as the request.
    pub(crate) fn let_go(&mut self) {
        self.mapped.clear();
    }

    /// Keeps a mapping that ends with the request.
    pub fn hold(&mut self, mapped: Mapped) {
        self.segments.extend_from_slice(mapped.segments());
        self.mapped.push(mapped);
    }

    /// Keeps the buffer that the data is in.
    pub fn keep(&mut self, private: PrivateBuffer) {
        self.private = Some(Box::new(private));
    }

    /// That buffer, if there is one.
    pub fn private(&self) -> Option<&PrivateBuffer> {
        self.private.as_deref()
    }

    /// How much memory the private buffer takes, if it is of whole granules.
    pub(crate) fn private_footprint(&self) -> Option<usize> {
        let buffer = &self.private()?.buffer;
        let granule = buffer.space().granule();
        buffer.alignment().map(|offset| (offset + buffer.len()).next_multiple_of(granule))
    }

    /// Takes an output's private buffer out; `None` where its data is in pieces.
    pub(crate) fn take_private(&mut self) -> Option<SystemBytes> {
        let PrivateBuffer { buffer, places } = *self.private.take()?;
        match buffer.into_bytes() {
            Ok(bytes) => {
                self.segments.clear();
                Some(bytes)
            }
            Err(buffer) => {
                self.keep(PrivateBuffer { buffer, places });
                None
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Makes memory ready for the server to fill.
    ///
    /// # Errors
    /// No memory, or a device's transfer failed.
    pub(crate) fn ready(&mut self) -> Result<(), Error> {
        self.settle()?;
        if let Some(input) = self.forwarded()
            && self.segments.is_empty()
        {
            self.segments = input.ready()?;
        }
        self.ready = Some(self.len);
        Ok(())
    }

    /// The input of a client in this process, where this data is the whole of that input.
    fn forwarded(&self) -> Option<&Arc<ForwardedInput>> {
        match &self.known {
            Known::Fragment(_, locations) => match locations.as_slice() {
                [Location::Forwarded(input)] => Some(input),
                _ => None,
            },
            Known::Named(_) | Known::Carried => None,
        }
    }

    /// As `forwarded`, for an input that is to be forwarded once more.
    ///
    /// # Errors
    /// As `ready`.
    pub(crate) fn forward(&mut self) -> Result<Option<Arc<ForwardedInput>>, Error> {
        let Some(input) = self.forwarded().cloned() else { return Ok(None) };
        self.settle()?;
        self.ready = Some(self.len);
        Ok(Some(input))
    }

    /// Brings all that the server has elsewhere before anybody else stores into the data; brought at the reply, it would
    /// overwrite what they have stored.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(len) = self.supply.as_deref().map(Supply::len) else { return Ok(()) };
        self.map(true)?;
        self.bring(len.min(self.len))
    }

    /// Whether `actual` bytes of an input can have been passed: no more than the server ever had memory for.
    pub(crate) fn check(&self, actual: usize) -> Result<(), Error> {
        Error::check_len(actual, self.ready.unwrap_or(0))
    }

    /// Whether its server has had memory for an input, or has said where the data is.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// The contract of the request of which this data is a part, if it is a fragment.
    pub(crate) fn contract(&self) -> Option<&Contract> {
        match &self.known {
            Known::Fragment(contract, _) => Some(contract),
            Known::Named(_) | Known::Carried => None,
        }
    }

    /// Calls `see` with each part of the data that the request's server, elsewhere, is to be shown.
    ///
    /// # Errors
    /// The first error of `see`.
    pub(crate) fn each_shown(
        &self,
        mut see: impl FnMut(Shown<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (index, location) in self.fragment_locations().iter().enumerate() {
            match (self.shown(index), location) {
                (Some(copy), _) => see(Shown::Own(&copy))?,
                (None, Location::Here(spans)) => see(Shown::Forwarded(spans))?,
                (None, Location::There(mirror, extents)) => see(Shown::Mirrored(mirror, extents))?,
                // A server that may be shown memory works on a copy.
                (None, Location::Carried(_)) => see(Shown::Unshown(location.len()))?,
                (None, Location::Forwarded(_)) => {
                    unreachable!("its memory is named as the transfer was given it")
                }
            }
        }
        Ok(())
    }

    /// The locations of a fragment's data.
    pub(crate) fn fragment_locations(&self) -> &[Location] {
        match &self.known {
            Known::Fragment(_, locations) => locations,
            Known::Named(_) | Known::Carried => &[],
        }
    }

    /// The locations of the data, to be shown to another server; `find` finds data that a client in another process has named.
    pub(crate) fn locations(&self, find: impl Fn(&[(u16, Extent)]) -> Locations) -> Locations {
        match &self.known {
            Known::Fragment(_, locations) => locations.clone(),
            Known::Named(_) if self.private.is_some() => {
                Locations::from_iter([Location::Here(self.segments.clone())])
            }
            Known::Named(named) => find(named),
            Known::Carried => Locations::from_iter([Location::Carried(self.segments.clone())]),
        }
    }

    /// Maps a fragment of a peer's memory, for stores, too, if `writes`.
    pub(crate) fn map(&mut self, writes: bool) -> Result<(), Error> {
        let Known::Fragment(_, locations) = &self.known else { return Ok(()) };
        if !self.segments.is_empty() {
            return Ok(());
        }
        for location in locations {
            match location {
                Location::Here(here) | Location::Carried(here) => self.segments.extend_from_slice(here),
                Location::There(mirror, extents) => {
                    let mapped = mirror.map(extents, writes)?;
                    self.segments.extend_from_slice(mapped.segments());
                    self.mapped.push(mapped);
                }
                // Its memory is made when it is asked for.
                Location::Forwarded(_) => {}
            }
        }
        Ok(())
    }

    /// Where the data at location `index` of a fragment is; none that is another process's.
    pub(crate) fn segments_at(&self, index: usize) -> Segments {
        match &self.fragment_locations()[index] {
            Location::Here(segments) | Location::Carried(segments) => segments.clone(),
            Location::Forwarded(_) => self.segments(),
            Location::There(..) => Segments::new(),
        }
    }

    /// Where the data is, as far as it is mapped.
    pub(crate) fn segments(&self) -> Segments {
        Segments::from_slice(&self.segments)
    }

    /// Has the data come from `supply` when the request succeeds.
    pub(crate) fn supply(&mut self, supply: Supply) {
        self.ready = Some(self.len.min(supply.len()));
        self.supply = Some(Box::new(supply));
    }

    /// Brings the first `actual` bytes of an input, which were left in the server's own buffer until the request succeeded.
    /// If the client is in this process, the server's buffer takes the place of the client's; otherwise the bytes are
    /// copied, since no other process may see what else is in a server's own buffers.
    ///
    /// # Errors
    /// No memory, or a device's transfer failed.
    pub(crate) fn bring(&mut self, actual: usize) -> Result<(), Error> {
        self.bring_shown(actual)?;
        let forwarded = self.forwarded().cloned();
        let Some(supply) = self.supply.take().map(|supply| *supply) else {
            if let Some(input) = forwarded.filter(|_| !self.segments.is_empty()) {
                let copied = input.passed(&self.data(), actual)?;
                if copied > 0 {
                    self.receipt.copied += copied;
                    self.segments.clear();
                }
            }
            return Ok(());
        };
        let supply = match &forwarded {
            None => supply,
            Some(input) => match input.supply(supply, actual)? {
                None => return Ok(()),
                Some(supply) => {
                    self.segments = input.ready()?;
                    supply
                }
            },
        };
        let all = self.data_mut();
        let into = all.part(0..actual.min(all.len()));
        match supply {
            Supply::Overlay(chain) => {
                let copied = into.copy_data(&chain.data());
                self.receipt.copied += copied;
                self.receipt.reason = Some(Reason::Overlaid);
            }
            Supply::Outboard(mut outboard) => outboard.fill(&into)?,
        }
        Ok(())
    }
}
