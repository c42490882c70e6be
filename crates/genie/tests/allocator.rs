//! A program whose global allocator is Genie's: what libraries allocate is passed without copying, and the program's memory
//! works as with any other allocator.
#![allow(unsafe_code, reason = "allocates by hand, and forks")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::Arc;

use genie::channel::{ConnectOptions, Directory, Listener, ServeOptions};
use genie::mechanism::{Passing, Protection, Space, Thresholds};
use genie::{
    Connect, Direction, In, Incoming, Interface, Limits, Out, RequestId, Server, ServerHandle, Service,
    ServiceId,
};
use genie_memory::{Data, ObjectId, Registrar, Registration, SharedObject, Usage};
use genie_sys::lock::{Mutex, MutexGuard};
use image::{ImageBuffer, Rgba};

#[path = "../../sys/tests/child/mod.rs"]
mod child;
#[path = "../../sys/tests/skip/mod.rs"]
mod skip;

use child::{ExitOutcome, fork_child};
use skip::skip;

#[global_allocator]
static ALLOCATOR: genie::Allocator = genie::Allocator::new();

const MIB: usize = 1 << 20;

/// Tests that allocate blocks run one by one, since some count those of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

fn space() -> Space {
    genie::Allocator::space().expect("the allocator's space")
}

#[track_caller]
fn checked() -> Usage {
    space().check().expect("the tables add up")
}

fn is_block(memory: *const u8, len: usize) -> bool {
    space().region_at(memory.addr(), len).is_some()
}

/// The object that holds a byte, and how far the byte is from its start.
#[track_caller]
fn object_of(memory: *const u8) -> (ObjectId, usize) {
    let space = space();
    let reference = space.reference(memory.addr(), 1, Direction::Out).expect("a block");
    let alias = reference.segments()[0].addr() - space.aliases_base();
    let object = space.object_at(alias).expect("its object");
    (object.id, alias - object.start)
}

/// A vector of bytes that tell their places.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| nth(seed, at)).collect()
}

fn nth(seed: usize, at: usize) -> u8 {
    (at * 7 + at / 4096 + seed) as u8
}

fn is_pattern(seed: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| *byte == nth(seed, at))
}

fn picture() -> ImageBuffer<Rgba<u8>, Vec<u8>> {
    ImageBuffer::from_fn(2048, 2048, |x, y| Rgba([x as u8, y as u8, (x ^ y) as u8, 255]))
}

/// An interface that avoids copying wherever it can.
fn interface() -> Interface {
    let passing = Passing::over(space()).with_thresholds(Thresholds::ALWAYS);
    Interface::new(passing, Limits::default())
}

/// A server that keeps every request until the test replies to it; as the second service, one that fills its input.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Incoming>>>);

const KEEP: ServiceId = ServiceId(0);
const FILL: ServiceId = ServiceId(1);
static SERVICES: [Service; 2] = [Service::new("keep", true, false), Service::new("fill", false, true)];

impl Keeper {
    fn kept(&self) -> Incoming {
        self.0.lock().pop().expect("a request")
    }
}

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        if request.service() == FILL {
            request.fill(0, |room| room.fill(0x5a)).expect("memory");
            return request.reply(Ok(()));
        }
        self.0.lock().push(request);
    }

    fn abort(&self, _: RequestId) {}
}

#[test]
fn a_large_allocation_is_a_region_in_an_object_of_its_own_and_a_small_one_is_not() {
    let _alone = alone();
    let (small, large, other) = (vec![1u8; 100 << 10], vec![1u8; MIB], "x".repeat(MIB));
    assert!(!space().may_hold(small.as_ptr().addr()));
    assert!(is_block(large.as_ptr(), MIB) && is_block(other.as_ptr(), MIB));
    let objects = [object_of(large.as_ptr()), object_of(other.as_ptr())];
    assert_ne!(objects[0].0, objects[1].0);
    assert_eq!(objects.map(|(_, start)| start), [0, 0], "each starts its object");
    checked();
}

