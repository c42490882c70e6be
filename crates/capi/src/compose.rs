//! From C's headers to a plan of `genie_io`.
//!
//! How: one walk over headers and lists reads and checks each element, and adds it to the plan. If an element is wrong, what
//! the walk has counted and taken is given back.
//! Invariants: if composing fails, buffers given by value are where they were, and no buffer has another user.
//! Cost: a plan and what it holds are composed where they stay; each move of theirs would be a copy through memory.

use std::sync::atomic::Ordering;

use genie_io::{Fragment, In, Out, Plan};
use genie_memory::Direction;
use genie_passing::Scheme;
use genie_passing::model::Allocation;
use smallvec::SmallVec;

use crate::failure::Failure;
use crate::given::checked;
use crate::headers::{Headers, MOST_ELEMENTS, elements};
use crate::process::{Process, Server};
use crate::receipt;
use crate::requested::Begun;
use crate::types::{
    FragmentLocation, IO_DEFAULT, IO_EMULATED_SHARE, IO_HELD, IO_IN, IO_OWNED, Region, ScatterGather, Segment,
};

/// Composes a plan.
struct Composer<'c> {
    process: &'c Process,
    server: &'c Server,
    begun: &'c mut Begun,
    /// Native pieces, and whether they are stored into; of outputs only those that the server shares.
    pieces: SmallVec<[(Segment, bool); 2]>,
    /// The regions that migrant inputs are to be named by.
    arrivals: Vec<*const Region>,
    is_held: bool,
}

/// The argument that the headers have for the server, and for how long an argument they have room.
///
/// # Safety
/// The headers are as `io_request` says; the argument stays where it is until the request has been made.
#[inline]
pub(crate) unsafe fn arguments(headers: Headers<'_>) -> Result<(&'static [u8], usize), Failure> {
    let (mut argument, mut room) = (&[][..], 0);
    // SAFETY: the caller vouches for the headers.
    for (index, header) in unsafe { headers.each() }.enumerate() {
        if header.out_arg_length > 0 {
            ensure_first(argument.is_empty(), index, "out_arg")?;
            // SAFETY: and for the argument.
            argument = unsafe { checked(header.out_arg.cast_mut(), header.out_arg_length)?.read() };
        }
        if header.in_arg_length > 0 {
            ensure_first(room == 0, index, "in_arg")?;
            room = checked(header.in_arg, header.in_arg_length)?.length;
        }
    }
    Ok((argument, room))
}

fn ensure_first(is_first: bool, index: usize, what: &str) -> Result<(), Failure> {
    let wrong = || Failure::misuse(format!("header {index} has an {what}, and another one has one, too"));
    if is_first { Ok(()) } else { Err(wrong()) }
}

/// Adds what headers ask for to a plan. Returns whether nobody stores into any of its outputs before the call
/// returns, or it is copied anyway.
///
/// # Safety
/// The headers, lists and data are as `io_request` says.
#[inline]
pub(crate) unsafe fn compose(
    process: &Process,
    server: &Server,
    headers: Headers<'_>,
    plan: &mut Plan<'static, 'static>,
    begun: &mut Begun,
) -> Result<bool, Failure> {
    let (pieces, arrivals) = (SmallVec::new(), Vec::new());
    let mut composer = Composer { process, server, begun, pieces, arrivals, is_held: true };
    // SAFETY: the caller vouches for the headers.
    let added = unsafe { composer.add_all(headers, plan) };
    match added.and_then(|()| ensure_apart(&composer.pieces)) {
        Ok(()) => Ok(composer.is_held),
        Err(failure) => {
            composer.begun.users.end();
            plan.take_given().into_iter().for_each(|given| process.regions.take_back(given));
            Err(failure)
        }
    }
}

