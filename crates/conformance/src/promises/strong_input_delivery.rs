//! Strong input delivered otherwise than asked: peeked at, redirected, never taken, or shorter than the server says.

use std::time::{Duration, Instant};

use genie_io::{Error, In, Pending};
use genie_passing::Scheme;
use genie_passing::model::Integrity;

use super::schemes::{failed, filled, replied, slices, strong_native};
use super::strong_input::submit_in;
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::HOLD;
use crate::setup::fresh_seed;

pub(crate) fn a_peek_takes_nothing(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} into {slice:?}");
            let (mut buffer, before) = filled(t);
            let after = pattern(fresh_seed(), slice.len());
            let pending = submit_in(t, scheme, &mut buffer[slice.clone()]);
            t.holder().deliver(pending.id(), &after);
            let mut peeked = vec![0; 100];
            let found = pending.peek(&mut [&mut peeked]).expect("data");
            assert_eq!(found, [after.len().min(100)], "{what}");
            same(&peeked[..found[0]], &after[..found[0]], format_args!("{what}: peeked"));
            replied(pending);
            let mut expected = before;
            expected[slice.clone()].copy_from_slice(&after);
            same(&buffer, &expected, &what);
        }
    }
}

/// Where the data goes instead.
enum Elsewhere {
    Heap,
    /// Memory of the interface, at this offset in its granule.
    Region(usize),
}

impl Elsewhere {
    fn is_heap(&self) -> bool {
        matches!(self, Self::Heap)
    }

    fn offset(&self) -> usize {
        match self {
            Self::Heap => 0,
            Self::Region(offset) => *offset,
        }
    }
}

pub(crate) fn data_can_be_redirected(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            for elsewhere in [Elsewhere::Heap, Elsewhere::Region(0), Elsewhere::Region(slice.start + 1)] {
                redirect(t, scheme, slice.clone(), &elsewhere);
            }
        }
    }
}

fn redirect(t: &Scene, scheme: Scheme, slice: std::ops::Range<usize>, elsewhere: &Elsewhere) {
    let what = format!("{scheme} into {slice:?}, redirected");
    let (mut buffer, before) = filled(t);
    let after = pattern(fresh_seed(), slice.len());
    let pending = submit_in(t, scheme, &mut buffer[slice.clone()]);
    t.holder().deliver(pending.id(), &after);
    match elsewhere {
        Elsewhere::Heap => {
            let mut other = vec![0; slice.len() + 1];
            pending.redirect([&mut other[..]]).unwrap_or_else(|failed| panic!("{what}: {failed}"));
            same(&other[..after.len()], &after, &what);
            assert_eq!(other[after.len()], 0, "{what}: the byte after the data");
        }
        Elsewhere::Region(offset) => {
            let offset = offset % t.setup().granule();
            let mut other = t.interface().allocate_at(offset, slice.len() + 1).expect("a buffer");
            pending.redirect([&mut other[..]]).unwrap_or_else(|failed| panic!("{what}: {failed}"));
            same(&other[..after.len()], &after, &what);
            assert_eq!(other[after.len()], 0, "{what}: the byte after the data");
        }
    }
    same(&buffer, &before, format_args!("{what}: the buffer named in the request"));
}

/// Inputs given by value were once passed over: where one was shared, a redirection succeeded and delivered nothing there.
pub(crate) fn data_for_buffers_given_by_value_can_be_redirected(t: &Scene) {
    for scheme in Scheme::ALL.into_iter().take(4) {
        for elsewhere in [Elsewhere::Heap, Elsewhere::Region(0), Elsewhere::Region(5)] {
            let after = pattern(fresh_seed(), 2 * t.setup().granule() + 13);
            let pending = give(t, scheme, &after);
            let mut peeked = [0; 100];
            assert_eq!(pending.peek(&mut [&mut peeked]), Ok(vec![100]), "{scheme}");
            same(&peeked, &after[..100], format_args!("{scheme}: peeked"));
            let mut region =
                t.interface().allocate_at(elsewhere.offset(), after.len() + 1).expect("a buffer");
            let mut heap = vec![0; after.len() + 1];
            let other = if elsewhere.is_heap() { &mut heap[..] } else { &mut region[..] };
            let mut reply =
                pending.redirect([&mut *other]).unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
            same(&other[..after.len()], &after, format_args!("{scheme}: redirected"));
            assert_eq!(other[after.len()], 0, "{scheme}: the byte after the data");
            let buffer = reply.take_buffer().expect("the buffer comes back");
            if scheme.integrity() == Integrity::Strong {
                assert!(buffer.iter().all(|byte| *byte == BEFORE), "{scheme}: it comes back as it was");
            } else {
                let receipt = reply.receipt();
                assert!(receipt.copied >= after.len(), "{scheme}: {receipt}");
            }
        }
    }
}