#[test]
fn an_interface_is_opened_over_the_space_of_the_programs_allocations() {
    let _alone = alone();
    assert!(Interface::open().expect("an interface").space().is(&space()));
}

/// Where data is: (address, length) of each piece.
fn where_is(data: &Data<'_>) -> Vec<(usize, usize)> {
    data.segments().iter().map(|span| (span.addr(), span.len())).collect()
}

/// A server that expects a picture, and says where it sees that.
struct Viewer(Arc<Mutex<Vec<(usize, usize)>>>);

impl Server for Viewer {
    fn name(&self) -> &str {
        "viewer"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, request: Incoming) {
        let data = request.output(0).expect("an output");
        assert!(data.mismatch(&picture()).is_none(), "the picture is another one");
        self.0.lock().extend(where_is(&data));
        request.reply(Ok(()));
    }

    fn abort(&self, _: RequestId) {}
}

#[test]
fn a_picture_is_sent_without_copying_on_any_machine() {
    let _alone = alone();
    let places = Arc::new(Mutex::new(Vec::new()));
    let (genie, server) =
        (Interface::open().expect("an interface"), ServerHandle::new(Viewer(places.clone())));
    let picture = picture();
    let reply = genie.request(&server, KEEP).out(Out::emulated_copy(&picture)).send().expect("a reply");
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.referenced, receipt.protected), (0, 4096, 0), "{receipt}");
    let reference = space().reference(picture.as_ptr().addr(), 16 * MIB, Direction::Out).expect("a block");
    let seen = places.lock();
    assert!(seen.iter().copied().eq(where_is(&reference.data())), "the server saw the picture's own pages");
}

#[test]
fn a_picture_reaches_a_server_over_a_channel_without_copying_and_leaves_it_when_it_is_freed() {
    let _alone = alone();
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = Directory::at(scratch.path().join("run")).expect("a run-time directory");
    let places = Arc::new(Mutex::new(Vec::new()));
    let options = ServeOptions { pool: 8 * MIB, ..ServeOptions::default() };
    let listener = Listener::bind_in(&directory, "viewer", Viewer(places.clone()), options).expect("a name");
    let _serving = listener.start().expect("threads");
    let genie = Interface::open().expect("an interface");
    let server = genie.connect_with(&directory, "viewer", &ConnectOptions::default()).expect("a connection");
    for _ in 0..3 {
        let picture = picture();
        let (object, start) = object_of(picture.as_ptr());
        let reply = genie.request(&server, KEEP).out(Out::emulated_copy(&picture)).send().expect("a reply");
        assert_eq!((reply.receipt().copied, reply.receipt().referenced), (0, 4096), "{}", reply.receipt());
        drop(picture);
        assert_eq!(start, 0);
        let next = picture_object();
        assert_ne!(next, object, "what the server has mapped is in use again");
    }
    let (addr, _) = places.lock()[0];
    assert!(!space().may_hold(addr), "the server saw it in a mapping of its own");
}

/// The object of a picture that is freed at once.
fn picture_object() -> ObjectId {
    object_of(picture().as_ptr()).0
}

#[test]
fn an_input_swaps_the_pages_of_a_picture() {
    let _alone = alone();
    let (genie, server) = (interface(), ServerHandle::new(Keeper::default()));
    let mut picture = picture();
    let reply = genie.request(&server, FILL).input(In::emulated_copy(&mut picture)).send().expect("a reply");
    let receipt = reply.buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.swapped), (0, 4096), "{receipt}");
    assert!(picture.as_raw().iter().all(|byte| *byte == 0x5a));
    drop(picture);
    checked();
}

