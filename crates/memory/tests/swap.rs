//! Page swapping and input alignment: what is delivered, what is left alone, and whose frames are where.

use std::ops::Range;
use std::panic::AssertUnwindSafe;

use crate::machine::{
    Machine, checked, client, frame, output, output_of, pattern, proc, same, scatter, seen,
};
use genie_memory::{Buffer, Error, Faults, Passed, Space, SystemBuffer};

on_each_kind!(
    every_geometry_delivers_its_bytes_and_no_others,
    swapped_granules_bring_their_frames,
    copied_granules_keep_their_frames,
    an_unaligned_system_buffer_is_copied,
    a_chunk_is_copied,
    a_plan_beyond_the_data_is_cut,
    more_than_the_system_buffer_holds_is_refused,
    bytes_in_two_regions_are_foreign,
    without_faults_partial_granules_are_copied,
    what_lies_beyond_a_buffer_is_not_completed,
    a_swap_may_span_several_objects,
    the_same_buffers_swap_again_and_again,
    unlike_swaps_take_turns,
    scattered_granules_are_swapped_as_well,
    a_swapped_region_can_still_be_protected,
    granules_between_protected_edges_swap_page_tables,
    a_swap_beside_a_protected_region_leaves_it_protected,
    a_swap_by_way_of_a_place_beside_a_protected_region_leaves_it_protected,
);

/// Fills the first `data.len()` bytes of the system buffer and delivers them.
fn deliver(space: &Space, system: &mut SystemBuffer, addr: usize, data: &[u8], swaps: &Range<u32>) -> Passed {
    let mut whole = system.data().to_vec();
    whole[..data.len()].copy_from_slice(data);
    scatter(&system.data(), &whole);
    let passed = space.deliver(system, client(addr, data.len()), swaps).unwrap();
    checked(space);
    passed
}

fn all_of(granule: usize, offset: usize, len: usize) -> Range<u32> {
    0..(offset + len).div_ceil(granule) as u32
}

/// What a delivery should have done: data outside the swapped granules is copied, and the client's bytes beside it inside them kept.
fn expected_passed(granule: usize, offset: usize, len: usize, swaps: &Range<u32>) -> Passed {
    let mut passed = Passed { swapped: swaps.len() as u32, ..Passed::default() };
    for at in 0..(offset + len).div_ceil(granule) {
        let data = ((at + 1) * granule).min(offset + len) - (at * granule).max(offset);
        match swaps.contains(&(at as u32)) {
            true => passed.kept += granule - data,
            false => passed.copied += data,
        }
    }
    passed
}

fn every_geometry_delivers_its_bytes_and_no_others(machine: Machine) {
    let Some(space) = machine.protecting_space(24) else { return };
    let granule = machine.granule();
    let mut seed = 0;
    for (offset, len) in [
        (0, granule),
        (0, 3 * granule),
        (0, 2 * granule + 100),
        (100, 3 * granule - 100),
        (100, 2 * granule + 33),
        (granule - 1, granule + 2),
        (17, granule - 40),
        (granule / 2, 1),
    ] {
        let granules = (offset + len).div_ceil(granule) as u32;
        let swaps = [0..granules, 1..granules, 0..granules - 1, 1..granules.max(2) - 1, 0..0];
        for swap in swaps.into_iter().filter(|swap| swap.start <= swap.end) {
            seed += 1;
            let mut buffer = space.allocate(granules as usize * granule + 50).unwrap();
            let mut expected = pattern(seed, buffer.len());
            buffer.copy_from_slice(&expected);
            let data = pattern(seed + 1000, len);
            let mut system = space.aligned_buffer(offset, len).unwrap();
            let addr = buffer.addresses().start + offset;
            let passed = deliver(&space, &mut system, addr, &data, &swap);
            expected[offset..offset + len].copy_from_slice(&data);
            same(&buffer, &expected, &format!("{len} bytes at {offset} by {swap:?}"));
            let expected = expected_passed(granule, offset, len, &swap);
            assert_eq!(passed, expected, "{len} at {offset}, {swap:?}");
        }
    }
    assert_eq!(space.statistics().faults, 0, "a delivery stored into protected memory");
}

