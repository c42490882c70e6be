use super::*;
use crate::child::{ExitOutcome, fork_child};
use crate::lock::Mutex;
use crate::{Access, Arena, GranuleKind, Object, inspect};

const MIB: usize = 1 << 20;

/// Guards are few: a test that uses them all must not run beside another test.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> crate::lock::MutexGuard<'static, ()> {
    TURN.lock()
}

fn byte(arena: &Arena, offset: usize) -> u8 {
    let mut byte = [0];
    // SAFETY: mapped by the test, no references exist.
    unsafe { arena.span(offset, 1).copy_to(&mut byte) };
    // The load is made, though nothing looks at the byte.
    std::hint::black_box(byte[0])
}

fn fill(arena: &Arena, offset: usize, len: usize, byte: u8) {
    // SAFETY: mapped by the test, no references exist.
    unsafe { arena.span(offset, len).fill(byte) };
}

/// Two granules full of sevens; the second granule is then taken away.
fn half_gone(kind: GranuleKind) -> (Arena, Object) {
    let size = kind.size();
    let object = Object::unsealed(kind, 2 * size);
    let arena = Arena::reserve(8 * MIB).unwrap();
    arena.map(4 * MIB, &object, 0, 2 * size).unwrap();
    fill(&arena, 4 * MIB, 2 * size, 7);
    rustix::fs::ftruncate(&object, size as u64).unwrap();
    (arena, object)
}

fn a_missing_granule_reads_as_zeros(kind: GranuleKind) {
    let _turn = turn();
    let size = kind.size();
    let (arena, _object) = half_gone(kind);
    let (whole, _whole_object) = half_gone(kind);
    let (guard, other) = (arena.guard(Replaces::Missing).unwrap(), whole.guard(Replaces::Missing).unwrap());
    assert_eq!(byte(&arena, 4 * MIB + size - 1), 7);
    assert!(!guard.is_broken(), "what is there can be touched");
    assert_eq!(byte(&arena, 4 * MIB + size + 100), 0);
    assert!(guard.is_broken() && !other.is_broken());
    assert_eq!(byte(&arena, 4 * MIB + size - 1), 7, "the granule before it is untouched");
    fill(&arena, 4 * MIB + size, size, 9);
    assert_eq!(byte(&arena, 4 * MIB + 2 * size - 1), 9);
    let zeros = crate::proc::mapping_at(arena.base() + 4 * MIB + size).unwrap();
    assert_eq!((zeros.name.as_str(), zeros.permissions.as_str()), ("", "rw-p"));
    assert!(zeros.has_flag("dc"), "no child inherits it");
}

#[test]
fn a_missing_small_granule_reads_as_zeros_and_breaks_its_own_guard_only() {
    a_missing_granule_reads_as_zeros(GranuleKind::Base);
}

#[test]
fn a_missing_huge_granule_reads_as_zeros_and_breaks_its_own_guard_only() {
    if let Err(error) = Object::create(GranuleKind::Huge, 4 * GranuleKind::Huge.size()) {
        let test = "a_missing_huge_granule_reads_as_zeros_and_breaks_its_own_guard_only";
        return crate::skip::skip(test, &format!("no huge pages: {error}"));
    }
    a_missing_granule_reads_as_zeros(GranuleKind::Huge);
}

#[test]
fn a_store_to_a_missing_granule_is_lost_and_breaks_the_guard() {
    let _turn = turn();
    let (arena, _object) = half_gone(GranuleKind::Base);
    let guard = arena.guard(Replaces::Missing).unwrap();
    fill(&arena, 4 * MIB + 4096, 1, 5);
    assert!(guard.is_broken());
    assert_eq!((byte(&arena, 4 * MIB + 4096), byte(&arena, 4 * MIB + 4097)), (5, 0));
}