#[test]
fn output_outlives_the_vector_that_it_is_from() {
    let test = "output_outlives_the_vector_that_it_is_from";
    let _alone = alone();
    if space().protection() != Protection::Full {
        return skip(test, "the kernel grants no userfaultfd that catches the kernel's own stores");
    }
    let (genie, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let expected = pattern(1, 4 * MIB);
    let before = checked();
    let sent = expected.clone();
    let pending = genie.request(&server, KEEP).out(Out::emulated_copy(&sent)).submit().expect("a request");
    drop(sent);
    assert_eq!(checked().deferred - before.deferred, 1024, "the vector's granules wait for the output");
    let others: Vec<_> = (0..4).map(|seed| pattern(seed, 4 * MIB)).collect();
    let request = keeper.kept();
    assert!(request.output(0).expect("the data").mismatch(&expected).is_none());
    request.reply(Ok(()));
    let receipt = pending.sync().expect("a reply").buffers[0].elements[0].receipt;
    assert_eq!((receipt.copied, receipt.referenced), (0, 1024), "{receipt}");
    drop(others);
    assert_eq!(checked().deferred, before.deferred);
}

#[test]
fn a_freed_block_that_a_request_references_is_not_the_next_one() {
    let _alone = alone();
    let vec = pattern(5, 6 * MIB);
    let (addr, before) = (vec.as_ptr().addr(), checked().deferred);
    let reference = space().reference(addr, vec.len(), Direction::Out).expect("a block");
    drop(vec);
    assert_eq!(checked().deferred - before, 6 * 256);
    let next = vec![0xee; 6 * MIB];
    assert!(reference.data().mismatch(&pattern(5, 6 * MIB)).is_none(), "another vector has its granules");
    drop((reference, next));
    assert_eq!(checked().deferred, before);
}

#[test]
fn an_input_that_ends_where_a_vector_once_ended_leaves_what_is_behind() {
    let _alone = alone();
    let (genie, server) = (interface(), ServerHandle::new(Keeper::default()));
    let mut vec: Vec<u8> = Vec::with_capacity(MIB + 100);
    vec.reserve_exact(MIB + 3000);
    vec.extend((0..MIB + 3000).map(|at| nth(6, at)));
    let fill = genie.request(&server, FILL).input(In::emulated_copy(&mut vec[..MIB + 100]));
    assert!(fill.send().expect("a reply").receipt().swapped >= 256);
    assert!(vec[..MIB + 100].iter().all(|byte| *byte == 0x5a));
    assert!((MIB + 100..MIB + 3000).all(|at| vec[at] == nth(6, at)), "bytes behind the input were lost");
}

#[test]
fn a_vector_grows_without_copying() {
    let _alone = alone();
    let mut vec = pattern(2, MIB);
    vec.shrink_to_fit();
    let first = object_of(vec.as_ptr());
    // What is allocated behind it keeps its addresses from being extended.
    let mut others = Vec::new();
    for len in [2 * MIB, 3 * MIB, 9 * MIB, 40 * MIB] {
        others.push(vec![0u8; MIB]);
        vec.reserve_exact(len - vec.len());
        assert_eq!(object_of(vec.as_ptr()), first, "the same granule shows at the start");
        let grown = vec.len();
        vec.extend((grown..len).map(|at| nth(2, at)));
        assert!(is_block(vec.as_ptr(), len));
    }
    assert!(vec == pattern(2, 40 * MIB));
    vec.truncate(300 << 10);
    vec.shrink_to_fit();
    assert!(vec == pattern(2, 300 << 10) && is_block(vec.as_ptr(), vec.len()));
    vec.truncate(1000);
    vec.shrink_to_fit();
    assert!(vec == pattern(2, 1000) && !space().may_hold(vec.as_ptr().addr()));
    checked();
}

#[test]
fn a_vector_grows_while_output_from_it_is_pending() {
    let test = "a_vector_grows_while_output_from_it_is_pending";
    let _alone = alone();
    if space().protection() != Protection::Full {
        return skip(test, "the kernel grants no userfaultfd that catches the kernel's own stores");
    }
    let (genie, keeper) = (interface(), Keeper::default());
    let server = ServerHandle::new(keeper.clone());
    let mut vec = pattern(3, 2 * MIB);
    let pending = genie.request(&server, KEEP).out(Out::emulated_copy(&vec)).submit().expect("a request");
    vec.resize(6 * MIB, 0);
    vec.fill(9);
    let request = keeper.kept();
    assert!(request.output(0).expect("the data").mismatch(&pattern(3, 2 * MIB)).is_none());
    request.reply(Ok(()));
    assert_eq!(pending.sync().expect("a reply").receipt().copied, 0);
    assert!(vec.iter().all(|byte| *byte == 9));
    drop(vec);
    checked();
}

#[test]
fn a_freed_block_is_the_next_one_of_its_length() {
    let _alone = alone();
    let len = 5 * MIB;
    let first = vec![1u8; len];
    let (addr, object) = (first.as_ptr().addr(), object_of(first.as_ptr()));
    drop(first);
    let vec: Vec<u8> = Vec::with_capacity(len);
    assert_eq!(vec.as_ptr().addr(), addr);
    drop(vec);
    let zeroed = vec![0u8; len];
    assert_eq!(zeroed.as_ptr().addr(), addr);
    assert!(zeroed.iter().all(|byte| *byte == 0), "what was there before is not");
    assert_eq!(object_of(zeroed.as_ptr()), object, "no object was made or given up");
}

thread_local! {
    /// How often this thread has called tables.
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// A registrar whose calls take a lock.
#[derive(Default)]
struct Table(Mutex<BTreeSet<ObjectId>>);

impl Registrar for Table {
    fn added(&self, object: &SharedObject) {
        CALLS.set(CALLS.get() + 1);
        self.0.lock().insert(object.id);
    }

    fn removed(&self, object: &SharedObject) {
        CALLS.set(CALLS.get() + 1);
        self.0.lock().remove(&object.id);
    }
}

#[test]
fn who_allocates_and_frees_waits_for_no_registrar() {
    let _alone = alone();
    let table = Arc::new(Table::default());
    let _registration = space().register(table.clone());
    // A thread that waited for a call would hang.
    let objects = table.0.lock();
    let (calls, vec) = (CALLS.get(), pattern(6, 11 * MIB));
    drop(objects);
    assert_eq!(CALLS.get(), calls, "an allocation has called the registrar");
    // Data of a request is in no object of which the registrar was not told.
    let (id, _) = object_of(vec.as_ptr());
    assert!(table.0.lock().contains(&id));
    let _shown = space().share(id).expect("a descriptor");
    let (objects, calls) = (table.0.lock(), CALLS.get());
    drop(vec);
    assert_eq!(CALLS.get(), calls, "freeing a block has called the registrar");
    drop(objects);
    checked();
    assert!(!table.0.lock().contains(&id), "its object is gone");
}

/// Registers as many others as make their list so long that it could be a block.
#[derive(Default)]
struct Many(Mutex<Vec<Registration>>);

impl Registrar for Many {
    fn added(&self, _: &SharedObject) {
        let mut registrations = self.0.lock();
        if registrations.is_empty() {
            registrations.extend((0..33_000).map(|_| space().register(Arc::new(Table::default()))));
        }
    }

    fn removed(&self, _: &SharedObject) {}
}

/// The list of registrars is copied under a lock that allocations of blocks take: if it were put into a block, this would hang.
#[test]
fn a_list_of_registrars_is_no_block() {
    let _alone = alone();
    let vec = pattern(7, MIB);
    let many = Arc::new(Many::default());
    let _registration = space().register(many.clone());
    checked();
    let (id, _) = object_of(vec.as_ptr());
    drop((space().share(id).expect("a descriptor"), vec));
    checked();
    assert_eq!(many.0.lock().len(), 33_000);
}

#[test]
fn a_block_that_a_peer_was_shown_is_given_back_when_it_is_freed() {
    let _alone = alone();
    let vec = pattern(4, 7 * MIB);
    let (id, _) = object_of(vec.as_ptr());
    let space = space();
    let shown = space.share(id).expect("a descriptor");
    let objects = checked().objects;
    drop(vec);
    assert_eq!(checked().objects, objects - 1);
    let mut bytes = [1; 4096];
    let read = rustix::io::pread(shown.as_fd(), &mut bytes, MIB as u64).expect("its bytes");
    assert!(bytes[..read].iter().all(|byte| *byte == 0), "the peer keeps the memory");
    let next = pattern(5, 7 * MIB);
    assert_ne!(object_of(next.as_ptr()).0, id);
}

/// The tables grow under the space's lock, with which blocks are allocated, too: an allocator that put them into blocks would
/// hang here.
#[test]
fn tables_that_grow_under_the_lock_are_the_systems() {
    let _alone = alone();
    let before = checked().regions;
    let vecs: Vec<Vec<u8>> = (0..4).map(|_| Vec::with_capacity(256 * MIB)).collect();
    assert!(vecs.iter().all(|vec| is_block(vec.as_ptr(), 256 * MIB)));
    assert_eq!(checked().regions - before, 4 * 65536, "nothing else has become a block");
}

#[test]
fn memory_has_the_alignment_asked_for() {
    let _alone = alone();
    for align in [1, 4096, 64 << 10, 2 * MIB, 8 * MIB] {
        let layout = Layout::from_size_align(3 * MIB, align).expect("a layout");
        // SAFETY: the layout is not empty; what is freed was allocated with its layout.
        unsafe {
            let plain = alloc(layout);
            let zeroed = alloc_zeroed(layout);
            for memory in [plain, zeroed] {
                assert!(!memory.is_null() && memory.addr().is_multiple_of(align), "{memory:?} for {align}");
                assert_eq!(is_block(memory, 3 * MIB), align <= 2 * MIB);
            }
            plain.write_bytes(3, 3 * MIB);
            let grown = realloc(plain, layout, 5 * MIB);
            assert!(grown.addr().is_multiple_of(align) && *grown.add(3 * MIB - 1) == 3);
            assert_eq!(*zeroed.add(MIB), 0);
            dealloc(grown, Layout::from_size_align(5 * MIB, align).expect("a layout"));
            dealloc(zeroed, layout);
        }
    }
}

#[test]
fn an_allocation_that_is_too_long_fails_as_with_the_systems_allocator() {
    let layout = Layout::from_size_align(1 << 46, 1).expect("a layout");
    // SAFETY: the layout is not empty.
    assert!(black_box(unsafe { alloc(layout) }).is_null());
    assert!(black_box(Vec::<u8>::new()).try_reserve(1 << 46).is_err());
}

#[test]
fn a_thread_allocates_and_frees_while_its_locals_are_destroyed() {
    struct Late(Vec<u8>);
    impl Drop for Late {
        fn drop(&mut self) {
            assert!(is_block(self.0.as_ptr(), MIB) && self.0.iter().all(|byte| *byte == 6));
            drop(vec![7u8; 2 * MIB]);
        }
    }
    thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });
    let _alone = alone();
    std::thread::spawn(|| LATE.set(Some(Late(vec![6; MIB])))).join().expect("no panic");
}

