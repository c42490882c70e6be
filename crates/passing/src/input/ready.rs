//! Ready time: an input gets the system buffer that its server fills.
//!
//! Source: thesis §4.1, §5.2, §7.4.2.

use genie_memory::{LenderId, SystemBuffer};

use super::{Buffering, Input, Target};
use crate::operation::Operation;
use crate::parties::needs_completion;
use crate::recorder::{Column, Moment, Watch};
use crate::{Chain, Parties, Reason, Result, Scheme};

impl Input {
    /// Zeroes the whole system buffer if `server` did not lend it: the server is about to see the buffer (as a
    /// subcontractor, say), and none of the data is in it yet. For the server named at request time this is done when
    /// the input is made ready. Granules of the client's own are not zeroed, since the client may show them.
    ///
    /// # Cost
    /// Stores zeros to all granules of the buffer, which the receipt counts.
    pub fn zero_around(&mut self, server: LenderId) {
        if let Some(system) = self.system.as_ref().filter(|system| needs_completion(system, server)) {
            self.receipt.zeroed += system.zero_around(0..0);
        }
    }

    /// Has another server than the one named at request time see the system buffer, as a subcontractor; it comes from that
    /// server's pool, too. An input that is ready already stays as it is.
    pub fn made_for(&mut self, parties: Parties) {
        if !self.is_ready {
            self.parties = parties;
        }
    }

    /// Makes the input ready anew in memory of the space's own that no server has been shown, and copies the first `actual` bytes
    /// there. Returns the system buffer that it had, into which a server may still store; none for data in place, which stays.
    ///
    /// # Errors
    /// No memory: the data is where it was.
    pub fn remake(&mut self, actual: usize) -> Result<Option<SystemBuffer>> {
        let Some(shown) = self.system.take() else { return Ok(None) };
        let parties = std::mem::replace(&mut self.parties, Parties::OWN);
        self.is_ready = false;
        if let Err(error) = self.run_ready() {
            (self.system, self.parties, self.is_ready) = (Some(shown), parties, true);
            return Err(error);
        }
        let copied = self.data().part(0..actual.min(self.len())).copy_data(&shown.data().into_data());
        self.receipt.copied += copied;
        Ok(Some(shown))
    }

    /// Makes the input ready as if it had been neither overlaid nor linked to outboard memory, and copies the first
    /// `actual` bytes from the overlay buffers or outboard memory into its customized memory. This is for data that another
    /// server is to work on, or that can't be passed as it is. Returns the overlay buffers, which somebody may still look
    /// at.
    ///
    /// # Errors
    /// No memory, or [`Error::Outboard`](crate::Error::Outboard): the data is where it was.
    pub fn customize(&mut self, actual: usize) -> Result<Option<Chain>> {
        let is_elsewhere = match self.buffering {
            Buffering::Customized => false,
            Buffering::Overlaid(_) => true,
            // For all schemes but emulated copy, the data has been transferred.
            Buffering::Outboard(_) => self.system.is_none() && self.reference.is_none(),
        };
        if !is_elsewhere {
            return self.run_ready().map(|()| None);
        }
        let supply = std::mem::replace(&mut self.buffering, Buffering::Customized);
        self.is_ready = false;
        if let Err(error) = self.run_ready() {
            (self.buffering, self.is_ready) = (supply, true);
            return Err(error);
        }
        let into = self.data().part(0..actual.min(self.len()));
        match supply {
            Buffering::Overlaid(chain) => {
                self.receipt.copied += into.copy_data(&chain.data());
                self.receipt.reason = Some(Reason::Overlaid);
                Ok(Some(chain))
            }
            Buffering::Outboard(mut outboard) => {
                if let Err(error) = outboard.fill(&into) {
                    self.system = None;
                    (self.buffering, self.is_ready) = (Buffering::Outboard(outboard), true);
                    return Err(error);
                }
                Ok(None)
            }
            Buffering::Customized => Ok(None),
        }
    }

    pub(super) fn run_ready(&mut self) -> Result<()> {
        if self.is_ready {
            return Ok(());
        }
        // The scheme in effect may change on the way.
        let scheme = self.receipt.effective;
        let mut watch = Watch::start(self.passing().recorder());
        for operation in self.operations().ready {
            self.ready_operation(*operation)?;
            watch.ran(*operation);
        }
        // An input for which there was no memory may be made ready again.
        self.is_ready = true;
        watch.finish(|| Column { scheme, ..self.column(Moment::Ready, self.len()) });
        Ok(())
    }

    fn ready_operation(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::AllocateSystemBuffer => {
                let (len, kept) = (self.len(), self.receipt.effective == Scheme::Move);
                let buffer = match kept {
                    true => self.space().aligned_buffer(0, len),
                    false => self.passing().copy_buffer(self.parties, len),
                };
                self.take(buffer?);
            }
            Operation::AllocateAlignedBuffer => self.allocate_aligned()?,
            Operation::DmaFromOutboard => self.transfer()?,
            // The outboard buffer is deallocated when it is dropped, after the last moment at which the transfer may be
            // repeated.
            Operation::DeallocateOutboardBuffer => {}
            other => unreachable!("{other:?} is no ready-time operation of table 7.2"),
        }
        Ok(())
    }

    /// Allocates an aligned buffer where a swap is likely, else a cheaper one, to be copied from.
    fn allocate_aligned(&mut self) -> Result<()> {
        let Target::Native { addr, len } = self.target else { unreachable!("emulated copy is native") };
        let buffer = if self.passing().swaps(addr, len, self.parties.server).is_empty() {
            // Such data is converted to copy here: the rest of the request follows copy's row of the tables.
            self.receipt.effective = Scheme::Copy;
            self.receipt.copied_because(self.passing().why_copied(addr, len, self.parties.server));
            self.passing().copy_buffer(self.parties, len)
        } else {
            self.passing().aligned_buffer(self.parties, addr, len)
        };
        self.take(buffer?);
        Ok(())
    }

    /// Takes a new system buffer, in which the server finds nobody else's data.
    fn take(&mut self, system: SystemBuffer) {
        self.system = Some(system);
        self.zero_around(self.parties.server);
    }
}
