//! Memory outside the interface's regions: passed by every native scheme, by copying, and the receipt says so.

use genie_conformance::{Guard, assert_idle, checked};
use genie_io::servers::memory::STORE;
use genie_io::{In, Out};
use genie_memory::GranuleKind;
use genie_passing::model::Allocation;
use genie_passing::{Overlays, Reason, Scheme, Thresholds};

use super::{Fixture, LEN};
use crate::support::bytes::{pattern, same};
use crate::support::holder::{HOLD, Holder};

/// Memory of the program's file, mapped read-only.
static MAPPED: &[u8] = include_bytes!("foreign.rs");

fn native() -> [(Scheme, Option<Reason>); 4] {
    [
        (Scheme::Copy, None),
        (Scheme::EmulatedCopy, Some(Reason::Foreign)),
        (Scheme::Share, Some(Reason::Borrowed)),
        (Scheme::EmulatedShare, Some(Reason::Borrowed)),
    ]
}

fn open(name: &'static str) -> Option<Fixture> {
    Fixture::open(name, GranuleKind::Base, Guard::Full, Thresholds::ALWAYS)
}

#[test]
fn output_from_anywhere_is_copied_and_says_so() {
    let Some(fixture) = open("output_from_anywhere") else { return };
    let heap = pattern(1, 100_000);
    let stack = [7u8; 5000];
    for (scheme, reason) in native() {
        for (bytes, where_) in [(MAPPED, "a mapped file"), (&heap[..], "the heap"), (&stack[..], "the stack")]
        {
            let request = fixture.interface.request(fixture.holder.handle(), HOLD);
            let pending = request.out(Out::borrowed(scheme, bytes)).submit().expect("a request");
            same(&fixture.holder.read(pending.id()), bytes, format_args!("{scheme} from {where_}"));
            fixture.holder.reply(pending.id());
            let reply = pending.sync().expect("a reply");
            let receipt = reply.buffers[0].elements[0].receipt;
            assert_eq!((receipt.asked, receipt.effective), (scheme, Scheme::Copy), "{where_}");
            assert_eq!((receipt.reason, receipt.copied), (reason, bytes.len()), "{scheme} from {where_}");
        }
    }
}

#[test]
fn output_from_foreign_memory_is_called_that_however_short_it_is() {
    // The threshold was looked at first, so that a program never heard that its memory was not the interface's.
    for guard in [Guard::Full, Guard::Never] {
        let name = "output_from_foreign_memory";
        let Some(fixture) = Fixture::open(name, GranuleKind::Base, guard, Thresholds::NEVER) else {
            continue;
        };
        let request = fixture.interface.request(&fixture.memory, STORE);
        let reply =
            request.out(Out::emulated_copy(&vec![1; 5000])).argument(b"name").send().expect("a reply");
        assert_eq!(reply.buffers[0].elements[0].receipt.reason, Some(Reason::Foreign));
    }
}

#[test]
fn input_to_anywhere_is_copied_and_says_so() {
    let Some(fixture) = open("input_to_anywhere") else { return };
    for (scheme, reason) in native() {
        let mut heap = vec![0; 100_000];
        let mut stack = [0u8; 5000];
        for (bytes, where_) in [(&mut heap[..], "the heap"), (&mut stack[..], "the stack")] {
            let data = pattern(2, bytes.len());
            let request = fixture.interface.request(fixture.holder.handle(), HOLD);
            let pending = request.input(In::borrowed(scheme, bytes)).submit().expect("a request");
            fixture.holder.deliver(pending.id(), &data);
            let reply = pending.sync().expect("a reply");
            same(bytes, &data, format_args!("{scheme} to {where_}"));
            let receipt = reply.buffers[0].elements[0].receipt;
            assert_eq!((receipt.asked, receipt.effective), (scheme, Scheme::Copy), "{where_}");
            assert_eq!((receipt.reason, receipt.copied), (reason, bytes.len()), "{scheme} to {where_}");
        }
    }
}

