//! System buffers as they come out of a pool: which one is next, where it lies, and what is left in it.

use crate::machine::{self, Machine, checked, pattern, same, scatter};
use genie_memory::{LenderId, Recycling, Space, SystemBuffer};
use genie_sys::{GranuleKind, Object};

on_each_kind!(
    the_buffer_freed_last_is_next,
    buffers_are_used_in_turn,
    chunks_are_used_in_turn,
    turns_do_not_take_memory_that_is_not_there,
    turns_are_told_by_length,
    a_pool_of_a_lender_recycles_as_well,
    a_long_buffer_lies_in_one_object,
    nothing_but_the_data_is_left,
    a_chunk_is_zeroed_and_its_neighbours_are_not,
);

/// Makes the space rotate over `buffers` buffers, for every length.
fn in_turn(space: &Space, buffers: u16) {
    space.set_recycling(Recycling { rotation: [buffers; Recycling::CLASSES] });
}

/// The addresses of `count` buffers, each dropped before the next is made.
fn addresses(count: usize, make: impl Fn() -> SystemBuffer) -> Vec<usize> {
    (0..count).map(|_| make().segments()[0].addr()).collect()
}

/// Whether the addresses repeat after `period`, and not sooner.
#[track_caller]
fn repeats(addresses: &[usize], period: usize) {
    for (at, addr) in addresses.iter().enumerate().skip(period) {
        let last = addresses[..at].iter().rposition(|earlier| earlier == addr);
        assert_eq!(last, Some(at - period), "{addresses:x?}");
    }
}

fn the_buffer_freed_last_is_next(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let makers: [&dyn Fn() -> SystemBuffer; 2] =
        [&|| space.aligned_buffer(0, granule).unwrap(), &|| space.system_buffer(100).unwrap()];
    for make in makers {
        let addresses = |buffers: &[SystemBuffer]| {
            buffers.iter().map(|buffer| buffer.segments()[0].addr()).collect::<Vec<_>>()
        };
        let mut buffers = [make(), make(), make()];
        let made = addresses(&buffers);
        buffers.swap(0, 1);
        drop(buffers);
        assert_eq!(addresses(&[make(), make(), make()]), [made[2], made[0], made[1]]);
    }
}

fn buffers_are_used_in_turn(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let make = || space.aligned_buffer(0, 2 * granule).unwrap();
    repeats(&addresses(6, make), 1);
    in_turn(&space, 3);
    repeats(&addresses(12, make)[..], 3);
    // A buffer that is in use is left out of the rotation.
    let held = make();
    let turns = addresses(8, make);
    repeats(&turns, 2);
    assert!(!turns.contains(&held.segments()[0].addr()));
    drop(held);
    assert_eq!(checked(&space).pooled, 6);
    in_turn(&space, 1);
    repeats(&addresses(6, make), 1);
}

fn chunks_are_used_in_turn(machine: Machine) {
    let space = machine.space(8);
    let make = || space.system_buffer(100).unwrap();
    repeats(&addresses(4, make), 1);
    in_turn(&space, 4);
    repeats(&addresses(16, make), 4);
    in_turn(&space, 0);
    repeats(&addresses(4, make), 1);
    checked(&space);
}

fn turns_do_not_take_memory_that_is_not_there(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let kept = space.allocate(2 * granule).unwrap();
    drop(space.allocate_migrant(granule, true).unwrap());
    in_turn(&space, 100);
    let make = || space.aligned_buffer(0, 2 * granule).unwrap();
    // Five granules hold two buffers; nothing is given up for a third one.
    repeats(&addresses(600, make), 2);
    let usage = checked(&space);
    assert_eq!((usage.pooled, usage.queued), (4, 1));
    // But for the memory itself it is.
    let buffer = space.aligned_buffer(0, 6 * granule).unwrap();
    assert_eq!(checked(&space).pooled, 0);
    drop((buffer, kept));
}

fn turns_are_told_by_length(machine: Machine) {
    let (space, granule) = (machine.space(24), machine.granule());
    let mut recycling = Recycling::LAST_FREED;
    recycling.rotation[Recycling::class(2 * granule)] = 2;
    recycling.rotation[Recycling::class(8 * granule)] = 1;
    space.set_recycling(recycling);
    repeats(&addresses(6, || space.aligned_buffer(0, 2 * granule).unwrap()), 2);
    repeats(&addresses(6, || space.aligned_buffer(0, 8 * granule).unwrap()), 1);
}

