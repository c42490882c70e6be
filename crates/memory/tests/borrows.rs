//! The end of a borrow from which an output is still pending: what the server sees, and what the client may do from then on.

use crate::machine::{Machine, checked, frame, output, pattern, same, seen};
use genie_memory::{Direction, Error, Faults, Kept, Protection, Reference, Space};

on_each_kind!(
    with_no_output_pending_nothing_is_done,
    a_pending_output_is_protected,
    without_protection_a_pending_output_is_replaced,
    a_protected_output_is_not_protected_again,
    for_granules_at_rest_replacements_are_kept,
    outputs_beside_the_borrow_are_left_alone,
    a_granule_with_other_data_is_not_replaced,
    without_memory_nothing_is_done_until_there_is_some,
    a_server_that_stores_beside_the_data_is_waited_for,
    edges_with_other_data_cannot_be_borrowed_without_protection,
    a_buffers_own_edges_can_be_borrowed,
);

/// References the granules of borrowed bytes for output, and protects nothing.
fn borrowed(space: &Space, bytes: &[u8]) -> Reference {
    space.reference(bytes.as_ptr().addr(), bytes.len(), Direction::Out).expect("bytes of the client's")
}

fn ended(space: &Space, bytes: &[u8]) -> Result<Kept, Error> {
    space.end_borrow(bytes.as_ptr().addr(), bytes.len())
}

/// A space in which nothing can be protected.
fn unprotecting(machine: &Machine, granules: usize) -> Space {
    machine.space_with(granules, |config| config.faults = Faults::Never)
}

fn with_no_output_pending_nothing_is_done(machine: Machine) {
    for space in [machine.space(4), unprotecting(&machine, 4)] {
        let mut buffer = space.allocate(2 * machine.granule()).unwrap();
        buffer.fill(1);
        let frame_before = frame(buffer.addresses().start);
        drop(borrowed(&space, &buffer));
        assert_eq!(ended(&space, &buffer).unwrap(), Kept::default());
        buffer.fill(2);
        assert_eq!(frame(buffer.addresses().start), frame_before);
        assert_eq!(space.statistics(), Default::default());
        checked(&space);
    }
    assert_eq!(ended(&machine.space(1), &[7; 64]).unwrap(), Kept::default(), "foreign memory");
}

fn a_pending_output_is_protected(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(3 * machine.granule()).unwrap();
    let before = pattern(1, buffer.len());
    buffer.copy_from_slice(&before);
    let reference = borrowed(&space, &buffer[1..machine.granule() + 1]);
    assert_eq!(space.statistics().protected, 0, "a reference alone protects nothing");
    let kept = ended(&space, &buffer[1..machine.granule() + 1]).unwrap();
    assert_eq!(kept, Kept { protected: 2, replaced: 0 });
    let usage = checked(&space);
    buffer.fill(9);
    same(&seen(&reference), &before[1..machine.granule() + 1], "the server's view");
    assert_eq!(space.statistics().replacements, 2, "{usage:?}");
    drop(reference);
    checked(&space);
}

fn without_protection_a_pending_output_is_replaced(machine: Machine) {
    let space = unprotecting(&machine, 8);
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    let before = pattern(1, buffer.len());
    buffer.copy_from_slice(&before);
    let addr = buffer.addresses().start;
    let frames = || (0..3).map(|at| frame(addr + at * granule)).collect::<Vec<_>>();
    let frames_before = frames();
    let reference = borrowed(&space, &buffer[..2 * granule]);
    let kept = ended(&space, &buffer[..2 * granule]).unwrap();
    assert_eq!(kept, Kept { protected: 0, replaced: 2 });
    checked(&space);
    same(&buffer, &before, "the client's view");
    buffer.fill(9);
    same(&seen(&reference), &before[..2 * granule], "the server's view");
    if machine.frame(addr).is_some() {
        let server = reference.segments()[0].addr();
        assert_eq!(frame(server), frames_before[0], "the server was given a copy");
        assert_ne!(frames()[..2], frames_before[..2], "the client still stores into the server's granules");
        assert_eq!(frames()[2], frames_before[2], "a granule without output was replaced");
    }
    assert_eq!(ended(&space, &buffer[..2 * granule]).unwrap(), Kept::default(), "it has ended already");
    drop(reference);
    assert_eq!(checked(&space).deferred, 0, "the server's granules are free");
    same(&buffer, &vec![9; 3 * granule], "the client's view after the output");
}

fn a_protected_output_is_not_protected_again(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let mut buffer = space.allocate(machine.granule()).unwrap();
    buffer.fill(1);
    let one = borrowed(&space, &buffer);
    space.read_only(&one).unwrap();
    let two = borrowed(&space, &buffer);
    assert_eq!(ended(&space, &buffer).unwrap(), Kept::default());
    drop(one);
    assert_eq!(space.statistics().reinstated, 0, "another output needs the protection");
    buffer.fill(2);
    same(&seen(&two), &vec![1; buffer.len()], "the server's view");
    drop(two);
    checked(&space);
}

