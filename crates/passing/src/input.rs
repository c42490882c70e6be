//! Input: from a system buffer to a client's buffer, by tables 7.2 and 7.3 and §7.4.4.

use genie_memory::{
    DataMut, Direction, Error as MemoryError, Immigrating, LenderId, Migrant, Reference, Segments, Space,
    SystemBuffer, Wired,
};
use genie_sys::guard;

use crate::operation::Operation;
use crate::outboard::Outboard;
use crate::recorder::{Column, Moment, Watch};
use crate::spare::Spare;
use crate::tables::{self, InputOperations};
use crate::{Chain, Error, Parties, Passing, Reason, Receipt, Result, Scheme};

mod delivery;
mod ready;
mod swapping;

/// Where an input's data is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To `len` bytes at `addr`, memory of the client's own.
    Native {
        /// The first address.
        addr: usize,
        /// The number of bytes.
        len: usize,
    },
    /// To a migrant buffer for at most `len` bytes, which the interface provides.
    Migrant {
        /// The number of bytes.
        len: usize,
    },
}

/// What the data comes in.
#[derive(Debug)]
pub(crate) enum Buffering {
    /// A system buffer made for this request, or the client's own granules: table 7.2.
    Customized,
    /// Buffers of the device's or server's own: table 7.3.
    Overlaid(Chain),
    /// Memory outside the host: §7.4.4.
    Outboard(Box<dyn Outboard>),
}

/// One element's input under way. It owns all that its operations have taken so far.
#[derive(Debug)]
pub struct Input {
    /// None when it is over.
    passing: Option<Passing>,
    receipt: Receipt,
    parties: Parties,
    target: Target,
    pub(crate) buffering: Buffering,
    is_ready: bool,
    pub(crate) system: Option<SystemBuffer>,
    pub(crate) reference: Option<Reference>,
    wired: Option<Wired>,
    immigrating: Option<Immigrating>,
    migrant: Option<Migrant>,
}

thread_local! {
    /// An input that is over, with nothing in it.
    static SPARE: Spare<Box<Input>> = const { Spare::none() };
}

impl Target {
    /// The number of bytes asked for.
    pub const fn len(self) -> usize {
        match self {
            Self::Native { len, .. } | Self::Migrant { len } => len,
        }
    }

    /// Whether no bytes are asked for.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl Passing {
    pub(crate) fn begin_input(&self, scheme: Scheme, target: Target, parties: Parties) -> Result<Box<Input>> {
        let (effective, reason) = match target {
            Target::Native { addr, .. } => self.convert_foreign(scheme, addr),
            Target::Migrant { .. } => (scheme, None),
        };
        let reason = match self.try_input(scheme, effective, target, reason, parties) {
            Err(Error::Memory(MemoryError::Foreign { .. })) if effective != Scheme::Copy => Reason::Foreign,
            Err(Error::Framed) => Reason::Unshown,
            result => return result,
        };
        self.try_input(scheme, Scheme::Copy, target, Some(reason), parties)
    }

    fn try_input(
        &self,
        asked: Scheme,
        effective: Scheme,
        target: Target,
        reason: Option<Reason>,
        parties: Parties,
    ) -> Result<Box<Input>> {
        let receipt = Receipt { effective, reason, ..Receipt::new(asked) };
        let mut input = Input::new(self, receipt, target, parties);
        let mut watch = Watch::start(self.recorder());
        for operation in tables::customized_input(effective).request {
            input.request(*operation)?;
            watch.ran(*operation);
        }
        watch.finish(|| input.column(Moment::Request, input.len()));
        Ok(input)
    }
}

impl Input {
    /// Boxed from the start, as outputs are, and in memory that this thread's last input has left, if there is any.
    #[inline]
    fn new(passing: &Passing, receipt: Receipt, target: Target, parties: Parties) -> Box<Self> {
        let passing = Some(passing.clone());
        match Spare::take(&SPARE) {
            Some(mut spare) => {
                (spare.passing, spare.receipt, spare.target, spare.parties) =
                    (passing, receipt, target, parties);
                spare
            }
            None => Box::new(Self {
                passing,
                receipt,
                parties,
                target,
                buffering: Buffering::Customized,
                is_ready: false,
                system: None,
                reference: None,
                wired: None,
                immigrating: None,
                migrant: None,
            }),
        }
    }

