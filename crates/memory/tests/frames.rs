//! Frames: buffers that lie in one object, and lie there again when clients have let their memory go.

use genie_memory::{Error, Frames, GranuleKind, LenderId, Part, Passed, Space, SystemBuffer};
use genie_sys::Object;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::machine::{self, Machine, checked, output, pattern, same, scatter, seen};

on_each_kind!(
    a_frame_that_was_swapped_is_back_when_its_client_lets_it_go,
    what_changes_places_with_a_frame_is_the_space_s_own,
    no_other_buffer_keeps_memory_of_a_frame,
    without_memory_for_another_granule_a_frame_stays_with_its_client,
    a_region_with_memory_of_a_frame_is_not_kept,
    a_frame_comes_home_after_the_outputs_that_are_pending_from_it,
    frames_that_share_granules_are_copied_and_nothing_beside_them,
    memory_of_frames_that_are_gone_stays_as_long_as_it_is_used,
    frames_whose_lender_was_removed_take_nothing_back,
    frames_of_an_object_that_is_there_lie_in_it,
    random_traffic_leaves_every_frame_where_it_was,
);

fn frames(space: &Space, stride: usize, count: usize) -> (Frames, Vec<SystemBuffer>) {
    let mut frames = space.make_frames(stride, count).unwrap();
    let buffers = frames.buffers();
    assert_eq!(buffers.len(), count);
    assert!(frames.buffers().is_empty(), "they were taken");
    assert_places(&frames, &buffers.iter().enumerate().collect::<Vec<_>>());
    (frames, buffers)
}

/// Each buffer is one run of addresses, at its place in the object.
#[track_caller]
fn assert_places(frames: &Frames, buffers: &[(usize, &SystemBuffer)]) {
    for (index, buffer) in buffers {
        let start = frames.addresses().start + index * frames.stride();
        let places: Vec<_> = buffer.segments().iter().map(|span| (span.addr(), span.len())).collect();
        assert_eq!(places, [(start, frames.stride())], "frame {index}");
        let backing =
            buffer.data().backings().next().and_then(|backing| backing.object()).expect("an object");
        let object = frames.object().expect("the object is here");
        assert_eq!(backing, (object.inode, index * frames.stride()));
    }
}

/// Delivers all of a buffer that begins with a granule, by swapping.
fn swap(space: &Space, system: &mut SystemBuffer, bytes: &mut [u8]) -> Passed {
    let granules = bytes.len().div_ceil(space.granule()) as u32;
    space.deliver(system, bytes, &(0..granules)).unwrap()
}

fn a_frame_that_was_swapped_is_back_when_its_client_lets_it_go(machine: Machine) {
    let (space, len) = (machine.space(8), 2 * machine.granule());
    let (frames, mut buffers) = frames(&space, len, 3);
    let mut system = buffers.remove(1);
    let (data, at) = (pattern(1, len), system.segments()[0].addr());
    scatter(&system.data(), &data);
    let mut client = space.allocate(len).unwrap();
    assert_eq!(swap(&space, &mut system, &mut client).swapped, 2);
    same(&client, &data, "the input");
    assert!(frames.take_back(1).is_none(), "its buffer is in use");
    drop(system);
    checked(&space);
    assert!(frames.take_back(1).is_none(), "a client has it");
    assert!(frames.take_back(0).is_none(), "it was not given back");
    assert!(frames.take_back(3).is_none() && frames.take_back(usize::MAX).is_none(), "there is none");
    // The owner, who has the object registered, sees the client's stores, as the documentation says.
    client[..6].copy_from_slice(b"stored");
    assert_eq!(machine::client(at, 6), b"stored");
    drop(client);
    let back = frames.take_back(1).expect("the client has let it go");
    assert_places(&frames, &[(1, &back)]);
    assert!(frames.take_back(1).is_none(), "it was taken back");
    let (mut client, mut back) = (space.allocate(len).unwrap(), back);
    assert_eq!(space.deliver(&mut back, &mut client, &(1..2)).unwrap().swapped, 1);
    drop(back);
    assert!(frames.take_back(1).is_none(), "a client has a part of it");
    drop(client);
    assert!(frames.take_back(1).is_some());
    checked(&space);
}

