//! Registrars: code that is told which memory objects a space has.
//!
//! Why: whoever registers memory with the kernel or a device (buffers of io_uring, a UMEM of AF_XDP, RDMA), or shows it to another process,
//! does so once for each object. It must know of an object before data comes that lies in it, and let go of it before other data lies at its
//! addresses. To ask the space for each request would cost the space's lock, and a count of changes tells only whoever looks.
//! How: whoever changes the table of objects leaves a note at each registrar's *desk*. When a thread has let go of the space's lock, and
//! there are notes, it tells the registrars, or waits while another thread does.
//!
//! ```text
//!   thread 1   lock, make an object, leave a note, unlock | tell ............ | use the object's granules
//!   thread 2              lock, take other granules of that object, unlock | wait | use them
//! ```
//!
//! Invariants: notes are left under the space's lock, and so in the order of the changes; each registrar is told in that order, of one note
//! at a time. A thread that goes on after it has let go of the lock knows that all changes that it can have seen were told. A call never
//! waits for a lock of Genie's that its own thread has: code that uses a space under such a lock *tells later* ([`TellLater`]), when it has
//! let go of the lock. The exception is a device's transfer: before that all is told, so that the device finds its memory registered,
//! whatever locks the thread has. An object that is let go before a registrar heard of it is not told of at all: its notes cancel each other.
//! Threads that must not wait are *quiet*: they tell nobody, and wait for nobody. These are the fault thread, for which stores of the
//! registrar's may be waiting; a thread that allocates from the space, or frees, whatever locks it holds; and a thread that is in
//! a registrar's call. What they note is told by the next thread that uses the space, and nobody is given data of requests without that.
//! Limits: objects that are let go and not told of yet have descriptors, and count as the space's objects where it makes blocks; of their
//! memory, what is the space's own is given back at once.
//! Source: none in the thesis, whose kernel has all memory at hand.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_sys::fork::Maker;
use genie_sys::lock::Mutex;
use genie_sys::{Condvar, Object};

use crate::SharedObject;

/// Is told which memory objects a space has; see [`Space::register`](crate::Space::register).
///
/// - *Order.* [`added`](Registrar::added) returns before any code but Genie's can load or store data of a request in the object,
///   [`shown`](Registrar::shown) before a peer can have the object's descriptor. [`removed`](Registrar::removed) comes when no data lies in
///   the object any more, and its memory may have been given back; until it returns, no code but Genie's can load or store data of
///   a request at the object's addresses, and no other object has its inode. Calls come one at a time. An object of which no data was ever
///   passed may come and go without a call.
///   A space with granules of two sizes keeps this order among the objects of each size, and may make two calls at once, one of each.
/// - *Thread.* Any thread that uses the space makes the calls. To use a space is to make or serve requests, to allocate or drop buffers, and
///   whatever else asks the space. Other threads that use the space wait until a call returns.
/// - *Locks.* So a call must neither wait for a thread that uses the space, nor take a lock that a thread holds while it uses the space.
///   Genie holds none of its own that a call could want, with one exception: while a device transfers data (`genie::mechanism::Outboard`),
///   calls must not use the request that the data is for, nor one to which that request's input was forwarded. An allocation by
///   `genie::Allocator` is no use of the space here: it calls no registrar, and waits for none.
/// - *What it may do.* It may use the space, and drop, abort and reply to requests, but makes none. It must wait for no server that uses
///   the space, since the server may be waiting for the call. `Pending::abort` and `Pending::give_up` wait until the server has let the
///   request go; to drop a `Pending`, with or without `Pending::abort_on_drop`, waits for nobody. Continuations (`Pending::then`) that
///   follow from its replies run in another thread.
///   What a call changes in the space is told when a thread uses the space the next time, and the thread that is in the call does not wait
///   for that: if it registers another registrar, that one has not been told when [`Space::register`](crate::Space::register) returns, and if
///   it drops the last handle of a space, nobody is told of the end.
/// - *Panics.* A panic ends the call, and nothing else. The registrar is told of what comes next as if it had returned.
/// - *Fork.* A child is told of nothing. In a child that a call forks, the program goes no further than to `exec` or `_exit`.
pub trait Registrar: Send + Sync {
    /// The space has made an object, or was lent it.
    fn added(&self, object: &SharedObject);