    /// Ends the input as dropping it does, and keeps its memory for this thread's next input.
    #[inline]
    pub fn end(mut self: Box<Self>) {
        self.cancel();
        (self.migrant, self.passing, self.is_ready) = (None, None, false);
        Spare::keep(&SPARE, self);
    }

    /// What was done so far.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Notes in the receipt which scheme the client asked for, and why another one is used.
    pub fn note(&mut self, asked: Scheme, reason: Reason) {
        self.receipt.asked = asked;
        self.receipt.reason = Some(reason);
    }

    /// The number of bytes asked for.
    pub fn len(&self) -> usize {
        self.target.len()
    }

    /// Whether no bytes are asked for.
    pub fn is_empty(&self) -> bool {
        self.target.is_empty()
    }

    /// The lender of the system buffer, once there is one; none for data in place, and none before the input is ready.
    pub fn lender(&self) -> Option<LenderId> {
        self.system.as_ref().map(SystemBuffer::lender)
    }

    /// Runs the ready-time operations, once, and returns the memory that the server fills: a customized system buffer,
    /// or the client's own granules when the scheme passes data in place.
    ///
    /// # Errors
    /// No memory.
    pub fn ready(&mut self) -> Result<DataMut<'_>> {
        self.run_ready()?;
        Ok(self.data())
    }

    /// Overlays one or more buffers that hold the data already on the client's buffer, in place of a customized system buffer.
    ///
    /// # Panics
    /// When the buffer has been made ready before.
    pub fn overlay(&mut self, overlays: impl Into<Chain>) {
        let chain = overlays.into();
        assert!(!self.is_ready, "an input is either made ready or overlaid");
        self.is_ready = true;
        let mut watch = Watch::start(self.passing().recorder());
        if let Some(allocation) = chain.allocation() {
            watch.took(Operation::AllocateOverlayBuffer, allocation);
        }
        watch.skip();
        self.buffering = Buffering::Overlaid(chain);
        watch.ran(Operation::OverlayBuffer);
        watch.finish(|| self.column(Moment::Ready, self.len()));
    }

    /// Links data in a device's own memory to the client's buffer, in place of host memory.
    ///
    /// # Errors
    /// No memory for a host buffer, or [`Error::Outboard`]: the input is as it was before, except that with weak integrity
    /// something may have been stored into the client's buffer.
    ///
    /// # Panics
    /// When the buffer has been made ready before.
    pub fn outboard(&mut self, outboard: Box<dyn Outboard>) -> Result<()> {
        assert!(!self.is_ready, "an input is either made ready or linked to outboard memory");
        self.buffering = Buffering::Outboard(outboard);
        let transferred = self.run_ready();
        if transferred.is_err() {
            (self.buffering, self.system, self.is_ready) = (Buffering::Customized, None, false);
        }
        transferred
    }

    /// Where the data is, or will be, in host memory.
    pub fn segments(&self) -> Segments {
        match (&self.buffering, &self.system, &self.reference) {
            (Buffering::Overlaid(chain), ..) => chain.segments(),
            (_, Some(system), _) => system.segments(),
            (_, None, Some(reference)) => reference.segments(),
            (_, None, None) => Segments::new(),
        }
    }

    /// Runs the reply-time operations of a request that succeeded with `actual` bytes. A native scheme delivers to `bytes`, the buffer
    /// named at request time or another buffer; data that was shared is copied to another buffer, and stays in its own, too. A migrant
    /// scheme is given no buffer, and returns the one that arrived.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Outboard`], or the kernel's reason; the client's buffer is untouched, and the input is over.
    /// If a server takes the data's memory away meanwhile, zeros may have been delivered.
    pub fn deliver(&mut self, actual: usize, bytes: Option<&mut [u8]>) -> Result<Option<Migrant>> {
        let delivered = self.run_reply(actual, bytes);
        match delivered {
            Ok(_) => self.unreference(),
            Err(_) => self.cancel(),
        }
        delivered
    }

    fn run_reply(&mut self, actual: usize, bytes: Option<&mut [u8]>) -> Result<Option<Migrant>> {
        self.prepare(actual, bytes.as_deref())?;
        let missing = guard::breaks();
        let mut bytes = bytes.map(|bytes| &mut bytes[..actual]);
        self.redeliver_shared(&mut bytes);
        // The scheme in effect may change on the way.
        let scheme = self.receipt.effective;
        let mut watch = Watch::start(self.passing().recorder());
        for operation in self.operations().reply {
            self.reply(*operation, actual, &mut bytes)?;
            watch.ran(*operation);
        }
        watch.finish(|| Column { scheme, ..self.column(Moment::Reply, actual) });
        // It is no longer known which memory was lost: the data's memory has changed places.
        if guard::breaks() != missing && self.space().has_losses() {
            return Err(MemoryError::Lost.into());
        }
        Ok(self.migrant.take())
    }

    /// Takes what a native scheme needs for delivering `actual` bytes to `bytes`, as [`Input::deliver`] would. After this,
    /// the delivery cannot fail.
    ///
    /// # Errors
    /// As [`Input::deliver`].
    pub fn prepare(&mut self, actual: usize, bytes: Option<&[u8]>) -> Result<()> {
        self.check(actual, bytes.map(<[u8]>::len))?;
        self.system.as_ref().map_or(Ok(()), SystemBuffer::ensure_kept)?;
        match &self.buffering {
            Buffering::Overlaid(_) if self.space().is_inherited() => {
                return Err(MemoryError::Inherited.into());
            }
            Buffering::Overlaid(chain) if !chain.is_of(self.space()) => {
                self.customize(actual)?;
            }
            Buffering::Outboard(_) if self.receipt.effective == Scheme::EmulatedCopy && actual > 0 => {
                if let Some(bytes) = bytes {
                    self.take_delivered(&bytes[..actual])?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether `actual` bytes can be delivered: whether the server had memory for as many, and whether they fit in `room`
    /// bytes, if memory other than a region is given.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn check(&self, actual: usize, room: Option<usize>) -> Result<()> {
        let held = match &self.buffering {
            Buffering::Overlaid(chain) => chain.len(),
            Buffering::Outboard(outboard) => outboard.len(),
            Buffering::Customized if self.is_ready || self.reference.is_some() => self.len(),
            Buffering::Customized => 0,
        };
        let len = self.len().min(held).min(room.unwrap_or(usize::MAX));
        if actual > len { Err(Error::TooLong { actual, len }) } else { Ok(()) }
    }

    /// Whether the server has had memory for the data, or has said where the data is.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Gives back what the operations so far took, because the request failed or the client wants no data.
    pub fn cancel(&mut self) {
        self.wired = None;
        self.unreference();
        self.system = None;
        self.buffering = Buffering::Customized;
        self.immigrating = None;
    }

    fn operations(&self) -> InputOperations {
        match self.buffering {
            Buffering::Customized => tables::customized_input(self.receipt.effective),
            Buffering::Overlaid(_) => tables::overlaid_input(self.receipt.effective),
            Buffering::Outboard(_) => tables::outboard_input(self.receipt.effective),
        }
    }

    fn column(&self, moment: Moment, len: usize) -> Column {
        Column { scheme: self.receipt.effective, direction: Direction::In, moment, len }
    }

    fn passing(&self) -> &Passing {
        self.passing.as_ref().expect("an input has its engine until it ends")
    }

    /// The space that its memory comes from.
    pub fn space(&self) -> &Space {
        self.passing().space()
    }

    fn request(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::ReferenceClientPages => self.reference()?,
            Operation::WireRegion => self.wire()?,
            Operation::DequeueEmigrantRegion => self.dequeue(true)?,
            Operation::DequeueWeakEmigrantRegion => self.dequeue(false)?,
            // Dequeuing marks the region under the same lock, so that no other request finds it in the queue.
            Operation::MarkRegionImmigrating => {}
            other => unreachable!("{other:?} is no request-time operation of table 7.2"),
        }
        Ok(())
    }

    fn reply(&mut self, operation: Operation, actual: usize, bytes: &mut Option<&mut [u8]>) -> Result<()> {
        match operation {
            Operation::CopyoutData => self.copyout(bytes),
            Operation::SwapPages | Operation::SwapPagesIfAlignedElseCopyout => self.swap(actual, bytes)?,
            Operation::DeallocateSystemBuffer | Operation::DeallocateAlignedBuffer => self.system = None,
            Operation::DeallocateOverlayBuffer | Operation::DeallocateOutboardBuffer => {
                self.buffering = Buffering::Customized;
            }
            Operation::UnwireRegion => self.wired = None,
            // Left to the operation that marks the region, under the same lock.
            Operation::CheckRegion | Operation::UnreferenceClientPages if self.is_cached() => {}
            Operation::UnreferenceClientPages => self.unreference(),
            Operation::CheckRegion => {
                if let (Some(immigrating), Some(reference)) = (&mut self.immigrating, &self.reference) {
                    immigrating.check(reference)?;
                }
            }
            Operation::ReinstatePageAccesses => self.reinstate()?,
            Operation::MarkRegionImmigrant if self.is_cached() => self.arrive(actual)?,
            Operation::MarkRegionImmigrant => {
                self.migrant = self.immigrating.take().map(|immigrating| immigrating.arrive(actual));
            }
            // One call of the memory crate does all three, because addresses are taken for granules that exist.
            Operation::CreateRegion | Operation::MapRegionAndMarkImmigrant => {}
            Operation::ZeroCompleteSystemPagesAndFillRegion
            | Operation::ZeroCompleteOverlayPagesFillRegionAndRefill => self.fill_region(actual)?,
            Operation::ReferenceClientPages => self.reference_delivered(bytes.as_deref())?,
            Operation::DmaFromOutboard if self.system.is_some() => {
                self.swap(actual, bytes)?;
                self.system = None;
            }
            Operation::DmaFromOutboard => self.transfer()?,
            other => unreachable!("{other:?} is no reply-time operation of tables 7.2 and 7.3"),
        }
        Ok(())
    }

    /// Dequeues a region. Its granules are referenced under the same lock.
    fn dequeue(&mut self, strong: bool) -> Result<()> {
        let (immigrating, reference) = self.space().dequeue_referenced(self.len(), strong)?;
        (self.immigrating, self.reference) = (Some(immigrating), Some(reference));
        Ok(())
    }

    /// Whether the server fills a region that was visible to the client all the time, so that nothing but the tables has to
    /// change when it has arrived.
    fn is_cached(&self) -> bool {
        let is_weak = matches!(self.receipt.effective, Scheme::WeakMove | Scheme::EmulatedWeakMove);
        is_weak && matches!(self.buffering, Buffering::Customized)
    }

    fn arrive(&mut self, actual: usize) -> Result<()> {
        if let (Some(immigrating), Some(reference)) = (self.immigrating.take(), self.reference.take()) {
            let (migrant, released) = immigrating.arrive_released(reference, actual)?;
            self.receipt.faults += released.faults;
            self.migrant = Some(migrant);
        }
        Ok(())
    }

    fn reference(&mut self) -> Result<()> {
        let reference = match (self.reference.take(), self.target) {
            (Some(reference), _) => reference,
            (None, Target::Native { addr, len }) => self.space().reference(addr, len, Direction::In)?,
            (None, Target::Migrant { .. }) => unreachable!("a migrant target has a region"),
        };
        if self.parties.shows_elsewhere() && reference.is_framed() {
            return Err(Error::Framed);
        }
        self.receipt.referenced += reference.granules();
        self.reference = Some(reference);
        Ok(())
    }

    fn wire(&mut self) -> Result<()> {
        let wired = match (&self.immigrating, &self.reference) {
            (Some(immigrating), _) => immigrating.wire(),
            (None, Some(reference)) => reference.wire(),
            (None, None) => unreachable!("a region is referenced before it is wired"),
        };
        match wired {
            Ok(wired) => self.wired = Some(wired),
            Err(MemoryError::Kernel(_)) => self.receipt.leave_unwired(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn unreference(&mut self) {
        if let Some(reference) = self.reference.take() {
            self.receipt.faults += reference.release().faults;
        }
    }

    fn reinstate(&mut self) -> Result<()> {
        if let Some(immigrating) = &mut self.immigrating {
            self.receipt.mapped += immigrating.reinstate()?;
        }
        Ok(())
    }
}
