//! Servers in other processes: connecting, and what their clients can know of them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use genie_channel::directory::Directory;
use genie_channel::{Connect, ConnectOptions};
use genie_io::ServiceId;
use genie_passing::Preferred;
use genie_series::Reconnecting;

use crate::failure::{Failure, call};
use crate::given::{checked, duration, ensure_place, or, set, sized, text};
use crate::opened::Opened;
use crate::process::{Server, process};
use crate::types::{io_interface_t, io_server_t};

/// A flag of connecting: the server is shown no memory. The kernel copies all data, and the server sees nothing else.
pub const IO_UNTRUSTED: u32 = 1;
/// A flag of connecting: the server may go and come again, and its number stays good. A request that finds that the server has gone
/// connects anew, as the options say, to the server that then has the name. A request that was never sent (EPIPE) is sent to that
/// server by the same call of io_request; one that may have been done fails (ECONNRESET), since nobody knows. The new server has to
/// have the services that the first one had, with the same numbers, or else requests fail (ENOENT).
pub const IO_RECONNECTING: u32 = 2;

/// How to connect to a server. Set size to sizeof(struct io_connect_options) and all else to 0, and then change what you need.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Connecting {
    /// Bytes of this structure, by which later versions of the library know what it has.
    pub size: usize,
    /// How long to wait for a server that is not there yet, or is busy, in nanoseconds; 0 for not at all, IO_FOREVER for as long as
    /// it takes.
    pub wait: i64,
    /// How long a server that is there may take to answer, in nanoseconds; 0 for 5 s.
    pub timeout: i64,
    /// Bytes that may be pending at the server; 0 for 1 GiB. The server may grant fewer.
    pub pending_bytes: usize,
    /// From which length on output by emulated copy may show the server the client's own memory, with whatever else lies in the
    /// same memory object; 0 for wherever that is faster. Shorter output is copied to the server's pool.
    pub shown_from: usize,
    /// The most bytes that the server may lend; 0 for 1 GiB.
    pub lent: usize,
    /// What the server calls this client; NULL for the program's name.
    pub client_name: *const c_char,
    /// Requests that may be pending at the server; 0 for 256. The server may grant fewer.
    pub pending_requests: u32,
    /// IO_UNTRUSTED, IO_RECONNECTING, both, or 0.
    pub flags: u32,
}

/// Connects an interface to a server in another process, by its name in the run-time directory ($GENIE_RUNTIME_DIR, or
/// $XDG_RUNTIME_DIR/genie, or /tmp/genie-UID). Waits up to timeout nanoseconds for a server that is not there yet; with 0 it does not
/// wait for that; but a server that is there, and stopped, is given 5 s to answer. Disconnect by io_disconnect.
///
/// Errors: ENOENT (nobody serves under that name), EACCES (the server refuses; or the run-time directory cannot be used), EBUSY,
/// EHOSTDOWN, EBADF, ECHILD, EINVAL (no name, or one that no server can have; serverp is NULL), ENOMEM, EMFILE.
///
/// Pointers: name is a string, and serverp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_connect(
    interface: io_interface_t,
    name: *const c_char,
    timeout: i64,
    serverp: *mut io_server_t,
) -> c_int {
    call(|| {
        ensure_place(serverp)?;
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name) }?;
        let client = process().interface(interface)?;
        let options =
            ConnectOptions { wait: duration(timeout).unwrap_or(Duration::MAX), ..ConnectOptions::default() };
        let number = connect(client, name, options, false)?;
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(serverp, number) };
        Ok(0)
    })
}

/// Connects an interface to a server as io_connect does, with options; if they are NULL, they are the defaults.
///
/// Errors: those of io_connect; EINVAL (options that are wrong).
///
/// Pointers: name is a string; options points to a structure of options->size bytes, or is NULL; serverp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_connect_with(
    interface: io_interface_t,
    name: *const c_char,
    options: *const Connecting,
    serverp: *mut io_server_t,
) -> c_int {
    call(|| {
        ensure_place(serverp)?;
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name) }?;
        // SAFETY: and for the options.
        let wanted = unsafe { sized::<Connecting>(options, size_of::<Connecting>()) }?;
        if wanted.flags & !(IO_UNTRUSTED | IO_RECONNECTING) != 0 {
            return Err(Failure::misuse(format!("there are no flags {:#x} of connecting", wanted.flags)));
        }
        let client = process().interface(interface)?;
        let defaults = ConnectOptions::default();
        let timeout = if wanted.timeout == 0 { Some(defaults.timeout) } else { duration(wanted.timeout) };
        let requests = or(wanted.pending_requests as usize, defaults.pending_requests as usize);
        let mut options = ConnectOptions {
            wait: duration(wanted.wait).unwrap_or(Duration::MAX),
            timeout: timeout.unwrap_or(Duration::MAX),
            untrusted: wanted.flags & IO_UNTRUSTED != 0,
            pending_bytes: or(wanted.pending_bytes, defaults.pending_bytes),
            pending_requests: requests as u32,
            shown_from: wanted.shown_from,
            lent: or(wanted.lent, defaults.lent),
            ..defaults
        };
        if !wanted.client_name.is_null() {
            // SAFETY: the caller vouches for the string.
            options.name = unsafe { text(wanted.client_name) }?.to_owned();
        }
        let number = connect(client, name, options, wanted.flags & IO_RECONNECTING != 0)?;
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(serverp, number) };
        Ok(0)
    })
}

