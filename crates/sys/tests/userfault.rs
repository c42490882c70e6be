#![allow(
    unsafe_code,
    reason = "the mapping under test is made by bare calls; its file says why each is right"
)]
//! Write protection by userfaultfd stops stores, reports them, and lets them go on.

mod mapping;
mod proc;
mod skip;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use genie_sys::Errno;
use genie_sys::event::Event;
use genie_sys::userfault::{FAULTS_PER_READ, Fault, Userfault, Wait, Way};
use mapping::{HUGE_PAGE, Mapping};
use proc::{PageFrame, mapping_at, page_frames};
use skip::skip;

/// A userfaultfd, or none and a skip.
fn open(test: &str) -> Option<Userfault> {
    open_by(test, Userfault::open)
}

fn open_by(test: &str, how: impl FnOnce() -> genie_sys::Result<Userfault>) -> Option<Userfault> {
    how().map_err(|error| skip(test, &error.to_string())).ok()
}

/// A huge mapping, or none and a skip.
fn huge(test: &str, pages: usize) -> Option<Mapping> {
    let mapping = Mapping::huge(pages);
    if mapping.is_none() {
        skip(test, &format!("{pages} huge pages of 2 MiB are not free"));
    }
    mapping
}

/// Waits for faults, but not forever.
fn next_faults(userfault: &Userfault) -> Vec<Fault> {
    let stop = Arc::new(Event::new().unwrap());
    let (done, alarm) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn({
        let stop = stop.clone();
        move || {
            if alarm
                .recv_timeout(Duration::from_secs(10))
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                stop.signal().unwrap();
            }
        }
    });
    let mut faults = Vec::new();
    let outcome = userfault.wait(stop.as_fd(), None, &mut faults).unwrap();
    drop(done);
    watch.join().unwrap();
    assert_eq!(outcome, Wait::Faults, "no fault came within 10 s");
    faults
}

/// Stores in another thread, which returns its kernel number once the store has been made.
fn store_elsewhere(memory: &Arc<Mapping>, offset: usize, value: u32) -> JoinHandle<u32> {
    let memory = memory.clone();
    std::thread::spawn(move || {
        memory.store(offset, value);
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    })
}

/// The whole life of a protected granule.
fn a_store_is_stopped_told_of_and_let_go(userfault: &Userfault, memory: Mapping, granule: usize) {
    let memory = Arc::new(memory);
    let second = memory.addr() + granule;
    memory.store(granule + 8, 1);
    userfault.register(memory.addr(), memory.len()).unwrap();
    userfault.protect(second, granule).unwrap();

    memory.store(0, 5); // The neighbour isn't protected.
    assert_eq!(memory.load(granule + 8), 1, "loads need no permission");
    let storer = store_elsewhere(&memory, granule + 8, 2);
    let faults = next_faults(userfault);
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].addr, faults[0].write, faults[0].write_protect), (second + 8, true, true));
    assert_eq!(memory.load(granule + 8), 1, "the store hasn't happened");

    userfault.unprotect(second, granule).unwrap();
    assert_eq!(storer.join().unwrap(), faults[0].thread);
    assert_eq!(memory.load(granule + 8), 2, "the store happened");
    memory.store(granule + 8, 3);
}

#[test]
fn a_store_into_an_ordinary_page_is_stopped_told_of_and_let_go() {
    let Some(userfault) = open("a_store_into_an_ordinary_page_is_stopped_told_of_and_let_go") else { return };
    a_store_is_stopped_told_of_and_let_go(&userfault, Mapping::ordinary(3), rustix::param::page_size());
}

#[test]
fn a_store_into_a_huge_page_is_stopped_told_of_and_let_go() {
    const NAME: &str = "a_store_into_a_huge_page_is_stopped_told_of_and_let_go";
    let (Some(userfault), Some(memory)) = (open(NAME), huge(NAME, 2)) else { return };
    a_store_is_stopped_told_of_and_let_go(&userfault, memory, HUGE_PAGE);
}

#[test]
fn each_way_catches_the_program_s_stores() {
    for way in [Way::SystemCall, Way::Device, Way::UserModeOnly] {
        let name = format!("each_way_catches_the_program_s_stores ({way:?})");
        let Some(userfault) = open_by(&name, || Userfault::open_way(way)) else { continue };
        assert_eq!(userfault.way(), way);
        a_store_is_stopped_told_of_and_let_go(&userfault, Mapping::ordinary(2), rustix::param::page_size());
        let flags = rustix::io::fcntl_getfd(&userfault).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "not inherited by exec");
    }
}

