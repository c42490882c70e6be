//! Fork: which process has made an object or handle, and what a child sees where its parent has arenas.
//!
//! Why: a child has copies of its parent's handles, but neither its threads nor the memory in its arenas, and its parent's
//! peers would take whatever the child says over an inherited socket for its parent's words. The child has to tell inherited
//! handles from its own without a system call for each use, and before it takes a lock that a thread of its parent's held.
//! Besides, a touch of memory that the child does not have would kill it.
//! How: a handler that `fork` calls in the child counts one more generation, and maps zeros, memory of the child's own, over
//! all arenas whose addresses it has inherited.
//! Limits: `fork`, and the C library's functions that use it, call the handler. A child made by `vfork`, by `posix_spawn` or
//! by the system call itself has none of this: it is to exec or exit, and to use no handle. Where zeros can't be mapped
//! since addresses are limited (`ulimit -v`), a touch is SIGSEGV; where the reason is that memory may not be overcommitted,
//! only a store is SIGSEGV. Where another library's handler for children comes before this one and maps memory, it may get
//! addresses of an arena, and its memory is lost. A child that is forked while another thread of a Rust program starts or ends may wait
//! for ever where it starts a thread of the standard library's, ends such a thread, or calls `std::process::exit`; Genie's own threads
//! start there (`thread.rs`).
#![allow(
    unsafe_code,
    reason = "registers a handler with fork, which maps zeros only at addresses of arenas, whose memory a child must not have"
)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::mmap;

/// The least number of forks that lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Whether `fork` calls the handler.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// The places of all arenas, a list that only grows.
static PLACES: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());

/// A place's start when nobody has the place.
const FREE: usize = 0;
/// A place's start while it is being taken.
const RESERVED: usize = 1;

/// The process that has made a thing: this process, or one that this process was forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maker(u32);

impl Maker {
    /// This process.
    #[inline]
    pub fn this_process() -> Self {
        if !IS_INSTALLED.load(Ordering::Acquire) {
            install();
        }
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process has made the thing. If not, it has inherited a copy of the thing.
    ///
    /// Cost: a load.
    #[inline]
    pub fn is_this_process(self) -> bool {
        GENERATION.load(Ordering::Relaxed) == self.0
    }
}

/// Makes `fork` call the handler. Calling it twice for one fork does no harm.
#[cold]
fn install() {
    // SAFETY: the handler does only what is safe in a child of a process with several threads: loads, stores and mmap.
    let result = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // Where there is no memory for the handler, the next call of `Maker::this_process` tries again.
    IS_INSTALLED.store(result == 0, Ordering::Release);
}

/// The addresses of one arena.
struct Place {
    start: AtomicUsize,
    len: AtomicUsize,
    /// Whether the arena is a parent's: then this process has zeros there, until it ends.
    is_inherited: AtomicBool,
    next: AtomicPtr<Place>,
}

/// Keeps an arena's addresses in the list.
#[derive(Debug)]
pub(crate) struct Placed {
    place: &'static Place,
    maker: Maker,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({:#x})", self.start.load(Ordering::Relaxed))
    }
}

impl Placed {
    /// Enters `len` bytes from `start` on.
    pub(crate) fn new(start: usize, len: usize) -> Self {
        let maker = Maker::this_process();
        let place = vacant().unwrap_or_else(add);
        place.len.store(len, Ordering::Relaxed);
        // Release: the handler in a child, whichever thread forked it, sees the length if it sees the start.
        place.start.store(start, Ordering::Release);
        Self { place, maker }
    }

    /// Whether this process has reserved the addresses, and has not inherited them.
    pub(crate) fn is_own(&self) -> bool {
        self.maker.is_this_process()
    }

    /// Gives the addresses up; before others may map at them, or a child that is forked then would map zeros over what is theirs.
    ///
    /// # Panics
    /// In a child: another arena may have the place by now.
    pub(crate) fn leave(&self) {
        assert!(self.is_own(), "a child gives its parent's addresses up");
        self.place.start.store(FREE, Ordering::Release);
    }
}

/// All places in the list.
fn places() -> impl Iterator<Item = &'static Place> {
    let mut next = PLACES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: what is in the list was leaked, and is shared.
        let place = unsafe { next.as_ref() }?;
        next = place.next.load(Ordering::Acquire);
        Some(place)
    })
}

/// Takes a place that nobody has.
fn vacant() -> Option<&'static Place> {
    let take = |place: &&'static Place| {
        place.start.compare_exchange(FREE, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    places().find(take)
}

/// Adds a new place, and takes it.
fn add() -> &'static Place {
    let place: &'static Place = Box::leak(Box::new(Place {
        start: AtomicUsize::new(RESERVED),
        len: AtomicUsize::new(0),
        is_inherited: AtomicBool::new(false),
        next: AtomicPtr::default(),
    }));
    let pointer = std::ptr::from_ref(place).cast_mut();
    let mut first = PLACES.load(Ordering::Acquire);
    loop {
        place.next.store(first, Ordering::Release);
        // Release: a thread that finds the place in the list finds it fully initialized.
        match PLACES.compare_exchange(first, pointer, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return place,
            Err(newer) => first = newer,
        }
    }
}

/// Has `fork` call `before` in this process, and after it `in_parent` here or `in_child` in the child. There, the arenas
/// hold zeros already.
///
/// The functions neither panic nor, in the child, take a lock or allocate: a thread that the child does not have may hold
/// the lock. Returns whether `fork` will call them; there may be no memory for that.
pub fn on_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> bool {
    // Handlers for children are called in the order in which they were installed.
    let _ = Maker::this_process();
    // SAFETY: the functions are safe to call; in the child they do what the caller has promised.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
}

/// Ends a child that lacks what it needs to go on, from a handler that `fork` calls in the child: says why, without a
/// lock, and aborts.
pub fn end_child(reason: &str) -> ! {
    // SAFETY: reads the bytes of a string. The child ends, whether or not there is anybody to be told.
    unsafe { libc::write(libc::STDERR_FILENO, reason.as_ptr().cast(), reason.len()) };
    std::process::abort()
}

/// Whether this process is a child, and has zeros at this address, where its parent had an arena.
///
/// Cost: a load; in a child, some for each arena.
pub fn is_inherited(addr: usize) -> bool {
    let has = |place: &Place| {
        place.is_inherited.load(Ordering::Relaxed)
            && addr.wrapping_sub(place.start.load(Ordering::Relaxed)) < place.len.load(Ordering::Relaxed)
    };
    GENERATION.load(Ordering::Relaxed) > 0 && places().any(has)
}

/// Called by fork in the child, whose only thread this is.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for place in places().filter(|place| !place.is_inherited.load(Ordering::Relaxed)) {
        let start = place.start.load(Ordering::Acquire);
        if start > RESERVED {
            let len = place.len.load(Ordering::Relaxed);
            let rights = [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ];
            rights.into_iter().find(|rights| map_zeros(start, len, *rights));
            place.is_inherited.store(true, Ordering::Relaxed);
        } else {
            place.start.store(FREE, Ordering::Relaxed);
        }
    }
}

/// Maps zeros over an arena that this process has inherited; returns whether that was possible.
fn map_zeros(start: usize, len: usize, rights: i32) -> bool {
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the addresses are an arena's, and fork has not returned yet, so that nobody uses them here: they are free
    // (MADV_DONTFORK), but for what the module's Limits say; or, where a system call filter refuses that advice, they still show
    // what the parent has there.
    unsafe { mmap::map(start, len, rights, mmap::RESERVED | libc::MAP_FIXED, None) }.is_ok()
}