/// Connects; returns the server's number.
fn connect(
    client: Arc<Opened>,
    name: &str,
    options: ConnectOptions,
    again: bool,
) -> Result<io_server_t, Failure> {
    let directory = Directory::open().map_err(genie_io::Error::from)?;
    let server = match again {
        true => {
            let again = Reconnecting::new_in(&client.interface, &directory, name, options);
            let handle = again.handle()?;
            Server::reconnecting(client, handle, Arc::new(again))
        }
        false => {
            let handle = client.interface.connect_with(&directory, name, &options)?;
            Server::new(client, handle, None)
        }
    };
    Ok(process().add_server(server))
}

/// Lets a server go that io_connect has connected to. Its pending requests go on.
///
/// Errors: EBADF, ECHILD; EINVAL (it is served by this program: call io_server_unregister).
#[unsafe(no_mangle)]
pub extern "C" fn io_disconnect(server: io_server_t) -> c_int {
    call(|| {
        if process().server(server)?.registered.is_some() {
            return Err(Failure::misuse("this program serves the server: call io_server_unregister"));
        }
        process().remove_server(server).map(|_gone| 0)
    })
}

/// Whether a server in another process has ended: 1 or 0.
///
/// Errors: EBADF, ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn io_is_gone(server: io_server_t) -> c_int {
    call(|| Ok(c_int::from(process().server(server)?.handle.is_gone())))
}

/// The number of a server's service of this name, for io_request.
///
/// Errors: ENOENT (the server has no such service), EBADF, ECHILD, EINVAL.
///
/// Pointers: name is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_service(server: io_server_t, name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the string.
        let name = unsafe { text(name) }?;
        let server = process().server(server)?;
        Ok(server.handle.service(name)?.0 as c_int)
    })
}

/// How a server wants a client to lay out input buffers: header_length bytes, then length bytes of data that begin offset bytes into a
/// granule, then trailer_length bytes, and so on for as much as is to come. Allocate buffers for the data by io_allocate_at, and give
/// headers and trailers elements of their own.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// Where the data begins in its first granule.
    pub offset: usize,
    /// How many bytes of data come at once.
    pub length: usize,
    /// How many bytes come in front of the data each time; 0 where the server takes headers off.
    pub header_length: usize,
    /// How many bytes come behind the data each time, in the same way.
    pub trailer_length: usize,
    /// How often the server had changed its layouts, for io_layout_is_stale.
    pub changes: u64,
}

/// Asks a server how an interface's input buffers should be laid out for requests of a service with this argument; stores the answer in
/// *layoutp. Data passes as well, only more slowly, into buffers of another layout. Ask when you are about to lay out a buffer, and keep
/// the answer until io_layout_is_stale: each question is a message to another process, and one back. The numbers are the server's word:
/// check them before you allocate so much. Returns 1, or 0 if the layout makes no difference.
///
/// Errors: EBADF, ECHILD, EINVAL (there is no such service, layoutp is NULL, or the argument is longer than 32 KiB and the server is in
/// another process), EHOSTDOWN (the server does not answer within 5 s), ECONNRESET or EPIPE (it is gone).
///
/// Pointers: so many bytes of argument are there as argument_length says; layoutp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_preferred(
    server: io_server_t,
    service: u32,
    argument: *const c_void,
    argument_length: usize,
    layoutp: *mut Layout,
) -> c_int {
    call(|| {
        ensure_place(layoutp)?;
        let server = process().server(server)?;
        // SAFETY: the caller vouches for the bytes.
        let argument = unsafe { checked(argument.cast_mut(), argument_length)?.read() };
        let answer = server.client.interface.preferred(&server.handle, ServiceId(service), argument)?;
        let preferred = answer.preferred();
        let Preferred { offset, len, header, trailer } = preferred.unwrap_or_default();
        let (length, header_length, trailer_length) = (len, header, trailer);
        let layout = Layout { offset, length, header_length, trailer_length, changes: answer.changes() };
        // SAFETY: the caller vouches for the pointer.
        unsafe { set(layoutp, layout) };
        Ok(c_int::from(preferred.is_some()))
    })
}

/// Whether a server may want another layout by now than it wanted when it was asked: 1 or 0. This asks nobody.
///
/// Errors: EBADF, ECHILD, EINVAL (layoutp is NULL).
///
/// Pointers: layoutp is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_layout_is_stale(server: io_server_t, layoutp: *const Layout) -> c_int {
    call(|| {
        // SAFETY: the caller vouches for the pointer.
        let layout =
            unsafe { layoutp.as_ref() }.ok_or_else(|| Failure::misuse("there is no layout: NULL"))?;
        let handle = &process().server(server)?.handle;
        Ok(c_int::from(handle.changes() != layout.changes || handle.is_gone()))
    })
}