/// A swap lets other pools adopt the client's page.
fn what_changes_places_with_a_frame_is_the_space_s_own(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let (frames, mut buffers) = frames(&space, granule, 1);
    let own = checked(&space);
    for round in 0..20 {
        let mut client = space.allocate(granule).unwrap();
        let mut system = buffers.pop().expect("one frame");
        scatter(&system.data(), &pattern(round, granule));
        assert_eq!(swap(&space, &mut system, &mut client).swapped, 1);
        same(&client, &pattern(round, granule), "the input");
        drop(system);
        drop(client);
        buffers.push(frames.take_back(0).expect("the client has let it go"));
        assert_places(&frames, &[(0, &buffers[0])]);
        let usage = checked(&space);
        assert_eq!((usage.free, usage.system, usage.lent), (own.free, own.system, own.lent));
    }
}

fn no_other_buffer_keeps_memory_of_a_frame(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let lender = space.add_lender();
    machine::lend(&space, lender, Object::create(machine.kind, 2 * granule).unwrap()).unwrap();
    for other in [LenderId::OWN, lender] {
        let (frames, mut buffers) = frames(&space, granule, 2);
        let mut client = space.allocate(granule).unwrap();
        swap(&space, &mut buffers.remove(0), &mut client);
        let size = space.pool_size(other).unwrap().granules;
        let mut system = space.aligned_buffer_from(other, 0, granule).unwrap();
        scatter(&system.data(), &pattern(7, granule));
        assert_eq!(swap(&space, &mut system, &mut client).swapped, 1);
        same(&client, &pattern(7, granule), "the input");
        let at = system.segments()[0].addr();
        assert!(!frames.addresses().contains(&at), "a buffer of another pool is in the object");
        assert!(frames.take_back(0).is_some(), "the frame is home");
        checked(&space);
        // A frame that comes into another frame goes home, too.
        let mut frame = buffers.remove(0);
        swap(&space, &mut frame, &mut client);
        let mut first = frames.take_back(0).expect("home");
        swap(&space, &mut first, &mut client);
        drop((first, frame));
        assert!(frames.take_back(1).is_some() && frames.take_back(0).is_none());
        drop((system, client));
        assert!(frames.take_back(0).is_some());
        assert_eq!(space.pool_size(lender).unwrap().granules, 2, "the lender's pool keeps its size");
        assert!(other != lender || size == 2);
        checked(&space);
    }
}

/// An ordinary buffer cannot keep the frame, and nothing else is left for it.
fn without_memory_for_another_granule_a_frame_stays_with_its_client(machine: Machine) {
    let (space, granule) = (machine.space(2), machine.granule());
    let (frames, mut buffers) = frames(&space, granule, 1);
    let mut client = space.allocate(granule).unwrap();
    swap(&space, &mut buffers[0], &mut client);
    buffers.clear();
    let (mut system, rest) = (space.aligned_buffer(0, granule).unwrap(), space.allocate(granule).unwrap());
    scatter(&system.data(), &pattern(8, granule));
    assert_eq!(swap(&space, &mut system, &mut client), Passed { copied: granule, ..Passed::default() });
    same(&client, &pattern(8, granule), "the input");
    assert!(frames.take_back(0).is_none());
    drop(rest);
    assert_eq!(swap(&space, &mut system, &mut client).swapped, 1);
    assert!(frames.take_back(0).is_some());
    checked(&space);
}

fn a_region_with_memory_of_a_frame_is_not_kept(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let (frames, mut buffers) = frames(&space, granule, 1);
    for strong in [true, false] {
        let mut system = buffers.pop().expect("one frame");
        let mut immigrating = space.dequeue(granule, strong).unwrap();
        immigrating.align(&system, Part::all(granule), granule).unwrap();
        immigrating.reinstate().unwrap();
        let passed = immigrating.delivery(granule).unwrap().from_one(&mut system, &(0..1)).unwrap();
        assert_eq!(passed.swapped, 1);
        drop(system);
        let migrant = immigrating.arrive(granule);
        assert!(frames.take_back(0).is_none());
        drop(migrant);
        buffers.push(frames.take_back(0).expect("the region is gone"));
        assert_eq!(checked(&space).queued, 0);
    }
    // By move, the frame's granules become the region.
    let (migrant, _) = space.region_from(&mut buffers[0], granule).unwrap();
    buffers.clear();
    assert!(frames.take_back(0).is_none());
    drop(migrant);
    assert!(frames.take_back(0).is_some());
    checked(&space);
}

