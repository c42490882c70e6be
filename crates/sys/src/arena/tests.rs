use super::*;

const MIB: usize = 1 << 20;

fn filled(arena: &Arena, offset: usize, len: usize, byte: u8) {
    // SAFETY: mapped by the test, no references exist.
    unsafe { arena.span(offset, len).fill(byte) };
}

fn byte(arena: &Arena, offset: usize) -> u8 {
    let mut byte = [0];
    // SAFETY: mapped by the test, no references exist.
    unsafe { arena.span(offset, 1).copy_to(&mut byte) };
    byte[0]
}

#[test]
fn an_alias_shows_the_same_granules() {
    let object = Object::create(GranuleKind::Base, 4 * MIB).unwrap();
    let arena = Arena::reserve(16 * MIB).unwrap();
    arena.map(0, &object, 0, MIB).unwrap();
    arena.map(4 * MIB, &object, 0, 4 * MIB).unwrap();
    filled(&arena, 0, MIB, 7);
    assert_eq!(byte(&arena, 5 * MIB - 1), 7);
    assert_eq!(byte(&arena, 5 * MIB), 0);
}

#[test]
fn a_read_only_mapping_shows_the_granules_and_takes_no_store() {
    for kind in [GranuleKind::Base, GranuleKind::Collapsed, GranuleKind::Huge] {
        let object = match Object::create(kind, 2 * MIB) {
            Err(error) if kind == GranuleKind::Huge => {
                let test = "a_read_only_mapping_shows_the_granules_and_takes_no_store";
                crate::skip::skip(test, &format!("no huge pages: {error}"));
                continue;
            }
            object => object.unwrap(),
        };
        let arena = Arena::reserve(8 * MIB).unwrap();
        let theirs = Object::accept(object.read_only().unwrap()).unwrap();
        arena.map_for(0, &theirs, 0, 2 * MIB, Access::Read).unwrap();
        arena.map_for(2 * MIB, &object, 0, 2 * MIB, Access::Read).unwrap();
        arena.map_for(4 * MIB, &object, 0, 2 * MIB, Access::None).unwrap();
        arena.map(6 * MIB, &object, 0, 2 * MIB).unwrap();
        filled(&arena, 6 * MIB, 2 * MIB, 7);
        assert_eq!((byte(&arena, 2 * MIB - 1), byte(&arena, 4 * MIB - 1)), (7, 7));
        let rights = [0, 2, 4, 6].map(|offset| {
            let mapping = crate::proc::mapping_at(arena.base() + offset * MIB);
            mapping.unwrap().permissions
        });
        assert_eq!(rights, ["r--s", "r--s", "---s", "rw-s"]);
        let refused = arena.map(0, &theirs, 0, 2 * MIB).unwrap_err();
        assert_eq!(refused.errno, Errno::ACCESS);
        assert!(refused.to_string().contains("loads only"), "{refused}");
        assert_eq!(byte(&arena, 0), 7, "what was mapped there still is");
    }
}

/// KiB that the mapping at `addr` shows as huge pages of an object whose pages were collapsed.
fn shown_huge(arena: &Arena) -> usize {
    crate::proc::mapping_at(arena.base()).unwrap().kib("ShmemPmdMapped:")
}

#[test]
fn collapsed_pages_are_shown_as_huge_ones_here_and_by_a_peer_and_base_pages_are_not() {
    let object = Object::create(GranuleKind::Collapsed, 4 * MIB).unwrap();
    if object.huge_bytes() < 4 * MIB {
        let test = "collapsed_pages_are_shown_as_huge_ones_here_and_by_a_peer_and_base_pages_are_not";
        return crate::skip::skip(test, "the kernel collapses no pages of shared memory, or not now");
    }
    let [here, read, stored] = [(); 3].map(|()| Arena::reserve(4 * MIB).unwrap());
    here.map(0, &object, 0, 4 * MIB).unwrap();
    let theirs = Object::accept(object.read_only().unwrap()).unwrap();
    read.map_for(0, &theirs, 0, 4 * MIB, Access::Read).unwrap();
    let theirs = Object::accept(object.duplicate().unwrap()).unwrap();
    stored.map_for(0, &theirs, 0, 4 * MIB, Access::ReadWrite).unwrap();
    assert_eq!([&here, &read, &stored].map(shown_huge), [4096; 3]);
    let base = Object::create(GranuleKind::Base, 4 * MIB).unwrap();
    here.map(0, &base, 0, 4 * MIB).unwrap();
    assert_eq!((base.huge_bytes(), shown_huge(&here)), (0, 0));
}

#[test]
fn a_read_only_mapping_is_filled_so_that_no_touch_faults() {
    let object = Object::create(GranuleKind::Base, 2 * MIB).unwrap();
    let arena = Arena::reserve(2 * MIB).unwrap();
    let theirs = Object::accept(object.read_only().unwrap()).unwrap();
    arena.map_for(0, &theirs, 0, 2 * MIB, Access::Read).unwrap();
    let frames = crate::proc::page_frames(arena.base(), 2 * MIB);
    assert!(frames.iter().all(|frame| frame.present));
}

