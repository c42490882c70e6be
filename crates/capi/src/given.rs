//! What a caller gives: places, bytes, strings, structures and times.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::failure::Failure;
use crate::types::Segment;

/// Bytes at an address that may be theirs.
#[inline]
pub(crate) fn checked(addr: *mut c_void, length: usize) -> Result<Segment, Failure> {
    let is_there = !addr.is_null() || length == 0;
    if !is_there || length > isize::MAX as usize || addr.addr().checked_add(length).is_none() {
        return Err(Failure::new(libc::EFAULT, format!("there are no {length} bytes at {addr:?}")));
    }
    Ok(Segment { addr, length })
}

/// Stores a value where the caller wants it.
///
/// # Safety
/// The pointer is null or valid.
pub(crate) unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller vouches for it.
        unsafe { place.write(value) };
    }
}

impl Segment {
    /// # Safety
    /// The bytes stay there as long as the request uses them.
    pub(crate) unsafe fn read(self) -> &'static [u8] {
        match self.length {
            0 => &[],
            // SAFETY: the caller vouches for the bytes; `checked` has refused null.
            len => unsafe { std::slice::from_raw_parts(self.addr.cast(), len) },
        }
    }

    /// # Safety
    /// The bytes stay there as long as the request uses them, and nobody else uses them meanwhile. Where a request has the same
    /// bytes as an output, they are read as such before they are stored into by this.
    pub(crate) unsafe fn store(self) -> &'static mut [u8] {
        match self.length {
            0 => &mut [],
            // SAFETY: the caller vouches for the bytes; `checked` has refused null.
            len => unsafe { std::slice::from_raw_parts_mut(self.addr.cast(), len) },
        }
    }
}

/// Makes sure that the caller will know what is made: nobody else could end it.
pub(crate) fn ensure_place<T>(place: *mut T) -> Result<(), Failure> {
    if place.is_null() { Err(Failure::misuse("there is no place for the result: NULL")) } else { Ok(()) }
}

/// A string of the caller's.
///
/// # Safety
/// It is NULL, or ends with a zero and stays as it is while it is used.
pub(crate) unsafe fn text<'t>(text: *const c_char) -> Result<&'t str, Failure> {
    if text.is_null() {
        return Err(Failure::misuse("a string is missing"));
    }
    // SAFETY: the caller vouches for the string.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map_err(|_| Failure::misuse("a string is not UTF-8"))
}

/// What the caller wants, or the default where that is 0.
pub(crate) fn or(wanted: usize, default: usize) -> usize {
    if wanted == 0 { default } else { wanted }
}

/// A structure of the caller's that begins with its size; what an earlier version of it had not is 0, and all is if it is missing.
///
/// # Errors
/// The size is less than `least`, or more than that of this version.
///
/// # Safety
/// `T` has no values that are not valid; the pointer is null or that of as many bytes as its first member says.
pub(crate) unsafe fn sized<T: Copy>(given: *const T, least: usize) -> Result<T, Failure> {
    let mut known = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        // SAFETY: the caller vouches for the first member.
        let size = unsafe { given.cast::<usize>().read() };
        if size < least || size > size_of::<T>() {
            let len = size_of::<T>();
            return Err(Failure::misuse(format!(
                "options of {size} bytes, and this library's have {len}: set size to the size of the structure"
            )));
        }
        // SAFETY: the caller vouches for so many bytes, and there is room for them.
        unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), known.as_mut_ptr().cast(), size) };
    }
    // SAFETY: it was zero, and the caller vouches for what was copied.
    Ok(unsafe { known.assume_init() })
}

/// The time in which something must be done; none for a negative one.
pub(crate) fn duration(timeout: i64) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_nanos)
}
