//! Registrations: parts of a program that serve other processes, and want to know when those end (SMLI TR-95-39, table 2).
//!
//! How: a thread for each registration waits for the process's end, takes back what the process had of the pool, and calls.
//! Invariants: after `uf_deregister` the callback is not called, and has returned where another thread had called it. A callback never
//! waits for another one, which may be waiting for it: what it deregisters may have been called already, and run on.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_sys::event::Event;
use genie_sys::lock::Mutex;
use genie_sys::poll::Poller;
use genie_sys::process::Pid;
use genie_sys::thread::Thread;

use crate::Pool;
use crate::c::failure::{Failure, call};
use crate::c::process::Process;
use crate::c::sysv::blocks::{empty, mblk_t};

type Callback = unsafe extern "C" fn(*mut c_void);

/// What is registered, by its handle.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Mutex<BTreeMap<usize, Registration>>);

#[derive(Debug)]
struct Registration {
    pool: Pool,
    callback: Callback,
    stop: Event,
    thread: Thread,
}

thread_local! {
    /// Whether this thread is a registration's, which calls the callback.
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// The next handle. A child does not give its parent's again.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Registers interest in a process that shares a pool with this one (uf_join): procref points to its number, a pid_t.
///
/// When it has ended, its fbufs and channels are taken back, and proc_exit_callback is called, in a thread of the library's, with the
/// handle that this call returns. The callback may call all functions of the library, uf_deregister among them; it returns, and does
/// not call pthread_exit. If the process has ended already, it is called at once, perhaps before this call returns.
///
/// Returns a handle on the pool, for uf_allocb and uf_deregister, or NULL with errno set.
///
/// Errors: ESRCH (there is no such process, or none that shares a pool with this one and is in its PID namespace), EFAULT (a pointer is NULL), EAGAIN (there is no
/// thread), EMFILE, ENOMEM.
///
/// Pointers: procref points to a pid_t, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uf_register(
    procref: *mut c_void,
    proc_exit_callback: Option<unsafe extern "C" fn(*mut c_void)>,
) -> *mut c_void {
    call(std::ptr::null_mut(), || {
        // SAFETY: null, or the caller's number.
        let number = unsafe { procref.cast::<libc::pid_t>().as_ref() };
        let number = *number.ok_or_else(|| Failure::null("the process's number"))?;
        let callback = proc_exit_callback.ok_or_else(|| Failure::null("the callback"))?;
        let process = Process::current()?;
        let shares = |pool: &Pool| number > 0 && pool.members().contains(&number);
        let sentence = || {
            format!(
                "process {number}, of this PID namespace, shares no pool with this one: let it call uf_join"
            )
        };
        let pool = process.pools().into_iter().find(shares);
        let pool = pool.ok_or_else(|| Failure::new(libc::ESRCH, sentence()))?;
        process.registrations.add(number, pool, callback)
    })
}

/// Ends a registration: handle and proc_exit_callback are those of uf_register. When this call returns, the callback is not called
/// any more, and has returned if another thread has called it. What was allocated by the handle stays what it is.
///
/// From within a callback of uf_register, this call does not wait, since the other one might wait for this one: a callback that another
/// thread of the library's has called already may still be running when it returns.
///
/// If it fails it sets errno.
///
/// Errors: EINVAL (there is no such registration; perhaps it has ended already).
#[unsafe(no_mangle)]
pub extern "C" fn uf_deregister(
    handle: *mut c_void,
    proc_exit_callback: Option<unsafe extern "C" fn(*mut c_void)>,
) {
    call((), || Process::current()?.registrations.remove(handle.addr(), proc_exit_callback));
}

/// Allocates a message of one block without bytes. Its room for size bytes is an fbuf of the pool that a handle of uf_register names,
/// or of this process's pool if handle is NULL.
///
/// Returns the message, which freemsg frees, or NULL with errno set.
///
/// Errors: EINVAL (there is no such registration, or size is negative), ENOMEM, EDQUOT.
#[unsafe(no_mangle)]
pub extern "C" fn uf_allocb(handle: *mut c_void, size: c_int) -> *mut mblk_t {
    call(std::ptr::null_mut(), || {
        let process = Process::current()?;
        let size =
            usize::try_from(size).map_err(|_| Failure::misuse("a block cannot have fewer than 0 bytes"))?;
        let pool =
            if handle.is_null() { process.pool()? } else { process.registrations.pool(handle.addr())? };
        Ok(empty(pool.allocate(size)?))
    })
}

impl Registrations {
    fn add(
        &'static self,
        number: libc::pid_t,
        pool: Pool,
        callback: Callback,
    ) -> Result<*mut c_void, Failure> {
        let process = Pid::from_raw(number).expect("positive");
        let process = genie_sys::process::Process::open(process)?;
        let ((stop, stopped), poller) = (Event::pair()?, Poller::new()?);
        poller.add(&process, 0)?;
        poller.add(&stopped, 1)?;
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        let watched = pool.clone();
        let watch = move || {
            let (_keeps, mut ready) = ((process, stopped), Vec::new());
            // Without memory to wait with, nobody is told.
            let is_over = poller.wait(None, &mut ready).is_ok() && ready.iter().all(|ready| ready.token == 0);
            if !is_over {
                return;
            }
            let _ = watched.sweep();
            IS_CALLER.set(true);
            // A callback may have deregistered this one since, without waiting for this thread.
            if self.0.lock().contains_key(&handle) {
                // SAFETY: the program's function, which it has promised to be there until it deregisters.
                unsafe { callback(std::ptr::without_provenance_mut(handle)) };
            }
        };
        // Locked, so that a callback that deregisters finds the registration.
        let mut all = self.0.lock();
        let thread = genie_sys::thread::spawn("fbufs exit", watch)?;
        all.insert(handle, Registration { pool, callback, stop, thread });
        Ok(std::ptr::without_provenance_mut(handle))
    }

    fn remove(&self, handle: usize, callback: Option<Callback>) -> Result<(), Failure> {
        let mut all = self.0.lock();
        let is_it = |found: &&Registration| {
            callback.is_some_and(|callback| std::ptr::fn_addr_eq(found.callback, callback))
        };
        all.get(&handle).filter(is_it).ok_or_else(unknown)?;
        let registration = all.remove(&handle);
        drop(all);
        let Some(Registration { stop, thread, .. }) = registration else { return Ok(()) };
        if stop.signal().is_ok() && !IS_CALLER.get() {
            thread.join();
        }
        Ok(())
    }

    fn pool(&self, handle: usize) -> Result<Pool, Failure> {
        self.0.lock().get(&handle).map(|found| found.pool.clone()).ok_or_else(unknown)
    }
}

fn unknown() -> Failure {
    Failure::misuse("there is no such registration: pass what uf_register gave, and its callback")
}
