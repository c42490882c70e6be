use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::child::{ExitOutcome, fork_child};

fn page() -> usize {
    rustix::param::page_size()
}

/// Two pages; no one may touch the second page.
fn half_accessible() -> usize {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
    // SAFETY: a fresh anonymous mapping, which this test never unmaps; protection is taken from its second page only.
    unsafe {
        let start = rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            2 * page(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
        .unwrap();
        rustix::mm::mprotect(start.byte_add(page()), page(), MprotectFlags::empty()).unwrap();
        start as usize
    }
}

#[test]
fn own_memory_can_be_read_by_address() {
    let source: Vec<u8> = (0..=255).collect();
    let mut copy = [0; 256];
    assert_eq!(read_memory(own_pid(), source.as_ptr() as usize, &mut copy).unwrap(), 256);
    assert_eq!(copy, source[..]);
}

#[test]
fn a_read_into_an_inaccessible_page_is_short() {
    let start = half_accessible();
    let mut copy = vec![7; 2 * page()];
    assert_eq!(read_memory(own_pid(), start, &mut copy).unwrap(), page());
    assert!(copy[..page()].iter().all(|&byte| byte == 0) && copy[page()..].iter().all(|&byte| byte == 7));
}

#[test]
fn a_read_of_nothing_accessible_says_where() {
    let start = half_accessible() + page();
    let error = read_memory(own_pid(), start, &mut [0; 8]).unwrap_err();
    assert_eq!(error.errno, Errno::FAULT);
    assert!(error.to_string().contains(&format!("8 bytes at {start:#x}")), "{error}");
}

#[test]
fn writing_to_the_own_process_is_refused_by_any_of_its_numbers() {
    let target = AtomicU32::new(0);
    let addr = target.as_ptr() as usize;
    let main = own_pid();
    let thread = std::thread::scope(|scope| {
        let thread = scope.spawn(rustix::thread::gettid).join().unwrap();
        assert!(write_memory(main, addr, &[1; 4]).is_err());
        // The test's own thread, whose number isn't the process's.
        assert!(write_memory(rustix::thread::gettid(), addr, &[1; 4]).is_err());
        thread
    });
    assert_ne!(thread, main);
    assert_eq!(target.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_of_a_child_is_written_there_and_not_here() {
    static DATA: AtomicU32 = AtomicU32::new(0);
    static READY: AtomicU32 = AtomicU32::new(0);
    // SAFETY: the child only loads words and yields by a system call.
    let child = unsafe {
        fork_child(|| {
            while READY.load(Ordering::Acquire) == 0 {
                rustix::thread::sched_yield();
            }
            DATA.load(Ordering::Relaxed) as u8
        })
    }
    .unwrap();
    let write = |word: &AtomicU32, value: u32| {
        write_memory(child.pid(), word.as_ptr() as usize, &value.to_ne_bytes()).unwrap()
    };
    assert_eq!(write(&DATA, 42), 4);
    let mut seen = [0; 4];
    assert_eq!(read_memory(child.pid(), DATA.as_ptr() as usize, &mut seen).unwrap(), 4);
    assert_eq!(u32::from_ne_bytes(seen), 42);
    assert_eq!(write(&READY, 1), 4);
    assert_eq!(child.wait().unwrap(), ExitOutcome::Code(42));
    assert_eq!(DATA.load(Ordering::Relaxed), 0, "a child's private memory is not the parent's");
}

#[test]
fn a_gone_process_is_named() {
    // SAFETY: the child does nothing.
    let child = unsafe { fork_child(|| 0) }.unwrap();
    let pid = child.pid();
    assert_eq!(child.wait().unwrap(), ExitOutcome::Code(0));
    let error = read_memory(pid, half_accessible(), &mut [0; 1]).unwrap_err();
    assert_eq!(error.errno, Errno::SRCH);
    assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
}

#[test]
fn a_killed_child_reports_its_signal() {
    // SAFETY: the child only yields by a system call.
    let child = unsafe {
        fork_child(|| {
            loop {
                rustix::thread::sched_yield();
            }
        })
    }
    .unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap(), ExitOutcome::Signal(libc::SIGKILL));
}

#[test]
fn a_dropped_child_is_killed_and_reaped() {
    // SAFETY: the child only yields by a system call.
    let child = unsafe {
        fork_child(|| {
            loop {
                rustix::thread::sched_yield();
            }
        })
    }
    .unwrap();
    let pid = child.pid();
    drop(child);
    assert_eq!(rustix::process::test_kill_process(pid), Err(Errno::SRCH));
}