fn swapped_granules_bring_their_frames(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let mut system = space.aligned_buffer(9, 3 * granule - 20).unwrap();
    let data = pattern(1, 3 * granule - 20);
    let addr = buffer.addresses().start;
    if machine.frame(addr).is_none() {
        return;
    }
    scatter(&system.data(), &data);
    let client: Vec<_> = (0..3).map(|at| frame(addr + at * granule)).collect();
    let server: Vec<_> = frames_of(&system, granule);
    deliver(&space, &mut system, addr + 9, &data, &all_of(granule, 9, data.len()));
    let after: Vec<_> = (0..3).map(|at| frame(addr + at * granule)).collect();
    assert_eq!(after, server, "the client does not have the server's frames");
    assert_eq!(frames_of(&system, granule), client, "the server does not have the client's frames");
    assert_eq!(space.statistics().swapped, 3);
}

/// The frames of a system buffer's granules.
fn frames_of(system: &SystemBuffer, granule: usize) -> Vec<Option<u64>> {
    let segments = system.segments();
    let starts = segments.iter().flat_map(|segment| {
        let first = segment.addr() / granule;
        let last = (segment.addr() + segment.len() - 1) / granule;
        (first..=last).map(move |at| at * granule)
    });
    starts.map(frame).collect()
}

fn copied_granules_keep_their_frames(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let addr = buffer.addresses().start;
    let mut system = space.aligned_buffer(0, 3 * granule).unwrap();
    let client: Vec<_> = (0..3).map(|at| frame(addr + at * granule)).collect();
    let data = pattern(1, 3 * granule);
    let passed = deliver(&space, &mut system, addr, &data, &(1..2));
    assert_eq!(passed, Passed { copied: 2 * granule, swapped: 1, ..Passed::default() });
    same(&buffer, &data, "the input");
    let after: Vec<_> = (0..3).map(|at| frame(addr + at * granule)).collect();
    assert_eq!((after[0], after[2]), (client[0], client[2]));
    if machine.frame(addr).is_some() {
        assert_ne!(after[1], client[1]);
    }
}

fn an_unaligned_system_buffer_is_copied(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    let data = pattern(1, 2 * granule);
    for (mine, theirs) in [(0, 1), (1, 0), (64, 63)] {
        buffer.fill(0);
        let mut system = space.aligned_buffer(theirs, data.len()).unwrap();
        let addr = buffer.addresses().start + mine;
        let passed = deliver(&space, &mut system, addr, &data, &all_of(granule, mine, data.len()));
        assert_eq!(passed, Passed { copied: data.len(), ..Passed::default() });
        same(&buffer[mine..mine + data.len()], &data, "the input");
    }
    assert_eq!(space.statistics().swapped, 0);
}

fn a_chunk_is_copied(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let mut buffer = space.allocate(machine.granule()).unwrap();
    let mut system = space.system_buffer(3000).unwrap();
    let (addr, data) = (buffer.addresses().start + 1, pattern(1, 3000));
    let passed = deliver(&space, &mut system, addr, &data, &(0..1));
    assert_eq!(passed, Passed { copied: 3000, ..Passed::default() });
    same(&buffer[1..3001], &data, "the input");
    assert_eq!((buffer[0], buffer[3001]), (0, 0));
    buffer.fill(0);
}

fn a_plan_beyond_the_data_is_cut(machine: Machine) {
    let Some(space) = machine.protecting_space(16) else { return };
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let mut system = space.aligned_buffer(0, 3 * granule).unwrap();
    let data = pattern(1, granule + 5);
    let passed = deliver(&space, &mut system, buffer.addresses().start, &data, &(0..3));
    assert_eq!(passed.swapped, 2);
    same(&buffer[..granule + 5], &data, "the input");
    assert!(buffer[granule + 5..].iter().all(|byte| *byte == 1));
    let passed = space.deliver(&mut system, &mut buffer[..0], &(0..3)).unwrap();
    assert_eq!(passed, Passed::default());
}

fn more_than_the_system_buffer_holds_is_refused(machine: Machine) {
    let space = machine.space(8);
    let mut buffer = space.allocate(2 * machine.granule()).unwrap();
    let mut system = space.aligned_buffer(0, 100).unwrap();
    let swap = 0..0;
    let outcome =
        std::panic::catch_unwind(AssertUnwindSafe(|| space.deliver(&mut system, &mut buffer[..101], &swap)));
    assert!(outcome.is_err(), "bytes that are not there were delivered");
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| space.region_from(&mut system, 101)));
    assert!(outcome.is_err(), "a migrant buffer of bytes that are not there was made");
    buffer.fill(1);
    checked(&space);
}

