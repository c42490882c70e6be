//! Pins: parts of a request's buffers that its server holds by themselves.
//!
//! Why: data that borrows a request can go neither to another thread nor into a table of operations in flight while the
//! request itself is kept elsewhere.
//! How: a pin holds the request's contract, as a fragment does, so that the reply takes effect when the last pin has been let go.
//! Invariants: the request's memory stays where it is, mapped, while a pin of it exists: whatever the client gives up, whether
//! its process is there or not, and whether the server has replied, or dropped the request.
//! Source: thesis §3.2 (page referencing), which Genie does for each request; pins prolong the reference.

use std::sync::Arc;

use genie_memory::Segments;

use crate::contract::Contract;

/// Bytes of an output that the server has pinned, to be read: see [`Incoming::pin_output`](crate::Incoming::pin_output).
///
/// The bytes stay where they are while the pin exists. The segments of [`OutputPin::data`] are what goes into an `iovec`; the data's
/// [`backings`](genie_memory::Data::backings) also say which memory objects these are in, and cannot be kept for longer than the pin:
///
/// ```compile_fail,E0505
/// # use genie_io::{Incoming, OutputPin};
/// fn transmit(request: &mut Incoming) -> Result<(), genie_io::Error> {
///     let pin = request.pin_output(0, 0..request.len(0))?;
///     let data = pin.data();
///     let first = data.backings().next().expect("some bytes");
///     drop(pin);
///     println!("{:#x} of {:?}", first.addr(), first.object()); // too late: the client may have the memory back
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct OutputPin(pub(crate) Pinned);

/// Bytes of an input that the server has pinned, to be filled: see [`Incoming::pin_input`](crate::Incoming::pin_input).
#[derive(Debug)]
pub struct InputPin(pub(crate) Pinned);

/// What is pinned.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) segments: Segments,
    pub(crate) contract: Arc<Contract>,
}
