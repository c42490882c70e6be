//! What a driver shares with the kernel.

use std::os::fd::BorrowedFd;

use genie_memory::Data;
use genie_sys::Errno;

use crate::Frame;
use crate::checksum::{Checksum, Sum};

/// What has become of an interface's frames so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that were given to the kernel.
    pub sent: u64,
    /// Their bytes, as far as they were copied into the ring's memory: where a device reads them.
    pub sent_bytes: u64,
    /// Frames that have come.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that the kernel has dropped, since the ring had no room.
    pub dropped: u64,
    /// Frames that were dropped since they were longer than the interface's MTU, or several that their sender's kernel has left to be cut.
    pub unfit: u64,
    /// Bytes that the kernel has copied, from the ring to a packet of its own or the other way round, where no device reads and stores
    /// in the ring's memory.
    pub copied_by_kernel: u64,
}

/// The rings that a driver shares with the kernel for one queue of an interface.
pub trait Rings: Send {
    /// Puts a frame into the ring for sending; false if the ring is full.
    ///
    /// # Errors
    /// The kernel's reason: of a frame that is too long, for example.
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno>;

    /// Puts a frame, and its Internet checksum in place of two of its bytes, which count as zeros: those from `at` on, an even place.
    /// Where the rings can, the frame is summed while it is copied; else it is read once more.
    ///
    /// # Errors
    /// As [`Rings::put`].
    ///
    /// # Panics
    /// When the two bytes are not there.
    fn put_summed(&mut self, frame: &Data<'_>, at: usize) -> Result<bool, Errno> {
        let (before, behind) = (frame.part(0..at), frame.part(at + 2..frame.len()));
        let mut sum = Sum::new(Checksum::Internet);
        sum.add_data(&before);
        sum.add(&[0, 0]);
        sum.add_data(&behind);
        let sum = (sum.finish() as u16).to_le_bytes();
        let mut whole = before;
        whole.append(Data::from(&sum[..]));
        whole.append(behind);
        self.put(&whole)
    }

    /// How many frames of any length can be put now, at least; one at a time where the kernel does not tell.
    ///
    /// # Errors
    /// The kernel's reason: the interface is gone, for example.
    fn room(&mut self) -> Result<usize, Errno>;

    /// Has the kernel send what was put.
    ///
    /// # Errors
    /// The kernel's reason; frames that were put stay in the ring, and may go with later ones. Where the kernel has no room at the moment it
    /// is to be asked again ([`Errno::AGAIN`], [`Errno::NOBUFS`]).
    fn send(&mut self) -> Result<(), Errno>;

    /// Shows at most `most` frames that have come to `see`, in order, and gives their memory back; returns how many.
    ///
    /// # Errors
    /// The kernel's reason: the interface is gone, for example.
    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno>;

    /// Has UDP datagrams to this port come from now on, or not any more.
    ///
    /// # Errors
    /// The kernel's reason: another program has the port, for example.
    fn claim(&mut self, port: u16, is_ours: bool) -> Result<(), Errno>;

    /// Whether a frame has come, as far as can be known without a system call.
    fn has_frames(&self) -> bool;

    /// Has the descriptor tell of the next frame, or of room, where it does not always; false where there is something to look at already.
    fn arm(&mut self) -> bool {
        true
    }

    /// Whether the descriptor tells when the interface or the device has gone. Otherwise [`Rings::arm`] finds out, each time.
    fn tells_of_its_end(&self) -> bool {
        true
    }

    /// Whether nothing will come any more, and nothing is wrong: a file has ended.
    fn is_over(&self) -> bool {
        false
    }

    /// What is readable when a frame has come.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What has become of the frames so far.
    fn counters(&self) -> Counters;

    /// How many bytes were copied so far, into the ring and by the kernel. It is asked for each packet: where [`Rings::counters`] makes a
    /// system call, this makes none.
    fn copied(&self) -> u64 {
        let Counters { sent_bytes, copied_by_kernel, .. } = self.counters();
        sent_bytes + copied_by_kernel
    }
}

/// Takes what another one may do later for nothing done yet.
pub(crate) fn or_later<T>(result: Result<T, Errno>, nothing: T) -> Result<T, Errno> {
    match result {
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::BUSY | Errno::INTR) => Ok(nothing),
        result => result,
    }
}