fn bytes_in_two_regions_are_foreign(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let granule = machine.granule();
    let pair = [space.allocate(granule).unwrap(), space.allocate(granule).unwrap()];
    let addr = pair[0].addresses().start;
    assert_eq!(pair[1].addresses().start, addr + granule, "the regions are neighbours");
    let mut system = space.aligned_buffer(0, 2 * granule).unwrap();
    system.data().fill(1);
    let error = space.deliver(&mut system, client(addr, 2 * granule), &(0..2)).unwrap_err();
    assert_eq!(error, Error::Foreign { addr, len: 2 * granule });
    assert!(pair.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0)), "something has changed");
    let mut local = [0u8; 10];
    let (addr, len) = (local.as_mut_ptr().addr(), local.len());
    let error = space.deliver(&mut system, &mut local, &(0..0)).unwrap_err();
    assert_eq!(error, Error::Foreign { addr, len });
    checked(&space);
}

fn without_faults_partial_granules_are_copied(machine: Machine) {
    let space = machine.space_with(16, |config| config.faults = Faults::Never);
    let granule = machine.granule();
    let mut buffer = space.allocate(3 * granule).unwrap();
    buffer.fill(1);
    let mut system = space.aligned_buffer(8, 2 * granule).unwrap();
    let (addr, data) = (buffer.addresses().start, pattern(1, 2 * granule));
    let passed = deliver(&space, &mut system, addr + 8, &data, &(0..3));
    assert_eq!(passed, Passed { copied: data.len(), ..Passed::default() });
    let passed = deliver(&space, &mut system, addr + 8, &data, &(1..2));
    assert_eq!(passed, Passed { copied: granule, swapped: 1, ..Passed::default() });
    same(&buffer[8..8 + data.len()], &data, "the input");
    assert!(buffer[..8].iter().chain(&buffer[8 + data.len()..]).all(|byte| *byte == 1));
}

/// Input into a buffer of half a granule once copied the granule's other half, where nobody has bytes, and without faults
/// copied the data instead.
fn what_lies_beyond_a_buffer_is_not_completed(machine: Machine) {
    let granule = machine.granule();
    let (offset, len) = (100, granule + granule / 2);
    let spaces =
        [Some(machine.space_with(12, |config| config.faults = Faults::Never)), machine.protecting_space(12)];
    for space in spaces.into_iter().flatten() {
        let mut buffer = space.allocate_at(offset, len).unwrap();
        buffer.fill(1);
        let mut system = space.aligned_buffer(offset, len).unwrap();
        system.data().fill(0xdd);
        let (addr, data) = (buffer.addresses().start, pattern(1, len));
        let beside = |skip: usize, index| space.bytes_beside(addr + skip, len - 2 * skip, index);
        assert_eq!([beside(0, 0), beside(0, 1), beside(10, 0), beside(10, 1)], [0, 0, 10, 10]);
        let passed = deliver(&space, &mut system, addr, &data, &all_of(granule, offset, len));
        assert_eq!(passed, Passed { swapped: 2, ..Passed::default() });
        same(&buffer, &data, "the input");

        drop(system);
        let mut system = space.aligned_buffer(offset + 10, len - 20).unwrap();
        let inner = pattern(2, len - 20);
        let passed = deliver(&space, &mut system, addr + 10, &inner, &all_of(granule, offset, len));
        let expected = match space.can_swap_partial_granules() {
            true => Passed { kept: 20, swapped: 2, ..Passed::default() },
            false => Passed { copied: inner.len(), ..Passed::default() },
        };
        assert_eq!(passed, expected);
        same(&buffer[10..len - 10], &inner, "the input inside");
        same(&buffer[..10], &data[..10], "the bytes before it");
        same(&buffer[len - 10..], &data[len - 10..], "the bytes after it");

        drop((buffer, system));
        let fresh = space.allocate(12 * granule).unwrap();
        assert!(fresh.iter().all(|byte| *byte == 0), "what was beyond a buffer is seen in another one");
    }
}

fn a_swap_may_span_several_objects(machine: Machine) {
    let granule = machine.granule();
    let Some(space) = machine.protecting_space((84 << 20) / granule) else { return };
    let mut buffer = space.allocate(40 << 20).unwrap();
    buffer.fill(1);
    let mut system = space.aligned_buffer(0, 40 << 20).unwrap();
    let (addr, data) = (buffer.addresses().start, pattern(1, 40 << 20));
    let passed = deliver(&space, &mut system, addr, &data, &all_of(granule, 0, data.len()));
    assert_eq!(passed, Passed { swapped: (data.len() / granule) as u32, ..Passed::default() });
    same(&buffer, &data, "the input");
    assert!(
        system.data().to_vec().iter().all(|byte| *byte == 1),
        "the system buffer has the client's granules"
    );
}