fn a_frame_comes_home_after_the_outputs_that_are_pending_from_it(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let granule = machine.granule();
    let (frames, mut buffers) = frames(&space, granule, 3);
    // Another frame is home, where nothing may be taken from it.
    drop(buffers.pop());
    let mut client = space.allocate(granule).unwrap();
    let data = pattern(3, granule);
    scatter(&buffers[0].data(), &data);
    swap(&space, &mut buffers[0], &mut client);
    let reference = output(&space, &client);
    // A delivery of another frame while the output is pending, and a store into that.
    let mut second = buffers.pop().expect("two frames in use");
    scatter(&second.data(), &pattern(4, granule));
    assert_eq!(swap(&space, &mut second, &mut client).swapped, 1);
    assert!(
        !frames.addresses().contains(&second.segments()[0].addr()),
        "a pending frame is nobody's to fill"
    );
    scatter(&second.data(), &pattern(5, granule));
    drop((second, buffers));
    same(&seen(&reference), &data, "the output");
    same(&client, &pattern(4, granule), "the input");
    assert!(frames.take_back(0).is_none());
    let again = output(&space, &client);
    client[0] ^= 0xff;
    same(&seen(&again), &pattern(4, granule), "the output from which the client has a copy");
    drop(reference);
    assert!(frames.take_back(0).is_some() && frames.take_back(1).is_none());
    drop(again);
    assert!(frames.take_back(1).is_some(), "the client has the copy, not the frame");
    checked(&space);
}

fn frames_that_share_granules_are_copied_and_nothing_beside_them(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let stride = granule / 2 + 77;
    let (frames, mut buffers) = frames(&space, stride, 5);
    assert!(!frames.is_swapped());
    for (index, buffer) in buffers.iter().enumerate() {
        buffer.data().fill(index as u8 + 1);
    }
    let mut client = space.allocate(stride).unwrap();
    let passed = swap(&space, &mut buffers[2], &mut client);
    assert_eq!(passed, Passed { copied: stride, ..Passed::default() });
    assert!(client.iter().all(|byte| *byte == 3));
    assert_eq!(buffers[2].zero_around(1..stride - 1), 2);
    for (index, buffer) in buffers.iter().enumerate().filter(|(index, _)| *index != 2) {
        assert!(buffer.data().to_vec().iter().all(|byte| *byte == index as u8 + 1), "frame {index}");
    }
    assert!(frames.take_back(2).is_none() && buffers[1].refill(stride).is_err());
    // Even when all of the memory is free, a buffer would not lie at its frame's place.
    let (others, all) = self::frames(&space, stride, 5);
    drop(all);
    assert!(others.take_back(0).is_none() && others.take_back(1).is_none());
    drop((others, frames));
    buffers[0].data().fill(9);
    assert!(buffers[4].data().to_vec().iter().all(|byte| *byte == 5));
    assert_ne!(checked(&space).lent, 0);
    drop(buffers);
    assert_eq!(checked(&space).lent, 0, "the object is gone with its last buffer");
}

fn memory_of_frames_that_are_gone_stays_as_long_as_it_is_used(machine: Machine) {
    let (space, granule) = (machine.space(8), machine.granule());
    let (frames, mut buffers) = frames(&space, granule, 2);
    let mut client = space.allocate(granule).unwrap();
    scatter(&buffers[0].data(), &pattern(1, granule));
    swap(&space, &mut buffers[0], &mut client);
    drop(frames);
    buffers[1].data().fill(4);
    checked(&space);
    drop(buffers);
    same(&client, &pattern(1, granule), "the input");
    assert_eq!(checked(&space).lent, 2);
    drop(client);
    let usage = checked(&space);
    assert_eq!((usage.lent, usage.system), (0, 0));
}

/// The numbers of their granules are another object's by then.
fn frames_whose_lender_was_removed_take_nothing_back(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let (frames, buffers) = frames(&space, granule, 2);
    space.remove_lender(buffers[0].lender());
    drop(buffers);
    assert!(frames.take_back(0).is_none());
    let lender = space.add_lender();
    machine::lend(&space, lender, Object::create(machine.kind, 2 * granule).unwrap()).unwrap();
    assert!(frames.take_back(0).is_none(), "memory of a lender's");
    checked(&space);
    drop(frames);
    checked(&space);
}