#[test]
fn threads_allocate_grow_and_free_each_others_memory_and_pass_it() {
    let _alone = alone();
    let (genie, server) = (interface(), ServerHandle::new(Keeper::default()));
    let before = checked();
    let slots: Vec<Mutex<(usize, Vec<u8>)>> = (0..8).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (slots, genie, server) = (&slots, &genie, &server);
            scope.spawn(move || {
                let mut state = thread as u64 + 1;
                for _ in 0..300 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let random = (state >> 33) as usize;
                    let mut slot = slots[random % slots.len()].lock();
                    let (seed, vec) = &mut *slot;
                    assert!(vec.iter().step_by(509).all(|byte| *byte == *seed as u8));
                    match random / 8 % 4 {
                        0 => (*seed, *vec) = (random, vec![random as u8; 200 * 1024 + random % (2 * MIB)]),
                        1 => vec.resize((vec.len() + random % MIB).min(6 * MIB), *seed as u8),
                        2 if !vec.is_empty() => {
                            let fill = genie.request(server, FILL).input(In::emulated_copy(&mut *vec));
                            fill.send().expect("a reply");
                            *seed = 0x5a;
                        }
                        _ => *vec = Vec::new(),
                    }
                }
            });
        }
    });
    drop(slots);
    let after = checked();
    assert_eq!((after.deferred, after.references), (before.deferred, before.references));
}

