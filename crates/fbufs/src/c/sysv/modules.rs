//! What modules and drivers are: their procedures, and their queues.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::ptr::null_mut;

use libc::{dev_t, ssize_t};

use super::blocks::msgb;

/// The queue is enabled: its service procedure is to run.
pub const QENAB: c_uint = 0x01;
/// The service procedure has found the queue empty, and is to run when there is a message.
pub const QWANTR: c_uint = 0x02;
/// A module has found the queue full, and is to be enabled when it is not.
pub const QWANTW: c_uint = 0x04;
/// The queue is full.
pub const QFULL: c_uint = 0x08;
/// It is a read queue.
pub const QREADR: c_uint = 0x10;
/// Messages do not enable the queue, but those of high priority.
pub const QNOENB: c_uint = 0x40;

/// In the first byte of M_FLUSH: read queues.
pub const FLUSHR: c_uchar = 1;
/// In the first byte of M_FLUSH: write queues.
pub const FLUSHW: c_uchar = 2;
/// Of flushq: messages of data alone.
pub const FLUSHDATA: c_int = 0;
/// Of flushq: all messages.
pub const FLUSHALL: c_int = 1;

/// The greatest length of packets, where there is none.
pub const INFPSZ: c_int = -1;
/// What qi_qopen is told where a module is pushed.
pub const MODOPEN: c_int = 1;

/// Credentials of whoever opens; NULL here.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct cred(());

/// What a module counts; nothing here does.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct module_stat(());

/// What a module is like.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct module_info {
    /// Its number.
    pub mi_idnum: c_ushort,
    /// Its name.
    pub mi_idname: *mut c_char,
    /// The least length of packets.
    pub mi_minpsz: ssize_t,
    /// The greatest length of packets.
    pub mi_maxpsz: ssize_t,
    /// From how many bytes on a queue is full.
    pub mi_hiwat: usize,
    /// With how many bytes a queue that was full takes more.
    pub mi_lowat: usize,
}

/// The procedures of a module, for one of its queues. Those to open and to close are of the read queue.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct qinit {
    /// Takes a message.
    pub qi_putp: Option<unsafe extern "C" fn(*mut queue, *mut msgb) -> c_int>,
    /// Serves the messages of the queue; or NULL.
    pub qi_srvp: Option<unsafe extern "C" fn(*mut queue) -> c_int>,
    /// Opens; returns 0 or an error's number; or NULL.
    pub qi_qopen: Option<unsafe extern "C" fn(*mut queue, *mut dev_t, c_int, c_int, *mut cred) -> c_int>,
    /// Closes; or NULL.
    pub qi_qclose: Option<unsafe extern "C" fn(*mut queue, c_int, *mut cred) -> c_int>,
    /// Is not called.
    pub qi_qadmin: Option<unsafe extern "C" fn() -> c_int>,
    /// What the module is like.
    pub qi_minfo: *mut module_info,
    /// What it counts.
    pub qi_mstat: *mut module_stat,
}

/// A module or a driver.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct streamtab {
    /// Of the read queue.
    pub st_rdinit: *mut qinit,
    /// Of the write queue.
    pub st_wrinit: *mut qinit,
    /// The lower read queue of a multiplexor. There are no multiplexors here.
    pub st_muxrinit: *mut qinit,
    /// The lower write queue of a multiplexor.
    pub st_muxwinit: *mut qinit,
}

/// A queue.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct queue {
    /// Its procedures.
    pub q_qinfo: *mut qinit,
    /// The first message.
    pub q_first: *mut msgb,
    /// The last message.
    pub q_last: *mut msgb,
    /// The next module's queue.
    pub q_next: *mut queue,
    /// The next queue that is enabled.
    pub q_link: *mut queue,
    /// The module's own.
    pub q_ptr: *mut c_void,
    /// How many bytes its messages have.
    pub q_count: usize,
    /// QFULL and others.
    pub q_flag: c_uint,
    /// The least length of packets.
    pub q_minpsz: ssize_t,
    /// The greatest length of packets.
    pub q_maxpsz: ssize_t,
    /// From how many bytes on it is full.
    pub q_hiwat: usize,
    /// With how many bytes it takes more, when it was full.
    pub q_lowat: usize,
}

/// A queue.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type queue_t = queue;

/// A module's queues.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) queues: [queue; 2],
    pub(crate) enabled: *mut Enabled,
}

/// The queues of a stream whose service procedures are to run, in order, by their `q_link`.
#[derive(Debug)]
pub(crate) struct Enabled {
    pub(crate) first: *mut queue,
    pub(crate) last: *mut queue,
}

impl Enabled {
    /// The next queue, which is not enabled any more.
    ///
    /// # Safety
    /// The queues exist.
    pub(crate) unsafe fn take(&mut self) -> Option<*mut queue> {
        let q = self.first;
        // SAFETY: the caller's promise.
        let q = unsafe { q.as_mut() }?;
        self.first = std::mem::replace(&mut q.q_link, null_mut());
        q.q_flag &= !QENAB;
        Some(q)
    }
}
