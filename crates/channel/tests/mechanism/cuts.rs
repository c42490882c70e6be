//! Overlay buffers that are cut: their parts go to several requests, and they go back to their pool with the last part.
//!
//! Source: thesis §6.5, buffer snap-off.

use genie_conformance::assert_idle;
use genie_io::In;
use genie_memory::GranuleKind;
use genie_passing::model::Allocation;
use genie_passing::{Overlay, Reason, Receipt, Scheme};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Fixture;
use super::chains::{Bench, around};
use crate::on_each_kind;
use crate::support::bytes::{pattern, same};

on_each_kind! {
    a_granule_that_parts_share_is_copied_first_and_swapped_last,
    a_part_that_is_dropped_leaves_the_shared_granule_to_the_other,
    parts_of_one_buffer_meet_again_in_one_element,
    random_cuts_deliver_what_copying_would,
}

/// Where the buffer is cut: so far into its third granule.
const INTO: usize = 100;

/// A buffer of four granules, filled, and its page frames.
fn filled(bench: &Bench<'_>, seed: u64) -> (Overlay, Vec<u64>, Vec<u8>, genie_passing::Overlays) {
    let pool = bench.pool(0, 4 * bench.fixture.granule(), 1);
    let overlay = pool.allocate().expect("a buffer of the pool");
    let data = pattern(seed, overlay.len());
    overlay.data().copy_from(&data);
    let frames = bench.frames_of(&overlay);
    (overlay, frames, data, pool)
}

/// Whichever of two requests that are pending at once is completed first.
fn a_granule_that_parts_share_is_copied_first_and_swapped_last(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    let middle = 2 * granule + INTO;
    for in_order in [true, false] {
        let (overlay, came, data, pool) = filled(&bench, 1);
        let mut first = fixture.interface.allocate(middle).expect("a buffer");
        let mut second = fixture.interface.allocate_at(INTO, 2 * granule - INTO).expect("a buffer");
        first.fill(1);
        second.fill(1);
        let (mine, others) = overlay.cut(middle);
        bench.receive(mine.into());
        bench.receive(others.into());
        let one = bench.request().input(In::emulated_copy(&mut first)).submit().expect("a request");
        let two = bench.request().input(In::emulated_copy(&mut second)).submit().expect("a request");
        let take = |pending: genie_io::Pending<'_>| -> Receipt {
            assert_eq!(pool.free(), 0, "a part is in use");
            pending.sync().expect("a reply").buffers[0].elements[0].receipt
        };
        let [one, two] = match in_order {
            true => [one, two].map(take),
            false => {
                let two = take(two);
                [take(one), two]
            }
        };
        assert_eq!(pool.free(), 1, "the buffer is back");
        same(&first, &data[..middle], "the first part");
        same(&second, &data[middle..], "the second part");
        let (first_has, second_has) = (fixture.frames(&first), fixture.frames(&second));
        assert_eq!((&first_has[..2], second_has[1]), (&came[..2], came[3]));
        // The third granule is the last one's, which finds nothing of the other's in it.
        let (copied, swapped) = if in_order { (one, two) } else { (two, one) };
        assert_eq!(copied.reason, Some(Reason::Overlaid), "{copied}");
        assert_eq!(copied.copied, if in_order { INTO } else { granule - INTO }, "{copied}");
        assert_eq!((swapped.copied, swapped.reason), (0, None), "{swapped}");
        assert_eq!(if in_order { second_has[0] } else { first_has[2] }, came[2]);
        for buffer in [&first, &second] {
            assert!(around(buffer, granule).iter().all(|byte| *byte == 0), "bytes of the other part");
        }
        drop((first, second, pool));
        assert_idle(&fixture.interface, 0);
    }
}

fn a_part_that_is_dropped_leaves_the_shared_granule_to_the_other(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    let (overlay, came, data, pool) = filled(&bench, 2);
    let (first, second) = overlay.cut(2 * granule + INTO);
    drop(first);
    assert_eq!(pool.free(), 0);
    bench.receive(second.part(0..granule).into());
    let mut buffer = fixture.interface.allocate_at(INTO, granule).expect("a buffer");
    let request = bench.request().input(In::emulated_copy(&mut buffer));
    let receipt = request.send().expect("a reply").buffers[0].elements[0].receipt;
    same(&buffer, &data[2 * granule + INTO..][..granule], "the data");
    assert_eq!((receipt.swapped, receipt.copied), (2, 0), "{receipt}");
    assert_eq!(fixture.frames(&buffer), came[2..]);
    assert!(around(&buffer, granule).iter().all(|byte| *byte == 0), "bytes of the other part");
    assert_eq!(pool.free(), 1);
    drop((buffer, pool));
    assert_idle(&fixture.interface, 0);
}

