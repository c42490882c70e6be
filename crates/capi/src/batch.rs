//! `io_begin_batch` and `io_end_batch`: requests of one thread of which their servers are told together.

use std::cell::RefCell;
use std::ffi::c_int;

use genie_io::{Batch, Failed, Interface, Pending, Plan, ServerHandle};
use genie_sys::fork::Maker;

use crate::failure::{Failure, call};

thread_local! {
    /// The batch that this thread has begun. One that a fork has brought here is the parent's, and counts for nothing.
    static BEGUN: RefCell<Option<(Maker, Batch)>> = const { RefCell::new(None) };
}

/// Begins a batch: of the requests that this thread makes from now on without waiting for them, servers in other processes are told
/// together, so that one that sleeps is woken once for up to 32 of them. A server that is awake may begin with each at once.
///
/// A sleeping server is woken when the batch ends, and before this thread looks or waits for a reply of that server. Before it waits for what
/// another thread does with the replies, end the batch. A thread that ends, ends its batch. A channel that io_disconnect is to close stays
/// open until no batch has requests for it.
///
/// Returns 0, or -1.
///
/// Errors: EBUSY (this thread has begun one that has not ended), EINVAL (the thread is about to end, and calls this as it is torn down).
#[unsafe(no_mangle)]
pub extern "C" fn io_begin_batch() -> c_int {
    let begin = |begun: &RefCell<Option<(Maker, Batch)>>| {
        let mut begun = begun.borrow_mut();
        if own(&mut begun).is_some() {
            let sentence = "this thread has begun a batch; end it by io_end_batch first";
            return Err(Failure::new(libc::EBUSY, sentence));
        }
        *begun = Some((Maker::this_process(), Batch::default()));
        Ok(0)
    };
    call(|| BEGUN.try_with(begin).unwrap_or_else(|_| Err(Failure::misuse("this thread is about to end"))))
}

/// Ends the batch that this thread has begun: servers that sleep are woken for what they were asked in it.
///
/// Returns 0, or -1.
///
/// Errors: EINVAL (this thread has begun none).
#[unsafe(no_mangle)]
pub extern "C" fn io_end_batch() -> c_int {
    // What is taken out wakes servers as it is dropped.
    call(|| match own(&mut BEGUN.try_with(RefCell::take).ok().flatten()) {
        Some(_) => Ok(0),
        None => Err(Failure::misuse("this thread has begun no batch")),
    })
}

/// Submits a request, in this thread's batch if the thread has begun one.
#[inline(never)]
pub(crate) fn submitted<'i>(
    plan: &mut Plan<'_, 'i>,
    interface: &Interface,
    server: &ServerHandle,
) -> Result<Pending<'i>, Failed> {
    // A thread that is about to end has none.
    let _ = BEGUN.try_with(|begun| own(&mut begun.borrow_mut()).map(|batch| plan.batch(server, batch)));
    plan.submit(interface, server)
}

fn own(begun: &mut Option<(Maker, Batch)>) -> Option<&mut Batch> {
    begun.as_mut().filter(|(maker, _)| maker.is_this_process()).map(|(_, batch)| batch)
}
