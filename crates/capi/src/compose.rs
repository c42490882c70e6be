//! From C's headers to a request of `genie_io`, and back with what came of it.
//!
//! How: all that the headers say is read once, into a plan, and checked, before anything is taken or counted.
//! Invariants: if composing fails, migrant buffers are where they were, and no buffer has another user.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use genie_io::{Fragment, In, Out, Reply, ReplyBuffer, Request, Returned, ServiceId};
use genie_memory::Migrant;
use genie_passing::Scheme;
use genie_passing::model::Allocation;
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::memory::Users;
use crate::process::{Process, Server};
use crate::receipt;
use crate::types::{
    BufferHeader, FragmentLocation, IO_DEFAULT, IO_HELD, IO_IN, IO_OUT, Region, ScatterGather, Segment,
};

/// The most elements of a request.
const MOST_ELEMENTS: usize = 1 << 16;

/// The headers of a request, which stay where they are until it is over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headers(SmallVec<[*mut BufferHeader; 4]>);

// SAFETY: pointers to memory of the program's; the calls that use them say who may touch that memory when.
unsafe impl Send for Headers {}
// SAFETY: as above; nothing is done by a shared reference but copying the pointers.
unsafe impl Sync for Headers {}

/// A request that can be made.
pub(crate) struct Composed<'r> {
    pub(crate) request: Request<'r, 'static, 'static>,
    /// Nobody stores into any of its outputs before the call returns, or it is copied anyway.
    pub(crate) is_held: bool,
    pub(crate) begun: Begun,
}

/// What a request holds until it is over.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    pub(crate) headers: Headers,
    users: Users,
    /// Outputs that the program may free as soon as the request has been made.
    brief_users: Users,
    /// Native inputs, in order, and whether the server works in them.
    pub(crate) inputs: SmallVec<[(Segment, bool); 2]>,
}

// SAFETY: as `Headers`.
unsafe impl Send for Begun {}
// SAFETY: as `Headers`.
unsafe impl Sync for Begun {}

/// What the headers ask for.
#[derive(Default)]
struct Plan {
    argument: &'static [u8],
    room: usize,
    elements: SmallVec<[Planned; 4]>,
}

/// One element.
struct Planned {
    /// It is the first one of its buffer.
    is_first: bool,
    is_input: bool,
    what: What,
}

enum What {
    Native { scheme: Scheme, segment: Segment, lender: Option<Arc<Server>>, is_held: bool },
    MigrantOut { scheme: Scheme, segment: Segment },
    MigrantIn { scheme: Scheme, len: usize },
    Fragment(Fragment),
}

impl Headers {
    /// # Safety
    /// `bufv` points to `bufc` pointers, and these to headers.
    pub(crate) unsafe fn new(bufc: usize, bufv: *const *mut BufferHeader) -> Result<Self, Failure> {
        if bufc == 0 {
            return Ok(Self::default());
        }
        if bufv.is_null() || bufc > MOST_ELEMENTS {
            return Err(Failure::misuse(format!("{bufc} buffers at {bufv:?}: there are none, or too many")));
        }
        // SAFETY: the caller vouches for the vector.
        let headers = unsafe { std::slice::from_raw_parts(bufv, bufc) };
        match headers.iter().position(|header| header.is_null()) {
            Some(index) => Err(Failure::misuse(format!("the pointer to header {index} is null"))),
            None => Ok(Self(headers.into())),
        }
    }

