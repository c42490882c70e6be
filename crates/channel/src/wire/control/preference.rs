//! Messages about layouts: the client's question how to lay out input buffers, and the server's answer.

use genie_passing::Preferred;
use zerocopy::little_endian::U64;

use super::bounds::MAX_LAYOUT_ARGUMENT;
use super::layout::{LayoutPart, LayoutWantedHead};
use super::part::{Part, fixed, flag, read_head};
use crate::wire::cursor::Cursor;
use crate::wire::{Malformed, TooLarge, count};

/// For what a client wants to lay out input buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutWanted {
    /// The service's number.
    pub service: u16,
    /// The argument of the requests.
    pub argument: Vec<u8>,
}

impl Part for LayoutWanted {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let what = "bytes of an argument that a layout is wanted for";
        let argument: u16 = count(what, self.argument.len(), MAX_LAYOUT_ARGUMENT)?;
        fixed(bytes, LayoutWantedHead { service: self.service.into(), argument: argument.into() });
        bytes.extend_from_slice(&self.argument);
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, head) = read_head::<LayoutWantedHead>(cursor, "a question for a layout")?;
        let (service, len) = (head.service.get(), usize::from(head.argument.get()));
        if len > MAX_LAYOUT_ARGUMENT {
            let what = format!("an argument of {len} bytes, more than the {MAX_LAYOUT_ARGUMENT} allowed");
            return Err(at.malformed(what));
        }
        let argument = cursor.bytes("the argument that a layout is wanted for", len)?.to_vec();
        Ok(Self { service, argument })
    }
}

/// A layout, where it makes a difference.
impl Part for Option<Preferred> {
    fn write(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let Preferred { offset, len, header, trailer } = self.unwrap_or_default();
        let [offset, len, header, trailer] =
            [offset, len, header, trailer].map(|number| U64::new(number as u64));
        fixed(bytes, LayoutPart { preferred: self.is_some().into(), offset, len, header, trailer });
        Ok(())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let (at, part) = read_head::<LayoutPart>(cursor, "a layout")?;
        let numbers = [part.offset, part.len, part.header, part.trailer].map(|number| number.get());
        let is_preferred = flag(&at, "preferred", part.preferred)?;
        match numbers.map(usize::try_from) {
            [Ok(offset), Ok(len), Ok(header), Ok(trailer)] if is_preferred => {
                Ok(Some(Preferred { offset, len, header, trailer }))
            }
            [Ok(0), Ok(0), Ok(0), Ok(0)] => Ok(None),
            _ => Err(at.malformed(format!("no layout has the numbers {numbers:?}"))),
        }
    }
}