#[test]
fn with_full_rights_a_kernel_write_waits_like_a_store() {
    const NAME: &str = "with_full_rights_a_kernel_write_waits_like_a_store";
    let Some(userfault) = open(NAME) else { return };
    if !userfault.way().catches_kernel_stores() {
        return skip(NAME, "full rights are missing");
    }
    let memory = Arc::new(Mapping::ordinary(1));
    userfault.register(memory.addr(), memory.len()).unwrap();
    userfault.protect(memory.addr(), memory.len()).unwrap();
    let reader = std::thread::spawn({
        let memory = memory.clone();
        move || memory.kernel_write(100, 9)
    });
    let faults = next_faults(&userfault);
    let page = faults[0].addr / memory.len() * memory.len();
    assert_eq!((page, faults[0].write_protect), (memory.addr(), true));
    assert_eq!(memory.load(100), 0);
    userfault.unprotect(memory.addr(), memory.len()).unwrap();
    assert_eq!(reader.join().unwrap(), Ok(1));
    assert_eq!(memory.load(100).to_ne_bytes(), [9, 0, 0, 0]);
}

#[test]
fn in_user_mode_only_a_kernel_write_fails_and_changes_nothing() {
    const NAME: &str = "in_user_mode_only_a_kernel_write_fails_and_changes_nothing";
    let Some(userfault) = open_by(NAME, || Userfault::open_way(Way::UserModeOnly)) else { return };
    let memory = Mapping::ordinary(1);
    userfault.register(memory.addr(), memory.len()).unwrap();
    userfault.protect(memory.addr(), memory.len()).unwrap();
    assert_eq!(memory.kernel_write(100, 9), Err(Errno::FAULT));
    assert_eq!(memory.load(100), 0);
    userfault.unprotect(memory.addr(), memory.len()).unwrap();
    assert_eq!(memory.kernel_write(100, 9), Ok(1));
}

#[test]
fn waking_without_permission_faults_again() {
    let Some(userfault) = open("waking_without_permission_faults_again") else { return };
    let memory = Arc::new(Mapping::ordinary(1));
    userfault.register(memory.addr(), memory.len()).unwrap();
    userfault.protect(memory.addr(), memory.len()).unwrap();
    let storer = store_elsewhere(&memory, 0, 1);
    let first = next_faults(&userfault);
    userfault.wake(memory.addr(), memory.len()).unwrap();
    assert_eq!(next_faults(&userfault), first);
    userfault.unprotect(memory.addr(), memory.len()).unwrap();
    storer.join().unwrap();
}

#[test]
fn many_storing_threads_are_each_told_of_once() {
    let Some(userfault) = open("many_storing_threads_are_each_told_of_once") else { return };
    const THREADS: usize = 20;
    let page = rustix::param::page_size();
    let memory = Arc::new(Mapping::ordinary(THREADS));
    userfault.register(memory.addr(), memory.len()).unwrap();
    userfault.protect(memory.addr(), memory.len()).unwrap();
    let storers: Vec<_> = (0..THREADS).map(|i| store_elsewhere(&memory, i * page, 1)).collect();
    let mut told = Vec::new();
    while told.len() < THREADS {
        let faults = next_faults(&userfault);
        assert!(faults.len() <= FAULTS_PER_READ);
        told.extend(faults);
    }
    let mut none = vec![told[0]];
    assert_eq!(userfault.take(&mut none).unwrap(), 0);
    assert!(none.is_empty(), "old faults are not reported again");
    userfault.unprotect(memory.addr(), memory.len()).unwrap();
    let mut expected: Vec<_> =
        storers.into_iter().enumerate().map(|(i, s)| (memory.addr() + i * page, s.join().unwrap())).collect();
    let mut told: Vec<_> = told.iter().map(|fault| (fault.addr, fault.thread)).collect();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[test]
fn dropping_a_userfaultfd_lets_waiting_stores_go() {
    let Some(userfault) = open("dropping_a_userfaultfd_lets_waiting_stores_go") else { return };
    let memory = Arc::new(Mapping::ordinary(1));
    userfault.register(memory.addr(), memory.len()).unwrap();
    userfault.protect(memory.addr(), memory.len()).unwrap();
    let storer = store_elsewhere(&memory, 0, 1);
    next_faults(&userfault);
    drop(userfault);
    storer.join().unwrap();
    assert_eq!(memory.load(0), 1);
}

#[test]
fn a_raised_stop_signal_ends_the_wait_each_time() {
    let Some(userfault) = open("a_raised_stop_signal_ends_the_wait_each_time") else { return };
    let stop = Event::new().unwrap();
    let mut faults = Vec::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| userfault.wait(stop.as_fd(), None, &mut faults).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished(), "it waits until the signal");
        stop.signal().unwrap();
        assert_eq!(waiter.join().unwrap(), Wait::Stopped);
    });
    stop.signal().unwrap();
    assert_eq!(userfault.wait(stop.as_fd(), None, &mut faults).unwrap(), Wait::Stopped);
}