    /// The headers.
    ///
    /// # Safety
    /// The program has kept them where they were, and lets nobody else use them now.
    unsafe fn each(&self) -> impl Iterator<Item = &mut BufferHeader> {
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
        for header in unsafe { self.each() }.filter(|header| header.direction == IO_IN) {
            // SAFETY: the same for their lists.
            for element in unsafe { elements(header) }? {
                // SAFETY: these elements are native, as the calls that take them say.
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
    pub(crate) unsafe fn set_peeked(&self, lens: &[usize]) -> Result<(), Failure> {
        let mut lens = lens.iter();
        // SAFETY: the caller vouches for the headers.
        for header in unsafe { self.each() }.filter(|header| header.direction == IO_IN) {
            // SAFETY: the same for their lists.
            let count = unsafe { elements(header) }?.len();
            let sum = lens.by_ref().take(count).sum();
            // SAFETY: the pointer is null or that of the caller's counter.
            unsafe { set(header.actual_lengthp, sum) };
        }
        Ok(())
    }
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

/// The elements of a list.
///
/// # Safety
/// The list is whole, and nobody else uses it.
unsafe fn elements<'h>(header: &BufferHeader) -> Result<SmallVec<[&'h mut ScatterGather; 4]>, Failure> {
    let mut found = SmallVec::new();
    let mut next = header.first_sg;
    // SAFETY: the caller vouches for the list.
    while let Some(element) = unsafe { next.as_mut() } {
        if found.len() == MOST_ELEMENTS {
            return Err(Failure::misuse(format!(
                "a list of more than {MOST_ELEMENTS} elements, or one without end"
            )));
        }
        next = element.next_sg;
        found.push(element);
    }
    Ok(found)
}

/// Bytes at an address that may be theirs.
fn checked(addr: *mut c_void, length: usize) -> Result<Segment, Failure> {
    let is_there = !addr.is_null() || length == 0;
    if !is_there || length > isize::MAX as usize || addr.addr().checked_add(length).is_none() {
        return Err(Failure::new(libc::EFAULT, format!("there are no {length} bytes at {addr:?}")));
    }
    Ok(Segment { addr, length })
}

impl Segment {
    /// # Safety
    /// The bytes stay there as long as the request uses them.
    unsafe fn read(self) -> &'static [u8] {
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

/// Composes a request.
///
/// # Safety
/// The headers, lists and data are as `io_request` says.
pub(crate) unsafe fn compose<'r>(
    process: &Process,
    server: &'r Server,
    service: u32,
    headers: Headers,
    timeout: Option<Duration>,
) -> Result<Composed<'r>, Failure> {
    // SAFETY: the caller vouches for the headers.
    let plan = unsafe { plan(process, server, &headers) }?;
    let mut begun = Begun { headers, ..Begun::default() };
    let mut migrants = Vec::new();
    if let Err(failure) = begin(process, &plan, &mut begun, &mut migrants) {
        begun.end_use(process);
        for migrant in migrants {
            process.regions.add_migrant(migrant);
        }
        return Err(failure);
    }
    let mut request = server.client.interface.request(&server.handle, ServiceId(service));
    request = request.argument(plan.argument).room(plan.room);
    if let Some(timeout) = timeout {
        request = request.timeout(timeout);
    }
    let (mut migrants, mut is_held) = (migrants.into_iter(), true);
    for Planned { is_first, is_input, what } in plan.elements {
        let (mut input, mut output) = (None, None);
        match what {
            What::Native { scheme, segment, lender, is_held: element_is_held } => {
                let is_share = is_share(scheme);
                if is_input {
                    // SAFETY: the caller of `io_request` vouches for the bytes.
                    let bytes = unsafe { segment.store() };
                    let element =
                        if is_share { In::lasting(scheme, bytes) } else { In::borrowed(scheme, bytes) };
                    input = Some(match &lender {
                        Some(lender) => element.lent_by(&lender.handle),
                        None => element,
                    });
                    begun.inputs.push((segment, is_share));
                } else {
                    // SAFETY: as above.
                    let bytes = unsafe { segment.read() };
                    let element =
                        if is_share { Out::lasting(scheme, bytes) } else { Out::borrowed(scheme, bytes) };
                    output = Some(match &lender {
                        Some(lender) => element.lent_by(&lender.handle),
                        None => element,
                    });
                    is_held &= element_is_held || scheme != Scheme::EmulatedCopy;
                }
            }
            What::MigrantOut { scheme, .. } => {
                output = migrants.next().map(|migrant| Out::migrant(scheme, migrant));
            }
            What::MigrantIn { scheme, len } => input = Some(In::migrant(scheme, len)),
            What::Fragment(fragment) if is_input => input = Some(In::fragment(fragment)),
            What::Fragment(fragment) => output = Some(Out::fragment(fragment)),
        }
        request = match (input, output, is_first) {
            (Some(element), _, true) => request.input(element),
            (Some(element), _, false) => request.and_input(element),
            (None, Some(element), true) => request.out(element),
            (None, Some(element), false) => request.and_out(element),
            (None, None, _) => request,
        };
    }
    Ok(Composed { request, is_held, begun })
}

fn is_share(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Share | Scheme::EmulatedShare)
}

/// Reads the headers.
///
/// # Safety
/// As [`compose`].
unsafe fn plan(process: &Process, server: &Server, headers: &Headers) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    // SAFETY: the caller vouches for the headers.
    for (index, header) in unsafe { headers.each() }.enumerate() {
        if header.out_arg_length > 0 {
            if !plan.argument.is_empty() {
                return Err(Failure::misuse(format!(
                    "header {index} has an out_arg, and another one has one, too"
                )));
            }
            // SAFETY: the caller vouches for the argument, which is copied before the call returns.
            plan.argument = unsafe { checked(header.out_arg.cast_mut(), header.out_arg_length)?.read() };
        }
        if header.in_arg_length > 0 {
            if plan.room > 0 {
                return Err(Failure::misuse(format!(
                    "header {index} has an in_arg, and another one has one, too"
                )));
            }
            plan.room = checked(header.in_arg, header.in_arg_length)?.length;
        }
        let is_input = match header.direction {
            IO_OUT => false,
            IO_IN => true,
            other => {
                return Err(Failure::misuse(format!(
                    "header {index} has direction {other}, not IO_OUT or IO_IN"
                )));
            }
        };
        let mut is_first = true;
        // SAFETY: the caller vouches for the list.
        for element in unsafe { elements(header) }? {
            // SAFETY: and for the element.
            for what in unsafe { planned(process, server, is_input, element) }? {
                plan.elements.push(Planned { is_first, is_input, what });
                is_first = false;
            }
        }
    }
    check_overlaps(&plan)?;
    Ok(plan)
}

