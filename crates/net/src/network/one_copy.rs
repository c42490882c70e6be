//! The driver with one copy: between the application's packets and the adapter's memory.

use std::sync::Arc;

use genie_sys::Errno;

use super::driving::{Counters, Driving, Fate, Incoming, Outgoing};
use super::pool::Pool;
use crate::driver::Rings;
use crate::driver::card::memory::Memory;
use crate::driver::rings::or_later;

pub(super) struct OneCopy {
    rings: Box<dyn Rings>,
    pool: Pool,
}

impl OneCopy {
    pub(super) fn new(rings: Box<dyn Rings>) -> genie_sys::Result<Self> {
        Ok(Self { rings, pool: Pool::new()? })
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.pool.memory
    }
}

impl Driving for OneCopy {
    fn allocate(&mut self, _counters: &mut Counters) -> Result<Option<u32>, Errno> {
        Ok(self.pool.allocate())
    }

    fn send(&mut self, packet: &Outgoing, _counters: &mut Counters) -> Result<Fate, Errno> {
        let data = self.pool.memory.buffer(packet.buffer).into_data().part(0..packet.len);
        let put = match packet.checksum_at {
            Some(at) => self.rings.put_summed(&data, at),
            None => self.rings.put(&data),
        };
        if !or_later(put, false)? {
            return Ok(Fate::Waits);
        }
        or_later(self.rings.send(), ())?;
        Ok(Fate::Copied)
    }

    fn receive(&mut self, sums: bool, counters: &mut Counters) -> Result<Option<Incoming>, Errno> {
        let Self { rings, pool } = self;
        let mut incoming = None;
        while pool.has_room() && incoming.is_none() {
            let mut see = |frame: &crate::Frame<'_>| {
                incoming = pool.receive(frame, sums);
                counters.copied_in += incoming.as_ref().map_or(0, |incoming| incoming.len as u64);
                counters.unfit += u64::from(incoming.is_none());
            };
            if or_later(rings.take(1, &mut see), 0)? == 0 {
                break;
            }
        }
        Ok(incoming)
    }

    fn release(&mut self, buffer: u32, _counters: &mut Counters) {
        self.pool.release(buffer);
    }

    fn rings(&mut self) -> &mut dyn Rings {
        &mut *self.rings
    }

    fn has_packets(&mut self) -> bool {
        self.pool.has_room() && self.rings.has_frames()
    }
}

impl std::fmt::Debug for OneCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OneCopy").field("pool", &self.pool).finish_non_exhaustive()
    }
}