#[test]
fn an_arena_larger_than_any_address_is_an_error() {
    for len in [usize::MAX, usize::MAX - 4 * MIB, 1 << 62] {
        assert_eq!(Arena::reserve(len).unwrap_err().errno, Errno::NOMEM);
    }
}

#[test]
fn a_swap_moves_granules_and_no_byte() {
    let object = Object::create(GranuleKind::Base, 8 * MIB).unwrap();
    let arena = Arena::reserve(32 * MIB).unwrap();
    arena.map(0, &object, 0, 2 * MIB).unwrap();
    arena.map(4 * MIB, &object, 2 * MIB, 2 * MIB).unwrap();
    arena.map(16 * MIB, &object, 0, 8 * MIB).unwrap();
    filled(&arena, 0, 2 * MIB, 1);
    filled(&arena, 4 * MIB, 2 * MIB, 2);
    arena.swap(0, 4 * MIB, 8 * MIB, 2 * MIB).unwrap();
    assert_eq!((byte(&arena, 0), byte(&arena, 4 * MIB)), (2, 1));
    assert_eq!((byte(&arena, 16 * MIB), byte(&arena, 18 * MIB)), (1, 2), "the object's bytes did not move");
}

#[test]
fn a_swap_of_a_split_range_is_done_whole_or_not_at_all() {
    let object = Object::create(GranuleKind::Base, 8 * MIB).unwrap();
    let arena = Arena::reserve(32 * MIB).unwrap();
    arena.map(0, &object, 0, MIB).unwrap();
    arena.map(MIB, &object, 6 * MIB, MIB).unwrap();
    arena.map(4 * MIB, &object, 2 * MIB, 2 * MIB).unwrap();
    filled(&arena, 0, 2 * MIB, 1);
    filled(&arena, 4 * MIB, 2 * MIB, 2);
    for (a, b) in [(0, 4 * MIB), (4 * MIB, 0)] {
        let before = (byte(&arena, 0), byte(&arena, 4 * MIB));
        let after = match arena.swap(a, b, 8 * MIB, 2 * MIB) {
            Ok(swapped) => {
                assert_eq!(swapped, Swapped::Both);
                (before.1, before.0)
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::FAULT);
                before
            }
        };
        assert_eq!((byte(&arena, 0), byte(&arena, 4 * MIB)), after);
        assert_eq!((byte(&arena, 2 * MIB - 1), byte(&arena, 6 * MIB - 1)), after);
    }
}