/// What an element asks for: several things if it is an output of several migrant buffers.
///
/// # Safety
/// The element's location is what its scheme says.
unsafe fn planned(
    process: &Process,
    server: &Server,
    is_input: bool,
    element: &ScatterGather,
) -> Result<SmallVec<[What; 1]>, Failure> {
    if element.flags & !IO_HELD != 0 {
        return Err(Failure::misuse(format!("there are no flags {:#x}", element.flags & !IO_HELD)));
    }
    let number = match element.scheme {
        IO_DEFAULT => server.client.scheme.load(Ordering::Relaxed),
        number => number,
    };
    let scheme = receipt::scheme(number)?;
    let mut whats = SmallVec::new();
    if scheme == Scheme::Fragment {
        // SAFETY: the scheme says which member it is.
        let named = unsafe { element.location.fragment };
        whats.push(What::Fragment(fragment(process, is_input, named, element.length)?));
    } else if scheme.allocation() == Allocation::Native {
        // SAFETY: the same.
        let native = unsafe { element.location.native };
        let segment = checked(native.addr, element.length)?;
        let lender = if native.lender == 0 { None } else { Some(process.server(native.lender)?) };
        whats.push(What::Native { scheme, segment, lender, is_held: element.flags & IO_HELD != 0 });
    } else {
        // SAFETY: the same; the pointer is null or that of a region.
        let Some(region) = (unsafe { element.location.region.as_ref() }) else {
            return Err(Failure::misuse("the location of a migrant element is a null pointer".to_owned()));
        };
        match (region.count, is_input) {
            (0, _) => return Err(Failure::misuse("a region of no segments".to_owned())),
            (_, true) => whats.push(What::MigrantIn { scheme, len: element.length }),
            (1..=MOST_ELEMENTS, false) => {
                // SAFETY: the caller says that so many segments are there.
                let segments = unsafe { segments(region) };
                whats.extend(segments.iter().map(|segment| What::MigrantOut { scheme, segment: *segment }));
            }
            (count, false) => return Err(Failure::misuse(format!("a region of {count} segments"))),
        }
    }
    Ok(whats)
}