fn has_window(system: &SystemBuffer) -> bool {
    format!("{system:?}").contains("window: Some")
}

fn the_same_buffers_swap_again_and_again(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(3 * granules) else { return };
    let mut buffer = space.allocate(granules * granule).unwrap();
    buffer.fill(0xff);
    let mut system = space.aligned_buffer(0, granules * granule).unwrap();
    let swap = all_of(granule, 0, granules * granule);
    assert_eq!(has_window(&system), !machine.is_large());
    let mappings = proc::mapping_count();
    let rounds = if machine.is_large() { 20 } else { 200 };
    for round in 0..rounds {
        system.data().fill(round);
        let passed = space.deliver(&mut system, &mut buffer, &swap).unwrap();
        assert_eq!(passed, Passed { swapped: granules as u32, ..Passed::default() });
        assert!(buffer.iter().step_by(509).all(|byte| *byte == round), "round {round}");
        let former = system.data().to_vec();
        assert!(former.iter().step_by(509).all(|byte| *byte == round.wrapping_sub(1)), "round {round}");
        assert_eq!(has_window(&system), !machine.is_large(), "round {round}");
    }
    checked(&space);
    // Other tests map memory meanwhile, but not as much.
    let now = proc::mapping_count();
    assert!(now < mappings + 100, "{now} mappings, {mappings} before");
    assert_eq!(space.statistics().swapped, u64::from(rounds) * granules as u64);
    drop((buffer, system));
    checked(&space);
}

fn unlike_swaps_take_turns(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(3 * granules) else { return };
    let mut buffer = space.allocate(granules * granule).unwrap();
    let mut expected = vec![0; buffer.len()];
    let addr = buffer.addresses().start;
    let mappings = proc::mapping_count();
    for round in 0..40u64 {
        // Whole buffers swap their page tables; the rest map, which costs the system buffer its window.
        let (offset, len) = match round % 4 {
            0 | 1 => (0, granules * granule),
            2 => (0, (granules - 1) * granule),
            _ => (100, granules * granule - 200),
        };
        let mut system = space.aligned_buffer(offset, len).unwrap();
        let data = pattern(round, len);
        deliver(&space, &mut system, addr + offset, &data, &all_of(granule, offset, len));
        assert!(!has_window(&system) || offset == 0);
        expected[offset..offset + len].copy_from_slice(&data);
        same(&buffer, &expected, &format!("round {round}"));
    }
    buffer.fill(3);
    let now = proc::mapping_count();
    assert!(now < mappings + 150, "{now} mappings, {mappings} before");
}

/// Holes in the free list give system buffers whose granules, and whose windows, are in several pieces.
fn scattered_granules_are_swapped_as_well(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(3 * granules + 8) else { return };
    let mut buffer = space.allocate(granules * granule).unwrap();
    let singles: Vec<_> = (0..2 * granules + 8).map(|_| space.allocate(granule).unwrap()).collect();
    let kept: Vec<_> = singles.into_iter().enumerate().filter(|(at, _)| at % 2 == 0).collect();
    let mut system = space.aligned_buffer(0, granules * granule).unwrap();
    assert!(system.segments().len() > 2, "the system buffer is in one piece");
    let addr = buffer.addresses().start;
    for round in 0..6 {
        let data = pattern(round, granules * granule);
        let passed = deliver(&space, &mut system, addr, &data, &all_of(granule, 0, data.len()));
        assert_eq!(passed, Passed { swapped: granules as u32, ..Passed::default() });
        same(&buffer, &data, &format!("round {round}"));
        let reference = output_of(&space, addr + 2 * granule, granule);
        buffer[2 * granule] ^= 1;
        same(&seen(&reference), &data[2 * granule..3 * granule], "a later output");
    }
    drop(kept);
    checked(&space);
}

/// Moved page tables are registered for faults no longer, and must be again, on either side.
fn a_swapped_region_can_still_be_protected(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(3 * granules) else { return };
    let mut buffer = space.allocate(granules * granule).unwrap();
    let mut system = space.aligned_buffer(0, granules * granule).unwrap();
    let swap = all_of(granule, 0, granules * granule);
    for _ in 0..3 {
        space.deliver(&mut system, &mut buffer[..granules * granule], &swap).unwrap();
        drop(output(&space, &buffer));
    }
    let (mut migrant, _) = space.region_from(&mut system, granules * granule).unwrap();
    migrant.fill(1);
    let reference = output_of(&space, migrant.as_ptr().addr(), migrant.len());
    migrant.fill(2);
    assert!(seen(&reference).iter().all(|byte| *byte == 1));
    drop((reference, migrant));
    checked(&space);
}