fn a_pool_of_a_lender_recycles_as_well(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let lender = space.add_lender();
    machine::lend(&space, lender, Object::create(machine.kind, 4 * granule).unwrap()).unwrap();
    in_turn(&space, 3);
    let turns = addresses(9, || space.aligned_buffer_from(lender, 0, granule).unwrap());
    repeats(&turns, 3);
    let own = addresses(9, || space.aligned_buffer_from(LenderId::OWN, 0, granule).unwrap());
    repeats(&own, 3);
    assert!(own.iter().all(|addr| !turns.contains(addr)), "a pool gave another one's buffer");
    assert_eq!(space.pool_size(lender).unwrap().free, 1);
    // All four granules at once, although three are kept one by one.
    assert_eq!(space.aligned_buffer_from(lender, 0, 4 * granule).unwrap().len(), 4 * granule);
    checked(&space);
}

/// Objects of reserved pages are of 32 MiB: two buffers of 16 MiB and a little one before them do not fit in the first. Of
/// other pages the first object is of 8 MiB or 1 MiB, and does not hold the first of these buffers.
fn a_long_buffer_lies_in_one_object(machine: Machine) {
    let granule = machine.granule();
    let space = machine.space((72 << 20) / granule);
    let little = space.allocate(granule).unwrap();
    let len = if machine.is_large() { 18 << 20 } else { 16 << 20 };
    let buffers: Vec<_> = (0..2).map(|_| space.aligned_buffer(0, len).unwrap()).collect();
    for buffer in &buffers {
        let object = |addr: usize| space.object_at(addr - space.aliases_base()).unwrap();
        let segments = buffer.segments();
        let first = object(segments[0].addr());
        let last = segments[segments.len() - 1];
        assert_eq!(object(last.addr() + last.len() - 1), first);
    }
    let objects = if machine.kind == GranuleKind::Huge { 2 } else { 3 };
    assert_eq!(checked(&space).objects, objects);
    drop(little);
}

fn nothing_but_the_data_is_left(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let len = 2 * granule + 50;
    for (offset, filled) in
        [(0, 0..len), (30, 0..len), (30, 0..0), (30, 7..granule), (30, 2 * granule..len), (9, 5..6)]
    {
        let mut dirty = space.aligned_buffer(0, 3 * granule).unwrap();
        dirty.data().fill(0xdd);
        drop(dirty);
        dirty = space.aligned_buffer(offset, len).unwrap();
        let data = pattern(1, len);
        scatter(&dirty.data(), &data);
        let zeroed = dirty.zero_around(filled.clone());
        assert_eq!(zeroed, 3 * granule - filled.len(), "{filled:?} at {offset}");
        let mut expected = vec![0; 3 * granule];
        expected[offset + filled.start..offset + filled.end].copy_from_slice(&data[filled]);
        drop(dirty);
        let all = space.aligned_buffer(0, 3 * granule).unwrap();
        same(&all.data().to_vec(), &expected, "the granules");
    }
    let buffer = space.aligned_buffer(0, 10).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.zero_around(0..11)));
    assert!(outcome.is_err(), "more data than there is was kept");
}

fn a_chunk_is_zeroed_and_its_neighbours_are_not(machine: Machine) {
    if machine.granule() == 4096 {
        // Such granules hold one chunk, which is a granule.
        assert_eq!(machine.space(2).system_buffer(100).unwrap().zero_around(0..100), 4096 - 100);
        return;
    }
    let space = machine.space(2);
    let chunks: Vec<_> = (0..3).map(|_| space.system_buffer(4096).unwrap()).collect();
    chunks.iter().for_each(|chunk| assert_eq!(chunk.data().fill(0xee), chunk.len()));
    assert_eq!(chunks[1].zero_around(100..300), 4096 - 200);
    let mut expected = vec![0; 4096];
    expected[100..300].fill(0xee);
    same(&chunks[1].data().to_vec(), &expected, "the chunk");
    for neighbour in [&chunks[0], &chunks[2]] {
        assert!(neighbour.data().to_vec().iter().all(|byte| *byte == 0xee), "a neighbour was zeroed");
    }
}
