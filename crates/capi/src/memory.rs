//! Buffers: memory of an interface's own.

use std::ffi::{c_int, c_void};

use crate::failure::{Failure, call};
use crate::process::process;
use crate::types::io_interface_t;

/// Allocates a native buffer of length bytes, all zero, and returns its address; NULL on failure. Data in such buffers can be passed
/// without copying. Free it by io_free.
///
/// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn io_allocate(interface: io_interface_t, length: usize) -> *mut c_void {
    allocate(|| {
        let mut buffer = process().interface(interface)?.interface.allocate(not_empty(length)?)?;
        let addr = buffer.as_mut_ptr();
        process().regions.add_native(buffer);
        Ok(addr)
    })
}

/// Allocates a native buffer as io_allocate does, whose first byte lies offset bytes into a granule: as io_preferred says that a
/// server wants it.
///
/// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn io_allocate_at(interface: io_interface_t, offset: usize, length: usize) -> *mut c_void {
    allocate(|| {
        let mut buffer = process().interface(interface)?.interface.allocate_at(offset, not_empty(length)?)?;
        let addr = buffer.as_mut_ptr();
        process().regions.add_native(buffer);
        Ok(addr)
    })
}

/// Allocates a migrant buffer of length bytes, all zero, for IO_MOVE and IO_EMULATED_MOVE, or if strong is 0 for the weak ones;
/// returns its address, or NULL on failure. It is gone once a request has passed it; else free it by io_free.
///
/// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn io_allocate_migrant(
    interface: io_interface_t,
    length: usize,
    strong: c_int,
) -> *mut c_void {
    allocate(|| {
        let interface = process().interface(interface)?;
        let mut migrant = interface.interface.allocate_migrant(not_empty(length)?, strong != 0)?;
        let addr = migrant.as_mut_ptr();
        process().regions.add_migrant(migrant);
        Ok(addr)
    })
}

/// Frees a buffer, or what io_keep has kept, by its first address. NULL is freed by doing nothing.
///
/// Errors: EFAULT (no buffer begins there; it was freed before, or passed), EBUSY (a request uses it; nothing has changed).
#[unsafe(no_mangle)]
pub extern "C" fn io_free(buffer: *mut c_void) -> c_int {
    call(|| match buffer.is_null() {
        true => Ok(0),
        false => process().regions.free(buffer.addr()).map(|()| 0),
    })
}

fn not_empty(length: usize) -> Result<usize, Failure> {
    if length == 0 { Err(Failure::misuse("a buffer has at least one byte")) } else { Ok(length) }
}

fn allocate(act: impl FnOnce() -> Result<*mut u8, Failure>) -> *mut c_void {
    let mut addr = std::ptr::null_mut();
    call(|| {
        addr = act()?;
        Ok(0)
    });
    addr.cast()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    use super::*;
    use crate::failure::io_error_text;
    use crate::pending::io_abort;
    use crate::request::io_request;
    use crate::server::{IO_READ, ServiceMapping, io_server_register, io_server_unregister};
    use crate::types::{
        BufferHeader, IO_EMULATED_COPY, IO_FOREVER, IO_OUT, IO_PENDING, Location, NativeLocation,
        ScatterGather,
    };

    /// Makes a request that has the buffer as its output, and aborts it.
    fn pass(server: u64, buffer: *mut c_void, length: usize) -> Result<(), String> {
        let location = Location { native: NativeLocation { addr: buffer, lender: 0 } };
        let mut element = ScatterGather {
            scheme: IO_EMULATED_COPY,
            flags: 0,
            location,
            length,
            next_sg: null_mut(),
            receiptp: null_mut(),
        };
        let mut header = BufferHeader {
            out_arg_length: 0,
            out_arg: null(),
            in_arg_length: 0,
            in_arg: null_mut(),
            in_arg_actual: 0,
            first_sg: &raw mut element,
            direction: IO_OUT,
            actual_lengthp: null_mut(),
            totalp: null_mut(),
        };
        let mut request = 0;
        // SAFETY: the header and its element stay here until the request has been aborted.
        if unsafe { io_request(server, 0, 1, &(&raw mut header), IO_FOREVER, &raw mut request) } != IO_PENDING
        {
            // SAFETY: the sentence is valid until the next failure.
            return Err(unsafe { CStr::from_ptr(io_error_text()) }.to_string_lossy().into_owned());
        }
        // SAFETY: as above.
        assert_eq!(unsafe { io_abort(request) }, 0);
        Ok(())
    }

    /// A thread that had named a buffer that was freed since looked at its count of users, the largest number there is, and added
    /// one to it: where overflow is checked, this and each further request failed with "a defect of Genie's".
    #[test]
    fn a_buffer_where_another_one_was_freed_can_be_passed() {
        const LENGTH: usize = 1 << 16;
        let (mut server, name) = (0, c"keep");
        let services = [ServiceMapping {
            name: name.as_ptr(),
            flags: IO_READ,
            preferred_offset: 0,
            preferred_length: 0,
        }];
        // SAFETY: the services are one, and stay as long as the call.
        assert_eq!(unsafe { io_server_register(null(), 1, services.as_ptr(), 0, &raw mut server) }, 0);
        let first = io_allocate(0, LENGTH);
        pass(server, first, LENGTH).unwrap();
        assert_eq!(io_free(first), 0);
        let others = std::iter::repeat_with(|| io_allocate(0, LENGTH)).take(64);
        let again = { others }.find(|buffer| *buffer == first).expect("the address is given again");
        for _ in 0..2 {
            pass(server, again, LENGTH).unwrap();
        }
        assert_eq!(io_server_unregister(server), 0);
    }
}
