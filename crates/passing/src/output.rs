//! Output: from a client's buffer to a system buffer, by table 7.1.

use std::ops::Range;

use genie_memory::{
    Data, Direction, Emigrating, Error as MemoryError, LenderId, Migrant, Reference, Segments, SystemBuffer,
    Wired,
};

use crate::engine::{Decided, Hold};
use crate::operation::Operation;
use crate::parties::needs_completion;
use crate::recorder::{Column, Moment, Recorder, Watch};
use crate::spare::Spare;
use crate::tables::OutputOperations;
use crate::{Error, Parties, Passing, Reason, Receipt, Refused, Result, Scheme, tables};

/// Where an output's data is.
#[derive(Debug)]
pub enum Source<'a> {
    /// In memory of the client's own, into which the client may store from now on.
    Native(&'a [u8]),
    /// In memory of the client's own, into which nobody stores before the output ends, or before
    /// [`Space::end_borrow`](genie_memory::Space::end_borrow) has succeeded.
    Borrowed(&'a [u8]),
    /// In memory of the client's own, into which nobody stores before the output ends.
    Owned(&'a [u8]),
    /// In a migrant buffer, which the output takes.
    Migrant(Migrant),
}

/// One element's output under way. It owns all that its request-time operations have taken.
#[derive(Debug)]
pub struct Output {
    receipt: Receipt,
    parties: Parties,
    len: usize,
    /// Copies of parts on the first and last granule, or of everything.
    copied: [Option<SystemBuffer>; 2],
    reference: Option<Reference>,
    wired: Option<Wired>,
    emigrating: Option<Emigrating>,
    recorder: Option<&'static Recorder>,
}

thread_local! {
    /// An output that is over, with nothing in it.
    static SPARE: Spare<Box<Output>> = const { Spare::none() };
}

impl Passing {
    /// Runs the request-time operations of an output by `scheme` to a server in this process.
    ///
    /// # Errors
    /// As [`Passing::output_from`].
    ///
    /// # Panics
    /// As [`Passing::output_from`].
    pub fn output(&self, scheme: Scheme, source: Source<'_>) -> std::result::Result<Box<Output>, Refused> {
        self.output_from(scheme, source, Parties::OWN)
    }

    /// Runs the request-time operations of an output by `scheme`, with system buffers as `parties` says; if `parties`
    /// is made of a [`LenderId`] alone, they are the server's own memory.
    ///
    /// # Errors
    /// A migrant buffer of the other integrity, a region that is not the client's at the moment, no memory for a copy. Nothing has been passed, and a migrant buffer comes back.
    ///
    /// # Panics
    /// When a native scheme is given a migrant buffer by value, or the other way round: the types of the crate above
    /// rule that out.
    pub fn output_from(
        &self,
        scheme: Scheme,
        source: Source<'_>,
        parties: impl Into<Parties>,
    ) -> std::result::Result<Box<Output>, Refused> {
        let parties = parties.into();
        match source {
            Source::Native(bytes) => Ok(self.output_native(scheme, bytes, Hold::None, parties)?),
            Source::Borrowed(bytes) => Ok(self.output_native(scheme, bytes, Hold::Borrow, parties)?),
            Source::Owned(bytes) => Ok(self.output_native(scheme, bytes, Hold::Owner, parties)?),
            Source::Migrant(migrant) => self.output_migrant(scheme, migrant, parties),
        }
    }

    fn output_native(
        &self,
        scheme: Scheme,
        bytes: &[u8],
        hold: Hold,
        parties: Parties,
    ) -> Result<Box<Output>> {
        let begin = |decided: Decided| {
            let mut output = Output::new(scheme, decided.scheme, bytes.len(), parties, self.recorder());
            output.receipt.reason = decided.reason;
            output.receipt.held = hold != Hold::None && decided.scheme != Scheme::Copy;
            output.request(self, bytes, decided.in_place, Watch::start(self.recorder()))?;
            Ok(output)
        };
        let decided = self.decide(scheme, bytes, hold, parties);
        let chosen = decided.scheme;
        let reason = match begin(decided) {
            Err(Error::Memory(MemoryError::Foreign { .. })) if chosen != Scheme::Copy => Reason::Foreign,
            Err(Error::Unprofitable) => Reason::Faults,
            Err(Error::Framed) => Reason::Unshown,
            Err(Error::Memory(MemoryError::Irreplaceable { .. })) => Reason::Irreplaceable,
            Err(Error::Memory(_)) if chosen == Scheme::EmulatedCopy => Reason::Kernel,
            result => return result,
        };
        // Nothing has been taken; copy's operations do the same for the client.
        begin(Decided { scheme: Scheme::Copy, reason: Some(reason), in_place: 0..0 })
    }

    fn output_migrant(
        &self,
        scheme: Scheme,
        migrant: Migrant,
        parties: Parties,
    ) -> std::result::Result<Box<Output>, Refused> {
        let strong = matches!(scheme, Scheme::Move | Scheme::EmulatedMove);
        if migrant.is_strong() != strong {
            let expected = if strong { "strong" } else { "weak" };
            let error = Error::Integrity { scheme, expected };
            return Err(Refused { error, migrant: Some(migrant) });
        }
        let mut output = Output::new(scheme, scheme, migrant.len(), parties, self.recorder());
        let mut watch = Watch::start(self.recorder());
        let (emigrating, reference) = migrant.emigrate_referenced().map_err(Error::from)?;
        watch.early(Operation::ReferenceClientPages);
        (output.emigrating, output.reference) = (Some(emigrating), Some(reference));
        match output.request(self, &[], 0..0, watch) {
            Ok(()) => Ok(output),
            Err(error) => Err(Refused { error, migrant: output.fail() }),
        }
    }
}

impl Output {
    /// Boxed from the start: an output is as long as five cache lines, and changes hands often. It is put into memory
    /// that this thread's last output has left, if there is any.
    #[inline]
    fn new(
        asked: Scheme,
        effective: Scheme,
        len: usize,
        parties: Parties,
        recorder: Option<&'static Recorder>,
    ) -> Box<Self> {
        let receipt = Receipt { effective, ..Receipt::new(asked) };
        match Spare::take(&SPARE) {
            Some(mut spare) => {
                (spare.receipt, spare.parties, spare.len, spare.recorder) = (receipt, parties, len, recorder);
                spare
            }
            None => Box::new(Self {
                receipt,
                parties,
                len,
                copied: [None, None],
                reference: None,
                wired: None,
                emigrating: None,
                recorder,
            }),
        }
    }

    /// Ends the output as dropping it does, and keeps its memory for this thread's next output.
    #[inline]
    pub fn end(mut self: Box<Self>) {
        self.copied = [None, None];
        (self.reference, self.wired, self.emigrating) = (None, None, None);
        Spare::keep(&SPARE, self);
    }

    /// The data, as the server sees it.
    pub fn data(&self) -> Data<'_> {
        let [head, tail] = &self.copied;
        let mut data = head.as_ref().map(|head| head.data().into_data()).unwrap_or_default();
        self.reference.iter().for_each(|reference| data.append(reference.data()));
        tail.iter().for_each(|tail| data.append(tail.data().into_data()));
        data
    }

    /// Where the data is.
    pub fn segments(&self) -> Segments {
        let [head, tail] = &self.copied;
        let mut segments = match (head, &self.reference) {
            (None, Some(reference)) => reference.segments(),
            (Some(head), None) => head.segments(),
            (None, None) => return Segments::new(),
            (Some(head), Some(reference)) => {
                let mut segments = head.segments();
                segments.extend_from_slice(&reference.segments());
                segments
            }
        };
        if let Some(tail) = tail {
            segments.extend_from_slice(&tail.segments());
        }
        segments
    }

    /// The number of data bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no data bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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

    /// The lenders of the system buffers that hold data; none when all data is passed in place.
    pub fn lenders(&self) -> impl Iterator<Item = LenderId> + '_ {
        self.copied.iter().flatten().map(SystemBuffer::lender)
    }

    /// Zero-completes the system buffers that `server` did not lend: the server is about to see them (as a
    /// subcontractor, say). For the server named at request time this has been done. In-place granules are not zeroed,
    /// since the client may show them.
    ///
    /// Short data may share a granule with other data of the same client to the same server, which stays.
    ///
    /// # Cost
    /// Stores zeros to the rest of at most two granules for each buffer, which the receipt counts.
    pub fn zero_around(&mut self, server: LenderId) {
        for system in self.copied.iter().flatten().filter(|system| needs_completion(system, server)) {
            self.receipt.zeroed += system.zero_around(0..system.len());
        }
    }

    /// Runs the reply-time operations of a request that succeeded.
    ///
    /// # Errors
    /// A region could not be removed (too many mappings); its memory is free all the same. A server has taken the data's memory
    /// away meanwhile.
    pub fn complete(&mut self) -> Result<()> {
        let kept = self.ensure_kept();
        let mut watch = Watch::start(self.recorder);
        for operation in self.operations().reply {
            self.reply(*operation)?;
            watch.ran(*operation);
        }
        watch.finish(|| self.column(Moment::Reply));
        kept
    }

    /// Whether the data is still what it was: as far as is known, none of its memory was taken away.
    fn ensure_kept(&self) -> Result<()> {
        self.copied.iter().flatten().try_for_each(SystemBuffer::ensure_kept)?;
        Ok(self.reference.as_ref().map_or(Ok(()), Reference::ensure_kept)?)
    }

    /// Undoes the output of a request that failed; a migrant buffer is the client's again.
    pub fn fail(&mut self) -> Option<Migrant> {
        self.wired = None;
        self.unreference();
        self.copied = [None, None];
        // A region that cannot be shown again stays hidden and is kept for reuse.
        self.emigrating.take().and_then(|emigrating| emigrating.give_back().ok())
    }

    /// What passes the data.
    fn operations(&self) -> OutputOperations {
        let row = if self.receipt.held { tables::held_output } else { tables::output };
        row(self.receipt.effective)
    }

    fn column(&self, moment: Moment) -> Column {
        Column { scheme: self.receipt.effective, direction: Direction::Out, moment, len: self.len }
    }

    fn request(
        &mut self,
        passing: &Passing,
        bytes: &[u8],
        in_place: Range<usize>,
        mut watch: Watch,
    ) -> Result<()> {
        let mut passed = bytes;
        if self.receipt.effective == Scheme::EmulatedCopy {
            passed = &bytes[in_place.clone()];
            self.copy_edges(passing, [&bytes[..in_place.start], &bytes[in_place.end..]])?;
        }
        watch.skip();
        for operation in self.operations().request {
            self.request_operation(passing, *operation, passed)?;
            watch.ran(*operation);
        }
        watch.finish(|| self.column(Moment::Request));
        self.zero_around(self.parties.server);
        match passing.space().has_losses() {
            false => Ok(()),
            true => {
                passing.space().ensure_kept(bytes.as_ptr().addr(), bytes.len())?;
                self.ensure_kept()
            }
        }
    }

    /// Copies the parts of an emulated-copy output that are not passed in place.
    fn copy_edges(&mut self, passing: &Passing, edges: [&[u8]; 2]) -> Result<()> {
        for (index, edge) in edges.into_iter().enumerate().filter(|(_, edge)| !edge.is_empty()) {
            self.copied[index] = Some(passing.copy_buffer(self.parties, edge.len())?);
            self.copyin(index, edge);
            self.receipt.reason = Some(if self.receipt.held { Reason::Neighbours } else { Reason::Edges });
        }
        Ok(())
    }

    fn copyin(&mut self, index: usize, bytes: &[u8]) {
        if let Some(system) = &self.copied[index] {
            self.receipt.copied += system.data().copy_from(bytes);
        }
    }

    fn request_operation(&mut self, passing: &Passing, operation: Operation, bytes: &[u8]) -> Result<()> {
        match operation {
            Operation::AllocateSystemBuffer => {
                self.copied[0] = Some(passing.copy_buffer(self.parties, bytes.len())?);
            }
            Operation::CopyinData => self.copyin(0, bytes),
            Operation::ReferenceClientPages => self.reference(passing, bytes)?,
            Operation::ReadOnlyClientPages => self.read_only(passing, bytes.len())?,
            Operation::WireRegion => self.wire()?,
            // A migrant buffer's region was marked and referenced when it was taken, under one lock, so that no moment
            // exists in which a region is the client's and passed on.
            Operation::MarkRegionEmigrating => {}
            Operation::InvalidateClientPages => {
                if let Some(emigrating) = &mut self.emigrating {
                    self.receipt.mapped += emigrating.hide()?;
                }
            }
            other => unreachable!("{other:?} is no request-time operation of table 7.1"),
        }
        Ok(())
    }

    fn reply(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::DeallocateSystemBuffer => self.copied = [None, None],
            Operation::UnwireRegion => self.wired = None,
            // Left to the operation that enqueues the region, under the same lock.
            Operation::UnreferenceClientPages if self.is_enqueued() => {}
            Operation::UnreferenceClientPages => {
                self.unreference();
                self.copied = [None, None];
            }
            Operation::RemoveRegion => {
                if let Some(emigrating) = self.emigrating.take() {
                    emigrating.remove()?;
                }
            }
            Operation::MarkRegionEmigrantAndEnqueue | Operation::MarkRegionWeakEmigrantAndEnqueue => {
                if let (Some(emigrating), Some(reference)) = (self.emigrating.take(), self.reference.take()) {
                    self.receipt.faults += emigrating.enqueue_released(reference).faults;
                }
            }
            other => unreachable!("{other:?} is no reply-time operation of table 7.1"),
        }
        Ok(())
    }

    fn reference(&mut self, passing: &Passing, bytes: &[u8]) -> Result<()> {
        let reference = match self.reference.take() {
            Some(reference) => reference,
            None => passing.space().reference(bytes.as_ptr().addr(), bytes.len(), Direction::Out)?,
        };
        if self.parties.shows_elsewhere() && reference.is_framed() {
            return if self.emigrating.is_some() {
                self.copy_framed(passing, &reference)
            } else {
                Err(Error::Framed)
            };
        }
        self.receipt.referenced += reference.granules();
        self.reference = Some(reference);
        Ok(())
    }

    /// Copies a migrant buffer's data, whose region ends as it would without.
    fn copy_framed(&mut self, passing: &Passing, reference: &Reference) -> Result<()> {
        let system = passing.copy_buffer(self.parties, self.len)?;
        self.receipt.copied += system.data().copy_data(&reference.data());
        self.receipt.reason = Some(Reason::Unshown);
        self.copied[0] = Some(system);
        Ok(())
    }

    /// Whether the reply keeps the client's region for reuse.
    fn is_enqueued(&self) -> bool {
        self.emigrating.is_some() && self.receipt.effective != Scheme::Move
    }

    fn read_only(&mut self, passing: &Passing, len: usize) -> Result<()> {
        let Some(reference) = &self.reference else { return Ok(()) };
        let stakes = passing.rules(reference.space()).stakes(reference.space(), len);
        match passing.space().read_only_if_it_pays(reference, stakes)? {
            Some(protected) => self.receipt.protected += protected,
            None => return Err(Error::Unprofitable),
        }
        Ok(())
    }

    fn wire(&mut self) -> Result<()> {
        let wired = match (&self.emigrating, &self.reference) {
            (Some(emigrating), _) => emigrating.wire(),
            (None, Some(reference)) => reference.wire(),
            (None, None) => Err(MemoryError::Empty),
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
}
