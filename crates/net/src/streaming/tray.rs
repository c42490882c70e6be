//! Trays: stations whose frames wait to be taken, so that flows lead on from wires.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use genie_memory::Data;
use genie_sys::Errno;
use genie_sys::event::Event;
use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;

use crate::Frame;
use crate::driver::{Counters, Rings};
use crate::wire::Station;

/// A station that keeps what arrives until a flow takes it. Clones are handles of the same tray: one is the wire's station, and one the rings of
/// an [`End`](super::End).
///
/// Limits: it keeps as many frames as it was made for; those that arrive meanwhile are dropped, and counted. Nothing can be put into it.
#[derive(Debug, Clone)]
pub struct Tray(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kept: Mutex<Kept>,
    most: usize,
    event: Event,
    maker: Maker,
}

#[derive(Debug, Default)]
struct Kept {
    frames: VecDeque<Vec<u8>>,
    failed: Option<Errno>,
    counters: Counters,
}

impl Tray {
    /// An empty tray for at most `most` frames.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(most: usize) -> genie_sys::Result<Self> {
        let (kept, event, maker) = (Mutex::default(), Event::new()?, Maker::this_process());
        Ok(Self(Arc::new(Inner { kept, most, event, maker })))
    }
}

impl Station for Tray {
    fn arrive(&self, frame: &Frame<'_>) {
        let Some(mut kept) = self.0.kept.lock_made_by(self.0.maker) else { return };
        if kept.frames.len() >= self.0.most {
            kept.counters.dropped += 1;
            return;
        }
        kept.counters.received += 1;
        kept.counters.received_bytes += frame.len() as u64;
        kept.frames.push_back(frame.show(|data| data.to_vec()));
        drop(kept);
        // It fails only where the kernel has no memory.
        let _ = self.0.event.signal();
    }

    fn failed(&self, error: &genie_io::ServerError) {
        if let Some(mut kept) = self.0.kept.lock_made_by(self.0.maker) {
            kept.failed = Some(Errno::from_raw_os_error(error.code));
            let _ = self.0.event.signal();
        }
    }
}

impl Rings for Tray {
    fn put(&mut self, _frame: &Data<'_>) -> Result<bool, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn send(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        let mut taken = 0;
        while taken < most {
            let mut kept = self.0.kept.lock();
            let Some(frame) = kept.frames.pop_front() else {
                return if taken == 0 { kept.failed.map_or(Ok(0), Err) } else { Ok(taken) };
            };
            drop(kept);
            see(&Frame::new(Data::from(&frame[..])));
            taken += 1;
        }
        Ok(taken)
    }

    fn claim(&mut self, _port: u16, _is_ours: bool) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn has_frames(&self) -> bool {
        let kept = self.0.kept.lock();
        !kept.frames.is_empty() || kept.failed.is_some()
    }

    fn arm(&mut self) -> bool {
        // What arrives after this is told again.
        let _ = self.0.event.clear();
        true
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn counters(&self) -> Counters {
        self.0.kept.lock().counters
    }
}
