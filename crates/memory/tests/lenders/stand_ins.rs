//! Stand-ins: memory of the space's own that joins a lender's pool where the pool has too little.

use super::{Lender, pool, swap_all};
use crate::machine::{Machine, checked, pattern, same, scatter};
use genie_memory::{Error, LenderId, Space, SystemBuffer};

on_each_kind!(
    memory_that_is_lacking_lies_in_objects_for_the_lender_alone,
    a_region_gives_a_stand_in_s_page_to_nobody_else,
    what_stood_in_is_given_back,
    stand_ins_are_bounded,
    what_stands_in_for_one_lender_makes_room_for_another_s,
    nothing_stands_in_for_a_lender_that_is_gone,
);

fn roomy(machine: &Machine) -> Space {
    machine.space((8 << 20) / machine.granule())
}

fn buffer(space: &Space, lender: LenderId, len: usize) -> genie_memory::Result<SystemBuffer> {
    space.with_stand_ins(lender, || space.aligned_buffer_from(lender, 0, len))
}

/// The lender of the object in which a buffer's data lies.
fn lender_of(space: &Space, buffer: &SystemBuffer) -> Option<LenderId> {
    space.object_at(buffer.segments()[0].addr() - space.aliases_base()).expect("an object").lender
}

fn memory_that_is_lacking_lies_in_objects_for_the_lender_alone(machine: Machine) {
    let space = roomy(&machine);
    let granule = machine.granule();
    let (one, other) = (Lender::of(&space, &machine, 1).id, space.add_lender());
    let buffers: Vec<_> =
        [one, one, other].into_iter().map(|lender| buffer(&space, lender, granule).unwrap()).collect();
    for (buffer, lender) in buffers.iter().zip([one, one, other]) {
        assert_eq!((buffer.lender(), lender_of(&space, buffer)), (lender, Some(lender)));
        assert!(space.may_show(buffer.segments()[0], lender, false));
        assert!(!space.may_show(buffer.segments()[0], LenderId::OWN, true));
    }
    checked(&space);
}

/// A page that a server may store into must not become part of a buffer that is not passed to that server.
fn a_region_gives_a_stand_in_s_page_to_nobody_else(machine: Machine) {
    let (space, len) = (roomy(&machine), machine.granule());
    let lender = space.add_lender();
    let mut mine = space.allocate(len).unwrap();
    let mut system = buffer(&space, lender, len).unwrap();
    let data = pattern(1, len);
    scatter(&system.data(), &data);
    assert_eq!(space.deliver(&mut system, &mut mine, &swap_all(1)).unwrap().swapped, 1);
    same(&mine, &data, "the input");
    let before = checked(&space);
    drop(mine);
    let after = checked(&space);
    let retired = after.retired + before.stand_ins - after.stand_ins;
    assert_eq!((after.free, retired), (before.free, before.retired + 1), "it retires");
    drop(system);
    space.give_back_stand_ins(lender);
    assert_eq!(checked(&space).stand_ins, 0);
}

fn what_stood_in_is_given_back(machine: Machine) {
    let (space, len) = (roomy(&machine), machine.granule());
    let lender = Lender::of(&space, &machine, 2).id;
    let before = checked(&space);
    let mut mine = space.allocate(len).unwrap();
    let mut systems: Vec<_> = (0..4).map(|_| buffer(&space, lender, len).unwrap()).collect();
    assert_eq!(space.deliver(&mut systems[3], &mut mine, &swap_all(1)).unwrap().swapped, 1);
    assert!(space.give_back_stand_ins(lender) > 0, "some are in use");
    drop(systems);
    assert_eq!(space.give_back_stand_ins(lender), 0);
    assert_eq!(pool(&space, lender), (2, 2), "the pool has what was lent");
    drop(mine);
    let after = checked(&space);
    assert_eq!((after.objects, after.free), (before.objects, before.free));
}

fn stand_ins_are_bounded(machine: Machine) {
    let space = roomy(&machine);
    let lender = space.add_lender();
    let held: Vec<_> = std::iter::from_fn(|| buffer(&space, lender, machine.granule()).ok()).collect();
    assert_eq!(held.len() * machine.granule(), space.limit());
    let refused = buffer(&space, lender, machine.granule()).unwrap_err();
    assert!(matches!(refused, Error::Limit { .. } | Error::Kernel(_)), "{refused}");
    checked(&space);
}

fn what_stands_in_for_one_lender_makes_room_for_another_s(machine: Machine) {
    let space = roomy(&machine);
    let lenders = [(); 2].map(|()| space.add_lender());
    for lender in lenders.into_iter().chain(lenders) {
        drop(buffer(&space, lender, space.limit()).expect("what is free is given back"));
    }
    checked(&space);
}

fn nothing_stands_in_for_a_lender_that_is_gone(machine: Machine) {
    let space = roomy(&machine);
    let lender = space.add_lender();
    let held = buffer(&space, lender, machine.granule()).unwrap();
    space.remove_lender(lender);
    let refused = buffer(&space, lender, machine.granule()).unwrap_err();
    assert!(matches!(refused, Error::NoLender { .. }), "{refused}");
    drop(held);
    assert_eq!(checked(&space).stand_ins, 0);
}
