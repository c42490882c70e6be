//! Sending: an output, cut into packets, each a request to the wire.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use genie_io::{Error, Failed, Incoming, Interface, ServerError};
use genie_memory::Direction;
use genie_sys::lock::Mutex;

use super::header;
use crate::uplink::Uplink;

/// How an output is cut into packets. Of each list the packets take the items in turns, from the first one on.
#[derive(Debug, Clone)]
pub struct Shape {
    /// How much data they have; the last one has what is left.
    pub data: Vec<usize>,
    /// How long their headers are, from [`HEADER`](super::HEADER) to 255 bytes.
    pub headers: Vec<usize>,
    /// How long their trailers are, up to 255 bytes.
    pub trailers: Vec<usize>,
}

impl Shape {
    /// Packets with `data` bytes of data each behind the shortest header.
    pub fn of(data: usize) -> Self {
        Self { data: vec![data], headers: vec![header::HEADER], trailers: vec![0] }
    }
}

/// The sending half.
pub(super) struct Sending {
    pub(super) uplink: Uplink,
    shape: Mutex<Shape>,
    /// How much was sent to each port.
    sent: Mutex<BTreeMap<u16, u32>>,
}

/// An output of which packets are on their way.
struct Cut {
    /// There when all packets have been made.
    request: Mutex<Option<Incoming>>,
    left: AtomicUsize,
    failed: Mutex<Option<Error>>,
}

impl Sending {
    pub(super) fn new(genie: Interface) -> Self {
        let (shape, sent) = (Mutex::new(Shape::of(1024)), Mutex::default());
        Self { uplink: Uplink::new(genie), shape, sent }
    }

    pub(super) fn set_shape(&self, shape: Shape) {
        *self.shape.lock() = shape;
    }

    pub(super) fn send(&self, mut request: Incoming) {
        let Some(port) = request.argument().try_into().ok().map(u16::from_le_bytes) else {
            return request.reply(Err(ServerError::new("a port is named by 2 bytes")));
        };
        if request.direction(0) == Ok(Direction::In) {
            return request.reply(Err(ServerError::new("what is sent is an output")));
        }
        let wire = match self.uplink.wire() {
            Ok(wire) => wire,
            Err(error) => return request.reply(Err(error)),
        };
        let len = request.len(0);
        let packets = packets(&self.shape.lock(), len);
        let Some(packets) = packets else {
            return request.reply(Err(ServerError::new(
                "packets of no bytes, or headers that are too short or too long",
            )));
        };
        let mut at = self.reserve(port, len);
        let left = AtomicUsize::new(packets.len() + 1);
        let cut = Arc::new(Cut { request: Mutex::default(), left, failed: Mutex::default() });
        for Packet { data, header, trailer } in packets {
            let head = header::write(port, at, header, trailer);
            at = at.wrapping_add(data.len() as u32);
            let tail = [0; u8::MAX as usize];
            match self.uplink.forward(&wire, &head, (&mut request, data), &tail[..trailer]) {
                Ok((pending, _)) => {
                    let cut = Arc::clone(&cut);
                    let sent = move |sent: Result<_, Failed>| cut.sent(sent.err().map(|failed| failed.error));
                    pending.then(Duration::from_micros(1), sent);
                }
                Err(error) => cut.sent(Some(error)),
            }
        }
        *cut.request.lock() = Some(request);
        cut.sent(None);
    }

    /// Where the next `len` bytes are in a port's stream.
    fn reserve(&self, port: u16, len: usize) -> u32 {
        let mut sent = self.sent.lock();
        let at = sent.entry(port).or_default();
        std::mem::replace(at, at.wrapping_add(len as u32))
    }
}

impl Cut {
    /// One packet less is on its way; the client has its reply when none is.
    fn sent(&self, failed: Option<Error>) {
        if let Some(error) = failed {
            self.failed.lock().get_or_insert(error);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(request) = self.request.lock().take()
        {
            let failed = self.failed.lock().take();
            request.reply(failed.map_or(Ok(()), |error| Err(error.into())));
        }
    }
}

/// One packet of an output.
pub(super) struct Packet {
    pub(super) data: Range<usize>,
    pub(super) header: usize,
    pub(super) trailer: usize,
}

/// None if no packets can be made so.
pub(super) fn packets(shape: &Shape, len: usize) -> Option<Vec<Packet>> {
    let Shape { data, headers, trailers } = shape;
    let is_sound = !data.contains(&0)
        && ![data, headers, trailers].iter().any(|list| list.is_empty())
        && headers.iter().all(|len| (header::HEADER..=255).contains(len))
        && trailers.iter().all(|len| *len <= 255);
    let (mut packets, mut at) = (Vec::new(), 0);
    while is_sound && at < len {
        let number = packets.len();
        let of = |list: &[usize]| list[number % list.len()];
        let end = len.min(at.saturating_add(of(data)));
        packets.push(Packet { data: at..end, header: of(headers), trailer: of(trailers) });
        at = end;
    }
    is_sound.then_some(packets)
}