/// The copies are long enough for the string instruction, which stops in the middle and goes on from there.
#[test]
fn a_long_copy_goes_on_where_memory_is_missing() {
    let _turn = turn();
    let size = GranuleKind::Base.size();
    let (from, _object) = half_gone(GranuleKind::Base);
    let guard = from.guard(Replaces::Missing).unwrap();
    let mut bytes = vec![1; 2 * size - 100];
    // SAFETY: mapped by the test, no references exist.
    unsafe { from.span(4 * MIB + 50, bytes.len()).copy_to(&mut bytes) };
    assert!(guard.is_broken());
    let (there, missing) = bytes.split_at(size - 50);
    assert!(there.iter().all(|byte| *byte == 7) && missing.iter().all(|byte| *byte == 0));
    let (to, _object) = half_gone(GranuleKind::Base);
    let guard = to.guard(Replaces::Missing).unwrap();
    bytes.fill(5);
    // SAFETY: as above.
    unsafe { to.span(4 * MIB + 50, bytes.len()).copy_from(&bytes) };
    assert!(guard.is_broken());
    assert_eq!(
        [49, 50, size - 1].map(|at| byte(&to, 4 * MIB + at)),
        [7, 5, 5],
        "what is there is stored into"
    );
    assert_eq!([2 * size - 51, 2 * size - 50].map(|at| byte(&to, 4 * MIB + at)), [5, 0], "to its end");
}

#[test]
fn many_threads_may_touch_what_is_missing_at_once() {
    let _turn = turn();
    let pages = 256;
    let object = Object::unsealed(GranuleKind::Base, pages * 4096);
    let arena = Arena::reserve(4 * MIB).unwrap();
    arena.map_for(0, &object, 0, pages * 4096, Access::Read).unwrap();
    rustix::fs::ftruncate(&object, 0).unwrap();
    let guard = arena.guard(Replaces::Missing).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for page in 0..pages {
                    assert_eq!(byte(&arena, page * 4096), 0);
                    assert!(guard.is_broken());
                }
            });
        }
    });
}

#[test]
fn errno_is_kept_across_a_repair() {
    let _turn = turn();
    let (arena, _object) = half_gone(GranuleKind::Base);
    let _guard = arena.guard(Replaces::Missing).unwrap();
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() = 77 };
    byte(&arena, 4 * MIB + 4096);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 77);
}

/// How a child ends if it touches the missing granule of memory outside any arena.
fn end_of_a_child_that_touches_missing_memory(prepare: impl FnOnce()) -> ExitOutcome {
    use rustix::mm::{MapFlags, ProtFlags};
    let object = Object::unsealed(GranuleKind::Base, 4096);
    // SAFETY: a new mapping, which only the child touches.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &object, 0).unwrap()
    };
    rustix::fs::ftruncate(&object, 0).unwrap();
    // SAFETY: the child makes system calls, loads a byte, and dies of it.
    let child = unsafe {
        fork_child(|| {
            prepare();
            start.cast::<u8>().read_volatile()
        })
    };
    let outcome = child.unwrap().wait().unwrap();
    // SAFETY: mapped above; the child that touched it has exited.
    unsafe { rustix::mm::munmap(start, 4096).unwrap() };
    outcome
}

#[test]
fn a_bus_error_elsewhere_kills_as_ever() {
    let _turn = turn();
    let (arena, _object) = half_gone(GranuleKind::Base);
    let guard = arena.guard(Replaces::Missing).unwrap();
    let outcome = end_of_a_child_that_touches_missing_memory(|| {});
    assert_eq!(outcome, ExitOutcome::Signal(libc::SIGBUS));
    assert!(!guard.is_broken());
}