/// # Safety
/// So many segments are there as the region says.
unsafe fn segments(region: &Region) -> &[Segment] {
    // SAFETY: the caller vouches for them.
    unsafe { std::slice::from_raw_parts(region.segmentv.as_ptr(), region.count) }
}

fn fragment(
    process: &Process,
    is_input: bool,
    named: FragmentLocation,
    len: usize,
) -> Result<Fragment, Failure> {
    let end =
        named.offset.checked_add(len).ok_or_else(|| Failure::misuse("a fragment without end".to_owned()))?;
    let fragment =
        process.registered(named.server)?.fragment(named.request, named.buffer, named.offset..end)?;
    let is_of_input = fragment.direction() == genie_memory::Direction::In;
    match is_of_input == is_input {
        true => Ok(fragment),
        false => {
            Err(Failure::misuse("a fragment is forwarded in the direction of its own buffer".to_owned()))
        }
    }
}

/// Makes sure that no native input has bytes in common with another one, or with an output that the server shares.
fn check_overlaps(plan: &Plan) -> Result<(), Failure> {
    ensure_apart(plan.elements.iter().filter_map(|planned| match &planned.what {
        What::Native { segment, scheme, .. } if planned.is_input || is_share(*scheme) => {
            Some((*segment, planned.is_input))
        }
        _ => None,
    }))
}

/// Makes sure that no piece that is stored into, as the second value says, has bytes in common with another piece.
pub(crate) fn ensure_apart(pieces: impl Iterator<Item = (Segment, bool)>) -> Result<(), Failure> {
    let pieces = pieces.filter(|(piece, _)| piece.length > 0);
    let mut pieces: SmallVec<[_; 4]> =
        pieces.map(|(piece, is_stored)| (piece.addr.addr(), piece.length, is_stored)).collect();
    pieces.sort_unstable();
    let (mut read_to, mut stored_to) = (0, 0);
    for (start, len, is_stored) in pieces {
        if start < stored_to || is_stored && start < read_to {
            return Err(Failure::misuse(format!(
                "the bytes at {start:#x} are in two elements, one of which is stored into"
            )));
        }
        let to = if is_stored { &mut stored_to } else { &mut read_to };
        *to = (*to).max(start + len);
    }
    Ok(())
}

/// Counts the request among the users of its native buffers, and takes its migrant ones.
fn begin(
    process: &Process,
    plan: &Plan,
    begun: &mut Begun,
    migrants: &mut Vec<Migrant>,
) -> Result<(), Failure> {
    for planned in &plan.elements {
        match &planned.what {
            What::Native { segment, scheme, .. } => {
                let is_brief = !planned.is_input && !is_share(*scheme);
                let users = if is_brief { &mut begun.brief_users } else { &mut begun.users };
                process.regions.begin_use(segment.addr.addr(), segment.length, users)?;
            }
            What::MigrantOut { segment, .. } => {
                process.regions.check_migrant(segment.addr.addr(), segment.length)?;
            }
            What::MigrantIn { .. } | What::Fragment(_) => {}
        }
    }
    for planned in &plan.elements {
        if let What::MigrantOut { segment, .. } = &planned.what {
            migrants.push(process.regions.take_migrant(segment.addr.addr())?);
        }
    }
    Ok(())
}

impl Begun {
    /// The request has been made, and is pending.
    pub(crate) fn end_brief_use(&mut self, process: &Process) {
        process.regions.end_use(&std::mem::take(&mut self.brief_users));
    }