/// Linux up to 6.16 unmaps the range to which page tables are to be moved before it finds that it cannot move them. Once, these
/// addresses were then left unmapped, until page tables were moved there again: whatever another thread had mapped there meanwhile
/// was destroyed.
#[test]
fn a_move_that_fails_leaves_no_hole() {
    // SAFETY: as below. Nobody uses the addresses that are unmapped.
    let child = unsafe {
        crate::child::fork_child(|| {
            let object = Object::create(GranuleKind::Base, MIB).unwrap();
            let arena = Arena::reserve(16 * MIB).unwrap();
            arena.map(0, &object, 0, MIB).unwrap();
            filled(&arena, 0, MIB, 7);
            // What such a kernel does, whichever one runs here.
            crate::seccomp::refuse(&[libc::SYS_mremap], libc::EFAULT);
            libc::munmap(arena.pointer(8 * MIB), MIB);
            let refused = arena.move_tables(0, 8 * MIB, MIB).unwrap_err().errno == Errno::FAULT;
            let reserved = crate::proc::mapping_at(arena.base() + 8 * MIB)
                .is_some_and(|mapping| mapping.permissions == "---p" && mapping.has_flag("dc"));
            u8::from(refused) + 2 * u8::from(reserved) + 4 * u8::from(byte(&arena, 0) == 7)
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), crate::child::ExitOutcome::Code(7));
}

/// The object has more huge pages than there are, and none are set aside, as after a peer has punched holes and taken the
/// pages. The kernel unmaps a range before it finds that it cannot map such an object over it. Once, addresses of the arena
/// were then left unmapped: the next mmap of any thread could use them, and its memory was destroyed with the arena.
#[test]
fn a_failed_mapping_leaves_no_hole() {
    let pages = crate::inspect::huge_pages().unwrap();
    if pages.size_kib != 2048 {
        return crate::skip::skip("a_failed_mapping_leaves_no_hole", "no huge pages of 2 MiB");
    }
    let len = (pages.total + 8) * 2 * MIB;
    let created = Object::create(GranuleKind::Huge, len);
    assert_eq!(created.unwrap_err().errno, Errno::NOMEM, "huge pages are set aside when an object is made");
    // SAFETY: as above. In a child, no other thread can map into the hole before it is filled.
    let child = unsafe {
        crate::child::fork_child(|| {
            let object = Object::unsealed(GranuleKind::Huge, len);
            let arena = Arena::reserve(len).unwrap();
            let is_reserved = |offset: usize| {
                crate::proc::mapping_at(arena.base() + offset)
                    .is_some_and(|mapping| mapping.permissions == "---p" && mapping.has_flag("dc"))
            };
            let left = |failed: Result<()>| {
                failed.unwrap_err().errno == Errno::NOMEM
                    && [0, len / 2, len - 1].into_iter().all(is_reserved)
            };
            let mapped = left(arena.map(0, &object, 0, len));
            u8::from(mapped) + 2 * u8::from(left(arena.map_for(0, &object, 0, len, Access::Read)))
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), crate::child::ExitOutcome::Code(3));
}

#[test]
fn a_peers_object_that_cannot_be_mapped_leaves_what_was_there() {
    let pages = crate::inspect::huge_pages().unwrap();
    let len = (pages.total + 8) * 2 * MIB;
    let (before, theirs) =
        (Object::create(GranuleKind::Base, MIB).unwrap(), Object::unsealed(GranuleKind::Huge, len));
    if pages.size_kib != 2048 {
        return crate::skip::skip("a_peers_object_that_cannot_be_mapped", "no huge pages of 2 MiB");
    }
    let arena = Arena::reserve(len).unwrap();
    arena.map(0, &before, 0, MIB).unwrap();
    filled(&arena, 0, MIB, 7);
    let failed = arena.map_for(0, &theirs, 0, len, Access::ReadWrite);
    assert_eq!(failed.unwrap_err().errno, Errno::NOMEM);
    assert_eq!((byte(&arena, 0), byte(&arena, MIB - 1)), (7, 7));
}

#[test]
fn no_child_inherits_what_was_mapped_elsewhere_first() {
    let object = Object::create(GranuleKind::Base, MIB).unwrap();
    let arena = Arena::reserve(2 * MIB).unwrap();
    arena.map_for(MIB, &object, 0, MIB, Access::ReadWrite).unwrap();
    let mapping = crate::proc::mapping_at(arena.base() + MIB).unwrap();
    assert_eq!((mapping.start, mapping.permissions.as_str()), (arena.base() + MIB, "rw-s"));
    assert!(mapping.has_flag("dc"));
}

#[test]
#[should_panic(expected = "leaves the arena")]
fn a_range_beyond_the_arena_is_refused() {
    let arena = Arena::reserve(2 * MIB).unwrap();
    let _ = arena.unmap(MIB, 2 * MIB);
}

/// Once, a call failed because advice was refused, although its mapping was in use already. Its caller then went on as if
/// the old mapping were still there.
#[test]
fn a_call_that_fails_has_changed_nothing_and_one_that_has_mapped_succeeds() {
    let [before, after] = [7, 8].map(|byte| {
        let (arena, object) =
            (Arena::reserve(2 * MIB).unwrap(), Object::create(GranuleKind::Base, MIB).unwrap());
        arena.map(0, &object, 0, MIB).unwrap();
        filled(&arena, 0, MIB, byte);
        object
    });
    let arena = Arena::reserve(2 * MIB).unwrap();
    // SAFETY: the child makes system calls, and looks at memory that it has mapped itself; the C library keeps the
    // allocator's locks across a fork.
    let child = unsafe {
        crate::child::fork_child(|| {
            crate::seccomp::refuse(&[libc::SYS_madvise], libc::EPERM);
            let mapped = arena.map(0, &before, 0, MIB).is_ok() && byte(&arena, 0) == 7;
            let replaced =
                arena.map_for(0, &after, 0, MIB, Access::ReadWrite).is_ok() && byte(&arena, 0) == 8;
            let unmapped = arena.unmap(0, MIB).is_ok();
            u8::from(mapped) + 2 * u8::from(replaced) + 4 * u8::from(unmapped)
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), crate::child::ExitOutcome::Code(7));
}

/// Once, no arena could be reserved where advice is refused, nor was an object's memory to be had without fallocate. The child's
/// child has zeros in the arena all the same.
#[test]
fn without_advice_and_fallocate_an_arena_works_and_its_children_have_zeros() {
    // SAFETY: as above; objects and arenas are made by system calls, and what they allocate is from an allocator whose locks the C
    // library keeps across a fork.
    let child = unsafe {
        crate::child::fork_child(|| {
            crate::seccomp::refuse(&[libc::SYS_madvise, libc::SYS_fallocate], libc::ENOSYS);
            let object = Object::create(GranuleKind::Base, MIB).unwrap();
            let arena = Arena::reserve(2 * MIB).unwrap();
            object.allocate().unwrap();
            let taken = rustix::fs::fstat(&object).unwrap().st_blocks;
            arena.map(0, &object, 0, MIB).unwrap();
            filled(&arena, 0, MIB, 7);
            let grandchild = crate::child::fork_child(|| byte(&arena, 0) + byte(&arena, MIB - 1));
            let zeros = grandchild.unwrap().wait().unwrap() == crate::child::ExitOutcome::Code(0);
            let kept = byte(&arena, 0) == 7;
            u8::from(taken as usize * 512 == MIB) + 2 * u8::from(zeros) + 4 * u8::from(kept)
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), crate::child::ExitOutcome::Code(7));
}
