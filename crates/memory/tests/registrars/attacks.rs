//! Registrars under attack: by threads that use the space meanwhile, and by each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::{Added, Notes, Removed, lend, object, objects};
use crate::machine::{Machine, StopOnDrop, checked};
use genie_memory::{Data, Inode, Registrar, Registration, SharedObject, Space};
use genie_sys::lock::Mutex;

on_each_kind!(
    data_is_in_no_object_of_which_a_registrar_was_not_told,
    dropping_a_registration_waits_for_the_call_that_is_under_way,
    a_registration_is_dropped_in_a_call,
    a_registrar_that_panics_costs_nobody_anything,
);

/// How long a registrar takes, so that threads that did not wait for it would be found out.
const WHILE: Duration = Duration::from_millis(1);

/// Where objects are: by their inodes, and by where their aliases start.
#[derive(Default)]
struct Table {
    objects: Mutex<(BTreeMap<Inode, SharedObject>, BTreeMap<usize, Inode>)>,
    calls: AtomicUsize,
    /// It is in a call, or one has failed.
    is_called: AtomicBool,
}

impl Table {
    fn call(&self, change: impl FnOnce()) {
        assert!(!self.is_called.swap(true, Ordering::Relaxed), "calls come one at a time");
        thread::sleep(WHILE);
        change();
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.is_called.store(false, Ordering::Relaxed);
    }

    /// How many calls there were; fails if one of them did.
    fn calls(&self) -> usize {
        assert!(!self.is_called.load(Ordering::Relaxed), "a call has failed");
        self.calls.load(Ordering::Relaxed)
    }

    /// Finds the data of a buffer by the object that it is in, as who has registered that finds it.
    fn find(&self, space: &Space, data: &Data<'_>) {
        for backing in data.backings() {
            let (inode, offset) = backing.object().expect("an object");
            let table = self.objects.lock();
            let object = table.0.get(&inode).unwrap_or_else(|| panic!("{inode:?} was not told"));
            assert!(offset + backing.len() <= object.len);
            assert_eq!(space.aliases_base() + object.start + offset, backing.addr());
            assert_eq!(table.1.get(&object.start), Some(&inode), "another object is still said to be there");
        }
    }
}

impl Registrar for Table {
    fn added(&self, object: &SharedObject) {
        self.call(|| {
            let mut table = self.objects.lock();
            let before = (table.0.insert(object.inode, *object), table.1.insert(object.start, object.inode));
            assert_eq!(before, (None, None), "its inode and its place are free");
        });
    }

    fn removed(&self, object: &SharedObject) {
        self.call(|| {
            let mut table = self.objects.lock();
            let before = (table.0.remove(&object.inode), table.1.remove(&object.start));
            assert_eq!(before, (Some(*object), Some(object.inode)));
        });
    }
}

/// Objects come and go in several threads, which look for their own data, and for data in objects that others have just made.
fn data_is_in_no_object_of_which_a_registrar_was_not_told(machine: Machine) {
    let (granule, rounds) = (machine.granule(), if machine.is_large() { 10 } else { 60 });
    let space = machine.space((16 << 20) / granule);
    let tables = [(); 2].map(|()| Arc::new(Table::default()));
    let registrations = tables.clone().map(|table| space.register(table));
    let common = space.add_lender();
    let stop = AtomicBool::new(false);
    let find = |data: &Data<'_>| tables.iter().for_each(|table| table.find(&space, data));
    let stand_in = |lender| space.with_stand_ins(lender, || space.aligned_buffer_from(lender, 0, granule));
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        // A third registrar comes and goes.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let table = Arc::new(Table::default());
                let registration = space.register(table.clone());
                if let Ok(buffer) = space.system_buffer(granule) {
                    table.find(&space, &buffer.data());
                }
                drop(registration);
                let calls = table.calls();
                thread::sleep(WHILE);
                assert_eq!(table.calls(), calls, "it is told nothing more");
            }
        });
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let lender = space.add_lender();
                        lend(&space, lender, object(&machine, 2));
                        let buffer = space.aligned_buffer_from(lender, 0, 2 * granule).unwrap();
                        find(&buffer.data());
                        space.remove_lender(lender);
                        find(&buffer.data());
                        drop(buffer);
                        if let Ok(buffer) = stand_in(common) {
                            find(&buffer.data());
                        }
                        space.give_back_stand_ins(common);
                        if let Ok(buffer) = space.system_buffer(4 * granule) {
                            find(&buffer.data());
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread of the space's users"));
    });
    drop(registrations);
    space.remove_lender(common);
    assert!(tables.iter().all(|table| table.calls() > 6 * rounds));
    checked(&space);
}

/// Says when it is called, and goes on when it is told.
struct Gate {
    called: Sender<()>,
    go_on: Mutex<Receiver<()>>,
    is_over: AtomicBool,
}