/// Granules at rest are protected, but nothing is promised for them. So the store waited for memory until the output ended.
fn for_granules_at_rest_replacements_are_kept(machine: Machine) {
    let Some(space) = machine.protecting_space(4) else { return };
    let mut buffer = space.allocate(machine.granule()).unwrap();
    buffer.fill(1);
    (0..40).for_each(|_| drop(output(&space, &buffer)));
    let reference = borrowed(&space, &buffer);
    let mut rest: Vec<_> = std::iter::from_fn(|| space.allocate(machine.granule()).ok()).collect();
    assert!(ended(&space, &buffer).is_err(), "the next store would have to wait");
    rest.pop();
    assert_eq!(ended(&space, &buffer).unwrap(), Kept::default(), "protected already");
    assert!(space.allocate(machine.granule()).is_err(), "the last granule is kept for a store");
    buffer.fill(2);
    same(&seen(&reference), &vec![1; buffer.len()], "the server's view");
    assert_eq!((space.statistics().waits, space.statistics().replacements), (0, 1));
    drop(reference);
    checked(&space);
}

fn outputs_beside_the_borrow_are_left_alone(machine: Machine) {
    let space = unprotecting(&machine, 8);
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let references = [0, 2].map(|at| borrowed(&space, &buffer[at * granule..][..granule]));
    assert_eq!(ended(&space, &buffer[..2 * granule]).unwrap().replaced, 1);
    buffer[..granule].fill(2);
    same(&seen(&references[0]), &vec![1; granule], "the server's view");
    drop(references);
    checked(&space);
}

/// Another thread may store into the other data at any moment, so that the granule cannot be copied.
fn a_granule_with_other_data_is_not_replaced(machine: Machine) {
    let space = unprotecting(&machine, 8);
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    let before = pattern(1, buffer.len());
    buffer.copy_from_slice(&before);
    let (one, two) = buffer.split_at_mut(granule + 1);
    let reference = borrowed(&space, one);
    let refused = ended(&space, one).expect_err("a granule holds other data, too");
    assert!(matches!(refused, Error::Unprotectable { .. }), "{refused}");
    two.fill(3);
    same(&seen(&reference), &before[..=granule], "the server's view");
    drop(reference);
    assert_eq!(ended(&space, one).unwrap(), Kept::default(), "the output has ended");
    same(two, &vec![3; granule - 1], "the other data");
    checked(&space);
}

fn without_memory_nothing_is_done_until_there_is_some(machine: Machine) {
    for faults in [Faults::Best, Faults::Never] {
        let space = machine.space_with(4, |config| config.faults = faults);
        let mut buffer = space.allocate(2 * machine.granule()).unwrap();
        buffer.fill(1);
        let rest = space.allocate(2 * machine.granule()).unwrap();
        let reference = borrowed(&space, &buffer);
        let refused = ended(&space, &buffer).expect_err("no granule is free");
        assert!(matches!(refused, Error::Limit { .. }), "{refused}");
        checked(&space);
        drop(rest);
        let kept = ended(&space, &buffer).unwrap();
        assert_eq!(kept.protected + kept.replaced, 2, "{kept:?}");
        buffer.fill(2);
        same(&seen(&reference), &vec![1; buffer.len()], "the server's view");
        drop(reference);
        checked(&space);
    }
}

fn edges_with_other_data_cannot_be_borrowed_without_protection(machine: Machine) {
    let granule = machine.granule();
    let borrowable = |space: &Space, range: std::ops::Range<usize>| {
        let buffer = space.allocate(3 * granule).unwrap();
        space.borrowable(buffer.addresses().start + range.start, range.len())
    };
    let space = unprotecting(&machine, 4);
    assert_eq!(borrowable(&space, 0..3 * granule), 0..3 * granule);
    assert_eq!(borrowable(&space, 1..3 * granule), granule - 1..3 * granule - 1, "another thread has byte 0");
    assert_eq!(borrowable(&space, 0..2 * granule + 5), 0..2 * granule, "another thread has what follows");
    assert_eq!(borrowable(&space, granule - 1..granule + 1), 0..0);
    assert_eq!(borrowable(&space, 5..10), 0..0);
    let space = machine.space(4);
    if space.protection() == Protection::Full {
        assert_eq!(borrowable(&space, 1..2 * granule + 5), 0..2 * granule + 4);
    }
}

fn a_buffers_own_edges_can_be_borrowed(machine: Machine) {
    let space = unprotecting(&machine, 8);
    let mut buffer = space.allocate_at(100, machine.granule() + 7).unwrap();
    buffer.fill(1);
    let range = space.borrowable(buffer.addresses().start, buffer.len());
    assert_eq!(range, 0..buffer.len(), "nobody else has the rest of its granules");
    let reference = borrowed(&space, &buffer);
    assert_eq!(ended(&space, &buffer).unwrap().replaced, 2);
    buffer.fill(2);
    same(&seen(&reference), &vec![1; buffer.len()], "the server's view");
    drop(reference);
    checked(&space);
}

fn a_server_that_stores_beside_the_data_is_waited_for(machine: Machine) {
    let Some(space) = machine.protecting_space(4) else { return };
    let mut buffer = space.allocate(machine.granule()).unwrap();
    buffer.fill(1);
    let input = space.reference(buffer.addresses().start, 64, Direction::In).unwrap();
    let output = borrowed(&space, &buffer[64..]);
    let refused = ended(&space, &buffer[64..]).expect_err("no protection stops the server's stores");
    assert!(matches!(refused, Error::Unprotectable { .. }), "{refused}");
    checked(&space);
    drop(input);
    assert_eq!(ended(&space, &buffer[64..]).unwrap().protected, 1);
    drop(output);
    checked(&space);
}