#[test]
fn a_bus_signal_that_somebody_sends_is_no_repair() {
    let _turn = turn();
    let arena = Arena::reserve(2 * MIB).unwrap();
    let guard = arena.guard(Replaces::Missing).unwrap();
    // SAFETY: the child makes system calls only.
    let child = unsafe {
        fork_child(|| {
            // The handler that the Rust runtime has installed takes the first signal for a fault that will come again.
            for _ in 0..2 {
                libc::raise(libc::SIGBUS);
            }
            0
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), ExitOutcome::Signal(libc::SIGBUS));
    assert!(!guard.is_broken());
}

#[test]
fn a_guard_ends_with_its_arena_but_still_tells() {
    let _turn = turn();
    let (arena, _object) = half_gone(GranuleKind::Base);
    let (base, guard) = (arena.base() + 4 * MIB + 4096, arena.guard(Replaces::Missing).unwrap());
    byte(&arena, 4 * MIB + 4096);
    assert!(TABLE.iter().any(|entry| entry.holds(base, Loss::Missing)));
    drop(arena);
    assert!(!TABLE.iter().any(|entry| entry.holds(base, Loss::Missing)));
    assert!(guard.is_broken());
}

#[test]
fn an_arena_has_one_guard_that_ends_with_its_last_handle() {
    let _turn = turn();
    let arena = Arena::reserve(2 * MIB).unwrap();
    let holders = || TABLE.iter().filter(|entry| entry.holds(arena.base(), Loss::Missing)).count();
    let (one, other) = (arena.guard(Replaces::Missing).unwrap(), arena.guard(Replaces::Missing).unwrap());
    assert_eq!(holders(), 1);
    drop(one);
    assert_eq!(holders(), 1);
    drop(other);
    assert_eq!(holders(), 0);
    let _again = arena.guard(Replaces::Missing).unwrap();
    assert_eq!(holders(), 1);
}

#[test]
fn a_full_table_is_told_and_freed_places_are_used_again() {
    let _turn = turn();
    let arenas: Vec<Arena> = (0..=CAPACITY).map(|_| Arena::reserve(2 * MIB).unwrap()).collect();
    let mut guards: Vec<Guard> =
        arenas[1..].iter().map(|arena| arena.guard(Replaces::Missing).unwrap()).collect();
    let error = arenas[0].guard(Replaces::Missing).unwrap_err();
    assert_eq!(error.errno, Errno::NOSPC);
    assert!(error.to_string().contains("1024"), "{error}");
    guards.pop();
    assert!(!arenas[0].guard(Replaces::Missing).unwrap().is_broken());
}

#[test]
fn damage_is_replaced_only_where_all_memory_is_a_peers() {
    let _turn = turn();
    let [mixed, peers] = [(); 2].map(|()| Arena::reserve(2 * MIB).unwrap());
    let (own, theirs) = (mixed.guard(Replaces::Missing), peers.guard(Replaces::MissingAndDamaged));
    let (own, theirs) = (own.unwrap(), theirs.unwrap());
    assert!(!break_guard_of(mixed.base(), Loss::Damaged) && !own.is_broken());
    assert!(break_guard_of(peers.base(), Loss::Damaged) && theirs.is_broken());
    assert!(break_guard_of(mixed.base(), Loss::Missing) && own.is_broken());
}

/// Once, where zeros could not be mapped over one small page, they were mapped over the 2 MiB around it, whose memory
/// was there.
#[test]
fn at_the_limit_of_mappings_what_is_there_is_not_replaced() {
    let _turn = turn();
    let (arena, scraps) = (Arena::reserve(2 * MIB).unwrap(), inspect::max_map_count().unwrap());
    let scraps = Arena::reserve(2 * scraps * 4096).unwrap();
    let object = Object::unsealed(GranuleKind::Base, 2 * MIB);
    rustix::io::pwrite(&object, &[7; MIB], 0).unwrap();
    let guard = arena.guard(Replaces::Missing).unwrap();
    // SAFETY: the child makes system calls, and touches memory that it has mapped itself; the C library keeps the
    // allocator's locks across a fork.
    let child = unsafe {
        fork_child(|| {
            arena.map(0, &object, 0, 2 * MIB).unwrap();
            rustix::fs::ftruncate(&object, MIB as u64).unwrap();
            let pages = (0..scraps.len()).step_by(4096).skip(1).step_by(2);
            let mut pages = pages.filter(|at| scraps.protect(*at, 4096, Access::Read).is_err());
            assert!(pages.next().is_some() && !guard.is_broken());
            byte(&arena, MIB + 4096);
            byte(&arena, 0)
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), ExitOutcome::Signal(libc::SIGBUS));
}
