//! The driver without copies: packets are a card's buffers.
//!
//! How: buffers are allocated and released by the card's FIFOs; or by system calls: then their numbers lie in pipes, one for each way. What the
//! device has sent gets into the pipe when that is found empty, all at once, and what was received and released gets to the device before
//! the driver has nothing to receive, likewise: so there is one call for each packet, and few others.

use std::os::fd::OwnedFd;

use genie_sys::{Errno, Error};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Management;
use super::driving::{Counters, Driving, Fate, Incoming, Outgoing};
use crate::checksum::Checksum;
use crate::driver::card::words::POOL;
use crate::driver::{Card, Rings};

/// How many released buffers wait at most until the device has them, where more frames have come.
const WAITING: usize = 64;

#[derive(Debug)]
pub(super) struct NoCopy {
    card: Card,
    pipes: Option<Pipes>,
}

/// The numbers of free buffers, if they are managed by system calls.
#[derive(Debug)]
struct Pipes {
    sending: Pipe,
    receiving: Pipe,
}

/// Numbers in a pipe.
#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Which numbers are in it, since a child made by fork could write any.
    is_in: [bool; 2 * POOL as usize],
    count: usize,
}

impl NoCopy {
    pub(super) fn new(card: Card, management: Management) -> genie_sys::Result<Self> {
        let pipes = match management {
            Management::SharedRing => None,
            Management::SystemCall => Some(Pipes { sending: Pipe::new()?, receiving: Pipe::new()? }),
        };
        Ok(Self { card, pipes })
    }

    /// Lets the device have what was received and released.
    fn pass_released(&mut self, counters: &mut Counters) -> Result<(), Errno> {
        if let Some(Pipes { receiving, .. }) = &mut self.pipes
            && receiving.count > 0
        {
            let mut numbers = [0; POOL as usize];
            let taken = receiving.take(&mut numbers, counters)?;
            self.card.release(taken.iter().map(|number| u32::from(*number)));
        }
        Ok(())
    }
}

impl Driving for NoCopy {
    fn allocate(&mut self, counters: &mut Counters) -> Result<Option<u32>, Errno> {
        let Some(Pipes { sending, .. }) = &mut self.pipes else { return self.card.reserve() };
        loop {
            if let [number] = sending.take(&mut [0], counters)? {
                return Ok(Some(u32::from(*number)));
            }
            let (mut numbers, mut count) = ([0; POOL as usize], 0);
            while let Some(buffer) = self.card.reserve()? {
                numbers[count] = buffer as u8;
                count += 1;
            }
            if count == 0 {
                return Ok(None);
            }
            sending.put(&numbers[..count], counters)?;
        }
    }

    fn send(&mut self, packet: &Outgoing, _counters: &mut Counters) -> Result<Fate, Errno> {
        if packet.buffer >= POOL {
            return Ok(Fate::Elsewhere);
        }
        if let Some(at) = packet.checksum_at {
            let bytes = self.card.memory().buffer(packet.buffer).part(0..packet.len);
            let place = bytes.part(at..at + 2);
            place.fill(0);
            place.copy_from(&Checksum::Internet.of_data(&bytes).to_le_bytes()[..2]);
        }
        self.card.commit(packet.buffer, packet.len)?;
        self.card.send()?;
        Ok(Fate::Taken)
    }

    fn receive(&mut self, _sums: bool, counters: &mut Counters) -> Result<Option<Incoming>, Errno> {
        if self.pipes.as_ref().is_some_and(|pipes| pipes.receiving.count >= WAITING) {
            self.pass_released(counters)?;
        }
        let mut kept = self.card.keep()?;
        if kept.is_none() {
            self.pass_released(counters)?;
            kept = self.card.keep()?;
        }
        Ok(kept.map(|(buffer, len)| Incoming { buffer, len, sum: None }))
    }

    fn release(&mut self, buffer: u32, counters: &mut Counters) {
        let is_sending = buffer < POOL;
        match &mut self.pipes {
            // A pipe has room for all numbers; where it fails, the buffer is lost to this application alone.
            Some(Pipes { sending, receiving }) => {
                let _ = if is_sending { sending } else { receiving }.put(&[buffer as u8], counters);
            }
            None if is_sending => self.card.unreserve(buffer),
            None => self.card.release([buffer]),
        }
    }

    fn rings(&mut self) -> &mut dyn Rings {
        &mut self.card
    }
}

impl Pipe {
    fn new() -> genie_sys::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|errno| Error::new("pipe2", "the numbers of free buffers", errno))?;
        Ok(Self { reader, writer, is_in: [false; _], count: 0 })
    }

    fn put(&mut self, numbers: &[u8], counters: &mut Counters) -> Result<(), Errno> {
        counters.management_calls += 1;
        // So few bytes are written whole, or not at all.
        rustix::io::write(&self.writer, numbers)?;
        numbers.iter().for_each(|number| self.is_in[usize::from(*number)] = true);
        self.count += numbers.len();
        Ok(())
    }

    /// Takes as many numbers as there are, and as fit.
    fn take<'n>(&mut self, into: &'n mut [u8], counters: &mut Counters) -> Result<&'n [u8], Errno> {
        counters.management_calls += 1;
        let len = match rustix::io::read(&self.reader, &mut *into) {
            Err(Errno::AGAIN) => 0,
            read => read?,
        };
        let numbers = &into[..len];
        if numbers.iter().any(|number| !std::mem::take(&mut self.is_in[usize::from(*number)])) {
            return Err(Errno::PROTO);
        }
        self.count -= len;
        Ok(numbers)
    }
}