/// Granules with bytes to keep are protected meanwhile, for which no page tables were swapped at all: each page was mapped, and
/// the system buffer lost its window.
fn granules_between_protected_edges_swap_page_tables(machine: Machine) {
    let (granule, granules) = (machine.granule(), 130);
    if machine.is_large() {
        return;
    }
    let Some(space) = machine.protecting_space(3 * granules) else { return };
    let mut buffer = space.allocate(granules * granule).unwrap();
    let addr = buffer.addresses().start;
    let mut expected = pattern(9, buffer.len());
    buffer.copy_from_slice(&expected);
    for (round, (offset, end)) in [(100, 0), (0, 100), (7, 9)].into_iter().cycle().take(12).enumerate() {
        let len = granules * granule - offset - end;
        let mut system = space.aligned_buffer(offset, len).unwrap();
        let data = pattern(round as u64, len);
        let passed = deliver(&space, &mut system, addr + offset, &data, &all_of(granule, offset, len));
        assert_eq!(
            passed,
            Passed { kept: offset + end, swapped: granules as u32, ..Passed::default() },
            "round {round}"
        );
        assert!(has_window(&system), "round {round}");
        expected[offset..offset + len].copy_from_slice(&data);
        same(&buffer, &expected, &format!("round {round}"));
    }
    buffer.fill(3);
    assert_eq!(space.statistics().faults, 0);
}

/// Linux joins page tables that are moved with a neighbour that shows the granules before them, and then drops the registration
/// with the userfaultfd of both: stores into the neighbour reached pending output. Here page tables come from a new system
/// buffer to the place beside the neighbour.
fn a_swap_beside_a_protected_region_leaves_it_protected(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(6 * granules) else { return };
    let (len, swap) = (granules * granule, all_of(granule, 0, granules * granule));
    let neighbour = space.allocate(len).unwrap();
    let buffer = space.allocate(len).unwrap();
    let (_apart, addr) = (space.allocate(len).unwrap(), buffer.addresses().start);
    // The granules behind the neighbour's leave the buffer, and come back in a system buffer that is new.
    let mut system = space.aligned_buffer(0, len).unwrap();
    deliver(&space, &mut system, addr, &pattern(4, len), &swap);
    remove(&space, system);
    let mut system = space.aligned_buffer(0, len).unwrap();
    is_protected_during(&space, neighbour, || {
        deliver(&space, &mut system, addr, &pattern(5, len), &swap);
    });
}

/// As above; here page tables go through the place beside the neighbour.
fn a_swap_by_way_of_a_place_beside_a_protected_region_leaves_it_protected(machine: Machine) {
    let (granule, granules) = (machine.granule(), machine.windowed());
    let Some(space) = machine.protecting_space(6 * granules) else { return };
    let (len, swap) = (granules * granule, all_of(granule, 0, granules * granule));
    let neighbour = space.allocate(len).unwrap();
    let mut beside = space.aligned_buffer(0, len).unwrap();
    let buffer = space.allocate(len).unwrap();
    let addr = buffer.addresses().start;
    let mut system = space.aligned_buffer(0, len).unwrap();
    // The buffer gets the granules behind the neighbour's, and the place behind the neighbour becomes free.
    deliver(&space, &mut beside, addr, &pattern(4, len), &swap);
    remove(&space, beside);
    is_protected_during(&space, neighbour, || {
        deliver(&space, &mut system, addr, &pattern(5, len), &swap);
    });
}

/// Takes a system buffer's granules and addresses away.
fn remove(space: &Space, mut system: SystemBuffer) {
    let len = system.len();
    let (migrant, _) = space.region_from(&mut system, len).unwrap();
    migrant.emigrate().unwrap().remove().unwrap();
}

fn is_protected_during(space: &Space, mut buffer: Buffer, swap: impl FnOnce()) {
    let data = pattern(3, buffer.len());
    buffer.copy_from_slice(&data);
    let output = output(space, &buffer);
    swap();
    buffer.fill(9);
    same(&seen(&output), &data, "the output");
    drop(output);
    checked(space);
}