#[test]
fn a_child_made_by_fork_has_a_copy_of_the_heap() {
    let _alone = alone();
    let mut vec = pattern(8, 3 * MIB);
    let sparse: Vec<u8> = Vec::with_capacity(64 * MIB);
    // SAFETY: the C library's allocator works in a child, Genie's takes no lock there, and what is asked for here does not
    // panic.
    let child = unsafe {
        fork_child(|| {
            // To be compared with no other block, which could be as damaged.
            if !is_pattern(8, &vec) {
                return 1;
            }
            vec.fill(1);
            let mut own = vec![2u8; 4 * MIB];
            own.resize(9 * MIB, 2);
            vec.resize(5 * MIB, 1);
            let intact = own.iter().all(|byte| *byte == 2) && vec.iter().all(|byte| *byte == 1);
            drop((std::mem::take(&mut own), std::mem::take(&mut vec)));
            if !intact { 2 } else { u8::from(genie::Allocator::space().is_some()) * 3 }
        })
    };
    let outcome = child.expect("a child").wait().expect("its end");
    assert_eq!(outcome, ExitOutcome::Code(0));
    assert!(is_pattern(8, &vec), "the parent has its own");
    assert_eq!(checked().references, 0);
    drop(sparse);
}

#[test]
fn a_command_runs_whichever_way_the_library_starts_it() {
    let _alone = alone();
    let _vec = pattern(9, 8 * MIB);
    let mut plain = Command::new("true");
    assert!(plain.status().expect("by posix_spawn").success());
    let mut forked = Command::new("true");
    // SAFETY: the closure does nothing; it makes the library fork.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut forked, || Ok(())) };
    assert!(forked.status().expect("by fork").success());
}

