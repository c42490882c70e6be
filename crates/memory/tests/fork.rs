//! Fork: a child finds zeros of its own where its parent has regions, and gets physical copies where it is given them.
#![allow(
    unsafe_code,
    reason = "forks, and touches memory in the child by address, as a C program would: loads, stores and _exit alone"
)]

#[path = "../../sys/tests/child/mod.rs"]
mod child;
mod machine;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use child::{Child, ExitOutcome, fork_child};
use genie_memory::{Inheritance, Registrar, SharedObject};
use genie_sys::lock::Mutex;
use machine::{Machine, checked, output, pattern, proc, same, seen};

on_each_kind!(
    a_child_finds_zeros_where_a_region_is,
    what_was_mapped_anew_is_not_inherited_either,
    a_child_that_is_given_a_copy_has_it_to_itself,
    an_inheritance_that_is_not_taken_leaves_nothing,
    a_child_drops_a_registration_whose_registrar_is_in_a_call,
);

fn load(addr: usize) -> u8 {
    // SAFETY: the byte is a buffer's, which no reference is used to store into meanwhile, or a child's own.
    unsafe { std::ptr::with_exposed_provenance::<u8>(addr).read_volatile() }
}

fn child(body: impl FnOnce() -> u8) -> Child {
    // SAFETY: the bodies below load, store and make system calls; none allocates, locks or panics.
    unsafe { fork_child(body) }.expect("a child")
}

/// A child died by SIGSEGV when it read a buffer, which safe code can do.
#[track_caller]
fn assert_hidden_from_children(addr: usize, what: &str) {
    let before = load(addr);
    let outcome = child(|| {
        let found = load(addr);
        // SAFETY: zeros of the child's own, to which there is no reference.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(addr).write_volatile(!before) };
        found
    });
    assert_eq!(outcome.wait().expect("its end"), ExitOutcome::Code(0), "a child found something in {what}");
    assert_eq!(load(addr), before, "a child stored into {what}");
}

fn a_child_finds_zeros_where_a_region_is(machine: Machine) {
    let space = machine.space(8);
    let mut buffer = space.allocate(2 * machine.granule()).unwrap();
    buffer.fill(1);
    let mut migrant = space.allocate_migrant(machine.granule(), false).unwrap();
    migrant.fill(1);
    let system = space.aligned_buffer(0, machine.granule()).unwrap();
    assert_hidden_from_children(buffer.addresses().start, "a native buffer");
    assert_hidden_from_children(buffer.addresses().end - 1, "a native buffer's end");
    assert_hidden_from_children(migrant.as_ptr().addr(), "a migrant buffer");
    assert_hidden_from_children(system.segments()[0].addr(), "a system buffer");
    assert!(buffer.iter().chain(migrant.iter()).all(|byte| *byte == 1));
}

fn what_was_mapped_anew_is_not_inherited_either(machine: Machine) {
    let granules = machine.windowed();
    let Some(space) = machine.protecting_space(3 * granules) else { return };
    let mut buffer = space.allocate(granules * machine.granule()).unwrap();
    let addr = buffer.addresses().start;
    let reference = output(&space, &buffer);
    buffer[0] = 1;
    assert_eq!(space.statistics().replacements, 1);
    assert_hidden_from_children(addr, "a replaced granule");
    drop(reference);
    let len = granules * machine.granule();
    let mut system = space.aligned_buffer(0, len).unwrap();
    for round in 0..2 {
        let swap = 0..granules as u32;
        space.deliver(&mut system, &mut buffer, &swap).unwrap();
        assert_hidden_from_children(addr, "a swapped granule");
        assert_hidden_from_children(addr + len - 1, "a swapped granule");
        assert_eq!(space.statistics().swapped, (round + 1) * granules as u64);
    }
    let (migrant, _) = space.region_from(&mut system, len).unwrap();
    assert_hidden_from_children(migrant.as_ptr().addr(), "a region made of a system buffer");
}

fn a_child_that_is_given_a_copy_has_it_to_itself(machine: Machine) {
    let Some(space) = machine.protecting_space(8) else { return };
    let (offset, len) = (machine.granule() - 3, machine.granule() + 10);
    let mut first = space.allocate_at(offset, len).unwrap();
    let mut second = space.allocate(100).unwrap();
    let data = pattern(1, len);
    first.copy_from_slice(&data);
    second.fill(2);
    let reference = output(&space, &first);
    let inheritance = Inheritance::prepare(&[&first, &second]).unwrap();
    // Too late for the child.
    second.fill(3);
    let (start, other) = (first.addresses().start, second.addresses().start);
    let outcome = child(|| {
        // SAFETY: in the child, before it touches a buffer.
        if unsafe { inheritance.take_over() }.is_err() {
            return 1;
        }
        for (at, expected) in data.iter().enumerate() {
            if load(start + at) != *expected {
                return 2;
            }
        }
        if (0..100).any(|at| load(other + at) != 2) {
            return 3;
        }
        for at in 0..len {
            // SAFETY: the child's own copy, to which no reference is used in the child.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(start + at).write_volatile(0xbb) };
        }
        if (0..len).any(|at| load(start + at) != 0xbb) { 4 } else { 0 }
    })
    .wait()
    .unwrap();
    assert_eq!(outcome, ExitOutcome::Code(0));
    same(&first, &data, "the parent's buffer");
    same(&seen(&reference), &data, "the parent's output");
    assert!(second.iter().all(|byte| *byte == 3));
    first.fill(0);
    same(&seen(&reference), &data, "the parent's output after its own stores");
    drop(reference);
    checked(&space);
}

fn an_inheritance_that_is_not_taken_leaves_nothing(machine: Machine) {
    let space = machine.space(8);
    let buffer = space.allocate(3 * machine.granule()).unwrap();
    let before = proc::mapping_count();
    for _ in 0..300 {
        drop(Inheritance::prepare(&[&buffer]).unwrap());
    }
    assert!(proc::mapping_count() < before + 100);
    assert_hidden_from_children(buffer.addresses().start, "a buffer that was not taken over");
}

/// Counts its calls; the second one says that it is there, and ends when it is told to.
struct Counting {
    calls: AtomicUsize,
    called: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Registrar for Counting {
    fn added(&self, _: &SharedObject) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 1 {
            self.called.send(()).expect("the test is there");
            self.go_on.lock().recv().expect("the test is there");
        }
    }

    fn removed(&self, _: &SharedObject) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

fn a_child_drops_a_registration_whose_registrar_is_in_a_call(machine: Machine) {
    let space = machine.space(8);
    let ((called, is_called), (open, go_on)) = (channel(), channel());
    let counting = Arc::new(Counting { calls: AtomicUsize::new(0), called, go_on: Mutex::new(go_on) });
    let mut registration = Some(space.register(counting.clone()));
    let calls = || counting.calls.load(Ordering::Relaxed);
    assert_eq!(calls(), 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let object = genie_sys::Object::create(machine.kind, machine.granule()).unwrap();
            machine::lend(&space, space.add_lender(), object).unwrap();
        });
        is_called.recv().expect("it is called");
        let inherited = &mut registration;
        // It frees memory: the C library's `fork` leaves its allocator usable. The child's copies of the space and of what was
        // allocated there go with the child.
        let outcome = child(|| {
            drop(inherited.take());
            calls() as u8
        });
        assert_eq!(outcome.wait().expect("its end"), ExitOutcome::Code(2), "nothing is told to the child");
        open.send(()).expect("it waits");
    });
    drop(registration);
    drop(space);
    assert_eq!(calls(), 2);
}
