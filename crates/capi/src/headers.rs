//! The headers and lists of a request, as C has made them.

use crate::failure::Failure;
use crate::given::{checked, set};
use crate::types::{BufferHeader, IO_EMULATED_SHARE, IO_HELD, IO_IN, IO_OUT, ScatterGather, Segment};

/// The most elements of a list.
pub(crate) const MOST_ELEMENTS: usize = 1 << 16;

/// The headers of a request, which stay where they are until it is over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Headers<'h>(&'h [*mut BufferHeader]);

/// The headers of a request that is pending.
#[derive(Debug)]
pub(crate) struct Kept(Box<[*mut BufferHeader]>);

// SAFETY: pointers to memory of the program's; the calls that use them say who may touch that memory when.
unsafe impl Send for Kept {}
// SAFETY: as above; nothing is done by a shared reference but copying the pointers.
unsafe impl Sync for Kept {}

impl Kept {
    pub(crate) fn headers(&self) -> Headers<'_> {
        Headers(&self.0)
    }
}

impl Headers<'_> {
    /// # Safety
    /// `bufv` points to `bufc` pointers, and these to headers.
    #[inline]
    pub(crate) unsafe fn new(bufc: usize, bufv: *const *mut BufferHeader) -> Result<Self, Failure> {
        if bufc == 0 {
            return Ok(Self::default());
        }
        if bufv.is_null() {
            return Err(Failure::misuse(format!("{bufc} buffers, and bufv is NULL")));
        }
        if bufc > MOST_ELEMENTS {
            return Err(Failure::misuse(format!("{bufc} buffers: a request has at most {MOST_ELEMENTS}")));
        }
        // SAFETY: the caller vouches for the vector.
        let headers = unsafe { std::slice::from_raw_parts(bufv, bufc) };
        match headers.iter().position(|header| header.is_null()) {
            Some(index) => Err(Failure::misuse(format!("the pointer to header {index} is null"))),
            None => Ok(Self(headers)),
        }
    }

    /// The same headers, for a request that outlives the call: the program may free the vector of pointers to them.
    pub(crate) fn keep(self) -> Kept {
        Kept(self.0.into())
    }

    /// The headers.
    ///
    /// # Safety
    /// The program has kept them where they were, and lets nobody else use them now.
    #[inline]
    pub(crate) unsafe fn each(&self) -> impl Iterator<Item = &mut BufferHeader> {
        // SAFETY: the caller vouches for them.
        self.0.iter().map(|header| unsafe { &mut **header })
    }

    /// The native elements of input headers, as memory to be filled.
    ///
    /// # Safety
    /// As [`Headers::each`]; the memory is as long as the elements say.
    pub(crate) unsafe fn inputs(&self) -> Result<Vec<Segment>, Failure> {
        let mut inputs = Vec::new();
        // SAFETY: the caller vouches for the headers.
        for (index, header) in unsafe { self.each() }.enumerate() {
            if header.checked_direction(index)? == IO_OUT {
                continue;
            }
            // SAFETY: the same for their lists.
            for element in unsafe { elements(header) } {
                let element = element?;
                if element.flags & !IO_HELD != 0 || element.scheme > IO_EMULATED_SHARE {
                    let (scheme, flags) = (element.scheme, element.flags);
                    return Err(Failure::misuse(format!(
                        "scheme {scheme} and flags {flags:#x} of header {index}: data goes to native elements"
                    )));
                }
                // SAFETY: the scheme says which member it is.
                let addr = unsafe { element.location.native.addr };
                inputs.push(checked(addr, element.length)?);
            }
        }
        Ok(inputs)
    }

    /// Says how many bytes came to each input.
    ///
    /// # Safety
    /// As [`Headers::each`].
    pub(crate) unsafe fn set_peeked(&self, lens: &[usize]) {
        let mut lens = lens.iter();
        // SAFETY: the caller vouches for the headers.
        for header in unsafe { self.each() }.filter(|header| header.direction == IO_IN) {
            // SAFETY: the same for their lists.
            let count = unsafe { elements(header) }.count();
            let sum = lens.by_ref().take(count).sum();
            // SAFETY: the pointer is null or that of the caller's counter.
            unsafe { set(header.actual_lengthp, sum) };
        }
    }
}

/// The elements of a list; one that is too long, or has no end, ends with an error.
///
/// # Safety
/// The list is whole, and nobody else uses it.
#[inline]
pub(crate) unsafe fn elements<'h>(
    header: &BufferHeader,
) -> impl Iterator<Item = Result<&'h mut ScatterGather, Failure>> + use<'h> {
    let (mut next, mut left) = (header.first_sg, MOST_ELEMENTS);
    std::iter::from_fn(move || {
        // SAFETY: the caller vouches for the list.
        let element = unsafe { next.as_mut() }?;
        if left == 0 {
            next = std::ptr::null_mut();
            return Some(Err(without_end()));
        }
        (next, left) = (element.next_sg, left - 1);
        Some(Ok(element))
    })
}

#[cold]
fn without_end() -> Failure {
    Failure::misuse(format!("a list of more than {MOST_ELEMENTS} elements, or one without end"))
}

impl BufferHeader {
    /// The direction of header `index`, which is one of the two.
    #[inline]
    pub(crate) fn checked_direction(&self, index: usize) -> Result<u32, Failure> {
        match self.direction {
            direction @ (IO_OUT | IO_IN) => Ok(direction),
            other => {
                Err(Failure::misuse(format!("header {index} has direction {other}, not IO_OUT or IO_IN")))
            }
        }
    }
}