#[test]
fn a_range_that_is_not_registered_is_named() {
    let Some(userfault) = open("a_range_that_is_not_registered_is_named") else { return };
    let memory = Mapping::ordinary(1);
    let error = userfault.protect(memory.addr(), memory.len()).unwrap_err();
    assert_eq!(error.errno, Errno::NOENT);
    let text = error.to_string();
    assert!(text.contains(&format!("{} bytes at {:#x}", memory.len(), memory.addr())), "{text}");
    assert!(text.contains("register"), "{text}");
    assert_eq!(userfault.register(memory.addr() + 1, 10).unwrap_err().errno, Errno::INVAL);
}

#[test]
fn a_range_registered_elsewhere_is_refused() {
    const NAME: &str = "a_range_registered_elsewhere_is_refused";
    let (Some(one), Some(two)) = (open(NAME), open(NAME)) else { return };
    let memory = Mapping::ordinary(1);
    one.register(memory.addr(), memory.len()).unwrap();
    assert_eq!(two.register(memory.addr(), memory.len()).unwrap_err().errno, Errno::BUSY);
}

/// Protection shows in the page table, and neither splits the mapping nor moves a frame.
fn protection_shows(userfault: &Userfault, memory: &Mapping, granule: usize) {
    let frames = || page_frames(memory.addr(), memory.len());
    let numbers = || frames().iter().map(|page| page.frame).collect::<Vec<_>>();
    userfault.register(memory.addr(), memory.len()).unwrap();
    let before = numbers();
    assert!(frames().iter().all(|page| page.present && !page.write_protected));
    userfault.protect(memory.addr(), granule).unwrap();
    let pages = granule / rustix::param::page_size();
    for (i, page) in frames().iter().enumerate() {
        assert_eq!(page.write_protected, i < pages, "page {i}");
    }
    let info = mapping_at(memory.addr()).unwrap();
    assert!(info.has_flag("uw") && info.has_flag("sh"), "{info:?}");
    assert!(info.start <= memory.addr() && memory.addr() + memory.len() <= info.end, "one mapping: {info:?}");
    userfault.unprotect(memory.addr(), granule).unwrap();
    assert!(frames().iter().all(|page| !page.write_protected));
    memory.store(0, 1);
    assert_eq!(numbers(), before, "the frames are the same");
}

#[test]
fn protection_of_ordinary_pages_shows_in_the_page_table() {
    let Some(userfault) = open("protection_of_ordinary_pages_shows_in_the_page_table") else { return };
    protection_shows(&userfault, &Mapping::ordinary(4), rustix::param::page_size());
}

#[test]
fn protection_of_huge_pages_shows_in_the_page_table() {
    const NAME: &str = "protection_of_huge_pages_shows_in_the_page_table";
    let (Some(userfault), Some(memory)) = (open(NAME), huge(NAME, 2)) else { return };
    protection_shows(&userfault, &memory, HUGE_PAGE);
    let info = mapping_at(memory.addr()).unwrap();
    assert_eq!(info.kib("KernelPageSize:"), 2048);
    assert_eq!(info.kib("Private_Hugetlb:") + info.kib("Shared_Hugetlb:"), 4096, "{info:?}");
}

#[test]
fn entry_bits_mean_what_the_kernel_documents() {
    let expected = PageFrame { present: true, write_protected: true, frame: Some(0x1234) };
    assert_eq!(PageFrame::of_entry(1 << 63 | 1 << 57 | 1 << 55 | 0x1234), expected);
    assert_eq!(PageFrame::of_entry(1 << 63).frame, None, "a hidden frame");
    assert_eq!(PageFrame::of_entry(1 << 62 | 0x1234).frame, None, "the low bits are the place in swap");
}

#[test]
fn fields_are_never_taken_from_the_next_mapping() {
    let smaps = "\
00400000-00500000 r-xp 00001000 fe:00 42                         /usr/bin/a program
VmFlags: rd ex mr mw me
7f0000000000-7f0000400000 rw-s 00200000 00:0f 7                  /memfd:object (deleted)
Locked:               16 kB
VmFlags: rd wr sh dc uw
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0
VmFlags: rd wr
";
    let found = proc::find(smaps, 0x7f00_003f_ffff).unwrap();
    assert_eq!((found.start, found.end, found.kib("Locked:")), (0x7f00_0000_0000, 0x7f00_0040_0000, 16));
    assert_eq!((found.permissions.as_str(), found.name.as_str()), ("rw-s", "/memfd:object (deleted)"));
    assert!(found.has_flag("uw") && !found.has_flag("lo"));
    assert!(!proc::find(smaps, 0x40_0000).unwrap().has_flag("uw"));
    assert_eq!(proc::find(smaps, 0x7ffd_0000_0000).unwrap().name, "");
    assert_eq!(proc::find(smaps, 0x50_0000), None);
}
