//! Registrars: what they are told, when, and what they may do meanwhile.

mod attacks;

use std::os::unix::fs::MetadataExt;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;

use genie_memory::{GranuleKind, LenderId, Registrar, SharedObject, Space, TellLater};
use genie_sys::lock::Mutex;
use genie_sys::{Inode, Object};

use crate::machine::{self, Machine, checked, share_writable};

on_each_kind!(
    a_registrar_is_told_what_there_is_and_what_comes_and_goes,
    a_space_that_ends_lets_its_objects_go,
    a_registrar_may_use_the_space_in_its_calls,
    a_thread_that_tells_later_tells_at_the_end,
    an_object_that_goes_before_a_registrar_hears_of_it_is_not_told_of,
);

/// What a registrar was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Added(SharedObject),
    Shown(SharedObject),
    Removed(SharedObject),
}
use Told::{Added, Removed, Shown};

#[derive(Default)]
struct Notes(Mutex<Vec<Told>>);

impl Notes {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Registrar for Notes {
    fn added(&self, object: &SharedObject) {
        self.0.lock().push(Added(*object));
    }

    fn shown(&self, object: &SharedObject) {
        self.0.lock().push(Shown(*object));
    }

    fn removed(&self, object: &SharedObject) {
        assert!(is_open(object.inode), "another object may have its inode");
        self.0.lock().push(Removed(*object));
    }
}

/// Whether this process has a descriptor of an object.
fn is_open(inode: Inode) -> bool {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("the process's descriptors");
    let inodes = descriptors.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
    inodes.map(|found| Inode { device: found.dev(), number: found.ino() }).any(|found| found == inode)
}

/// All objects, as somebody finds them who asks.
fn objects(space: &Space) -> Vec<SharedObject> {
    let (mut at, mut objects) = (0, Vec::new());
    while at < space.aliases_len() {
        let found = space.object_at(at);
        objects.extend(found);
        at = found.map_or(at + space.granule(), |object| object.start + object.len);
    }
    objects
}

fn object(machine: &Machine, granules: usize) -> Object {
    Object::create(machine.kind, granules * machine.granule()).expect("an object")
}

/// An object of the lender's, whose inode is returned.
fn lend(space: &Space, lender: LenderId, object: Object) -> Inode {
    let inode = object.inode();
    machine::lend(space, lender, object).expect("it is lent");
    inode
}

/// A limit, in granules, beyond what the first object has.
fn beyond_the_first(machine: &Machine) -> usize {
    match machine.kind {
        GranuleKind::Base => 512,
        GranuleKind::Collapsed => 8,
        GranuleKind::Huge => 20,
    }
}

fn a_registrar_is_told_what_there_is_and_what_comes_and_goes(machine: Machine) {
    let (granule, granules) = (machine.granule(), beyond_the_first(&machine));
    let (space, notes) = (machine.space(granules), Arc::new(Notes::default()));
    let registration = space.register(notes.clone());
    let first = objects(&space);
    assert_eq!((first.len(), notes.take()), (1, vec![Added(first[0])]));
    drop((space.allocate(granule).unwrap(), space.system_buffer(3 * granule).unwrap()));
    assert_eq!(notes.take(), [], "the objects are the same");
    let mut known = first;
    let buffers = [(); 2].map(|()| space.allocate(granules * granule / 2).unwrap());
    let grown = notes.take();
    known.extend(grown.iter().map(|told| match told {
        Added(object) if object.lender.is_none() => *object,
        told => panic!("{told:?}"),
    }));
    assert_eq!((known.clone(), grown.is_empty()), (objects(&space), false));

    let lender = space.add_lender();
    let inode = lend(&space, lender, object(&machine, 3));
    let [Added(lent)] = notes.take()[..] else { panic!("one was lent") };
    assert_eq!((lent.inode, lent.len, lent.lender), (inode, 3 * granule, Some(lender)));
    assert_eq!(space.object_at(lent.start + granule), Some(lent));
    drop((space.share(lent.id).unwrap(), share_writable(&space, lent.id).unwrap()));
    assert_eq!(notes.take(), [Shown(lent)], "it is shown once");
    let late = Arc::new(Notes::default());
    drop(space.register(late.clone()));
    let told = late.take();
    assert_eq!((told.len(), &told[told.len() - 2..]), (known.len() + 2, &[Added(lent), Shown(lent)][..]));
    let buffer = space.aligned_buffer_from(lender, 0, granule).unwrap();
    space.remove_lender(lender);
    assert_eq!(notes.take(), [], "data is in it");
    drop(buffer);
    assert_eq!(notes.take(), [Removed(lent)]);

    let lender = space.add_lender();
    let take = || space.with_stand_ins(lender, || space.aligned_buffer_from(lender, 0, granule)).unwrap();
    drop(take());
    let [Added(stand_in)] = notes.take()[..] else { panic!("something stands in") };
    assert_eq!((stand_in.lender, stand_in.start), (Some(lender), lent.start), "in the same place");
    assert_ne!((stand_in.id, stand_in.inode), (lent.id, lent.inode));
    assert_eq!(space.give_back_stand_ins(lender), 0);
    assert_eq!(notes.take(), [Removed(stand_in)]);

    drop(registration);
    drop(take());
    assert_eq!(notes.take(), [], "it is registered no more");
    drop(buffers);
    checked(&space);
}

fn a_space_that_ends_lets_its_objects_go(machine: Machine) {
    for is_later in [false, true] {
        let (space, notes) = (machine.space(4), Arc::new(Notes::default()));
        let lender = space.add_lender();
        lend(&space, lender, object(&machine, 1));
        let _registration = space.register(notes.clone());
        let (objects, buffer) = (objects(&space), space.allocate(1).unwrap());
        drop(space);
        let added: Vec<_> = objects.iter().copied().map(Added).collect();
        assert_eq!((added.len(), notes.take()), (2, added), "a buffer holds the space");
        // The fault thread ended last, and so told of the end, while this thread waited for it under whatever locks it had.
        let later = is_later.then(TellLater::begin);
        drop(buffer);
        if let Some(later) = later {
            assert_eq!((notes.take(), later.owes()), (vec![], true));
        }
        assert_eq!(notes.take(), objects.into_iter().map(Removed).collect::<Vec<_>>());
    }
}

/// A registrar that uses the space in its calls: it is told of what it does itself with the next call of whoever it is.
struct User {
    space: Space,
    notes: Notes,
}

impl Registrar for User {
    fn added(&self, object: &SharedObject) {
        let buffer = self.space.system_buffer(self.space.granule()).expect("memory");
        assert!(buffer.data().backings().all(|backing| backing.object().is_some()));
        drop(buffer);
        self.space.share(object.id).expect("a descriptor");
        self.notes.added(object);
    }

