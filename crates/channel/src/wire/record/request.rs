//! Requests on a ring.

use genie_memory::Direction;
use zerocopy::little_endian::U16;

use super::layout::{BufferHead, CarriedBuffer, ElementHead, RequestHead, Segment};
use super::parts::{Part, Parts};
use super::{Body, MAX_BUFFERS, MAX_CARRIED, MAX_SEGMENTS, MAX_SHORTS, Slot, carried_room};
use crate::wire::cursor::Cursor;
use crate::wire::{MAX_OFFSET, Malformed, TooLarge, U48, count, fits};

const OUT: u8 = 0;
const IN: u8 = 1;

/// Builds the body of a request in place; after each call that succeeds the body is a complete request.
///
/// Each element belongs to the buffer that was begun last. After an error, do not send the body.
#[derive(Debug)]
pub struct RequestWriter<'b> {
    body: &'b mut Body,
    buffers: u16,
    segments: usize,
    bytes: u64,
    /// Where the head of the last buffer is, and how many elements it has.
    last: Option<(usize, u16)>,
}

impl<'b> RequestWriter<'b> {
    /// Begins a request without buffers, with the client's argument, and room for an argument of at most `room` bytes in the
    /// reply, in place of what `body` holds.
    ///
    /// # Errors
    /// The argument, or the room, exceeds 4 GiB.
    #[inline]
    pub fn begin(
        body: &'b mut Body,
        slot: Slot,
        service: u16,
        argument: &[u8],
        room: usize,
    ) -> Result<Self, TooLarge> {
        Self::begin_with(body, slot, service, argument, room, 0)
    }

    #[inline]
    fn begin_with(
        body: &'b mut Body,
        slot: Slot,
        service: u16,
        argument: &[u8],
        room: usize,
        buffers: u16,
    ) -> Result<Self, TooLarge> {
        let argument_len: u32 = count("bytes of an argument", argument.len(), u32::MAX as usize)?;
        let room: u32 = count("bytes of room for an argument", room, u32::MAX as usize)?;
        body.clear();
        body.part(&RequestHead {
            slot: slot.into(),
            service: service.into(),
            buffers: buffers.into(),
            argument: argument_len.into(),
            room: room.into(),
        });
        body.append(argument);
        Ok(Self { body, buffers, segments: 0, bytes: 0, last: None })
    }

    /// Begins a buffer, and says whether the client copies most of its data.
    ///
    /// # Errors
    /// There are [`MAX_BUFFERS`] already.
    #[inline]
    pub fn buffer(&mut self, direction: Direction, is_copied: bool) -> Result<(), TooLarge> {
        self.buffers = count("buffers", usize::from(self.buffers) + 1, MAX_BUFFERS)?;
        let direction = if direction == Direction::Out { OUT } else { IN };
        self.last = Some((self.body.len(), 0));
        self.body.part(&BufferHead { elements: 0.into(), direction, copied: is_copied.into() });
        self.body.put(std::mem::offset_of!(RequestHead, buffers), &U16::from(self.buffers));
        Ok(())
    }

    /// Adds an element whose data is in these segments, in order; empty ones are left out.
    ///
    /// # Errors
    /// There would be more than [`MAX_SEGMENTS`] elements or segments, or more than [`MAX_OFFSET`] bytes in the request.
    ///
    /// # Panics
    /// When there is no buffer yet.
    #[inline]
    pub fn element(&mut self, segments: impl IntoIterator<Item = Segment>) -> Result<(), TooLarge> {
        let (head, elements) = self.last.as_mut().expect("begin a buffer before adding elements");
        *elements = count("elements of a buffer", usize::from(*elements) + 1, MAX_SEGMENTS)?;
        self.body.put(*head + std::mem::offset_of!(BufferHead, elements), &U16::from(*elements));
        let at = self.body.len();
        self.body.append(&[0; size_of::<ElementHead>()]);
        let before = (self.segments, self.bytes);
        for segment in segments.into_iter().filter(|segment| segment.len() > 0) {
            self.segments += 1;
            self.add_bytes(segment.len())?;
            self.body.part(&segment);
        }
        count::<u16>("segments", self.segments, MAX_SEGMENTS)?;
        let (segments, len) = ((self.segments - before.0) as u16, self.bytes - before.1);
        let len = U48::new(len).ok_or_else(|| too_many_bytes(len))?;
        self.body.put(at, &ElementHead { segments: segments.into(), len });
        Ok(())
    }

    /// Adds an element of `len` bytes that is carried. The bytes of outputs follow the last element, in order:
    /// [`RequestWriter::carried`].
    ///
    /// # Errors
    /// As [`RequestWriter::element`].
    ///
    /// # Panics
    /// When there is no buffer yet.
    #[inline]
    pub fn carried_element(&mut self, len: usize) -> Result<(), TooLarge> {
        let (head, elements) = self.last.as_mut().expect("begin a buffer before adding elements");
        *elements = count("elements of a buffer", usize::from(*elements) + 1, MAX_SEGMENTS)?;
        self.body.put(*head + std::mem::offset_of!(BufferHead, elements), &U16::from(*elements));
        self.add_bytes(len as u64)?;
        let len = U48::new(len as u64).ok_or_else(|| too_many_bytes(len as u64))?;
        self.body.part(&ElementHead { segments: 0.into(), len });
        Ok(())
    }