    /// A peer is about to have a descriptor of the object: it may load from there from now on, or store, too, as its descriptor grants.
    /// This is told once for each object, with the first descriptor.
    fn shown(&self, object: &SharedObject) {
        let _ = object;
    }

    /// The space has let the object go, or has ended: nothing of the space uses the object's addresses any more.
    fn removed(&self, object: &SharedObject);
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Added,
    Shown,
    Removed,
}

/// The registrars of one granule size of a space.
#[derive(Debug)]
pub(crate) struct Registrars {
    maker: Maker,
    desks: Mutex<Vec<Arc<Desk>>>,
    /// Notes at all desks that have not been told to the end.
    untold: AtomicUsize,
}

/// One registrar, and what it is yet to be told.
struct Desk {
    registrar: Arc<dyn Registrar>,
    notes: Mutex<Notes>,
    /// Signalled when a note was told.
    told: Condvar,
}

#[derive(Default)]
struct Notes {
    waiting: VecDeque<Note>,
    /// How many have been told so far, or were dropped with the registration.
    told: u64,
    /// A thread is in the registrar's code, with a note that waits no more.
    is_calling: bool,
}

struct Note {
    change: Change,
    object: SharedObject,
    /// Keeps the inode.
    _memory: Arc<Object>,
}

impl Notes {
    /// Drops what was noted of an object of which the registrar has not heard; returns how many notes, if that was so.
    fn cancel(&mut self, object: &SharedObject) -> usize {
        let is_of = |note: &Note| note.object.id == object.id;
        if !self.waiting.iter().any(|note| is_of(note) && matches!(note.change, Change::Added)) {
            return 0;
        }
        let before = self.waiting.len();
        self.waiting.retain(|note| !is_of(note));
        before - self.waiting.len()
    }
}

impl Default for Registrars {
    fn default() -> Self {
        Self { maker: Maker::this_process(), desks: Mutex::default(), untold: AtomicUsize::new(0) }
    }
}

impl Registrars {
    /// Leaves a note at each desk. The caller holds the space's lock.
    pub(crate) fn note(&self, change: Change, object: SharedObject, memory: &Arc<Object>) {
        self.desks.lock().iter().for_each(|desk| self.note_at(desk, change, object, memory));
    }

    fn note_at(&self, desk: &Desk, change: Change, object: SharedObject, memory: &Arc<Object>) {
        let mut notes = desk.notes.lock();
        if let Change::Removed = change
            && let cancelled @ 1.. = notes.cancel(&object)
        {
            // Release pairs with the look of a thread that goes on because nothing is left to be told.
            self.untold.fetch_sub(cancelled, Ordering::Release);
            return;
        }
        notes.waiting.push_back(Note { change, object, _memory: Arc::clone(memory) });
        // Relaxed: the space's lock, and the one of the notes, show it to whom it concerns.
        self.untold.fetch_add(1, Ordering::Relaxed);
    }

    /// Seats a registrar, for which there are no notes yet. The caller holds the space's lock.
    pub(crate) fn seat(self: &Arc<Self>, registrar: &Arc<dyn Registrar>) -> Seat {
        let registrar = Arc::clone(registrar);
        let desk = Arc::new(Desk { registrar, notes: Mutex::default(), told: Condvar::new() });
        self.desks.lock().push(Arc::clone(&desk));
        Seat { registrars: Arc::clone(self), desk }
    }

    /// Has all that was noted so far told, at once or when this thread may tell.
    #[inline]
    pub(crate) fn tell(self: &Arc<Self>) {
        // Acquire pairs with the Release of the thread that has told a note: what the registrar did is seen here.
        if self.untold.load(Ordering::Acquire) > 0 {
            self.tell_all();
        }
    }

