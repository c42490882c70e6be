use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use genie_sys::GranuleKind;

use super::*;
use crate::{Config, Direction, Protection, Registrar, SharedObject, aliases};

#[path = "../../../../sys/tests/skip/mod.rs"]
mod skip;

const BOUNDS: Bounds = Bounds { objects: 64, left: 0, kept: 0, keeps_shown: false };

const LEN: usize = 64 * 4096;

fn space() -> Space {
    let config = Config { limit: 64 << 20, ..Config::default() };
    Space::without_objects(&config, GranuleKind::Base).unwrap()
}

/// Linux joins page tables that are moved with a neighbour that shows the granules before them, and then drops the registration
/// with the userfaultfd of both: stores into the neighbour reached pending output.
#[test]
#[cfg_attr(miri, ignore = "maps objects")]
fn a_block_that_moves_beside_a_protected_one_leaves_it_protected() {
    let space = space();
    if space.protection() != Protection::Full {
        let test = "a_block_that_moves_beside_a_protected_one_leaves_it_protected";
        return skip::skip(test, "the kernel grants no userfaultfd that catches the kernel's own stores");
    }
    let take = |len| space.take_block(&BOUNDS, len, 1).expect("memory").addr;
    let (neighbour, room, block, _behind) = (take(LEN), take(2 * LEN), take(LEN), take(1));
    assert_eq!([room, block], [neighbour + LEN, neighbour + 3 * LEN], "they lie side by side");
    // An input gives the neighbour granules, and another one gives the block those that follow.
    let mut systems = [(); 2].map(|()| space.aligned_buffer(0, LEN).unwrap());
    for (system, addr) in systems.iter_mut().zip([neighbour, block]) {
        system.data().fill(7);
        let passed = space.delivery_at(addr, LEN).unwrap().from_one(system, &(0..64)).unwrap();
        assert_eq!(passed.swapped, 64);
    }
    space.give_block(&BOUNDS, room);
    let output = space.reference(neighbour, LEN, Direction::Out).unwrap();
    space.read_only(&output).unwrap();
    assert_eq!(space.resize_block(&BOUNDS, block, 2 * LEN, 1), Some(room));
    aliases::window(space.core(), neighbour, LEN).fill(9);
    assert!(output.data().to_vec() == [7; LEN], "a store reached pending output");
    assert!(aliases::window(space.core(), room, LEN).to_vec() == [7; LEN], "the block's bytes");
    drop(output);
    space.check().unwrap();
}

/// A registrar that counts what it is told.
#[derive(Default)]
struct Counting {
    added: AtomicU32,
    removed: AtomicU32,
}

impl Counting {
    fn told(&self) -> (u32, u32) {
        (self.added.load(Ordering::Relaxed), self.removed.load(Ordering::Relaxed))
    }
}

impl Registrar for Counting {
    fn added(&self, _: &SharedObject) {
        self.added.fetch_add(1, Ordering::Relaxed);
    }

    fn removed(&self, _: &SharedObject) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that only allocates and frees tells nobody: what it had noted held memory and descriptors without end.
#[test]
#[cfg_attr(miri, ignore = "maps objects")]
fn blocks_that_come_and_go_before_a_registrar_hears_of_them_leave_nothing() {
    let (space, counting) = (space(), Arc::new(Counting::default()));
    let _registration = space.register(counting.clone());
    let bounds = Bounds { objects: 1, ..BOUNDS };
    for _ in 0..100 {
        let addr = space.take_block(&bounds, LEN, 1).expect("no other object has a descriptor").addr;
        aliases::window(space.core(), addr, LEN).fill(1);
        space.give_block(&bounds, addr);
    }
    space.check().unwrap();
    assert_eq!(counting.told(), (0, 0), "no data was passed in them");
}

#[test]
#[cfg_attr(miri, ignore = "maps objects")]
fn of_freed_blocks_a_registrar_has_yet_to_hear_of_nothing_but_descriptors_is_left() {
    let (space, counting) = (space(), Arc::new(Counting::default()));
    let _registration = space.register(counting.clone());
    let bounds = Bounds { objects: 3, ..BOUNDS };
    let take = || space.take_block(&bounds, LEN, 1).map(|taken| taken.addr);
    let blocks = [(); 3].map(|()| take().expect("a block"));
    for addr in blocks {
        aliases::window(space.core(), addr, LEN).fill(1);
    }
    space.check().unwrap();
    assert_eq!(counting.told(), (3, 0));
    let of = |object: &Object| File::from(object.duplicate().unwrap());
    let files: Vec<File> = space.core().lock().objects.own().map(of).collect();
    let taken = || files.iter().map(|file| file.metadata().unwrap().blocks()).sum::<u64>();
    assert_eq!(taken(), 3 * (LEN / 512) as u64);
    blocks.iter().for_each(|addr| space.give_block(&bounds, *addr));
    assert_eq!((counting.told(), taken()), ((3, 0), 0), "their memory is given back");
    assert_eq!(take(), None, "their descriptors are not");
    space.check().unwrap();
    assert_eq!(counting.told(), (3, 3));
    assert!(take().is_some());
}
