//! Transfers: parts of a request's inputs that a device fills by itself, while the server goes on.
//!
//! Why: to transfer data from a device's own memory takes time. No thread of the server's should wait for it, and the client is to have
//! its reply when the data is there and no sooner, or an error if it does not come.
//! How: a transfer holds a pin, and so defers the reply; if it fails, it leaves the error in the request's contract, for the reply.
//! Invariants: the device stores into memory that the request holds: a system buffer, a region that is not the client's yet, or, by the
//! schemes that pass data in place, referenced granules. The contract's last holder lets go of the request's work, and with it of all
//! of these. A transfer is a holder, whatever the client has given up, whether its process is there or not, and whether the server has
//! replied.
//! Source: thesis §6.6 to §6.8, §7.4.4. Differs: by emulated copy, too, the device fills a system buffer, and never the client's pages: the
//! client may have its buffer back, and store there, before the device is done.

use std::ops::Range;

use genie_memory::DataMut;

use super::Incoming;
use crate::{Error, InputPin, ServerError};

/// Bytes of an input into which a device transfers data by itself: see [`Incoming::begin_transfer`].
///
/// Dropping it has the request fail: a device whose code panics, or is gone, has transferred nothing. Whoever drops it vouches that the device
/// stores nothing more, as with [`Transfer::end`]; hardware that cannot be stopped keeps the memory if the transfer is forgotten.
#[derive(Debug)]
#[must_use = "dropping a transfer has the request fail"]
pub struct Transfer {
    pin: InputPin,
    /// What the device has said; none before it has.
    result: Option<Result<(), ServerError>>,
}

impl Transfer {
    /// Where the data goes.
    pub fn data(&self) -> DataMut<'_> {
        self.pin.data()
    }

    /// Says that the device is done, and touches the memory no more. After an error the request fails, though the server may have replied
    /// with success; an error that the server has replied counts instead, or one with which another transfer has ended before.
    ///
    /// What follows the reply may run in this call, as in [`Incoming::reply`].
    pub fn end(mut self, result: Result<(), ServerError>) {
        self.result = Some(result);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let dropped = || Err(ServerError::new("a device dropped its transfer"));
        if let Err(error) = self.result.take().unwrap_or_else(dropped) {
            self.pin.0.contract.fail(Error::Server(error));
        }
    }
}

impl Incoming {
    /// Makes input buffer `index` ready, and gives its bytes `range` to a device that transfers data there by itself, in another thread, or
    /// by an operation in flight. The server may reply as soon as it has said by [`Incoming::set_actual`] how many bytes come: the client
    /// gets the reply when the last transfer has ended, and an error if one of them has failed.
    ///
    /// ```
    /// # use genie_io::{Incoming, ServerError, Transfer};
    /// # use std::sync::mpsc::Sender;
    /// fn receive(mut request: Incoming, device: &Sender<Transfer>, len: usize) -> Result<(), ServerError> {
    ///     let transfer = request.begin_transfer(0, 0..len)?;
    ///     request.set_actual(0, len)?;
    ///     request.reply(Ok(()));
    ///     let _ = device.send(transfer); // without a device, the request fails
    ///     Ok(())
    /// }
    ///
    /// /// The device's side, in its own thread.
    /// fn transfer(transfer: Transfer, packet: &[u8], sum: u64) {
    ///     transfer.data().copy_from(packet);
    ///     let is_whole = transfer.data().sum() == sum;
    ///     transfer.end(if is_whole { Ok(()) } else { Err("the packet is damaged".into()) });
    /// }
    /// ```
    ///
    /// When the client gives the request up, it waits for the device no longer than for any server
    /// ([`Limits::abort_timeout`](crate::Limits::abort_timeout)), and the server hears of it by [`Server::abort`](crate::Server::abort), so
    /// that it can have the device stop. The memory stays the request's until the transfer ends or is dropped, even if that is never.
    ///
    /// If the transfer fails, a client that has asked for strong integrity finds its buffer as it was, whatever the device has stored. With weak
    /// integrity, what was stored may be there. So it is with a device that sums its data while it transfers it (Medusa and Afterburner, §6.8),
    /// as with one that has summed it before (WCAB). The receipt says which scheme took effect.
    ///
    /// # Errors
    /// As [`Incoming::pin_input`].
    pub fn begin_transfer(&mut self, index: usize, range: Range<usize>) -> Result<Transfer, Error> {
        let pin = self.pin_input(index, range)?;
        Ok(Transfer { pin, result: None })
    }
}