/// Runs the test `inner` of this binary in a process that a shell has limited.
fn limited(limits: &str, inner: &str) -> Output {
    let own = std::env::current_exe().expect("a path");
    let script = format!("{limits} && exec \"$0\" --ignored --exact {inner} --nocapture --test-threads 1");
    Command::new("sh").arg("-c").arg(script).arg(own).output().expect("a shell")
}

#[track_caller]
fn assert_passed(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    std::io::stderr().write_all(err.as_bytes()).expect("stderr");
    assert!(output.status.success() && out.contains("1 passed"), "{}: {out}", output.status);
}

#[test]
fn allocations_are_the_systems_where_descriptors_run_short() {
    assert_passed(&limited("ulimit -n 40", "more_allocations_than_descriptors"));
}

#[test]
#[ignore = "run by another test, in a process that may have few descriptors"]
fn more_allocations_than_descriptors() {
    let vecs: Vec<_> = (0..200).map(|seed| pattern(seed, 300 << 10)).collect();
    let blocks = vecs.iter().filter(|vec| space().may_hold(vec.as_ptr().addr())).count();
    assert!((10..=20).contains(&blocks), "{blocks} blocks of 20 descriptors");
    assert!(std::fs::File::open("/dev/null").is_ok(), "the program has descriptors left");
    assert!(vecs.iter().enumerate().all(|(seed, vec)| *vec == pattern(seed, 300 << 10)));
    drop(vecs);
    assert!(is_block(pattern(1, MIB).as_ptr(), MIB), "there are blocks again");
}

#[test]
fn allocations_are_the_systems_where_addresses_run_short() {
    assert_passed(&limited("ulimit -v 1000000", "no_addresses_for_a_heap"));
    assert_passed(&limited("ulimit -v 60000", "no_addresses_for_an_allocation"));
}

#[test]
#[ignore = "run by another test, in a process that may have few addresses"]
fn no_addresses_for_a_heap() {
    let mut vec = pattern(1, 3 * MIB);
    vec.extend_from_within(..);
    assert!(vec[3 * MIB..] == pattern(1, 3 * MIB));
    assert!(genie::Allocator::space().is_none());
}

/// Asking for the space aborted the program.
#[test]
#[ignore = "run by another test, in a process that may have even fewer addresses"]
fn no_addresses_for_an_allocation() {
    assert!(genie::Allocator::space().is_none());
    assert!(genie::Allocator::space().is_none(), "nor the next time");
}
