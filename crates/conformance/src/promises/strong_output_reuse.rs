//! Strong output whose memory is used by another request while it is pending.

use genie_io::servers::memory;
use genie_io::{In, Out};
use genie_passing::Scheme;

use super::schemes::{
    buffer_len, filled, is_strong, migrant, replied, slices, strong_native, submit_out, weak_native,
};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::HOLD;
use crate::setup::fresh_seed;

pub(crate) fn sharing_the_buffer_afterwards_is_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for share in weak_native() {
            let what = format!("{scheme}, then {share}");
            let (mut buffer, before) = filled(t);
            let first = submit_out(t, scheme, &buffer[1..]);
            buffer[0..9].fill(1);
            let during = buffer.to_vec();
            let request = t.interface().request(t.holder().handle(), HOLD);
            let second = request.out(Out::owned(share, buffer)).submit().expect("a request");
            same(&t.holder().read(second.id()), &during, &what);
            t.holder().reply(second.id());
            let buffer = replied(second).take_buffer().expect("the buffer comes back");

            // Now the server writes in place what an output is still pending from.
            let request = t.interface().request(t.holder().handle(), HOLD);
            let input = request.input(In::owned(share, buffer)).submit().expect("a request");
            let after = pattern(fresh_seed(), before.len());
            t.holder().deliver(input.id(), &after);
            same(&t.holder().read(first.id()), &before[1..], &what);
            let mut buffer = replied(input).take_buffer().expect("the buffer comes back");
            same(&buffer, &after, format_args!("{what}: the client's buffer"));
            buffer.fill(2);
            same(&t.holder().read(first.id()), &before[1..], &what);
            t.holder().reply(first.id());
            replied(first);
        }
    }
}

pub(crate) fn input_into_the_buffer_is_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for input in strong_native() {
            for slice in slices(t) {
                let what = format!("{scheme}, then input by {input} into {slice:?}");
                let (mut buffer, before) = filled(t);
                let pending = submit_out(t, scheme, &buffer);
                let mut expected = before.clone();
                expected[slice.clone()].fill(0x5a);
                let request = t.interface().request(t.memory(), memory::SOURCE);
                let request = request.input(In::borrowed(input, &mut buffer[slice])).argument(&[0x5a]);
                request.send().unwrap_or_else(|failed| panic!("{what}: {failed}"));
                same(&t.holder().read(pending.id()), &before, &what);
                same(&buffer, &expected, format_args!("{what}: the client's buffer"));
                t.holder().reply(pending.id());
                replied(pending);
            }
        }
    }
}

/// A swap gives the system the granules that the server still reads: whatever is filled next must not be they.
pub(crate) fn input_after_input_is_not_seen(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let pending = submit_out(t, scheme, &buffer);
        for round in 1..6 {
            let request = t.interface().request(t.memory(), memory::SOURCE);
            let request =
                request.input(In::emulated_copy(&mut buffer)).argument(std::slice::from_ref(&round));
            request.send().unwrap_or_else(|failed| panic!("{scheme}, input {round}: {failed}"));
            same(&t.holder().read(pending.id()), &before, format_args!("{scheme} after input {round}"));
            assert!(buffer.iter().all(|byte| *byte == round), "input {round}");
        }
        t.holder().reply(pending.id());
        replied(pending);
    }
}

pub(crate) fn a_migrant_passed_on_is_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for away in migrant() {
            let what = format!("{scheme} of a part, then {away}");
            let before = pattern(fresh_seed(), buffer_len(t));
            let mut region = t.interface().allocate_migrant(before.len(), is_strong(away)).expect("a region");
            region.copy_from_slice(&before);
            let first = submit_out(t, scheme, &region[7..]);
            region[0..20].fill(3);
            let during = region.to_vec();
            let request = t.interface().request(t.holder().handle(), HOLD);
            let second = request.out(Out::migrant(away, region)).submit().expect("a request");
            same(&t.holder().read(second.id()), &during, format_args!("{what}: the region"));
            t.holder().reply(second.id());
            replied(second);
            reuse(t, away);
            same(&t.holder().read(first.id()), &before[7..], &what);
            t.holder().reply(first.id());
            replied(first);
        }
    }
}

/// Gets back the region that `away` passed, with other data in it, and drops it.
fn reuse(t: &Scene, away: Scheme) {
    let request = t.interface().request(t.memory(), memory::SOURCE);
    let request = request.input(In::migrant(away, buffer_len(t))).argument(&[0x77]);
    let mut region = request.send().expect("an input").take_migrant().expect("a region arrives");
    assert!(region.iter().all(|byte| *byte == 0x77), "{away}");
    region.fill(0x78);
}

pub(crate) fn a_migrant_dropped_is_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for away in migrant() {
            let before = pattern(fresh_seed(), buffer_len(t));
            let mut region = t.interface().allocate_migrant(before.len(), is_strong(away)).expect("a region");
            region.copy_from_slice(&before);
            let pending = submit_out(t, scheme, &region[..before.len() - 3]);
            drop(region);
            let mut again = t.interface().allocate_migrant(before.len(), is_strong(away)).expect("a region");
            again.fill(1);
            drop(again);
            reuse(t, away);
            let what = format_args!("{scheme}, then the region dropped and reused by {away}");
            same(&t.holder().read(pending.id()), &before[..before.len() - 3], what);
            t.holder().reply(pending.id());
            replied(pending);
        }
    }
}