    /// Begins a request of these buffers, (direction, number of bytes) of each, all of which have one carried element and no more bytes
    /// together than a request carries. The bytes of outputs follow, in order ([`RequestWriter::carried`]), and nothing else may.
    ///
    /// # Errors
    /// As [`RequestWriter::begin`].
    ///
    /// # Panics
    /// When a buffer has more than 65,535 bytes, or there are more than 65,535 buffers.
    #[inline]
    pub fn short(
        body: &'b mut Body,
        slot: Slot,
        service: u16,
        argument: &[u8],
        room: usize,
        buffers: impl ExactSizeIterator<Item = (Direction, usize)>,
    ) -> Result<Self, TooLarge> {
        let count = u16::try_from(buffers.len()).expect("each buffer has some of the bytes");
        let writer = Self::begin_with(body, slot, service, argument, room, count)?;
        for (direction, len) in buffers {
            let direction = if direction == Direction::Out { OUT } else { IN };
            writer.body.part(&CarriedBuffer {
                head: BufferHead { elements: 1.into(), direction, copied: 1 },
                element: ElementHead { segments: 0.into(), len: U48::short(len) },
            });
        }
        Ok(writer)
    }

    /// Room for the bytes of the next carried output.
    #[inline]
    pub fn carried(&mut self, len: usize) -> &mut [u8] {
        self.body.room(len)
    }

    #[inline]
    fn add_bytes(&mut self, len: u64) -> Result<(), TooLarge> {
        if !fits(self.bytes, len) {
            return Err(too_many_bytes(self.bytes.saturating_add(len)));
        }
        self.bytes += len;
        Ok(())
    }
}

#[cold]
fn too_many_bytes(count: u64) -> TooLarge {
    TooLarge { what: "bytes of a request", count, max: MAX_OFFSET }
}

/// A request that was received.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its name.
    pub slot: Slot,
    /// The number of the service.
    pub service: u16,
    /// The client's argument.
    pub argument: &'a [u8],
    /// How many bytes the reply's argument may have.
    pub room: usize,
    /// The bytes of all elements together, at most [`MAX_OFFSET`].
    pub bytes: u64,
    /// The bytes of the carried outputs, one after the other.
    pub carried: &'a [u8],
    buffers: Parts<'a, Buffer<'a>>,
    /// The same, if each has one carried element.
    shorts: &'a [CarriedBuffer],
}

/// A buffer of a request that was received.
#[derive(Debug, Clone, Copy)]
pub struct Buffer<'a> {
    /// Whether it is output or input.
    pub direction: Direction,
    /// The client says that it copies most of the data.
    pub is_copied: bool,
    elements: Parts<'a, Element<'a>>,
}

/// An element of a buffer that was received.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// How many bytes all its segments have together.
    pub len: u64,
    /// Where those bytes are in the client's arenas; none if they are carried. Arenas and offsets are still to be looked up.
    pub segments: &'a [Segment],
}

/// What the elements add up to that were checked so far.
#[derive(Default)]
struct Tally {
    segments: usize,
    bytes: u64,
    carried_room: usize,
    carried_out: usize,
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        let head = cursor.fixed::<RequestHead>("the head of a request")?;
        let left = head.buffers.get();
        if usize::from(left) > MAX_BUFFERS {
            let what = format!("a request has {left} buffers, more than the {MAX_BUFFERS} allowed");
            return Err(Malformed::new(0, what));
        }
        let argument = cursor.bytes("an argument", head.argument.get() as usize)?;
        let buffers = Parts::new(cursor, left);
        let mut tally = Tally::default();
        let shorts = match usize::from(left) {
            1..=MAX_SHORTS => CarriedBuffer::read_all(&mut cursor, left, &mut tally),
            _ => &[],
        };
        if shorts.is_empty() {
            for _ in 0..left {
                Buffer::read_checking(&mut cursor, |at, direction, element| {
                    tally.add(at, direction, element)
                })?;
            }
        }
        let carried = match tally.carried_out {
            0 => &[],
            len => cursor.bytes("what is carried of outputs", len)?,
        };
        cursor.end()?;
        let (slot, service, room) = (head.slot.get(), head.service.get(), head.room.get() as usize);
        Ok(Self { slot, service, argument, room, bytes: tally.bytes, carried, buffers, shorts })
    }

    /// The buffers, (direction, number of bytes) of each, if each has one carried element and no other one, and they are no more than
    /// [`MAX_SHORTS`]; else none.
    #[inline]
    pub fn shorts(&self) -> impl ExactSizeIterator<Item = (Direction, usize)> {
        self.shorts.iter().map(|short| {
            let direction = if short.head.direction == OUT { Direction::Out } else { Direction::In };
            (direction, short.element.len.get() as usize)
        })
    }

    /// The buffers, in order.
    #[inline]
    pub fn buffers(&self) -> Parts<'a, Buffer<'a>> {
        self.buffers
    }
}

