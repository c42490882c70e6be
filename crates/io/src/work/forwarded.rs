//! Forwarded inputs: elements of a request's input that its server, a contractor, has another server fill as a whole.
//!
//! Why: until its data is about to come, an input holds no system buffer. If a subcontractor needs a system buffer, it
//! should be made no sooner than the contractor itself would have it made. If the data is in a subcontractor's own buffer
//! already, it should go to the client as if the client had asked that server.
//! How: the contractor's request and its fragments share the element until the contractor's reply takes effect. The first of
//! them that needs memory has it made ready (point 1 of §7.5). A server that has the data in a buffer of its own puts that
//! buffer in the memory's place when its request has succeeded (points 2 and 3); if another server needs memory after that, the
//! data is copied there after all.
//! The first server in another process that the element is forwarded to has the memory made in its pool, if there is none yet. Before
//! anybody else gets memory, the element moves to memory that no other process is shown: that server might look at it,
//! and might store into it after it was given up. From then on each server in another process has a copy of its own
//! (`located/shown_copy.rs`).
//! Invariants: a buffer that the contractor or a subcontractor may have been shown stays until the contractor's reply. Registrars are told
//! when the element's lock is free, since their calls may reply to a request that shares the element, and before any thread gets the
//! element's memory, whichever has made it. Only a device's transfer is under the lock, and they are told before it.
//! Limits: the fragment is exactly one element, and the client and both servers are in one process. Otherwise the data is
//! copied, and the receipt says why.
//! Source: thesis §7.5.

use genie_memory::{Data, Segments, Space, SystemBuffer, TellLater, part};
use genie_passing::{Chain, Input, Outboard, Parties, Receipt};

use crate::Error;
use crate::primitive::Mutex;
use crate::server::service::Access;

/// Input data that a server has, but not in the memory that it was shown.
#[derive(Debug)]
pub(crate) enum Supply {
    Overlay(Chain),
    Outboard(Box<dyn Outboard>),
}

/// The element, which several requests share.
#[derive(Debug)]
pub(crate) struct ForwardedInput {
    len: usize,
    /// Whether the contractor's service may touch the data.
    is_mapped: bool,
    space: Space,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once the contractor's request has been replied to.
    input: Option<Box<Input>>,
    /// How many bytes the supply in place of memory has, or the server in another process that is shown the memory has brought.
    brought: usize,
    /// Whether a server in another process is shown the memory, and nobody else has been given it.
    is_shown: bool,
    /// Buffers that were in place of memory and no longer are.
    spent: Vec<Chain>,
    /// Memory that a server in another process was shown, and in which the data no longer is.
    left: Option<SystemBuffer>,
}

impl Supply {
    /// Links the data to an input, instead of making the input ready.
    ///
    /// # Errors
    /// A device's transfer failed, or there is no memory for a host buffer.
    ///
    /// # Panics
    /// When the input is ready already.
    pub(crate) fn put_in(self, input: &mut Input) -> Result<(), Error> {
        match self {
            Self::Overlay(chain) => input.overlay(chain),
            Self::Outboard(outboard) => input.outboard(outboard)?,
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Overlay(chain) => chain.len(),
            Self::Outboard(outboard) => outboard.len(),
        }
    }
}

impl ForwardedInput {
    pub(crate) fn new(input: Box<Input>, access: Access) -> Self {
        let len = input.len();
        // What the contractor has put in place of memory counts as brought, all of it: nobody has said how much it is.
        let brought = if input.is_ready() { len } else { 0 };
        let space = input.space().clone();
        let state = State { input: Some(input), brought, is_shown: false, spent: Vec::new(), left: None };
        Self { len, is_mapped: access.reads || access.writes, space, state: Mutex::new(state) }
    }

    /// Calls `act` with the locked state. When it is unlocked, registrars are told of what this thread has changed in the space, and of
    /// memory that another thread has made for the element just before.
    fn locked<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let later = TellLater::begin();
        let result = act(&mut self.state.lock());
        drop(later);
        self.space.tell();
        result
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.state.lock().input.as_ref().map(|input| *input.receipt())
    }

    /// The memory that a server fills; it is not shown to another process.
    pub(crate) fn ready(&self) -> Result<Segments, Error> {
        self.locked(State::ready)
    }

    /// The memory for a server in another process, and whether it was made for this server alone.
    pub(crate) fn ready_for(&self, parties: Parties) -> Result<(Segments, bool), Error> {
        self.locked(|state| {
            let input = state.input.as_mut().ok_or(Error::Aborted)?;
            if input.is_ready() {
                return Ok((state.ready()?, false));
            }
            input.made_for(parties);
            let segments = state.ready()?;
            state.is_shown = true;
            Ok((segments, true))
        })
    }

    /// A server has passed `actual` bytes in memory that `ready` or `ready_for` has returned. If the data has moved since, they
    /// are copied to where it is; returns how many were copied.
    pub(crate) fn passed(&self, data: &Data<'_>, actual: usize) -> Result<usize, Error> {
        self.locked(|state| {
            let input = state.input.as_mut().ok_or(Error::Aborted)?;
            if input.segments() == *data.segments() {
                if state.is_shown {
                    state.brought = actual;
                }
                return Ok(0);
            }
            let into = input.ready()?;
            let actual = actual.min(into.len()).min(data.len());
            Ok(into.part(0..actual).copy_data(&data.part(0..actual)))
        })
    }

    /// Makes memory for the contractor to see, unless a subcontractor has put a buffer that is long enough in its place.
    pub(crate) fn show(&self) -> Result<(), Error> {
        let len: usize = self.seen_here().iter().map(|segment| segment.len()).sum();
        if len == self.len { Ok(()) } else { self.ready().map(drop) }
    }

    /// As `seen`, as far as no server in another process is shown the memory.
    pub(crate) fn seen_here(&self) -> Segments {
        if self.state.lock().is_shown { Segments::new() } else { self.seen() }
    }

    /// The part of the memory that is there.
    pub(crate) fn seen(&self) -> Segments {
        self.locked(|state| match &state.input {
            Some(input) => part(&input.segments(), 0..self.len),
            None => Segments::new(),
        })
    }

    /// Puts `supply`, which has brought `brought` bytes, in place of memory. Returns `supply` where that can't be done: a
    /// server has memory already, or the data is a device's and the contractor may want to see it.
    pub(crate) fn supply(&self, supply: Supply, brought: usize) -> Result<Option<Supply>, Error> {
        self.locked(|state| {
            let input = state.input.as_mut().ok_or(Error::Aborted)?;
            if input.is_ready() || self.is_mapped && matches!(supply, Supply::Outboard(_)) {
                return Ok(Some(supply));
            }
            supply.put_in(input)?;
            state.brought = brought;
            Ok(None)
        })
    }

    /// Takes the element from all requests that share it.
    pub(crate) fn take(&self) -> Option<Box<Input>> {
        self.locked(|state| {
            state.spent.clear();
            state.left = None;
            state.input.take()
        })
    }
}

impl State {
    /// The input's memory, which moves if a server in another process is shown it.
    fn ready(&mut self) -> Result<Segments, Error> {
        let input = self.input.as_mut().ok_or(Error::Aborted)?;
        if self.is_shown {
            self.left = input.remake(self.brought)?;
            self.is_shown = false;
        }
        self.spent.extend(input.customize(self.brought)?);
        Ok(input.segments())
    }
}