impl Composer<'_> {
    /// # Safety
    /// As [`compose`].
    #[inline]
    unsafe fn add_all(
        &mut self,
        headers: Headers<'_>,
        plan: &mut Plan<'static, 'static>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller vouches for the headers.
        for (index, header) in unsafe { headers.each() }.enumerate() {
            let (is_input, mut is_first) = (header.checked_direction(index)? == IO_IN, true);
            self.begun.is_reported |= header.in_arg_length > 0 || !header.actual_lengthp.is_null();
            self.begun.is_reported |= !header.totalp.is_null();
            // SAFETY: the caller vouches for the list.
            for element in unsafe { elements(header) } {
                // SAFETY: and for the element.
                unsafe { self.add(plan, is_input, is_first, element?) }?;
                is_first = false;
            }
            self.begun.buffers += usize::from(!is_first);
        }
        Ok(())
    }

    /// # Safety
    /// The element's location is what its scheme says.
    #[inline]
    unsafe fn add(
        &mut self,
        plan: &mut Plan<'static, 'static>,
        is_input: bool,
        is_first: bool,
        element: &ScatterGather,
    ) -> Result<(), Failure> {
        let (is_owned, others) = (element.flags & IO_OWNED != 0, element.flags & !(IO_HELD | IO_OWNED));
        if others != 0 {
            return Err(Failure::misuse(format!("there are no flags {others:#x}")));
        }
        self.begun.is_reported |= !element.receiptp.is_null();
        let number = match element.scheme {
            IO_DEFAULT => self.server.client.scheme.load(Ordering::Relaxed),
            number => number,
        };
        let scheme = receipt::scheme(number)?;
        if is_owned && number > IO_EMULATED_SHARE {
            return Err(Failure::misuse(format!("IO_OWNED is for native elements, and {scheme} has none")));
        }
        if scheme == Scheme::Fragment {
            // SAFETY: the scheme says which member it is.
            let named = unsafe { element.location.fragment };
            let fragment = fragment(self.process, is_input, named, element.length)?;
            match is_input {
                true => add_input(plan, is_first, In::fragment(fragment), None),
                false => add_out(plan, is_first, Out::fragment(fragment), None),
            }
            return Ok(());
        }
        if scheme.allocation() == Allocation::Migrant {
            // SAFETY: the same; the pointer is null or that of a region.
            return unsafe {
                let region = element.location.region;
                self.add_migrants(plan, is_input, is_first, scheme, region, element.length)
            };
        }
        // SAFETY: the same.
        let native = unsafe { element.location.native };
        let segment = checked(native.addr, element.length)?;
        let lender = if native.lender == 0 { None } else { Some(self.process.server(native.lender)?) };
        if is_owned {
            return self.add_owned(plan, is_input, is_first, scheme, segment, lender.as_deref());
        }
        let is_share = matches!(scheme, Scheme::Share | Scheme::EmulatedShare);
        let is_brief = !is_input && !is_share;
        let space = self.server.client.interface.space();
        self.process.regions.begin_use(segment, is_brief, Some(space), &mut self.begun.users)?;
        if !is_brief {
            self.pieces.push((segment, is_input));
        }
        if is_input {
            self.begun.inputs.push((segment, is_share));
            // SAFETY: the caller of `io_request` vouches for the bytes.
            let bytes = unsafe { segment.store() };
            let input = if is_share { In::lasting(scheme, bytes) } else { In::borrowed(scheme, bytes) };
            add_input(plan, is_first, input, lender.as_deref());
        } else {
            // SAFETY: as above.
            let bytes = unsafe { segment.read() };
            let out = if is_share { Out::lasting(scheme, bytes) } else { Out::borrowed(scheme, bytes) };
            self.is_held &= element.flags & IO_HELD != 0 || scheme != Scheme::EmulatedCopy;
            add_out(plan, is_first, out, lender.as_deref());
        }
        Ok(())
    }

    #[inline(never)]
    fn add_owned(
        &mut self,
        plan: &mut Plan<'static, 'static>,
        is_input: bool,
        is_first: bool,
        scheme: Scheme,
        bytes: Segment,
        lender: Option<&Server>,
    ) -> Result<(), Failure> {
        self.begun.is_reported = true;
        let (buffer, part) = self.process.regions.give(bytes)?;
        match is_input {
            true => add_input(plan, is_first, In::owned(scheme, buffer).part(part), lender),
            false => add_out(plan, is_first, Out::owned(scheme, buffer).part(part), lender),
        }
        Ok(())
    }

    /// # Safety
    /// The pointer is null or that of a region, behind which so many segments are as it says.
    #[inline(never)]
    unsafe fn add_migrants(
        &mut self,
        plan: &mut Plan<'static, 'static>,
        is_input: bool,
        is_first: bool,
        scheme: Scheme,
        region: *const Region,
        len: usize,
    ) -> Result<(), Failure> {
        self.begun.is_reported = true;
        // SAFETY: the caller vouches for it.
        let count = unsafe { region.as_ref() }.map(|region| region.count).ok_or_else(|| {
            Failure::misuse("the location of a migrant element is a null pointer".to_owned())
        })?;
        match (count, is_input) {
            (0, _) => Err(Failure::misuse("a region of no segments".to_owned())),
            (_, true) if self.arrivals.contains(&region) => {
                Err(Failure::misuse("two migrant inputs have one region, which names one buffer".to_owned()))
            }
            (_, true) => {
                self.arrivals.push(region);
                add_input(plan, is_first, In::migrant(scheme, len), None);
                Ok(())
            }
            (1..=MOST_ELEMENTS, false) => {
                // SAFETY: the caller vouches for them. The pointer reaches all of them; a reference would reach one.
                let segments: &[Segment] =
                    unsafe { std::slice::from_raw_parts((&raw const (*region).segmentv).cast(), count) };
                for (index, segment) in segments.iter().enumerate() {
                    let migrant = self.process.regions.take_migrant(segment.addr.addr(), segment.length)?;
                    add_out(plan, is_first && index == 0, Out::migrant(scheme, migrant), None);
                }
                Ok(())
            }
            (count, false) => Err(Failure::misuse(format!(
                "a region of {count} segments: move schemes take location.region, not location.native"
            ))),
        }
    }
}