impl CarriedBuffer {
    /// Reads all buffers of a request, if each has one carried element, and adds them up. If one is of another kind, or wrong, nothing
    /// has been read, and there is none.
    #[inline(always)]
    fn read_all<'a>(cursor: &mut Cursor<'a>, count: u16, tally: &mut Tally) -> &'a [Self] {
        let mut after = *cursor;
        let Ok(all) = after.several::<Self>("buffers", usize::from(count)) else { return &[] };
        let mut sum = Tally::default();
        for Self { head, element } in all {
            let (one, len) = (head.elements == 1 && element.segments == 0, element.len.get());
            if !(one && head.direction <= IN && head.copied <= 1 && (1..=MAX_CARRIED as u64).contains(&len)) {
                return &[];
            }
            sum.bytes += len;
            sum.carried_room += carried_room(len as usize);
            sum.carried_out += if head.direction == OUT { len as usize } else { 0 };
        }
        if sum.carried_room > MAX_CARRIED {
            return &[];
        }
        (*cursor, *tally) = (after, sum);
        all
    }
}

impl<'a> Buffer<'a> {
    /// The elements, in order.
    #[inline]
    pub fn elements(&self) -> Parts<'a, Element<'a>> {
        self.elements
    }

    /// Reads a buffer, and gives `check` each element and the place where it begins.
    #[inline(always)]
    fn read_checking(
        cursor: &mut Cursor<'a>,
        mut check: impl FnMut(&Cursor<'a>, Direction, &Element<'a>) -> Result<(), Malformed>,
    ) -> Result<Self, Malformed> {
        let start = *cursor;
        let head = cursor.fixed::<BufferHead>("the head of a buffer")?;
        let direction = match (head.direction, head.copied) {
            (OUT, 0 | 1) => Direction::Out,
            (IN, 0 | 1) => Direction::In,
            (direction, copied) => {
                let what = format!("a buffer's direction is {direction} and its flag {copied}, not 0 or 1");
                return Err(start.malformed(what));
            }
        };
        let elements = Parts::new(*cursor, head.elements.get());
        for _ in 0..head.elements.get() {
            let start = *cursor;
            check(&start, direction, &Element::read(cursor)?)?;
        }
        Ok(Self { direction, is_copied: head.copied == 1, elements })
    }
}

impl Element<'_> {
    /// Whether the records carry its bytes.
    #[inline]
    pub fn is_carried(&self) -> bool {
        self.segments.is_empty() && self.len > 0
    }
}

impl<'a> Part<'a> for Buffer<'a> {
    #[inline(always)]
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        Self::read_checking(cursor, |_, _, _| Ok(()))
    }
}

impl<'a> Part<'a> for Element<'a> {
    #[inline(always)]
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let head = cursor.fixed::<ElementHead>("the head of an element")?;
        let segments = cursor.several("a list of segments", usize::from(head.segments.get()))?;
        Ok(Self { len: head.len.get(), segments })
    }
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, at: &Cursor<'_>, direction: Direction, element: &Element<'_>) -> Result<(), Malformed> {
        self.segments += element.segments.len();
        if self.segments > MAX_SEGMENTS {
            return Err(at.malformed(format!("a request has more than {MAX_SEGMENTS} segments")));
        }
        match element.is_carried() {
            true => self.add_carried(at, direction, element.len)?,
            false => check_segments(at, element)?,
        }
        if !fits(self.bytes, element.len) {
            return Err(at.malformed(format!("a request has more than {MAX_OFFSET} bytes")));
        }
        self.bytes += element.len;
        Ok(())
    }

    #[inline(always)]
    fn add_carried(&mut self, at: &Cursor<'_>, direction: Direction, len: u64) -> Result<(), Malformed> {
        let room = usize::try_from(len).map_or(usize::MAX, |len| carried_room(len.min(MAX_CARRIED + 1)));
        if room > MAX_CARRIED - self.carried_room {
            let what = format!("{len} bytes are carried, and no more than {MAX_CARRIED} in a request");
            return Err(at.malformed(what));
        }
        self.carried_room += room;
        if direction == Direction::Out {
            self.carried_out += len as usize;
        }
        Ok(())
    }
}

#[inline(always)]
fn check_segments(at: &Cursor<'_>, element: &Element<'_>) -> Result<(), Malformed> {
    let mut sum = 0u64;
    for segment in element.segments {
        let (offset, len) = (segment.offset(), segment.len());
        if len == 0 || !fits(offset, len) {
            return Err(at.malformed(format!("a segment has {len} bytes at {offset}")));
        }
        // At most 65,535 lengths below 2^48 each: the sum fits.
        sum += len;
    }
    let len = element.len;
    if sum != len {
        return Err(at.malformed(format!("an element of {len} bytes has segments of {sum} bytes")));
    }
    Ok(())
}