    #[cold]
    fn tell_all(self: &Arc<Self>) {
        // In a child made by fork, a thread that only the parent has may hold the locks.
        if !self.maker.is_this_process() {
            return;
        }
        match MANNER.get() {
            Manner::Quiet => {}
            Manner::AtOnce => {
                let _quiet = quiet();
                self.all().iter().for_each(|desk| desk.tell(self));
            }
            Manner::Later | Manner::Owing => owe(self),
        }
    }

    fn all(&self) -> Vec<Arc<Desk>> {
        // A list that is long enough to be a block would have this thread wait for the lock of the desks under that lock.
        #[cfg(feature = "allocator")]
        let _inside = crate::allocator::Inside::enter();
        self.desks.lock().clone()
    }
}

impl Desk {
    /// Tells the registrar what has been noted so far, or waits until other threads have.
    fn tell(&self, registrars: &Registrars) {
        // Where a call has forked, the lock may be held by a thread that only the parent has.
        if !registrars.maker.is_this_process() {
            return;
        }
        let mut notes = self.notes.lock();
        // Notes that are cancelled meanwhile are never told. In place of each, this waits for a later one, if there is one.
        let last = notes.told + notes.waiting.len() as u64 + u64::from(notes.is_calling);
        while notes.told < last {
            if notes.is_calling {
                notes = self.told.wait(notes, None);
                continue;
            }
            let Some(note) = notes.waiting.pop_front() else { return };
            notes.is_calling = true;
            drop(notes);
            self.call(&note);
            if !registrars.maker.is_this_process() {
                return;
            }
            // Without the lock: this may be the last of the object's memory, and giving that back takes long.
            drop(note);
            notes = self.notes.lock();
            (notes.is_calling, notes.told) = (false, notes.told + 1);
            registrars.untold.fetch_sub(1, Ordering::Release);
            self.told.notify_all();
        }
    }

