//! Wiring: a wired region stays resident as long as a request needs it.

use crate::machine::{self, Machine, checked, proc, skip};
use genie_memory::{Buffer, Error, GranuleKind};
use genie_sys::{Arena, Object};

on_each_kind!(a_region_is_wired_until_its_last_request_ends, too_low_a_memory_lock_limit_is_an_error,);

/// Two requests wire the same region; the end of the first must not unwire it under the second.
fn a_region_is_wired_until_its_last_request_ends(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let buffer = space.allocate(2 * granule).unwrap();
    let addr = buffer.addresses().start;
    if machine.kind != GranuleKind::Huge && !machine::can_lock() {
        return machine.skip("mlock does nothing in this process (sanitizers disable it)");
    }
    let locked = || {
        let mapping = proc::mapping_at(addr).unwrap();
        // The kernel counts a page by its share of the page's mappings.
        assert_eq!(mapping.kib("Locked:") > 0, mapping.has_flag("lo"));
        mapping.has_flag("lo")
    };
    let wired = [space.wire_region(buffer.region()), space.wire_region(buffer.region())].map(Result::unwrap);
    if machine.kind == GranuleKind::Huge {
        return assert!(!locked() && is_resident(&buffer), "huge pages are resident as they are");
    }
    assert!(locked());
    let [first, second] = wired;
    drop(first);
    assert!(locked(), "unwired under a pending request");
    drop(second);
    assert!(!locked());
    let wired = space.wire_region(buffer.region()).unwrap();
    let region = buffer.region();
    drop(buffer);
    // The next region has the same addresses, and a wiring of its own.
    let next = space.allocate(2 * granule).unwrap();
    let again = space.wire_region(next.region()).unwrap();
    drop(wired);
    assert_eq!(next.addresses().start, addr);
    assert!(locked(), "the end of a region's wiring unwired the next region");
    assert!(matches!(space.wire_region(region), Err(Error::Foreign { .. })));
    drop(again);
}

/// Whether all pages of a buffer are there.
fn is_resident(buffer: &Buffer) -> bool {
    let addresses = buffer.addresses();
    let pages = proc::page_frames(addresses.start, addresses.len() / 4096);
    pages.iter().all(|page| page.present)
}

/// Why no huge pages are locked when a region is wired: if a kernel learns to lock them, this test says so.
#[test]
fn the_kernel_locks_no_huge_pages() {
    machine::run(GranuleKind::Huge, "the_kernel_locks_no_huge_pages", huge_pages_are_not_locked);
}

fn huge_pages_are_not_locked(machine: Machine) {
    let object = Object::create(GranuleKind::Huge, machine.granule()).unwrap();
    let arena = Arena::reserve(machine.granule()).unwrap();
    arena.map(0, &object, 0, machine.granule()).unwrap();
    let mapping = || proc::mapping_at(arena.base()).unwrap();
    let before = proc::page_frames(arena.base(), 1)[0].present;
    assert!(before, "mapping does not fill huge pages");
    if arena.lock(0, machine.granule()).is_err() {
        return machine.skip("the memory-lock limit is below a huge page");
    }
    assert!(!mapping().has_flag("lo"), "the kernel locks huge pages after all");
    assert_eq!(mapping().kib("Locked:"), 0);
}

fn too_low_a_memory_lock_limit_is_an_error(machine: Machine) {
    if machine.kind == GranuleKind::Huge {
        return skip("too_low_a_memory_lock_limit_is_an_error::huge", "huge pages do not count as locked");
    }
    if genie_sys::machine::can_lock_without_limit().unwrap() {
        return machine.skip("this process may lock without limit (CAP_IPC_LOCK)");
    }
    let Some(limit) = genie_sys::machine::memory_lock_limit().soft else {
        return machine.skip("the memory-lock limit is unlimited");
    };
    let len = (limit as usize + 1).next_multiple_of(machine.granule());
    if len > 64 << 20 {
        return machine.skip(&format!("the memory-lock limit is {limit} bytes"));
    }
    let space = machine.space(len / machine.granule() + 1);
    let buffer = space.allocate(len).unwrap();
    let error = space.wire_region(buffer.region()).unwrap_err();
    assert!(error.to_string().contains("memory-lock limit"), "{error}");
    checked(&space);
}
