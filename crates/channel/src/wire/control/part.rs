//! Parts of control messages, and how they are written and read.

use genie_io::carrier::{MAX_NAME, is_control};
use genie_sys::GranuleKind;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::cursor::Cursor;
use crate::wire::{Malformed, TooLarge, count, fits};

/// A part of a message, which can be written and read.
pub(super) trait Part: Sized {
    /// Appends it to a message.
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge>;

    /// Reads it, and checks everything that can be checked from the part alone.
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed>;
}

/// Declares parts that are a number.
macro_rules! number {
    ($type:ty, $fixed:ty) => {
        impl Part for $type {
            fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
                fixed(bytes, <$fixed>::from(*self));
                Ok(())
            }

            fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
                cursor.fixed::<$fixed>("a number").map(|number| number.get())
            }
        }
    };
}

number!(u16, U16);
number!(u64, U64);

/// The body of a message that says nothing more.
impl Part for () {
    fn write(&self, _: &mut Vec<u8>) -> Result<(), TooLarge> {
        Ok(())
    }

    fn read(_: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

/// Appends a fixed part.
pub(super) fn fixed<T: IntoBytes + Immutable + Unaligned>(bytes: &mut Vec<u8>, part: T) {
    bytes.extend_from_slice(part.as_bytes());
}

/// A name's length, as a message has it, and the name's bytes.
pub(super) fn name<N: TryFrom<usize>>(name: &str) -> Result<(N, &[u8]), TooLarge> {
    let controls = name.chars().filter(|char| is_control(*char)).count();
    count::<u16>("control characters in a name", controls, 0)?;
    Ok((count("bytes of a name", name.len(), MAX_NAME)?, name.as_bytes()))
}

/// Reads a name of `len` bytes. Names are shown on terminals, so they may have no control characters.
pub(super) fn read_name(
    cursor: &mut Cursor<'_>,
    whose: &str,
    len: impl Into<usize>,
) -> Result<String, Malformed> {
    let start = *cursor;
    let name = cursor.text(whose, len.into(), MAX_NAME)?;
    if name.chars().any(is_control) {
        return Err(start.malformed(format!("{whose} has control characters: {name:?}")));
    }
    Ok(name.to_owned())
}

/// Appends lengths of objects.
pub(super) fn lens(bytes: &mut Vec<u8>, lens: &[u64]) {
    for len in lens {
        fixed(bytes, U64::from(*len));
    }
}

/// Reads lengths of objects, none of which is empty.
pub(super) fn read_lens(cursor: &mut Cursor<'_>, count: u16) -> Result<Vec<u64>, Malformed> {
    let start = *cursor;
    let lens: Vec<u64> = cursor
        .several::<U64>("the lengths of objects", usize::from(count))?
        .iter()
        .map(|len| len.get())
        .collect();
    match lens.iter().find(|len| **len == 0 || !fits(0, **len)) {
        Some(len) => Err(start.malformed(format!("no object has {len} bytes"))),
        None => Ok(lens),
    }
}

/// Reads a head and the list whose length it gives.
pub(super) fn read_list<T: Part>(
    cursor: &mut Cursor<'_>,
    what: &str,
    count: u16,
    count_max: usize,
) -> Result<Vec<T>, Malformed> {
    if usize::from(count) > count_max {
        return Err(cursor.malformed(format!("{count} {what} are listed, more than the {count_max} allowed")));
    }
    (0..count).map(|_| T::read(cursor)).collect()
}

/// Reads a fixed part; returns it, and the place where it begins, for complaints.
pub(super) fn read_head<'a, T>(cursor: &mut Cursor<'a>, name: &str) -> Result<(Cursor<'a>, &'a T), Malformed>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let start = *cursor;
    Ok((start, cursor.fixed(name)?))
}

/// What a byte that is 0 or 1 says.
pub(super) fn flag(start: &Cursor<'_>, name: &str, value: u8) -> Result<bool, Malformed> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(start.malformed(format!("the flag {name:?} is {other}, not 0 or 1"))),
    }
}

/// A granule kind's number.
pub(super) fn granule(kind: GranuleKind) -> u8 {
    match kind {
        GranuleKind::Huge => 0,
        GranuleKind::Collapsed => 1,
        GranuleKind::Base => 2,
    }
}

pub(super) fn read_granule(start: &Cursor<'_>, code: u8) -> Result<GranuleKind, Malformed> {
    [GranuleKind::Huge, GranuleKind::Collapsed, GranuleKind::Base]
        .into_iter()
        .find(|kind| granule(*kind) == code)
        .ok_or_else(|| start.malformed(format!("no granules are of kind {code}")))
}

/// Makes sure that an arena can be at these addresses.
pub(super) fn check_arena(
    start: &Cursor<'_>,
    granule: GranuleKind,
    base: u64,
    len: u64,
) -> Result<(), Malformed> {
    let size = granule.size() as u64;
    let is_aligned = base.is_multiple_of(size) && len.is_multiple_of(size);
    if len > 0 && is_aligned && fits(0, len) && base.checked_add(len).is_some() {
        return Ok(());
    }
    Err(start.malformed(format!("no arena of granules of {size} bytes has {len} bytes at {base:#x}")))
}
