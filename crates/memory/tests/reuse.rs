//! Output buffers that are reused for input while the output is pending (thesis §4.3), and threads that store beside a
//! buffer while input is delivered into it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::machine::{
    self, Machine, StopOnDrop, checked, client, frame, output, pattern, same, scatter, seen,
};
use genie_memory::{Direction, Passed, Space};

on_each_kind!(
    a_swap_leaves_pending_output_to_its_server,
    a_system_buffer_never_keeps_granules_under_output,
    without_fresh_granules_nothing_is_swapped,
    a_copy_leaves_pending_output_to_its_server,
    stores_beside_a_buffer_survive_every_delivery,
    stores_beside_the_data_survive_swaps_of_page_tables,
);

fn a_swap_leaves_pending_output_to_its_server(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    let mut expected = pattern(1, 3 * granule);
    buffer.copy_from_slice(&expected);
    let reference = output(&space, &buffer);
    let before = expected.clone();
    let server = frame(reference.segments()[0].addr());
    let mut system = space.aligned_buffer(50, 2 * granule).unwrap();
    let data = pattern(2, 2 * granule);
    scatter(&system.data(), &data);
    let addr = buffer.addresses().start + 50;
    let passed = space.deliver(&mut system, client(addr, data.len()), &(0..3)).unwrap();
    assert_eq!(passed, Passed { kept: granule, swapped: 3, ..Passed::default() });
    expected[50..50 + data.len()].copy_from_slice(&data);
    same(&seen(&reference), &before, "the output");
    same(&buffer, &expected, "the input");
    assert_eq!(frame(reference.segments()[0].addr()), server);
    let statistics = space.statistics();
    assert_eq!((statistics.faults, statistics.replacements), (0, 0), "a swap needs no fault: {statistics:?}");
    checked(&space);
    buffer.fill(9);
    same(&seen(&reference), &before, "the output after stores");
    drop((reference, system));
    let usage = checked(&space);
    assert_eq!((usage.deferred, usage.references), (0, 0));
}

/// A server that fills the same system buffer anew for each input (a pool of overlay buffers, say) must not be handed the
/// granules of a pending output.
fn a_system_buffer_never_keeps_granules_under_output(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(2 * granules + 2) else { return };
    let mut buffer = space.allocate(granules * granule).unwrap();
    let before = pattern(1, buffer.len());
    buffer.copy_from_slice(&before);
    let reference = machine::output_of(&space, buffer.addresses().start + 3 * granule, 2 * granule);
    let mut system = space.aligned_buffer(0, buffer.len()).unwrap();
    for round in 0..3 {
        let data = pattern(10 + round, buffer.len());
        scatter(&system.data(), &data);
        let swap = 0..granules as u32;
        let passed = space.deliver(&mut system, &mut buffer[..data.len()], &swap).unwrap();
        assert_eq!(passed.swapped as usize, granules);
        same(&buffer, &data, &format!("input {round}"));
        assert_eq!(system.len(), data.len());
        same(
            &seen(&reference),
            &before[3 * granule..5 * granule],
            &format!("the output after input {round}"),
        );
        let usage = checked(&space);
        assert_eq!((usage.system as usize, usage.deferred), (granules, 2));
    }
    drop(reference);
    assert_eq!(checked(&space).deferred, 0);
}

/// A system buffer that was swapped lost its memory, and what else was in it.
fn without_fresh_granules_nothing_is_swapped(machine: Machine) {
    let Some(space) = machine.protecting_space(5) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    buffer.fill(1);
    // As shared data, for which no replacement is kept.
    let reference = space.reference(buffer.addresses().start, 2 * granule, Direction::Out).unwrap();
    let mut system = space.aligned_buffer(0, 3 * granule).unwrap();
    let data = pattern(2, 3 * granule);
    system.data().copy_from(&data);
    let swap = 0..2;
    let passed = space.deliver(&mut system, &mut buffer, &swap).unwrap();
    assert_eq!(passed, Passed { copied: 2 * granule, ..Passed::default() });
    same(&buffer, &data[..2 * granule], "the data");
    same(&system.data().to_vec(), &data, "what the system buffer has");
    drop(reference);
    assert_eq!(space.deliver(&mut system, &mut buffer, &swap).unwrap().swapped, 2);
    checked(&space);
}

fn a_copy_leaves_pending_output_to_its_server(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    let before = pattern(1, 2 * granule);
    buffer.copy_from_slice(&before);
    let reference = output(&space, &buffer);
    let mut system = space.system_buffer(100).unwrap();
    scatter(&system.data(), &[7; 100]);
    let addr = buffer.addresses().start + granule - 50;
    let passed = space.deliver(&mut system, client(addr, 100), &(0..0)).unwrap();
    assert_eq!(passed, Passed { copied: 100, ..Passed::default() });
    same(&seen(&reference), &before, "the output");
    assert!(buffer[granule - 50..granule + 50].iter().all(|byte| *byte == 7));
    same(&buffer[..granule - 50], &before[..granule - 50], "bytes before the input");
    assert_eq!(space.statistics().replacements, 2);
    drop((reference, system));
    checked(&space);
}

