//! Buffers: memory of an interface's own, by its addresses.
//!
//! How: a table of all buffers by their first address. A request counts itself among the users of each buffer that it names, so that a
//! buffer that is in use cannot be freed. A migrant buffer leaves the table when a request takes it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

use genie_memory::{Buffer, Migrant};
use smallvec::SmallVec;

use crate::failure::{Failure, call};
use crate::process::{process, read, write};
use crate::types::io_interface_t;

/// All buffers.
#[derive(Debug, Default)]
pub(crate) struct Regions(RwLock<BTreeMap<usize, Region>>);

#[derive(Debug)]
struct Region {
    owner: Owner,
    len: usize,
    /// Requests that use it, each once for each element.
    users: AtomicU32,
}

#[derive(Debug)]
enum Owner {
    /// Held only so that it is freed with the table's entry.
    Native(#[expect(dead_code, reason = "holds the memory")] Buffer),
    Migrant(Migrant),
}

/// The first addresses of buffers that a request uses.
pub(crate) type Users = SmallVec<[usize; 4]>;

impl Regions {
    fn add(&self, addr: usize, len: usize, owner: Owner) {
        write(&self.0).insert(addr, Region { owner, len, users: AtomicU32::new(0) });
    }

    pub(crate) fn add_migrant(&self, migrant: Migrant) -> (usize, usize) {
        let (addr, len) = (migrant.as_ptr().addr(), migrant.len());
        self.add(addr, len, Owner::Migrant(migrant));
        (addr, len)
    }

    /// Counts another user of the buffer in which the bytes lie, if they lie in one.
    ///
    /// # Errors
    /// They leave the buffer.
    pub(crate) fn begin_use(&self, addr: usize, len: usize, users: &mut Users) -> Result<(), Failure> {
        let regions = read(&self.0);
        let Some((start, region)) = regions.range(..=addr).next_back() else { return Ok(()) };
        let offset = addr - start;
        if offset >= region.len.max(1) {
            return Ok(());
        }
        if len > region.len - offset {
            let (whole, end) = (region.len, offset.saturating_add(len));
            return Err(Failure::misuse(format!("an element ends at byte {end} of a buffer of {whole}")));
        }
        region.users.fetch_add(1, Ordering::Relaxed);
        users.push(*start);
        Ok(())
    }

    /// Ends what [`Regions::begin_use`] has begun.
    pub(crate) fn end_use(&self, users: &Users) {
        if users.is_empty() {
            return;
        }
        let regions = read(&self.0);
        for region in users.iter().filter_map(|start| regions.get(start)) {
            region.users.fetch_sub(1, Ordering::Release);
        }
    }

    /// Makes sure that these bytes are a whole migrant buffer, which no request uses.
    pub(crate) fn check_migrant(&self, addr: usize, len: usize) -> Result<(), Failure> {
        let regions = read(&self.0);
        match regions.get(&addr) {
            Some(Region { owner: Owner::Migrant(_), len: whole, users }) if *whole == len => {
                is_unused(addr, users)
            }
            Some(Region { owner: Owner::Migrant(_), len: whole, .. }) => Err(Failure::misuse(format!(
                "a segment of {len} bytes names a part of a migrant buffer of {whole}: it is passed whole"
            ))),
            Some(_) => Err(Failure::misuse(format!(
                "the buffer at {addr:#x} is native, and the scheme passes migrant ones"
            ))),
            None => Err(unknown(addr)),
        }
    }

    /// Takes a migrant buffer out that has been checked.
    pub(crate) fn take_migrant(&self, addr: usize) -> Result<Migrant, Failure> {
        let mut regions = write(&self.0);
        match regions.remove(&addr) {
            Some(Region { owner: Owner::Migrant(migrant), .. }) => Ok(migrant),
            Some(region) => {
                regions.insert(addr, region);
                Err(unknown(addr))
            }
            None => Err(unknown(addr)),
        }
    }

    fn free(&self, addr: usize) -> Result<(), Failure> {
        let mut regions = write(&self.0);
        let region = regions.get(&addr).ok_or_else(|| unknown(addr))?;
        is_unused(addr, &region.users)?;
        let freed = regions.remove(&addr);
        drop(regions);
        drop(freed);
        Ok(())
    }
}

fn is_unused(addr: usize, users: &AtomicU32) -> Result<(), Failure> {
    match users.load(Ordering::Acquire) {
        0 => Ok(()),
        count => Err(Failure::new(
            libc::EBUSY,
            format!("{count} elements of requests use the buffer at {addr:#x}"),
        )),
    }
}

fn unknown(addr: usize) -> Failure {
    Failure::new(libc::EFAULT, format!("no buffer of the library's begins at {addr:#x}"))
}

/// Allocates a native buffer of length bytes, all zero, and returns its address; NULL on failure. Data in such buffers can be passed
/// without copying. Free it by io_free.
///
/// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn io_allocate(interface: io_interface_t, length: usize) -> *mut c_void {
    allocate(|| {
        let mut buffer = process().interface(interface)?.interface.allocate(not_empty(length)?)?;
        let addr = buffer.as_mut_ptr();
        process().regions.add(addr.addr(), length, Owner::Native(buffer));
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
        process().regions.add(addr.addr(), length, Owner::Native(buffer));
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

/// Frees a buffer by its first address. NULL is freed by doing nothing.
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
