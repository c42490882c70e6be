//! Deliveries from several system buffers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::machine::{Machine, checked, client, frame, output_of, pattern, same, seen};
use genie_memory::{Part, Passed, Swapped};

on_each_kind!(
    a_granule_is_swapped_with_one_part_and_what_is_beside_it_zeroed,
    a_part_is_taken_from_anywhere_in_its_buffer,
    a_system_buffer_has_fresh_granules_as_soon_as_it_is_swapped,
    a_part_beyond_the_delivery_or_its_buffer_is_refused,
);

/// What system buffers hold besides data.
const OTHERS: u8 = 0xee;

/// Both swaps name the granule in which one part ends and the next begins.
fn a_granule_is_swapped_with_one_part_and_what_is_beside_it_zeroed(machine: Machine) {
    let space = machine.space(16);
    let granule = machine.granule();
    let (offset, first, second) = (40, granule, granule - 50);
    let len = first + second;
    let mut systems = [0, offset].map(|offset| space.aligned_buffer(offset, 2 * granule).unwrap());
    for system in &systems {
        system.data().fill(OTHERS);
    }
    let parts =
        [Part { from: offset, ..Part::all(first) }, Part { from: first, at: first, ..Part::all(second) }];
    let mut data = pattern(1, len);
    data.iter_mut().filter(|byte| **byte == OTHERS).for_each(|byte| *byte = 0);
    for (system, Part { from, at, len }) in systems.iter().zip(parts) {
        system.data().part(from..from + len).copy_from(&data[at..at + len]);
    }
    let mut buffer = space.allocate_at(offset, len).unwrap();
    buffer.fill(1);
    let start = buffer.addresses().start - offset;
    let frames = [0, granule].map(|at| frame(systems[0].segments()[0].addr() + at));
    let swaps = [0..2, 0..1];
    let mut delivery = space.delivery(&mut buffer).unwrap().completing();
    let swapped: Vec<_> = (0..2)
        .map(|index| delivery.swap(&mut systems[index], parts[index], &swaps[index]).unwrap())
        .collect();
    for ((system, Part { from, at, len }), swapped) in systems.iter().zip(parts).zip(swapped) {
        delivery.copy_out(&system.data().part(from..from + len), at, swapped);
    }
    let passed = delivery.passed();
    assert_eq!(passed, Passed { copied: second, zeroed: 40 + 10, swapped: 2, kept: 0 });
    same(&buffer, &data, "the data");
    if machine.frame(start).is_some() {
        assert_eq!([0, granule].map(|at| frame(start + at)), frames, "the first buffer's granules");
    }
    for around in [start..start + offset, start + offset + len..start + 2 * granule] {
        assert!(
            client(around.start, around.len()).iter().all(|byte| *byte == 0),
            "bytes of the system buffer's"
        );
    }
    checked(&space);
}

fn a_part_is_taken_from_anywhere_in_its_buffer(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut system = space.aligned_buffer(7, 4 * granule).unwrap();
    let all = pattern(2, 4 * granule);
    system.data().copy_from(&all);
    let mut buffer = space.allocate(2 * granule).unwrap();
    let own = pattern(3, buffer.len());
    buffer.copy_from_slice(&own);
    // The data begins in the system buffer's third granule.
    let part = Part { from: 2 * granule + 3, ..Part::all(granule + 5) };
    let mut delivery = space.delivery(&mut buffer[10..granule + 15]).unwrap();
    assert!(delivery.is_aligned(&system, part));
    let swapped = delivery.swap(&mut system, part, &(0..2)).unwrap();
    delivery.copy_out(&system.data().part(part.from..part.from + part.len), part.at, swapped);
    let passed = delivery.passed();
    assert_eq!(passed, Passed { swapped: 2, kept: granule - 5, ..Passed::default() });
    same(&buffer[10..granule + 15], &all[part.from..part.from + part.len], "the data");
    same(&buffer[..10], &own[..10], "before the data");
    same(&buffer[granule + 15..], &own[granule + 15..], "behind the data");
    checked(&space);
}

/// The owner may store into the buffer at once, before the rest of the data is copied, and without any memory left.
fn a_system_buffer_has_fresh_granules_as_soon_as_it_is_swapped(machine: Machine) {
    let Some(space) = machine.protecting_space(5) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(4);
    let output = output_of(&space, buffer.addresses().start, granule);
    let mut system = space.aligned_buffer(0, 2 * granule).unwrap();
    let data = pattern(5, 2 * granule);
    system.data().copy_from(&data);
    let mut delivery = space.delivery(&mut buffer).unwrap();
    let swapped = delivery.swap(&mut system, Part::all(data.len()), &(0..1)).unwrap();
    system.data().part(0..granule).fill(9);
    assert!(seen(&output).iter().all(|byte| *byte == 4), "the output after the owner's store");
    assert!(space.allocate(granule).is_err(), "what was promised to the output is the buffer's");
    delivery.copy_out(&system.data(), 0, swapped);
    assert_eq!(delivery.passed(), Passed { swapped: 1, copied: granule, ..Passed::default() });
    same(&buffer, &data, "the data");
    assert!(seen(&output).iter().all(|byte| *byte == 4), "the output");
    drop(output);
    checked(&space);
}

fn a_part_beyond_the_delivery_or_its_buffer_is_refused(machine: Machine) {
    let space = machine.space(8);
    let granule = machine.granule();
    let mut buffers = [1, 2].map(|_| space.allocate(granule).unwrap());
    buffers.sort_by_key(|buffer| buffer.addresses().start);
    let [mut buffer, mut other] = buffers;
    other.fill(1);
    let to_other = other.addresses().start - buffer.addresses().start;
    let mut system = space.aligned_buffer(0, granule).unwrap();
    system.data().fill(2);
    let mut delivery = space.delivery(&mut buffer).unwrap();
    let is_refused = |act: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(act)).is_err();
    for far in [1, to_other, usize::MAX] {
        let all = Part::all(granule);
        assert!(is_refused(&mut || delivery.copy_out(&system.data(), far, Swapped::default())), "at {far}");
        for part in [Part { at: far, ..all }, Part { from: far, ..all }] {
            let mut swap = || drop(delivery.swap(&mut system, part, &(0..1)));
            assert!(is_refused(&mut swap), "{part:?}");
        }
    }
    assert_eq!(delivery.passed(), Passed::default());
    assert!(other.iter().all(|byte| *byte == 1), "another buffer's bytes");
    checked(&space);
}
