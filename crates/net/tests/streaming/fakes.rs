//! Rings whose other side is the test.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use genie_memory::Data;
use genie_net::Frame;
use genie_net::driver::{Counters, Rings};
use genie_sys::Errno;
use genie_sys::event::Event;
use genie_sys::lock::Mutex;

/// Rings. Clones are the same rings; one of them is the test's.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    event: Event,
}

type Sees = Box<dyn FnMut(&[u8]) + Send>;

#[derive(Default)]
pub(crate) struct State {
    /// What is still to come.
    pub(crate) coming: VecDeque<Vec<u8>>,
    /// What was put, and where it was.
    pub(crate) put: Vec<(Vec<u8>, usize)>,
    /// Where what came last was shown.
    pub(crate) shown: Vec<usize>,
    pub(crate) room: usize,
    /// What fails when there is nothing more to come.
    pub(crate) fails: Option<Errno>,
    /// How often it was looked for what comes.
    pub(crate) looks: usize,
    /// Called with each packet that is put.
    pub(crate) sees: Option<Sees>,
}

impl Fake {
    pub(crate) fn new(room: usize) -> Self {
        let state = Mutex::new(State { room, ..State::default() });
        Self(Arc::new(Inner { state, event: Event::new().expect("an event") }))
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.0.state.lock());
        self.0.event.signal().expect("a signal");
        result
    }

    /// Looks at it, which wakes nobody.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.0.state.lock())
    }

    /// Has packets come.
    pub(crate) fn bring(&self, packets: impl IntoIterator<Item = Vec<u8>>) {
        self.change(|state| state.coming.extend(packets));
    }
}

impl Rings for Fake {
    fn put(&mut self, frame: &Data<'_>) -> Result<bool, Errno> {
        let mut state = self.0.state.lock();
        if state.room == 0 {
            return Ok(false);
        }
        state.room -= 1;
        let bytes = frame.to_vec();
        if let Some(sees) = &mut state.sees {
            sees(&bytes);
        }
        state.put.push((bytes, frame.segments()[0].addr()));
        Ok(true)
    }

    fn room(&mut self) -> Result<usize, Errno> {
        Ok(self.0.state.lock().room)
    }

    fn send(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(&Frame<'_>)) -> Result<usize, Errno> {
        self.0.state.lock().looks += 1;
        for taken in 0..most {
            let mut state = self.0.state.lock();
            let Some(packet) = state.coming.pop_front() else {
                return state.fails.filter(|_| taken == 0).map_or(Ok(taken), Err);
            };
            state.shown.push(packet.as_ptr().addr());
            drop(state);
            see(&Frame::new(Data::from(&packet[..])));
        }
        Ok(most)
    }

    fn claim(&mut self, _port: u16, _is_ours: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn has_frames(&self) -> bool {
        !self.0.state.lock().coming.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.0.event.clear().expect("it can be cleared");
        true
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
