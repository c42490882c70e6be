//! Threads of Genie's own: in a child made by fork, too, they start and end.
//!
//! Why: a thread of the standard library's takes a lock of the process's when it starts and when it ends. A child that is forked while
//! another thread holds that lock would wait for such a thread for ever.
//! How: threads of the C library's, whose locks `fork` keeps whole for the child. A thread that calls code of others, which may fork,
//! asks afterwards whether it is a copy in a child ([`end_copy`]).
//! Limits: the standard library knows no names of such threads, says nothing when their stacks overflow, and `RUST_MIN_STACK` does not
//! count for them.
#![allow(unsafe_code, reason = "hands a function to a thread of the C library's, and waits for such threads")]

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::fork::Maker;
use crate::{Errno, Error, Result};

/// Bytes of a thread's stack: as many as the standard library's threads have.
const STACK: usize = 2 << 20;

/// The longest name of a thread that the kernel keeps.
const LONGEST_NAME: usize = 15;

thread_local! {
    /// The process in which [`spawn`] has started this thread.
    static STARTED_IN: Cell<Option<Maker>> = const { Cell::new(None) };
}

/// A thread that was started by [`spawn`]. Dropping this lets the thread go on by itself.
#[derive(Debug)]
pub struct Thread {
    id: libc::pthread_t,
    maker: Maker,
}

/// What a new thread is given.
struct Start {
    name: CString,
    run: Box<dyn FnOnce() + Send>,
}

/// Starts a thread, by this name as far as the kernel keeps it. A panic there goes to the panic hook, and ends the thread.
///
/// # Errors
/// The kernel allows no more threads, or there is no memory for its stack.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<Thread> {
    let kept = name.bytes().take(LONGEST_NAME).filter(|byte| *byte != 0).collect();
    // SAFETY: the name's zeros are filtered out.
    let kept = unsafe { CString::from_vec_unchecked(kept) };
    let start = Box::into_raw(Box::new(Start { name: kept, run: Box::new(run) }));
    let (mut id, maker) = (0, Maker::this_process());
    // SAFETY: the new thread becomes the owner of `start`.
    match unsafe { create(&mut id, start.cast()) } {
        0 => Ok(Thread { id, maker }),
        errno => {
            // SAFETY: no thread was made that would own it.
            drop(unsafe { Box::from_raw(start) });
            Err(Error::new("pthread_create", format!("the thread {name}"), Errno::from_raw_os_error(errno)))
        }
    }
}

/// Creates the thread; returns 0, or the error's number.
///
/// # Safety
/// `start` is a [`Start`] that is the new thread's.
unsafe fn create(id: &mut libc::pthread_t, start: *mut c_void) -> i32 {
    if cfg!(miri) {
        // SAFETY: the caller's promise. Miri has no attributes.
        return unsafe { libc::pthread_create(id, ptr::null(), begin, start) };
    }
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the attributes are initialized before they are used, and destroyed afterwards; the rest is the caller's promise.
    unsafe {
        match libc::pthread_attr_init(attributes.as_mut_ptr()) {
            0 => {}
            errno => return errno,
        }
        let attributes = attributes.assume_init_mut();
        let errno = match libc::pthread_attr_setstacksize(attributes, STACK) {
            0 => libc::pthread_create(id, attributes, begin, start),
            errno => errno,
        };
        libc::pthread_attr_destroy(attributes);
        errno
    }
}

/// Whether [`spawn`] has started this thread.
#[inline]
pub fn is_spawned() -> bool {
    STARTED_IN.get().is_some()
}

/// Ends this process if its only thread is a copy of one that [`spawn`] has started in its parent: what that thread does next is the
/// parent's. No destructor runs, and nothing that is kept for the exit.
///
/// Cost: two loads.
#[inline]
pub fn end_copy() {
    if STARTED_IN.get().is_some_and(|maker| !maker.is_this_process()) {
        // SAFETY: this touches nothing of what the process has, which is its parent's.
        unsafe { libc::_exit(0) }
    }
}

