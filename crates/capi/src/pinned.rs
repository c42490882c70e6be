//! What a server has pinned of a request's buffers.

use std::ops::Range;

use genie_io::{Incoming, InputPin, OutputPin};
use genie_memory::Direction;

use crate::failure::Failure;
use crate::shown::Shown;
use crate::types::{Segment, io_pin_t};

/// Bytes that are pinned.
#[repr(C)]
#[derive(Debug)]
pub struct PinnedBytes {
    /// The pin's name, for io_unpin; never given twice.
    pub pin: io_pin_t,
    /// How many segments the bytes lie in.
    pub segc: usize,
    /// The segments, which go into an iovec, say. They and their bytes stay where they are until io_unpin.
    pub segv: *const Segment,
}

/// A pin that the program has.
#[derive(Debug)]
pub(crate) struct Pin {
    _bytes: Pinned,
    pub(crate) shown: Shown,
}

#[derive(Debug)]
enum Pinned {
    Output(#[expect(dead_code, reason = "holds the bytes")] OutputPin),
    Input(#[expect(dead_code, reason = "holds the bytes")] InputPin),
}

impl Pin {
    /// Pins a part of a buffer; an input is made ready.
    pub(crate) fn new(incoming: &mut Incoming, buffer: usize, range: Range<usize>) -> Result<Self, Failure> {
        Ok(match incoming.direction(buffer)? {
            Direction::Out => {
                let pin = incoming.pin_output(buffer, range)?;
                Self { shown: Shown::new(pin.data().segments()), _bytes: Pinned::Output(pin) }
            }
            Direction::In => {
                let pin = incoming.pin_input(buffer, range)?;
                Self { shown: Shown::new(pin.data().segments()), _bytes: Pinned::Input(pin) }
            }
        })
    }
}