/// Adds an element to the last buffer, or begins a buffer with it.
#[inline(always)]
fn add_out(plan: &mut Plan<'static, '_>, is_first: bool, out: Out<'static>, lender: Option<&Server>) {
    let mut add = |out| if is_first { plan.out(out) } else { plan.and_out(out) };
    match lender {
        Some(lender) => add(out.lent_by(&lender.handle)),
        None => add(out),
    }
}

/// As `add_out`, for input.
#[inline(always)]
fn add_input(plan: &mut Plan<'_, 'static>, is_first: bool, input: In<'static>, lender: Option<&Server>) {
    let mut add = |input| if is_first { plan.input(input) } else { plan.and_input(input) };
    match lender {
        Some(lender) => add(input.lent_by(&lender.handle)),
        None => add(input),
    }
}

#[inline(never)]
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
    match (fragment.direction() == Direction::In) == is_input {
        true => Ok(fragment),
        false => {
            Err(Failure::misuse("a fragment is forwarded in the direction of its own buffer".to_owned()))
        }
    }
}

/// Makes sure that no piece that is stored into, as the second value says, has bytes in common with another piece.
#[inline]
pub(crate) fn ensure_apart(pieces: &[(Segment, bool)]) -> Result<(), Failure> {
    if pieces.len() < 2 { Ok(()) } else { ensure_several_apart(pieces) }
}

#[inline(never)]
fn ensure_several_apart(pieces: &[(Segment, bool)]) -> Result<(), Failure> {
    let pieces = pieces.iter().filter(|(piece, _)| piece.length > 0);
    let mut pieces: SmallVec<[_; 4]> =
        pieces.map(|(piece, is_stored)| (piece.addr.addr(), piece.length, *is_stored)).collect();
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
