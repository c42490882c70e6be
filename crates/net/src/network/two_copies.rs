//! The driver with two copies: between packets and message blocks, and between blocks and the adapter's memory.

use std::sync::Arc;

use genie_fbufs::{Block, Message};
use genie_memory::Data;
use genie_sys::Errno;

use super::driving::{Counters, Driving, Fate, Incoming, Outgoing};
use super::pool::Pool;
use super::stream::{Stream, Way};
use crate::Frame;
use crate::checksum::{Checksum, Sum};
use crate::driver::Rings;
use crate::driver::card::memory::Memory;
use crate::driver::rings::or_later;

/// In front of a packet's bytes in its block, for headers.
const HEADROOM: usize = 64;
/// How many frames are taken at a time.
const BATCH: usize = 16;

pub(super) struct TwoCopies {
    rings: Box<dyn Rings>,
    pool: Pool,
    stream: Stream,
}

impl TwoCopies {
    pub(super) fn new(rings: Box<dyn Rings>, stream: Stream) -> genie_sys::Result<Self> {
        Ok(Self { rings, pool: Pool::new()?, stream })
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.pool.memory
    }

    /// Has what waits in the stream go down, as far as there is room: the second copy.
    fn go_down(&mut self, counters: &mut Counters) -> Result<(), Errno> {
        let mut has_put = false;
        loop {
            self.stream.run(Way::Down);
            let queue = self.stream.end(Way::Down);
            let Some(message) = queue.first() else { break };
            match or_later(self.rings.put(&gathered(message)), false) {
                Ok(false) => break,
                Ok(true) => has_put = true,
                Err(Errno::MSGSIZE) => counters.unfit += 1,
                Err(errno) => return Err(errno),
            }
            queue.get();
        }
        if has_put { or_later(self.rings.send(), ()) } else { Ok(()) }
    }

    /// Has what has come go up, as far as there is room: the first copy.
    fn fill(&mut self, counters: &mut Counters) -> Result<(), Errno> {
        self.stream.run(Way::Up);
        let Self { rings, stream, .. } = self;
        if stream.end(Way::Up).is_empty() && stream.enter(Way::Up).has_room() {
            let mut see = |frame: &Frame<'_>| {
                let mut bytes = Vec::with_capacity(frame.len());
                frame.show(|data| data.append_to(&mut bytes));
                counters.copied_in += bytes.len() as u64;
                stream.enter(Way::Up).put(Block::of(bytes).into());
            };
            or_later(rings.take(BATCH, &mut see), 0)?;
            stream.run(Way::Up);
        }
        Ok(())
    }
}

impl Driving for TwoCopies {
    fn allocate(&mut self, _counters: &mut Counters) -> Result<Option<u32>, Errno> {
        Ok(self.pool.allocate())
    }

    fn send(&mut self, packet: &Outgoing, counters: &mut Counters) -> Result<Fate, Errno> {
        if !self.stream.enter(Way::Down).has_room() {
            self.go_down(counters)?;
        }
        if !self.stream.enter(Way::Down).has_room() {
            return Ok(Fate::Waits);
        }
        let data = self.pool.memory.buffer(packet.buffer).into_data().part(0..packet.len);
        let (block, copied) = block_of(&data, packet.checksum_at)?;
        counters.copied_out += copied as u64;
        self.stream.enter(Way::Down).put(block.into());
        self.go_down(counters)?;
        Ok(Fate::Copied)
    }

    fn receive(&mut self, sums: bool, counters: &mut Counters) -> Result<Option<Incoming>, Errno> {
        // What waits for room in the adapter goes on by whichever call.
        self.go_down(counters)?;
        while self.pool.has_room() {
            if self.stream.end(Way::Up).is_empty() {
                self.fill(counters)?;
            }
            let Some(message) = self.stream.end(Way::Up).get() else { break };
            let incoming = self.pool.receive(&Frame::new(gathered(&message)), sums);
            counters.copied_in += incoming.as_ref().map_or(0, |incoming| incoming.len as u64);
            counters.unfit += u64::from(incoming.is_none());
            if incoming.is_some() {
                return Ok(incoming);
            }
        }
        Ok(None)
    }

    fn release(&mut self, buffer: u32, _counters: &mut Counters) {
        self.pool.release(buffer);
    }

    fn rings(&mut self) -> &mut dyn Rings {
        &mut *self.rings
    }

    fn drain(&mut self, counters: &mut Counters) -> Result<bool, Errno> {
        self.go_down(counters)?;
        Ok(self.stream.is_empty(Way::Down))
    }

    fn has_packets(&mut self) -> bool {
        self.pool.has_room() && (!self.stream.end(Way::Up).is_empty() || self.rings.has_frames())
    }
}

/// A block with a copy of a packet, and headroom; and how many bytes were copied.
fn block_of(data: &Data<'_>, checksum_at: Option<usize>) -> Result<(Block, usize), Errno> {
    let mut bytes = Vec::with_capacity(HEADROOM + data.len());
    bytes.resize(HEADROOM, 0);
    match checksum_at {
        Some(at) => append_summed(data, at, &mut bytes),
        None => data.append_to(&mut bytes),
    }
    let len = bytes.len();
    let mut block = Block::of(bytes);
    block.narrow(HEADROOM..len).map_err(|_| Errno::INVAL)?;
    Ok((block, len - HEADROOM))
}

/// Appends a packet, with its checksum at `at`; it is summed while it is copied.
fn append_summed(data: &Data<'_>, at: usize, bytes: &mut Vec<u8>) {
    let mut sum = Sum::new(Checksum::Internet);
    let mut append = |data: Data<'_>, bytes: &mut Vec<u8>| {
        data.for_each_chunk(|chunk| {
            sum.add(chunk);
            bytes.extend_from_slice(chunk);
        });
    };
    append(data.part(0..at), bytes);
    let place = bytes.len();
    append(Data::from(&[0; 2][..]), bytes);
    append(data.part(at + 2..data.len()), bytes);
    bytes[place..place + 2].copy_from_slice(&sum.finish().to_le_bytes()[..2]);
}

/// A message's bytes, where its blocks are.
fn gathered(message: &Message) -> Data<'_> {
    let mut data = Data::default();
    message.blocks().for_each(|block| data.append(Data::from(&block[..])));
    data
}

impl std::fmt::Debug for TwoCopies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("TwoCopies");
        shown.field("pool", &self.pool).field("stream", &self.stream).finish_non_exhaustive()
    }
}
