//! What came of a request, written to C's headers.

use genie_io::{Reply, ReplyBuffer, ReplyElement, Returned};

use crate::failure::Failure;
use crate::given::set;
use crate::headers::{Headers, elements};
use crate::process::Process;
use crate::receipt;
use crate::requested::Begun;
use crate::types::{IO_EMULATED_WEAK_MOVE, IO_IN, IO_MOVE, IO_OWNED, ScatterGather, Segment};

impl Begun {
    /// Ends a request: writes what came of it to its headers, and lets its buffers go.
    ///
    /// # Safety
    /// The headers and lists are where they were, and nobody else uses them.
    #[inline]
    pub(crate) unsafe fn end(
        &self,
        process: &Process,
        headers: Headers<'_>,
        mut result: Result<Reply, genie_io::Failed>,
    ) -> Result<(), Failure> {
        self.users.end();
        if self.is_reported {
            let argument = result.as_ref().map_or(&[][..], Reply::argument);
            // SAFETY: the caller vouches for the headers.
            unsafe { write_argument(headers, argument) };
            let (buffers, has_succeeded) = match &mut result {
                Ok(reply) => (&mut reply.buffers[..], true),
                Err(failed) => (&mut failed.buffers[..], false),
            };
            // SAFETY: the same.
            unsafe { write(process, headers, buffers, has_succeeded) };
        }
        match result {
            Ok(_) => Ok(()),
            Err(failed) => Err(failed.into()),
        }
    }
}

/// # Safety
/// As [`Begun::end`].
unsafe fn write_argument(headers: Headers<'_>, argument: &[u8]) {
    // SAFETY: the caller vouches for the headers.
    for header in unsafe { headers.each() }.filter(|header| header.in_arg_length > 0) {
        let len = argument.len().min(header.in_arg_length);
        // SAFETY: the caller has made room for so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(argument.as_ptr(), header.in_arg.cast(), len) };
        header.in_arg_actual = len;
    }
}

/// # Safety
/// As [`Begun::end`].
unsafe fn write(process: &Process, headers: Headers<'_>, buffers: &mut [ReplyBuffer], has_succeeded: bool) {
    // SAFETY: the caller vouches for the headers.
    for header in unsafe { headers.each() }.filter(|header| !header.totalp.is_null()) {
        let elements = buffers.iter().flat_map(|buffer| &buffer.elements);
        let total = elements.map(|element| &element.receipt).collect();
        // SAFETY: the caller vouches for the place of the total.
        unsafe { header.totalp.write(receipt::total(&total)) };
    }
    let mut buffers = buffers.iter_mut();
    // SAFETY: the caller vouches for the headers.
    for header in unsafe { headers.each() }.filter(|header| !header.first_sg.is_null()) {
        let buffer = buffers.next();
        let actual = buffer.as_ref().filter(|_| has_succeeded).map_or(0, |buffer| buffer.actual);
        // SAFETY: the pointer is null or that of the caller's counter.
        unsafe { set(header.actual_lengthp, actual) };
        let mut replied = buffer.into_iter().flat_map(|buffer| &mut buffer.elements);
        // SAFETY: the caller vouches for the list.
        for element in unsafe { elements(header) }.flatten() {
            // SAFETY: as when the request was composed.
            let Some(places) = (unsafe { places(element) }) else {
                let done = replied.next();
                if let Some(done) = &done {
                    // SAFETY: the pointer is null or that of the caller's receipt.
                    unsafe { write_receipt(element, done) };
                }
                if element.flags & IO_OWNED != 0 {
                    take_back(process, element, done.map(|done| std::mem::take(&mut done.returned)));
                }
                continue;
            };
            let is_input = header.direction == IO_IN;
            let count = if is_input { 1 } else { places.len() };
            for place in &mut places[..count] {
                // A buffer that comes back is named again.
                *place = Segment { addr: std::ptr::null_mut(), length: 0 };
                let Some(done) = replied.next() else { continue };
                // SAFETY: the pointer is null or that of the caller's receipt.
                unsafe { write_receipt(element, done) };
                if let Returned::Migrant(migrant) = std::mem::take(&mut done.returned) {
                    let (addr, length) = process.regions.add_migrant(migrant);
                    *place = Segment { addr: std::ptr::without_provenance_mut(addr), length };
                }
            }
            // SAFETY: `places` has found the member to be a region.
            if is_input && let Some(region) = unsafe { element.location.region.as_mut() } {
                region.count = 1;
            }
        }
    }
}

/// Takes back the buffer of an element that was given by value, or says that its server still has it.
#[inline(never)]
fn take_back(process: &Process, element: &mut ScatterGather, returned: Option<Returned>) {
    // SAFETY: only native elements are given so.
    let location = unsafe { &mut element.location.native };
    match returned {
        Some(returned @ Returned::Buffer(_)) => process.regions.take_back(returned),
        _ => {
            process.regions.forget(location.addr.addr());
            location.addr = std::ptr::null_mut();
        }
    }
}

/// # Safety
/// The pointer to the receipt is null or valid.
#[inline]
unsafe fn write_receipt(element: &ScatterGather, done: &ReplyElement) {
    if !element.receiptp.is_null() {
        // SAFETY: the caller vouches for it.
        unsafe { element.receiptp.write(receipt::receipt(&done.receipt)) };
    }
}

/// The segments of a migrant element, at least one.
///
/// # Safety
/// The element's location is what its scheme says.
#[inline]
unsafe fn places(element: &ScatterGather) -> Option<&'static mut [Segment]> {
    if !(IO_MOVE..=IO_EMULATED_WEAK_MOVE).contains(&element.scheme) {
        return None;
    }
    // SAFETY: the scheme says which member it is; so many segments are there as it says. The pointer reaches all of them; a
    // reference would reach one.
    unsafe {
        let region = element.location.region;
        let count = region.as_ref().map(|region| region.count).filter(|count| *count > 0)?;
        Some(std::slice::from_raw_parts_mut((&raw mut (*region).segmentv).cast(), count))
    }
}
