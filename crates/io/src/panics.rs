//! Panics of servers' code, and of clients' tasks and continuations, which end the requests that the code had in its hands, and nothing
//! else.
//!
//! Why: a server's code runs in Genie's threads (workers, the control thread, timers, evictions) and in those of clients in the
//! same process. A panic that unwound through them would end a thread on which other clients depend, or make a client pay for
//! its server's mistake.
//! How: a request that is dropped because a server's code unwinds is set aside until the panic's message is known, and then
//! ends with it. The panic hook has reported the panic by then; nothing reports it again.
//! A child that the code has forked, in a thread of Genie's own, ends when it comes back from the code.
//! Invariants: a request that was set aside ends when the call in which it was dropped ends.
//! Limits: in a program built with `panic = "abort"`, a panic of a server's code still aborts the process.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use genie_sys::thread::end_copy;

use crate::Error;

thread_local! {
    static CALLS: Calls = const { Calls { depth: Cell::new(0), unwound: Cell::new(0) } };
    /// What ends the requests that were dropped by unwinding, in a call that is not over yet. It is empty when the thread ends, and needs no
    /// destructor, after which a call that the destructor of another local makes could not use it.
    static UNWOUND: ManuallyDrop<RefCell<Vec<End>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Ends a request.
type End = Box<dyn FnOnce(Error)>;

/// This thread's calls of servers' code.
struct Calls {
    /// How many there are, one inside the other.
    depth: Cell<u32>,
    /// How many requests all these calls together have set aside.
    unwound: Cell<usize>,
}

/// Calls code of a server, or of a client. If the code panics, the requests that the panic drops end with the panic's message.
///
/// # Errors
/// It panicked.
pub(crate) fn call<T>(code: impl FnOnce() -> T) -> Result<T, Error> {
    // A call that is made while an outer call unwinds leaves the outer call's requests alone.
    let before = CALLS.with(|calls| {
        calls.depth.set(calls.depth.get() + 1);
        calls.unwound.get()
    });
    let called = catch_unwind(AssertUnwindSafe(code)).map_err(panicked);
    let (depth, unwound) = CALLS.with(|calls| {
        calls.depth.set(calls.depth.get() - 1);
        (calls.depth.get(), calls.unwound.replace(before))
    });
    // Otherwise it goes back to other code that is not Genie's.
    if depth == 0 {
        end_copy();
    }
    if unwound > before {
        // A server that catches its own panics gets here without an error.
        let error = called.as_ref().err().cloned().unwrap_or_else(elsewhere);
        let requests = UNWOUND.with(|unwound| unwound.borrow_mut().split_off(before));
        requests.into_iter().for_each(|end| end(error.clone()));
    }
    called
}

/// Ends a request that unwinding drops, by `end`. In a thread where Genie called the server, the request ends with that call, once the
/// panic's message is known; in any other thread it ends at once.
#[cold]
pub(crate) fn end_unwound(end: impl FnOnce(Error) + 'static) {
    if CALLS.with(|calls| calls.depth.get()) == 0 {
        return end(elsewhere());
    }
    CALLS.with(|calls| calls.unwound.set(calls.unwound.get() + 1));
    UNWOUND.with(|unwound| unwound.borrow_mut().push(Box::new(end)));
}

/// The error for a panic whose message is not known.
fn elsewhere() -> Error {
    Error::Panicked { message: "its standard error may say why".to_owned() }
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Error {
    let message = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
    // Dropping the payload may panic, and so may dropping the payload of that panic.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
    message.map_or_else(elsewhere, |message| Error::Panicked { message })
}

/// Calls a client's code, such as a task that is woken, in a thread that others rely on: the timer, a server's thread, or a thread
/// that takes replies for all. A panic of that code ends here; the requests that the code had in its hands end with the panic's message. The
/// panic hook has reported it.
pub(crate) fn end_here(code: impl FnOnce()) {
    drop(call(code));
}