#[test]
fn overlay_buffers_of_another_space_are_copied_and_say_so() {
    // A granule's number means another granule in the books of another space: pages swapped with it would be anybody's.
    let name = "overlay_buffers_of_another_space";
    let (Some(mut fixture), Some(other)) = (open(name), open(name)) else { return };
    let overlays = Overlays::reserve(other.interface.space(), 0, LEN, 1).expect("memory for the pool");
    fixture.holder = Holder::in_process(Some(overlays.clone()));
    let before = checked(other.interface.space());
    for (seed, scheme) in (10..).zip(Scheme::ALL) {
        let (is_migrant, data) = (scheme.allocation() == Allocation::Migrant, pattern(seed, LEN - 100));
        let request = fixture.interface.request(fixture.holder.handle(), HOLD);
        let pending = match is_migrant {
            true => request.input(In::migrant(scheme, LEN - 100)).submit(),
            false => request.input(In::owned(scheme, fixture.buffer(3)).part(0..LEN - 100)).submit(),
        };
        let pending = pending.unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        fixture.holder.deliver(pending.id(), &data);
        let mut reply = pending.sync().unwrap_or_else(|failed| panic!("{scheme}: {failed}"));
        let receipt = reply.buffers[0].elements[0].receipt;
        assert!(receipt.copied >= data.len(), "{scheme}: {receipt}");
        match reply.take_migrant() {
            Some(region) => same(&region, &data, scheme),
            None => same(&reply.take_buffer().expect("the buffer")[..data.len()], &data, scheme),
        }
        assert_eq!(
            checked(other.interface.space()),
            before,
            "{scheme}: the server's space keeps its granules"
        );
        assert_eq!(overlays.free(), 1, "{scheme}: the overlay buffer is back");
        assert_idle(&fixture.interface, 0);
    }
}

#[test]
fn memory_half_inside_a_region_does_not_exist_but_borders_are_kept() {
    // Two neighbouring regions are two: no slice spans them, and a request for the end of one leaves the other alone.
    let Some(fixture) = open("memory_half_inside_a_region") else { return };
    let mut regions = [1u8, 2, 3].map(|byte| {
        let mut buffer = fixture.interface.allocate(4096).expect("a buffer");
        buffer.fill(byte);
        buffer
    });
    for index in 0..3 {
        let request = fixture.interface.request(fixture.holder.handle(), HOLD);
        let pending = request.input(In::emulated_copy(&mut regions[index][1..])).submit().expect("a request");
        fixture.holder.deliver(pending.id(), &[9; 4095]);
        pending.sync().expect("a reply");
        let firsts: Vec<u8> = regions.iter().map(|region| region[0]).collect();
        assert_eq!(firsts, [1, 2, 3]);
        let filled: Vec<bool> =
            regions.iter().map(|region| region[1..].iter().all(|byte| *byte == 9)).collect();
        assert_eq!(filled, [true, index >= 1, index >= 2]);
    }
}

#[test]
fn without_protection_emulated_copy_copies_and_says_so() {
    // Calibration gives no threshold where nothing can be protected: receipts called any length "shorter than the threshold".
    for (guard, thresholds) in [
        (Guard::Never, Thresholds::ALWAYS),
        (Guard::Never, Thresholds::NEVER),
        (Guard::Unpromised, Thresholds::NEVER),
    ] {
        let name = "without_protection_emulated_copy_copies";
        let Some(fixture) = Fixture::open(name, GranuleKind::Base, guard, thresholds) else { continue };
        let mut buffer = fixture.buffer(3);
        let request = fixture.interface.request(fixture.holder.handle(), HOLD);
        let pending = request.out(Out::emulated_copy(&buffer)).submit().expect("a request");
        buffer[0] ^= 1;
        same(&fixture.holder.read(pending.id()), &pattern(3, buffer.len()), "the output");
        fixture.holder.reply(pending.id());
        let reply = pending.sync().expect("a reply");
        let receipt = reply.buffers[0].elements[0].receipt;
        assert_eq!((receipt.effective, receipt.reason), (Scheme::Copy, Some(Reason::Unprotectable)));
        assert_eq!(receipt.copied, buffer.len());
    }
}