/// The locks of one buffer are taken once for each part.
fn parts_of_one_buffer_meet_again_in_one_element(fixture: &Fixture) {
    let (bench, granule) = (Bench::new(fixture), fixture.granule());
    for scheme in Scheme::ALL {
        let (overlay, _, data, pool) = filled(&bench, 3);
        let (first, rest) = overlay.cut(granule + INTO);
        let (second, third) = rest.cut(granule);
        bench.receive([first, second, third].into_iter().collect());
        let receipt = bench.take(bench.request(), scheme, &data);
        let swapped = if scheme == Scheme::Copy { 0 } else { 2 };
        assert_eq!(receipt.swapped, swapped, "what no two parts share: {receipt}");
        assert_eq!(receipt.copied, data.len() - swapped as usize * granule, "{receipt}");
        assert_eq!(pool.free(), 1, "{scheme}");
        fixture.interface.space().check().unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// One part of a buffer, and the request that it goes to.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Its share of what is left of the buffer.
    share: u16,
    scheme: Scheme,
    /// Whether the client's buffer begins where the part does in its granule.
    aligned: bool,
    /// When it is completed, among the others.
    turn: u16,
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let scheme = prop::sample::select(Scheme::ALL.to_vec());
    let part = (any::<u16>(), scheme, prop::bool::weighted(0.8), any::<u16>());
    let part = part.prop_map(|(share, scheme, aligned, turn)| Part { share, scheme, aligned, turn });
    prop::collection::vec(part, 2..=5)
}

fn random_cuts_deliver_what_copying_would(fixture: &Fixture) {
    let bench = Bench::new(fixture);
    let cases = if fixture.kind == GranuleKind::Base { 64 } else { 16 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let run = |parts: Vec<Part>| {
        pass(&bench, &parts);
        Ok(())
    };
    TestRunner::new(config).run(&parts(), run).unwrap_or_else(|failed| panic!("{failed}"));
    assert_idle(&fixture.interface, 0);
}

fn pass(bench: &Bench<'_>, parts: &[Part]) {
    let granule = bench.fixture.granule();
    let (overlay, _, data, pool) = filled(bench, 4);
    let (mut rest, mut pending, mut from) = (overlay, Vec::new(), 0);
    for part in parts {
        let len = 1 + usize::from(part.share) * rest.len().saturating_sub(parts.len()) / 65_536;
        let (mine, others) = rest.cut(len);
        rest = others;
        bench.receive(mine.into());
        let request = bench.request();
        let request = match part.scheme.allocation() {
            Allocation::Native => {
                let offset = if part.aligned { from % granule } else { 0 };
                let buffer = bench.interface().allocate_at(offset, len).expect("a buffer");
                request.input(In::owned(part.scheme, buffer))
            }
            Allocation::Migrant => request.input(In::migrant(part.scheme, len)),
        };
        pending.push((part.turn, part.scheme, from..from + len, request.submit().expect("a request")));
        from += len;
    }
    drop(rest);
    pending.sort_by_key(|(turn, ..)| *turn);
    for (_, scheme, range, pending) in pending {
        assert_eq!(pool.free(), 0, "a part is in use: {parts:?}");
        let mut reply = pending.sync().expect("a reply");
        let what = format!("{scheme}, {range:?} of {parts:?}");
        if scheme.allocation() == Allocation::Native {
            let buffer = reply.take_buffer().expect("the buffer");
            same(&buffer, &data[range], &what);
            assert!(around(&buffer, granule).iter().all(|byte| *byte == 0), "another part's bytes: {what}");
        } else {
            same(&reply.take_migrant().expect("a region"), &data[range], &what);
        }
        bench.interface().space().check().unwrap_or_else(|wrong| panic!("{wrong}, {what}"));
    }
    assert_eq!(pool.free(), 1, "the buffer is back: {parts:?}");
    // It is whole again.
    let again = pool.allocate().expect("a buffer of the pool");
    again.data().copy_from(&data);
    same(&again.data().to_vec(), &data, "what is stored into the buffer");
}
