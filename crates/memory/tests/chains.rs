//! Deliveries from several system buffers.

use crate::machine::{Machine, checked, client, frame, output_of, pattern, same, seen};
use genie_memory::{InputPlan, Part, Passed};

on_each_kind!(
    a_granule_is_swapped_with_one_part_and_what_is_beside_it_zeroed,
    a_part_is_taken_from_anywhere_in_its_buffer,
    what_replaces_granules_under_output_comes_after_the_copy,
    a_buffer_with_other_data_is_not_swapped_into_granules_under_output,
);

/// What system buffers hold besides data.
const OTHERS: u8 = 0xee;

/// Both plans name the granule in which one part ends and the next begins.
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
    for (system, Part { from, at, len, .. }) in systems.iter().zip(parts) {
        system.data().part(from..from + len).copy_from(&data[at..at + len]);
    }
    let mut buffer = space.allocate_at(offset, len).unwrap();
    buffer.fill(1);
    let start = buffer.addresses().start - offset;
    let frames = [0, granule].map(|at| frame(systems[0].segments()[0].addr() + at));
    let plans = [0..2, 0..1].map(|swap| InputPlan { swap });
    let mut delivery = space.delivery(&mut buffer).unwrap().completing();
    let swapped: Vec<_> = (0..2)
        .map(|index| delivery.swap(&mut systems[index], parts[index], &plans[index]).unwrap())
        .collect();
    (0..2).for_each(|index| delivery.copy_out(&mut systems[index], parts[index], swapped[index]));
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
    let swapped = delivery.swap(&mut system, part, &InputPlan { swap: 0..2 }).unwrap();
    delivery.copy_out(&mut system, part, swapped);
    let passed = delivery.passed();
    assert_eq!(passed, Passed { swapped: 2, kept: granule - 5, ..Passed::default() });
    same(&buffer[10..granule + 15], &all[part.from..part.from + part.len], "the data");
    same(&buffer[..10], &own[..10], "before the data");
    same(&buffer[granule + 15..], &own[granule + 15..], "behind the data");
    checked(&space);
}

/// A part's buffer lets go of granules under output only when what was not swapped of the part has been copied.
fn what_replaces_granules_under_output_comes_after_the_copy(machine: Machine) {
    let Some(space) = machine.protecting_space(6) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(4);
    let output = output_of(&space, buffer.addresses().start, granule);
    let mut system = space.aligned_buffer(0, 2 * granule).unwrap();
    let data = pattern(5, 2 * granule);
    system.data().copy_from(&data);
    let all = Part::all(data.len());
    let mut delivery = space.delivery(&mut buffer).unwrap();
    let swapped = delivery.swap(&mut system, all, &InputPlan { swap: 0..1 }).unwrap();
    delivery.copy_out(&mut system, all, swapped);
    assert_eq!(delivery.passed(), Passed { swapped: 1, copied: granule, ..Passed::default() });
    same(&buffer, &data, "the data");
    assert!(seen(&output).iter().all(|byte| *byte == 4), "the output");
    drop(output);
    checked(&space);
}

/// Without memory for fresh granules, the system buffer would lose all of its own.
fn a_buffer_with_other_data_is_not_swapped_into_granules_under_output(machine: Machine) {
    let Some(space) = machine.protecting_space(6) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(6);
    let output = output_of(&space, buffer.addresses().start, granule);
    let mut system = space.aligned_buffer(0, 3 * granule).unwrap();
    let data = pattern(7, 3 * granule);
    system.data().copy_from(&data);
    let part = Part { is_shared: true, ..Part::all(2 * granule) };
    let mut delivery = space.delivery(&mut buffer).unwrap();
    let swapped = delivery.swap(&mut system, part, &InputPlan { swap: 0..2 }).unwrap();
    delivery.copy_out(&mut system, part, swapped);
    assert_eq!(delivery.passed(), Passed { copied: 2 * granule, ..Passed::default() });
    same(&buffer, &data[..2 * granule], "the data");
    same(&system.data().to_vec(), &data, "what the system buffer has");
    assert!(seen(&output).iter().all(|byte| *byte == 6), "the output");
    drop(output);
    checked(&space);
}