/// Reverse copyout copies the bytes beside the data while another thread increments them.
fn stores_beside_a_buffer_survive_every_delivery(machine: Machine) {
    let Some(space) = machine.protecting_space(24) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(2 * granule).unwrap();
    let whole = (buffer.addresses().start, buffer.len());
    let (before, rest) = buffer.split_at_mut(16);
    let (data, after) = rest.split_at_mut(2 * granule - 32);
    let (stop, outputs) = (AtomicBool::new(false), AtomicU64::new(0));
    let deliveries = if granule > 4096 { 1500 } else { 6000 };
    let increments = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut increments = 0u64;
            while !stop.load(Relaxed) {
                increment(&mut before[..8]);
                increment(&mut after[8..]);
                increments += 1;
            }
            increments
        });
        scope.spawn(|| output_again_and_again(&space, whole, &stop, &outputs));
        let stopped = StopOnDrop(&stop);
        let mut round = 0u64;
        // However the threads are scheduled, there are outputs meanwhile.
        while round < deliveries || outputs.load(Relaxed) < 20 {
            round += 1;
            let mut system = space.aligned_buffer(16, data.len()).unwrap();
            let byte = round as u8;
            system.data().part(0..1).fill(byte);
            system.data().part(data.len() - 1..data.len()).fill(byte);
            let passed = space.deliver(&mut system, &mut *data, &(0..2)).unwrap();
            assert_eq!(passed.swapped, 2);
            assert_eq!(black_box(&*data)[0], byte);
            assert_eq!(black_box(&*data)[data.len() - 1], byte);
        }
        drop(stopped);
        client.join().unwrap()
    });
    let value = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap());
    assert!(increments > 0);
    assert_eq!(value(&buffer[..8]), increments, "increments before the buffer were lost");
    assert_eq!(value(&buffer[2 * granule - 8..]), increments, "increments after the buffer were lost");
    assert!(buffer[8..16].iter().chain(&buffer[2 * granule - 16..2 * granule - 8]).all(|byte| *byte == 0));
    checked(&space);
}

/// While page tables are moved, a store beside the data would find the old granule, which goes to the system buffer. The
/// stores come now and then, lest each waits for its granule's protection.
fn stores_beside_the_data_survive_swaps_of_page_tables(machine: Machine) {
    let granules = if machine.is_large() { 2 } else { 130 };
    let Some(space) = machine.protecting_space(4 * granules) else { return };
    let len = granules * machine.granule();
    let mut buffer = space.allocate(len).unwrap();
    let (data, after) = buffer.split_at_mut(len - 8);
    let stop = AtomicBool::new(false);
    let increments = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut increments = 0u64;
            while !stop.load(Relaxed) {
                increment(after);
                increments += 1;
                (0..increments % 1024).for_each(|_| std::hint::spin_loop());
            }
            increments
        });
        let stopped = StopOnDrop(&stop);
        for _ in 0..2000 {
            let mut system = space.aligned_buffer(0, data.len()).unwrap();
            let swap = 0..granules as u32;
            assert_eq!(space.deliver(&mut system, &mut *data, &swap).unwrap().swapped as usize, granules);
        }
        drop(stopped);
        client.join().unwrap()
    });
    assert_eq!(u64::from_le_bytes(after.try_into().unwrap()), increments, "increments were lost");
    checked(&space);
}

/// Loads and stores memory, not a register.
fn increment(word: &mut [u8]) {
    let value = u64::from_le_bytes(black_box(&*word).try_into().unwrap());
    word.copy_from_slice(&(value + 1).to_le_bytes());
    black_box(word);
}

/// Outputs `(addr, len)`, reading the first and the last bytes of each output twice; counts the outputs.
fn output_again_and_again(space: &Space, (addr, len): (usize, usize), stop: &AtomicBool, count: &AtomicU64) {
    while !stop.load(Relaxed) {
        let reference = machine::output_of(space, addr, len);
        let edges = || {
            let data = reference.data();
            [0..4096, len - 4096..len].map(|range| data.part(range).to_vec())
        };
        let once = edges();
        let output = count.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_micros(output % 4 * 40));
        assert!(edges() == once, "output {output} changed while it was pending");
        drop(reference);
        std::thread::sleep(Duration::from_micros(output % 3 * 40));
    }
}