    fn call(&self, Note { change, object, .. }: &Note) {
        let call = || match change {
            Change::Added => self.registrar.added(object),
            Change::Shown => self.registrar.shown(object),
            Change::Removed => self.registrar.removed(object),
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
            // The panic hook has reported it. The payload may panic when it is dropped.
            std::mem::forget(payload);
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// Keeps a [`Registrar`] told of a space's objects; it does not keep the space.
///
/// When this is dropped, the registrar is told of nothing more. Dropping it waits for a call that is under way in another thread, but not
/// in a thread that is in a registrar's call itself, this registrar's or another one's.
#[derive(Debug)]
#[must_use = "a registrar is told of nothing when its registration was dropped"]
pub struct Registration {
    /// One for each granule size; none in a child made by fork.
    _seats: Vec<Seat>,
}

impl Registration {
    pub(crate) fn new(seats: Vec<Seat>) -> Self {
        Self { _seats: seats }
    }
}

/// A registrar among those of one granule size.
#[derive(Debug)]
pub(crate) struct Seat {
    registrars: Arc<Registrars>,
    desk: Arc<Desk>,
}

impl Seat {
    /// Leaves a note for this registrar alone. The caller holds the space's lock.
    pub(crate) fn note(&self, change: Change, object: SharedObject, memory: &Arc<Object>) {
        self.registrars.note_at(&self.desk, change, object, memory);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Self { registrars, desk } = self;
        if !registrars.maker.is_this_process() {
            return;
        }
        registrars.desks.lock().retain(|other| !Arc::ptr_eq(other, desk));
        let mut notes = desk.notes.lock();
        let dropped = std::mem::take(&mut notes.waiting);
        notes.told += dropped.len() as u64;
        registrars.untold.fetch_sub(dropped.len(), Ordering::Release);
        desk.told.notify_all();
        match MANNER.get() {
            Manner::Quiet => drop(notes),
            _ => drop(desk.told.wait_until(notes, None, |notes| !notes.is_calling)),
        }
    }
}

thread_local! {
    /// How this thread tells. It has no destructor, so that it can be used while a thread's other locals are destroyed.
    static MANNER: Cell<Manner> = const { Cell::new(Manner::AtOnce) };
    /// Whom this thread has to tell later.
    static OWED: RefCell<Vec<Arc<Registrars>>> = const { RefCell::new(Vec::new()) };
}

/// How a thread tells what was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// When it lets go of a space's lock.
    AtOnce,
    /// When it has let go of other locks, too.
    Later,
    /// Likewise, and there is something to tell.
    Owing,
    /// Not at all.
    Quiet,
}

/// This thread tells no registrars, and waits for none, until what is returned is dropped.
#[inline]
pub(crate) fn quiet() -> Restored {
    Restored(MANNER.replace(Manner::Quiet), PhantomData)
}

/// Whether this thread tells nobody, since it is in a registrar's call, say: it gives no data of requests to code but Genie's.
#[inline]
pub fn is_quiet() -> bool {
    MANNER.get() == Manner::Quiet
}

/// When this is dropped, the thread tells in that manner again.
#[derive(Debug)]
pub(crate) struct Restored(Manner, PhantomData<*const ()>);

impl Drop for Restored {
    #[inline]
    fn drop(&mut self) {
        MANNER.set(self.0);
    }
}

/// Has this thread tell registrars later: when this is dropped, and where several are nested, when the outermost one is. For code that uses
/// a space under a lock that a [`Registrar`]'s call could want: it makes this before it takes the lock.
///
/// No code but Genie's is to be given data of requests meanwhile, but through [`TellLater::except`]. What is given out afterwards may be in
/// memory that another thread has taken from the space under the same lock, and has yet to tell of: then [`Space::tell`](crate::Space::tell)
/// comes first.
///
/// # Cost
/// Two stores to a word of the thread's own.
#[derive(Debug)]
#[must_use = "registrars are told when this is dropped"]
pub struct TellLater(Manner, PhantomData<*const ()>);

impl TellLater {
    /// From now on.
    #[inline]
    pub fn begin() -> Self {
        let before = MANNER.get();
        if before == Manner::AtOnce {
            MANNER.set(Manner::Later);
        }
        Self(before, PhantomData)
    }

    /// Whether there is something to tell when this is dropped.
    #[inline]
    pub fn owes(&self) -> bool {
        self.0 == Manner::AtOnce && MANNER.get() == Manner::Owing
    }

    /// Calls code that is not Genie's and is given data: what there is to tell is told first, and what the code changes is told at once, as
    /// if there were none of these.
    pub fn except<T>(code: impl FnOnce() -> T) -> T {
        let before = match MANNER.get() {
            Manner::Quiet => return code(),
            // All that is owed is told here.
            Manner::Owing => Manner::Later,
            before => before,
        };
        let _restored = Restored(before, PhantomData);
        if MANNER.replace(Manner::AtOnce) == Manner::Owing {
            tell_owed();
        }
        code()
    }
}

impl Drop for TellLater {
    #[inline]
    fn drop(&mut self) {
        if self.0 == Manner::AtOnce && MANNER.replace(Manner::AtOnce) == Manner::Owing {
            tell_owed();
        }
    }
}

/// Notes that this thread is to tell later. A thread that ends, and has no place for that any more, leaves it to the next one.
fn owe(registrars: &Arc<Registrars>) {
    let noted = OWED.try_with(|owed| {
        let mut owed = owed.borrow_mut();
        if !owed.iter().any(|known| Arc::ptr_eq(known, registrars)) {
            owed.push(Arc::clone(registrars));
        }
    });
    if noted.is_ok() {
        MANNER.set(Manner::Owing);
    }
}

#[cold]
fn tell_owed() {
    let owed = OWED.try_with(RefCell::take).unwrap_or_default();
    owed.iter().for_each(Registrars::tell);
}
