//! Frames, as they arrive at an adapter.
//!
//! Why: between the sender's buffers and the receiver's there is one copy, the wire's, which stands for what two devices' DMA would do.
//! How: a frame is a view of bytes in the sender's buffers. Damage on the way is a list of changes that are made behind that copy, so a
//! damaged frame needs no memory of its own. A frame that a device has stored already is in [`Buffers`], which an adapter may take.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use genie_memory::{Data, DataMut};
use genie_passing::Overlay;
use smallvec::SmallVec;

use crate::checksum::{Checksum, Sum, ones_complement, plus};

/// Half of a small first-level cache.
const BLOCK: usize = 16 << 10;
const SHORT: usize = 512;

/// Bits that the wire turned over: the place of a byte, and the bits of it.
pub type Flip = (usize, u8);

/// A frame on the wire: bytes that are the sender's, for the time of one call.
#[derive(Debug, Clone)]
pub struct Frame<'f> {
    bytes: Bytes<'f>,
    /// How many of the bytes are in front of it.
    behind: usize,
    flips: &'f [Flip],
    tally: Option<&'f Tally>,
    is_unsummed: bool,
}

/// Where a frame's bytes are.
#[derive(Debug, Clone)]
enum Bytes<'f> {
    /// With its sender.
    Sent(Data<'f>),
    /// In buffers of the host, until they are taken.
    Stored(&'f Buffers),
}

/// Whole buffers, which part of each has bytes of a frame, and these: to look for them in the buffer takes longer than to read a short frame.
type Parts = SmallVec<[(Overlay, Range<usize>, Data<'static>); 1]>;

/// The buffers of the host in which a device has stored a frame: each whole, and which part of it has the frame's bytes.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The bytes of each are shown only while it is borrowed here.
    parts: RefCell<Parts>,
    /// Whether an adapter may take them.
    may_leave: Cell<bool>,
}

/// The ones' complement sum of bytes of a frame that were stored, in any order.
#[derive(Debug, Default)]
pub(crate) struct Tally(Cell<u16>);

impl<'f> Frame<'f> {
    /// A frame that arrives as it was sent.
    pub fn new(bytes: Data<'f>) -> Self {
        Self::damaged(bytes, &[])
    }

    /// A frame in which bits were turned over that its own check did not find.
    pub fn damaged(bytes: Data<'f>, flips: &'f [Flip]) -> Self {
        Self { bytes: Bytes::Sent(bytes), behind: 0, flips, tally: None, is_unsummed: false }
    }

    /// The same frame, of which the sender's kernel may have left the transport checksum to a device, and there was none: where the sum of
    /// the pseudo-header stands in its place, nobody has summed the data.
    #[doc(alias = "TP_STATUS_CSUMNOTREADY")]
    #[must_use]
    pub fn unsummed(self) -> Self {
        Self { is_unsummed: true, ..self }
    }

    /// What is behind the first `len` bytes, as a frame: what another protocol's header carries. Nothing, if there are fewer.
    #[must_use]
    pub fn behind(self, len: usize) -> Self {
        Self { behind: self.behind + len.min(self.len()), ..self }
    }

    pub(crate) fn is_unsummed(&self) -> bool {
        self.is_unsummed
    }

    /// A frame that a device has stored. When an adapter has [taken](Frame::take_buffers) the buffers, it has no bytes any more.
    pub(crate) fn in_buffers(buffers: &'f Buffers) -> Self {
        Self { bytes: Bytes::Stored(buffers), behind: 0, flips: &[], tally: None, is_unsummed: false }
    }

    /// The buffers that hold the frame, narrowed to its bytes; none if it is in no buffers, or these may not leave the device.
    pub(crate) fn take_buffers(&self) -> Option<SmallVec<[Overlay; 2]>> {
        match &self.bytes {
            Bytes::Stored(buffers) if buffers.may_leave.get() => {
                let mut behind = self.behind;
                let narrowed = |(whole, part, _): (Overlay, Range<usize>, _)| {
                    let start = part.start + behind.min(part.len());
                    behind -= start - part.start;
                    whole.part(start..part.end)
                };
                Some(buffers.parts.borrow_mut().drain(..).map(narrowed).collect())
            }
            _ => None,
        }
    }

    /// The same frame, of which what is stored is added to `tally`.
    pub(crate) fn tallied<'t>(&'t self, tally: &'t Tally) -> Frame<'t> {
        Frame { tally: Some(tally), ..self.clone() }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        let len = match &self.bytes {
            Bytes::Sent(bytes) => bytes.len(),
            Bytes::Stored(buffers) => buffers.parts.borrow().iter().map(|(_, part, _)| part.len()).sum(),
        };
        // The buffers may have been taken.
        len.saturating_sub(self.behind)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks at bytes from `at` on: copies them to `into`, as many as there are; returns how many.
    pub fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let range = self.range(at, into.len());
        let len = self.with(|bytes| bytes.part(range.clone()).copy_to(into));
        for (place, bits) in self.flips_in(&range) {
            into[place - range.start] ^= bits;
        }
        len
    }

    /// Shows all bytes to `see`, in place but where the wire has damaged them.
    pub(crate) fn show<R>(&self, see: impl FnOnce(&Data<'_>) -> R) -> R {
        if self.flips.is_empty() {
            return self.with(see);
        }
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes);
        see(&Data::from(&bytes[..]))
    }

    /// Stores bytes `from` into as many of `into`: the wire's copy.
    ///
    /// # Panics
    /// When the frame is shorter.
    pub fn store(&self, from: Range<usize>, into: &DataMut<'_>) {
        if let Some(tally) = self.tally {
            let mut sum = Sum::new(Checksum::Internet);
            self.store_summed(from.clone(), into, &mut sum);
            return tally.add(from.start, sum);
        }
        self.with(|bytes| into.copy_data(&bytes.part(from.clone())));
        for (place, bits) in self.flips_in(&from) {
            let byte = into.part(place - from.start..place - from.start + 1);
            let mut is = [0];
            byte.copy_to(&mut is);
            byte.copy_from(&[is[0] ^ bits]);
        }
    }

    /// The same, into bytes that are the adapter's own, and as many as there are.
    pub fn store_bytes(&self, at: usize, into: &mut [u8]) {
        let len = self.read(at, into);
        if let Some(tally) = self.tally {
            let mut sum = Sum::new(Checksum::Internet);
            sum.add(&into[..len]);
            tally.add(at, sum);
        }
    }

    /// Stores bytes `from` into as many of `into`, and adds them to `sum`, as they are stored. Each is loaded once from the sender's memory.
    ///
    /// # Panics
    /// When the frame is shorter.
    pub fn store_summed(&self, from: Range<usize>, into: &DataMut<'_>, sum: &mut Sum) {
        let start = from.start;
        self.for_each_block(from, |at, block| {
            sum.add(block);
            into.part(at - start..at - start + block.len()).copy_from(block);
        });
    }

    /// Adds bytes `range` to `sum`.
    ///
    /// # Panics
    /// When the frame is shorter.
    pub fn sum(&self, range: Range<usize>, sum: &mut Sum) {
        self.for_each_block(range, |_, block| sum.add(block));
    }

    /// Shows bytes `range` to `see`, with their places, as many at a time as stay in the first-level cache.
    fn for_each_block(&self, range: Range<usize>, see: impl FnMut(usize, &[u8])) {
        assert!(range.end <= self.len(), "bytes {range:?} are asked for of a frame of {} bytes", self.len());
        match range.len() {
            // Clearing a block takes longer than copying so few bytes.
            ..=SHORT => self.for_each_block_of::<SHORT>(range, see),
            _ => self.for_each_block_of::<BLOCK>(range, see),
        }
    }

    fn for_each_block_of<const LEN: usize>(&self, range: Range<usize>, mut see: impl FnMut(usize, &[u8])) {
        let mut block = [0; LEN];
        for at in range.clone().step_by(LEN) {
            let here = &mut block[..LEN.min(range.end - at)];
            self.read(at, here);
            see(at, here);
        }
    }

    fn with<R>(&self, see: impl FnOnce(&Data<'_>) -> R) -> R {
        let see = |all: &Data<'_>| match self.behind {
            0 => see(all),
            behind => see(&all.part(behind.min(all.len())..all.len())),
        };
        match &self.bytes {
            Bytes::Sent(bytes) => see(bytes),
            Bytes::Stored(buffers) => {
                let parts = buffers.parts.borrow();
                if let [(.., all)] = &parts[..] {
                    return see(all);
                }
                let mut all = Data::default();
                parts.iter().for_each(|(.., bytes)| all.append(bytes.clone()));
                see(&all)
            }
        }
    }

    fn range(&self, at: usize, most: usize) -> Range<usize> {
        let len = self.len();
        at.min(len)..at.saturating_add(most).min(len)
    }

    fn flips_in(&self, range: &Range<usize>) -> impl Iterator<Item = Flip> + use<'f> {
        let (range, behind) = (range.clone(), self.behind);
        let places =
            self.flips.iter().filter_map(move |(place, bits)| Some((place.checked_sub(behind)?, *bits)));
        places.filter(move |(place, _)| range.contains(place))
    }
}

impl Buffers {
    /// Adds the buffer that holds the next bytes, and says which part of it has these: `bytes`, which stay where they are while it is whole.
    pub(crate) fn push(&self, whole: Overlay, part: Range<usize>, bytes: Data<'static>) {
        self.parts.borrow_mut().push((whole, part, bytes));
    }

    /// Takes a buffer back, whole, that no adapter has taken, with the frame's bytes.
    pub(crate) fn pop(&self) -> Option<(Overlay, Data<'static>)> {
        self.parts.borrow_mut().pop().map(|(whole, _, bytes)| (whole, bytes))
    }

    /// Says whether an adapter may take the frame's buffers.
    pub(crate) fn let_leave(&self, may: bool) {
        self.may_leave.set(may);
    }
}

impl Tally {
    /// Adds bytes from byte `at` of the frame on, which have this sum.
    fn add(&self, at: usize, sum: Sum) {
        let sum = ones_complement(sum.finish());
        let sum = if at.is_multiple_of(2) { sum } else { sum.swap_bytes() };
        self.0.set(plus(self.0.get(), sum));
    }

    /// The sum of all that was stored, high byte first.
    pub(crate) fn sum(&self) -> u16 {
        self.0.get()
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "says of an overlay buffer's bytes that they stay")]
mod tests {
    use genie_conformance::{Guard, Setup};
    use genie_memory::GranuleKind;
    use genie_passing::Overlays;
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::Checksum;

    proptest! {
        #[test]
        fn what_is_stored_in_parts_has_the_damage_and_the_checksum_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 1..40_000),
            flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
            let flips: Vec<Flip> = flips.into_iter().map(|(at, bits)| (at.index(bytes.len()), bits)).collect();
            let frame = Frame::damaged(Data::from(&bytes[..]), &flips);
            let mut expected = bytes.clone();
            flips.iter().for_each(|(at, bits)| expected[*at] ^= bits);
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            for kind in Checksum::ALL {
                let memory = setup.space("frames", 4 << 20).expect("memory");
                let memory = Overlays::reserve(&memory, 0, bytes.len(), 3).expect("three buffers");
                let [stored, plain, rest] = [(); 3].map(|()| memory.allocate().expect("a buffer"));
                let mut sums = [Sum::new(kind), Sum::new(kind)];
                for part in cuts.windows(2) {
                    let part = part[0]..part[1];
                    frame.store_summed(part.clone(), &stored.data().part(part.clone()), &mut sums[0]);
                    frame.store(part.clone(), &plain.data().part(part.clone()));
                    frame.sum(part, &mut sums[1]);
                }
                let (tally, mut own) = (Tally::default(), vec![0; bytes.len()]);
                // In any order, to either kind of memory.
                for (number, part) in cuts.windows(2).enumerate().rev() {
                    let (part, tallied) = (part[0]..part[1], frame.tallied(&tally));
                    match number % 2 {
                        0 => tallied.store_bytes(part.start, &mut own[part]),
                        _ => tallied.store(part.clone(), &stored.data().part(part)),
                    }
                }
                let whole = ones_complement(Checksum::Internet.of(&expected));
                for part in [0, bytes.len() / 2, bytes.len()].map(|at| at..bytes.len()) {
                    let (behind, len) = (frame.clone().behind(part.start), part.len());
                    prop_assert_eq!(behind.len(), len);
                    behind.store(0..len, &rest.data().part(0..len));
                    prop_assert_eq!(rest.data().part(0..len).mismatch(&expected[part]), None);
                }
                // Zero and 0xffff are one number.
                prop_assert_eq!(tally.sum() % 0xffff, whole % 0xffff);
                prop_assert_eq!(stored.data().mismatch(&expected), None);
                prop_assert_eq!(plain.data().mismatch(&expected), None);
                prop_assert_eq!(sums.map(Sum::finish), [kind.of(&expected); 2]);
            }
        }
    }

    #[test]
    fn what_is_taken_of_a_frame_behind_a_header_begins_behind_it() {
        let setup = Setup { guard: Guard::Never, ..Setup::plain(GranuleKind::Base) };
        let memory = setup.space("frames", 4 << 20).expect("memory");
        let overlays = Overlays::reserve(&memory, 0, 100, 2).expect("two buffers");
        // In the first buffer, in between, in the second one, and all.
        for header in [0, 3, 60, 75, 80] {
            let buffers = Buffers::default();
            for (first, part) in [(0, 20..80), (60, 10..30)] {
                let overlay = overlays.allocate().expect("a buffer");
                let bytes: Vec<u8> = (first..).take(part.len()).collect();
                overlay.data().part(part.clone()).copy_from(&bytes);
                // SAFETY: they stay while the buffer does, which goes with them.
                let bytes = unsafe { Data::new(overlay.data().part(part.clone()).segments().clone()) };
                buffers.push(overlay, part, bytes);
            }
            buffers.let_leave(true);
            let frame = Frame::in_buffers(&buffers).behind(header);
            let mut expected: Vec<u8> = (0..80).collect();
            let expected = expected.split_off(header);
            let mut read = vec![0; 100];
            let len = frame.read(0, &mut read);
            assert_eq!((len, &read[..len]), (frame.len(), &expected[..]));
            let mut taken = Data::default();
            let parts = frame.take_buffers().expect("they may leave");
            parts.iter().for_each(|part| taken.append(part.data().into_data()));
            assert_eq!((taken.mismatch(&expected), taken.len(), frame.len()), (None, expected.len(), 0));
        }
    }
}