    fn end_use(&self, process: &Process) {
        process.regions.end_use(&self.users);
        process.regions.end_use(&self.brief_users);
    }

    /// Ends a request: writes what came of it to its headers, and lets its buffers go.
    ///
    /// # Safety
    /// The headers and lists are where they were, and nobody else uses them.
    pub(crate) unsafe fn end(
        &self,
        process: &Process,
        result: Result<Reply, genie_io::Failed>,
    ) -> Result<(), Failure> {
        self.end_use(process);
        let (argument, buffers, failure) = match result {
            Ok(mut reply) => {
                let buffers = std::mem::take(&mut reply.buffers);
                (reply, buffers.into_vec(), None)
            }
            Err(failed) => (Reply::default(), failed.buffers, Some(Failure::from(failed.error))),
        };
        // SAFETY: the caller vouches for the headers.
        unsafe { self.write(process, argument.argument(), buffers, failure.is_none()) };
        failure.map_or(Ok(()), Err)
    }

    /// # Safety
    /// As [`Begun::end`].
    unsafe fn write(
        &self,
        process: &Process,
        argument: &[u8],
        buffers: Vec<ReplyBuffer>,
        has_succeeded: bool,
    ) {
        let mut buffers = buffers.into_iter();
        // SAFETY: the caller vouches for the headers.
        for header in unsafe { self.headers.each() } {
            if header.in_arg_length > 0 {
                let len = argument.len().min(header.in_arg_length);
                // SAFETY: the caller has made room for so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(argument.as_ptr(), header.in_arg.cast(), len) };
                header.in_arg_actual = len;
            }
            if header.first_sg.is_null() {
                continue;
            }
            let buffer = buffers.next().unwrap_or_default();
            // SAFETY: the pointer is null or that of the caller's counter.
            unsafe { set(header.actual_lengthp, if has_succeeded { buffer.actual } else { 0 }) };
            let mut replied = buffer.elements.into_iter();
            // SAFETY: the caller vouches for the list.
            for element in unsafe { elements(header) }.unwrap_or_default() {
                // SAFETY: as when the request was composed.
                let mut places = unsafe { places(element) };
                let is_input = header.direction == IO_IN;
                let count = places.as_ref().map_or(1, |places| if is_input { 1 } else { places.len() });
                // Buffers that come back are named again below.
                for place in places.iter_mut().flat_map(|places| places.iter_mut().take(count)) {
                    *place = Segment { addr: std::ptr::null_mut(), length: 0 };
                }
                for (index, done) in replied.by_ref().take(count).enumerate() {
                    // SAFETY: the pointer is null or that of the caller's receipt.
                    unsafe { set(element.receiptp, receipt::receipt(&done.receipt)) };
                    if let Returned::Migrant(migrant) = done.returned {
                        let (addr, length) = process.regions.add_migrant(migrant);
                        let segment = Segment { addr: std::ptr::without_provenance_mut(addr), length };
                        if let Some(place) = places.as_mut().and_then(|places| places.get_mut(index)) {
                            *place = segment;
                        }
                    }
                }
                if is_input
                    && places.is_some()
                    // SAFETY: `places` has found the member to be a region.
                    && let Some(region) = unsafe { element.location.region.as_mut() }
                {
                    region.count = 1;
                }
            }
        }
    }
}

/// The segments of a migrant element.
///
/// # Safety
/// The element's location is what its scheme says.
unsafe fn places(element: &ScatterGather) -> Option<&'static mut [Segment]> {
    let scheme = receipt::scheme(element.scheme).ok()?;
    if scheme == Scheme::Fragment || scheme.allocation() == Allocation::Native {
        return None;
    }
    // SAFETY: the scheme says which member it is; so many segments are there as it says.
    unsafe {
        let region = element.location.region.as_mut()?;
        Some(std::slice::from_raw_parts_mut(region.segmentv.as_mut_ptr(), region.count))
    }
}
