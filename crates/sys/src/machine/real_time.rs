//! Real time: a thread that runs before all those that are not in real time.
#![allow(unsafe_code, reason = "calls the scheduler with a structure of plain numbers")]

use std::marker::PhantomData;

use rustix::io::Errno;

use crate::{Error, Result};

/// Holds the calling thread in real time: it runs until it waits, before all threads of lower priority and all that are not in real time.
/// Threads that it starts meanwhile are in real time, too. Dropping this has it share its time again.
#[derive(Debug)]
pub struct RealTime {
    /// The drop must run in the same thread.
    not_send: PhantomData<*const ()>,
}

impl RealTime {
    /// Puts the calling thread, which shares its time, in real time, with a priority of 1 to 99.
    ///
    /// # Errors
    /// EPERM: the process lacks CAP_SYS_NICE, and its limit on priorities is lower. EINVAL: there is no such priority.
    #[doc(alias = "SCHED_FIFO")]
    pub fn begin(priority: i32) -> Result<Self> {
        match schedule(libc::SCHED_FIFO, priority) {
            Ok(()) => Ok(Self { not_send: PhantomData }),
            Err(errno) => Err(Error::new("sched_setscheduler", "this thread in real time", errno)
                .with_remedy("CAP_SYS_NICE is needed, or `ulimit -r`")),
        }
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // Nothing is needed for less.
        let _ = schedule(libc::SCHED_OTHER, 0);
    }
}

fn schedule(policy: i32, priority: i32) -> std::result::Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads the parameter, and changes nothing but this thread's class.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
