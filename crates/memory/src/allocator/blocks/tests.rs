use genie_sys::GranuleKind;

use super::*;
use crate::{Config, Direction, InputPlan, Protection, aliases};

#[path = "../../../../sys/tests/skip/mod.rs"]
mod skip;

const BOUNDS: Bounds = Bounds { objects: 64, left: 0, kept: 0, keeps_shown: false };

/// Linux joins page tables that are moved with a neighbour that shows the granules before them, and then drops the registration
/// with the userfaultfd of both: stores into the neighbour reached pending output.
#[test]
#[cfg_attr(miri, ignore = "maps objects")]
fn a_block_that_moves_beside_a_protected_one_leaves_it_protected() {
    const LEN: usize = 64 * 4096;
    let config = Config { limit: 64 << 20, ..Config::default() };
    let space = Space::without_objects(&config, GranuleKind::Base).unwrap();
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
        let passed =
            space.delivery_at(addr, LEN).unwrap().from_one(system, &InputPlan { swap: 0..64 }).unwrap();
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