fn frames_of_an_object_that_is_there_lie_in_it(machine: Machine) {
    let (space, granule) = (machine.space(4), machine.granule());
    let object = Object::create(machine.kind, 3 * granule).unwrap();
    let inode = object.inode();
    let mut frames = machine::frames(&space, object, granule).unwrap();
    let buffers = frames.buffers();
    assert_places(&frames, &buffers.iter().enumerate().collect::<Vec<_>>());
    assert_eq!(buffers[2].data().backings().next().unwrap().object(), Some((inode, 2 * granule)));
    let refused =
        |len: usize, stride| machine::frames(&space, Object::create(machine.kind, len).unwrap(), stride);
    assert!(matches!(refused(granule, granule + 1), Err(Error::Empty)));
    assert!(matches!(refused(granule, 0), Err(Error::Empty)));
    assert!(matches!(space.make_frames(granule, 0), Err(Error::Empty)));
    assert!(matches!(space.make_frames(granule, usize::MAX / 2), Err(Error::Room { .. })));
    if machine.is_large() {
        let small = Object::create(GranuleKind::Base, 4096).unwrap();
        assert!(matches!(machine::frames(&space, small, 4096), Err(Error::Kind { .. })));
    }
    drop((buffers, frames));
    assert_eq!(checked(&space).lent, 0, "what was refused is gone, too");
}

/// What is done next: with which buffer of the client's, and which frame or other buffer.
#[derive(Debug, Clone, Copy)]
enum Step {
    Frame(usize, usize),
    Other(usize),
    LetGo(usize),
    Output(usize),
    EndOutput,
}

fn random_traffic_leaves_every_frame_where_it_was(machine: Machine) {
    const COUNT: usize = 3;
    let granule = machine.granule();
    let step = (0..5, 0..COUNT, 0..COUNT).prop_map(|(what, client, frame)| match what {
        0 => Step::Other(client),
        1 => Step::LetGo(client),
        2 => Step::Output(client),
        3 => Step::EndOutput,
        _ => Step::Frame(client, frame),
    });
    let cases = if machine.is_large() { 4 } else { 64 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&prop::collection::vec(step, 1..60), |steps| {
        let space = machine.space(16);
        let (frames, buffers) = frames(&space, granule, COUNT);
        drop(buffers);
        let mut clients = [(); COUNT].map(|()| (space.allocate(granule).unwrap(), vec![0; granule]));
        let mut outputs = Vec::new();
        for (round, step) in steps.into_iter().enumerate() {
            let data = pattern(round as u64, granule);
            let mut deliver = |mut system: SystemBuffer, client: usize| {
                scatter(&system.data(), &data);
                let (buffer, holds) = &mut clients[client];
                swap(&space, &mut system, buffer);
                holds.copy_from_slice(&data);
            };
            match step {
                Step::Frame(client, index) => {
                    if let Some(system) = frames.take_back(index) {
                        assert_places(&frames, &[(index, &system)]);
                        deliver(system, client);
                    }
                }
                Step::Other(client) => deliver(space.aligned_buffer(0, granule).unwrap(), client),
                Step::LetGo(client) => clients[client] = (space.allocate(granule).unwrap(), vec![0; granule]),
                // Each output that is pending may hold a granule besides those in buffers.
                Step::Output(client) if outputs.len() < 6 && space.can_swap_partial_granules() => {
                    outputs.push((output(&space, &clients[client].0), clients[client].1.clone()));
                    clients[client].0[round] = 0xa5;
                    clients[client].1[round] = 0xa5;
                }
                Step::Output(_) => {}
                Step::EndOutput => drop(outputs.pop()),
            }
            for (reference, bytes) in &outputs {
                same(&seen(reference), bytes, "an output");
            }
            for (buffer, bytes) in &clients {
                same(buffer, bytes, "a client's buffer");
            }
            checked(&space);
        }
        outputs.clear();
        drop(clients);
        let all: Vec<_> = (0..COUNT).map(|index| frames.take_back(index).expect("home")).collect();
        assert_places(&frames, &all.iter().enumerate().collect::<Vec<_>>());
        Ok(())
    });
    ran.unwrap_or_else(|failed| panic!("{failed}"));
}