impl Registrar for Gate {
    fn added(&self, object: &SharedObject) {
        if object.lender.is_some() {
            self.called.send(()).expect("the test is there");
            self.go_on.lock().recv().expect("the test is there");
            thread::sleep(20 * WHILE);
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn removed(&self, _: &SharedObject) {
        self.is_over.store(false, Ordering::Relaxed);
    }
}

fn dropping_a_registration_waits_for_the_call_that_is_under_way(machine: Machine) {
    let space = machine.space(4);
    let ((called, is_called), (open, go_on)) = (channel(), channel());
    let gate = Arc::new(Gate { called, go_on: Mutex::new(go_on), is_over: AtomicBool::new(false) });
    let notes = Arc::new(Notes::default());
    let (held, _kept) = (space.register(gate.clone()), space.register(notes.clone()));
    let lender = space.add_lender();
    thread::scope(|scope| {
        scope.spawn(|| {
            lend(&space, lender, object(&machine, 1));
            // Threads that use the space go on when both have been told.
            assert!(matches!(notes.take()[..], [Added(_), Added(lent)] if lent.lender == Some(lender)));
        });
        is_called.recv().expect("it is called");
        let (dropping, is_dropping) = channel();
        let (gate, held) = (&gate, held);
        scope.spawn(move || {
            dropping.send(()).expect("the test is there");
            drop(held);
            assert!(gate.is_over.load(Ordering::Relaxed), "the call is under way");
        });
        is_dropping.recv().expect("it is being dropped");
        open.send(()).expect("it waits");
    });
    space.remove_lender(lender);
    assert!(matches!(notes.take()[..], [Removed(lent)] if lent.lender == Some(lender)));
    assert!(gate.is_over.load(Ordering::Relaxed), "it is told of nothing any more");
}

/// Drops a registration in its first call for a lent object.
#[derive(Default)]
struct Dropper {
    which: Mutex<Option<Registration>>,
    calls: AtomicUsize,
}

impl Registrar for Dropper {
    fn added(&self, object: &SharedObject) {
        if object.lender.is_some() {
            self.calls.fetch_add(1, Ordering::Relaxed);
            drop(self.which.lock().take());
        }
    }

    fn removed(&self, _: &SharedObject) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

fn a_registration_is_dropped_in_a_call(machine: Machine) {
    let space = machine.space(4);
    let lend_one = || {
        let lender = space.add_lender();
        lend(&space, lender, object(&machine, 1));
        space.remove_lender(lender);
    };
    let own = Arc::new(Dropper::default());
    *own.which.lock() = Some(space.register(own.clone()));
    lend_one();
    assert_eq!(own.calls.load(Ordering::Relaxed), 1, "it has dropped its own");
    // Each drops the other's, in two threads at once.
    let two = [(); 2].map(|()| Arc::new(Dropper::default()));
    for (one, other) in [(0, 1), (1, 0)] {
        *two[one].which.lock() = Some(space.register(two[other].clone()));
    }
    thread::scope(|scope| {
        scope.spawn(lend_one);
        scope.spawn(lend_one);
    });
    let calls = two.map(|one| one.calls.load(Ordering::Relaxed));
    assert!(calls.iter().any(|calls| *calls <= 1) && calls != [0, 0], "one was dropped: {calls:?}");
    checked(&space);
}

/// Panics in each call, with a payload whose drop panics, too.
#[derive(Default)]
struct Panicking(AtomicUsize);

struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("a payload is dropped");
    }
}

impl Registrar for Panicking {
    fn added(&self, _: &SharedObject) {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::panic::panic_any(Payload);
    }

    fn shown(&self, object: &SharedObject) {
        self.added(object);
    }

    fn removed(&self, object: &SharedObject) {
        self.added(object);
    }
}

fn a_registrar_that_panics_costs_nobody_anything(machine: Machine) {
    let space = machine.space(4);
    let (wild, notes) = (Arc::new(Panicking::default()), Arc::new(Notes::default()));
    let _registrations = (space.register(wild.clone()), space.register(notes.clone()));
    let lender = space.add_lender();
    lend(&space, lender, object(&machine, 1));
    let lent = objects(&space)[1];
    space.share(lent.id).expect("a descriptor");
    space.remove_lender(lender);
    assert_eq!(wild.0.load(Ordering::Relaxed), 4, "it is told of each");
    assert_eq!(notes.take()[1..], [Added(lent), super::Shown(lent), Removed(lent)]);
    // Even in a thread that unwinds by a panic of its own.
    let lender = space.add_lender();
    lend(&space, lender, object(&machine, 1));
    let buffer = space.aligned_buffer_from(lender, 0, 1).unwrap();
    space.remove_lender(lender);
    assert!(matches!(notes.take()[..], [Added(_)]));
    let unwinding = thread::spawn(move || {
        let _buffer = buffer;
        panic!("the program's own");
    });
    unwinding.join().expect_err("it panics");
    assert!(matches!(notes.take()[..], [Removed(_)]));
    checked(&space);
}