    fn shown(&self, object: &SharedObject) {
        self.notes.shown(object);
    }

    fn removed(&self, object: &SharedObject) {
        self.notes.removed(object);
    }
}

fn a_registrar_may_use_the_space_in_its_calls(machine: Machine) {
    let space = machine.space(4);
    let user = Arc::new(User { space: space.clone(), notes: Notes::default() });
    let other = Arc::new(Notes::default());
    let _registrations = (space.register(user.clone()), space.register(other.clone()));
    let [first] = objects(&space)[..] else { panic!("one object") };
    assert_eq!(user.notes.take(), [Added(first), Shown(first)], "registering and looking are two uses");
    assert_eq!(other.take(), [Added(first), Shown(first)]);
    let lender = space.add_lender();
    lend(&space, lender, object(&machine, 1));
    let lent = objects(&space)[1];
    for told in [user.notes.take(), other.take()] {
        assert_eq!(told, [Added(lent), Shown(lent)], "one call comes after the other");
    }
    checked(&space);
}

fn a_thread_that_tells_later_tells_at_the_end(machine: Machine) {
    let spaces = [(); 2].map(|()| (machine.space(4), Arc::new(Notes::default())));
    let _registrations = spaces.each_ref().map(|(space, notes)| space.register(notes.clone()));
    let first = spaces.each_ref().map(|(space, notes)| (notes.take(), objects(space)[0]));
    let told = || spaces.each_ref().map(|(_, notes)| notes.take());
    let nothing = [vec![], vec![]];
    let lent = {
        let outer = TellLater::begin();
        let inner = TellLater::begin();
        let lent = spaces.each_ref().map(|(space, _)| {
            lend(space, space.add_lender(), object(&machine, 2));
            objects(space)[1]
        });
        drop(inner);
        assert_eq!((told(), outer.owes()), (nothing.clone(), true), "the inner one is not the last");
        // Another thread need not wait until this one tells.
        thread::scope(|scope| scope.spawn(|| spaces[0].0.tell()).join().expect("it tells"));
        assert_eq!(told(), [vec![Added(lent[0])], vec![]]);
        // Code that is given data is an exception: it begins when all has been told, without its using the space, and tells at once.
        let [before, after] = TellLater::except(|| {
            let before = told();
            spaces[0].0.show(lent[0].start, 1);
            [before, told()]
        });
        assert_eq!(before, [vec![], vec![Added(lent[1])]]);
        assert_eq!((after, outer.owes()), ([vec![Shown(lent[0])], vec![]], false));
        catch_unwind(|| TellLater::except(|| panic!("part of the test"))).expect_err("it panics");
        spaces[1].0.show(lent[1].start + machine.granule(), machine.granule());
        spaces[1].0.show(lent[1].start, 1);
        assert_eq!((told(), outer.owes()), (nothing, true), "it tells later again");
        drop(spaces[1].0.share(lent[1].id).unwrap());
        lent
    };
    assert_eq!(told(), [vec![], vec![Shown(lent[1])]]);
    lend(&spaces[0].0, spaces[0].0.add_lender(), object(&machine, 1));
    assert!(matches!(told().each_ref().map(Vec::as_slice), [[Added(_)], []]), "it tells at once again");
    assert!(first.iter().all(|(told, object)| *told == [Added(*object)]));
    for (space, _) in &spaces {
        checked(space);
    }
}

fn an_object_that_goes_before_a_registrar_hears_of_it_is_not_told_of(machine: Machine) {
    let (space, notes) = (machine.space(4), Arc::new(Notes::default()));
    let _registration = space.register(notes.clone());
    notes.take();
    let later = TellLater::begin();
    let lenders = [(); 3].map(|()| space.add_lender());
    let inodes = lenders.map(|lender| lend(&space, lender, object(&machine, 1)));
    let [_, first, middle, last] = objects(&space)[..] else { panic!("four objects") };
    space.show(middle.start, 1);
    space.remove_lender(lenders[1]);
    assert_eq!(inodes.map(is_open), [true, false, true]);
    space.remove_lender(lenders[0]);
    space.show(last.start, 1);
    drop(later);
    assert!(!is_open(first.inode));
    assert_eq!(notes.take(), [Added(last), Shown(last)], "the others have gone");
    space.remove_lender(lenders[2]);
    assert_eq!(notes.take(), [Removed(last)]);
    checked(&space);
}