/// Where a new thread begins.
extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` has made it for this thread alone.
    let Start { name, run } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: sets this thread's name, which ends with a zero.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    drop(name);
    STARTED_IN.set(Some(Maker::this_process()));
    // What a panic has left half done, nobody sees but by locks, which ignore poison: see `lock`.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Dropping it might panic again.
        std::mem::forget(payload);
    }
    ptr::null_mut()
}

impl Thread {
    /// Whether this is the thread that asks.
    pub fn is_current(&self) -> bool {
        // SAFETY: asks for this thread's own name.
        self.maker.is_this_process() && unsafe { libc::pthread_equal(self.id, libc::pthread_self()) } != 0
    }

    /// Waits until the thread has ended. In a child made by fork, which does not have its parent's thread, this does nothing.
    ///
    /// # Panics
    /// If this is the thread itself, which would wait for ever.
    pub fn join(self) {
        assert!(!self.is_current(), "a thread waits for its own end");
        if self.maker.is_this_process() {
            // SAFETY: this is the only handle of a thread that is neither joined nor detached.
            unsafe { libc::pthread_join(self.id, ptr::null_mut()) };
            std::mem::forget(self);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.maker.is_this_process() {
            // SAFETY: as in `join`.
            unsafe { libc::pthread_detach(self.id) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::child::{ExitOutcome, fork_child};

    #[test]
    fn a_thread_runs_by_its_name_and_is_waited_for() {
        let ran = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&ran);
        let thread = spawn("a name that is too long", move || {
            assert_eq!(std::fs::read_to_string("/proc/thread-self/comm").unwrap(), "a name that is \n");
            theirs.store(true, Ordering::Relaxed);
        });
        let thread = thread.unwrap();
        assert!(!thread.is_current());
        thread.join();
        assert!(ran.load(Ordering::Relaxed));
    }

    #[test]
    fn a_panic_ends_the_thread_alone() {
        let (sender, receiver) = mpsc::channel::<()>();
        let thread = spawn("genie-test", move || {
            let _sender = sender;
            panic!("this panic is part of the test");
        });
        thread.unwrap().join();
        assert!(receiver.recv().is_err(), "what the thread had is dropped");
    }

    #[test]
    fn a_thread_whose_handle_is_dropped_goes_on_and_knows_itself() {
        let (sender, receiver) = mpsc::channel();
        let (own, owns) = mpsc::channel::<Thread>();
        let thread = spawn("genie-test", move || {
            let own = owns.recv().unwrap();
            let is_current = own.is_current();
            drop(own);
            sender.send(is_current).unwrap();
        });
        own.send(thread.unwrap()).unwrap();
        assert!(receiver.recv().unwrap());
    }

    /// A space's fault handler never began in such a child, and dropping the space waited for it.
    #[test]
    #[cfg_attr(
        sanitized,
        ignore = "ThreadSanitizer allows no new thread in the child of a process with several"
    )]
    fn a_child_forked_while_threads_start_and_end_starts_threads_and_waits_for_none_of_its_parents() {
        let is_over = Arc::new(AtomicBool::new(false));
        let others = [(); 8].map(|()| {
            let until = Arc::clone(&is_over);
            let begin_others = move || {
                while !until.load(Ordering::Relaxed) {
                    std::thread::spawn(|| ()).join().unwrap();
                }
            };
            spawn("genie-test", begin_others).unwrap()
        });
        for _ in 0..400 {
            // SAFETY: the C library keeps its locks whole for the child, which takes no other; the parent's handle stays as it is.
            let child = unsafe {
                fork_child(|| {
                    libc::alarm(20);
                    ptr::read(&others).into_iter().for_each(Thread::join);
                    spawn("genie-test", || ()).unwrap().join();
                    0
                })
            };
            let outcome = child.unwrap().wait().unwrap();
            assert_eq!(outcome, ExitOutcome::Code(0), "the child hung, or has failed");
        }
        is_over.store(true, Ordering::Relaxed);
        others.into_iter().for_each(Thread::join);
    }
}