pub(crate) fn a_redirection_to_more_buffers_than_there_are_inputs_is_refused(t: &Scene) {
    let after = pattern(fresh_seed(), 1000);
    let pending = give(t, Scheme::EmulatedCopy, &after);
    let [mut one, mut other] = [[0; 1000]; 2];
    let mut failed = pending.redirect([&mut one[..], &mut other[..]]).expect_err("one input");
    assert_eq!(failed.error, Error::TooManyDestinations { given: 2, inputs: 1 });
    assert!(failed.take_buffer().expect("the buffer comes back").iter().all(|byte| *byte == BEFORE));
    assert!(one.iter().chain(&other).all(|byte| *byte == 0));
}

/// What buffers hold that are given by value.
const BEFORE: u8 = 0x11;

/// A request whose input buffer was given by value, and for which there is data.
fn give(t: &Scene, scheme: Scheme, data: &[u8]) -> Pending<'static> {
    let mut buffer = t.interface().allocate(data.len()).expect("a buffer");
    buffer.fill(BEFORE);
    let request = t.interface().request(t.holder().handle(), HOLD).input(In::owned(scheme, buffer));
    let pending = request.submit().expect("a request");
    t.holder().deliver(pending.id(), data);
    pending
}

pub(crate) fn a_redirection_that_is_too_short_changes_nothing(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let (low, high) = buffer.split_at_mut(100);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let input = |bytes| In::borrowed(scheme, bytes);
        let pending = request.input(input(low)).and_input(input(high)).submit().expect("a request");
        t.holder().deliver(pending.id(), &pattern(fresh_seed(), before.len()));
        let (mut enough, mut short) = (vec![0; 100], vec![0; 100]);
        let error = pending.redirect([&mut enough[..], &mut short[..]]).expect_err("too short").error;
        assert!(matches!(error, Error::Passing(_)), "{scheme}: {error}");
        assert!(enough.iter().chain(&short).all(|byte| *byte == 0), "{scheme}: replacements are untouched");
        same(&buffer, &before, scheme);
    }
}

pub(crate) fn a_pending_input_may_be_forgotten(t: &Scene) {
    for scheme in strong_native() {
        for answered_first in [true, false] {
            let (mut buffer, before) = filled(t);
            let after = pattern(fresh_seed(), before.len());
            let pending = submit_in(t, scheme, &mut buffer);
            let id = pending.id();
            if answered_first {
                t.holder().deliver(id, &after);
                drop(pending);
            } else {
                drop(pending);
                t.holder().deliver(id, &after);
            }
            same(&buffer, &before, format_args!("{scheme}, answered first: {answered_first}"));
            buffer.fill(1);
            // On a busy machine the thread that tends forgotten requests may come late, and their bytes count until then.
            let start = Instant::now();
            while t.interface().pending_bytes() > 0 {
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "{scheme}: a forgotten request is pending"
                );
                std::thread::yield_now();
            }
        }
    }
}

pub(crate) fn data_beyond_the_servers_buffer_is_refused(t: &Scene) {
    for scheme in strong_native() {
        // The server says that it passes bytes which it never had memory for.
        let (mut buffer, before) = filled(t);
        let pending = submit_in(t, scheme, &mut buffer);
        t.holder().set_actual(pending.id(), before.len());
        t.holder().reply(pending.id());
        let error = failed(pending).error;
        // Whichever side notices it first: the client's interface, or the server's.
        assert!(matches!(error, Error::Passing(_) | Error::Server(_)), "{scheme}: {error}");
        same(&buffer, &before, scheme);
        buffer.fill(1);
    }
    replied_empty(t);
}

/// A server that has no data need not ask for memory.
fn replied_empty(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let pending = submit_in(t, scheme, &mut buffer);
        t.holder().reply(pending.id());
        assert_eq!(replied(pending).actual(), 0);
        same(&buffer, &before, scheme);
    }
}
