//! Damaged memory: the machine's report goes to the handler that SIGBUS had before, and never makes zeros of this process's
//! own memory.
//!
//! Once, a report of damaged memory (BUS_MCEERR_AR) was taken for one of memory that a peer had taken away: a page of a
//! client's own buffer that the machine could not read any more became zeros, and the program went on with them.
#![allow(unsafe_code, reason = "handles SIGBUS, and sends itself what the kernel sends of damaged memory")]

mod child;
mod skip;

use std::ffi::{c_int, c_void};
use std::sync::Once;

use genie_sys::guard::Replaces;
use genie_sys::{Arena, GranuleKind, Object};

use child::{ExitOutcome, fork_child};
use skip::skip;

const MIB: usize = 1 << 20;
/// How a child ends if the program's handler got its signal.
const HANDLED: u8 = 42;

extern "C" fn on_bus_error(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: may be called anywhere, and does not return.
    unsafe { libc::_exit(i32::from(HANDLED)) }
}

/// Handles SIGBUS, as a program may do before it uses this crate.
fn handle_bus_errors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros are a valid sigaction, whose handler is made for its flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
        }
    });
}

/// Sends the calling thread a SIGBUS like the kernel's. It makes system calls only, and so may run in a signal handler.
fn bus_error(code: c_int, addr: usize) {
    // SAFETY: all zeros are a valid siginfo, whose first field after the three numbers is the address here.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = libc::SIGBUS;
        info.si_code = code;
        (&raw mut info).cast::<usize>().add(2).write(addr);
        assert_eq!(info.si_addr().addr(), addr);
        let (process, thread) = (libc::getpid(), libc::gettid());
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &raw const info);
    }
}

/// How a child ends if it gets a report of lost memory in an arena with this guard, and then stores into the arena.
fn end_after(code: c_int, replaces: Replaces) -> ExitOutcome {
    handle_bus_errors();
    let arena = Arena::reserve(2 * MIB).unwrap();
    let guard = arena.guard(replaces).unwrap();
    let addr = arena.base() + MIB;
    // SAFETY: the child makes system calls, and looks at a static.
    let child = unsafe {
        fork_child(|| {
            bus_error(code, addr);
            u8::from(guard.is_broken())
        })
    };
    child.unwrap().wait().unwrap()
}

#[test]
fn missing_memory_is_replaced_by_zeros() {
    for replaces in [Replaces::Missing, Replaces::MissingAndDamaged] {
        assert_eq!(end_after(libc::BUS_ADRERR, replaces), ExitOutcome::Code(1));
    }
}

#[test]
fn damage_of_memory_of_our_own_is_the_programs_to_handle() {
    let handled = ExitOutcome::Code(HANDLED);
    assert_eq!(end_after(libc::BUS_MCEERR_AR, Replaces::Missing), handled);
}

#[test]
fn damage_of_a_peers_memory_breaks_the_guard() {
    assert_eq!(end_after(libc::BUS_MCEERR_AR, Replaces::MissingAndDamaged), ExitOutcome::Code(1));
}

#[test]
fn damage_that_nobody_has_touched_is_always_the_programs_to_handle() {
    for code in [libc::BUS_MCEERR_AO, libc::BUS_ADRALN, libc::BUS_OBJERR] {
        for replaces in [Replaces::Missing, Replaces::MissingAndDamaged] {
            assert_eq!(end_after(code, replaces), ExitOutcome::Code(HANDLED), "code {code}");
        }
    }
}

/// The kernel's own report. The page of 4 KiB is lost to the machine until it boots again.
#[test]
fn a_damaged_page_of_our_own_is_the_programs_to_handle() {
    handle_bus_errors();
    let (arena, object) =
        (Arena::reserve(2 * MIB).unwrap(), Object::create(GranuleKind::Base, 8192).unwrap());
    arena.map(0, &object, 0, 8192).unwrap();
    let _guard = arena.guard(Replaces::Missing).unwrap();
    let place = std::ptr::with_exposed_provenance_mut::<u8>(arena.base() + 4096);
    // SAFETY: the page is mapped, and nobody uses it but the child below, which maps it for itself.
    if unsafe { libc::madvise(place.cast(), 4096, libc::MADV_HWPOISON) } != 0 {
        let reason = format!("MADV_HWPOISON: {}", std::io::Error::last_os_error());
        return skip("a_damaged_page_of_our_own_is_the_programs_to_handle", &reason);
    }
    // SAFETY: the child makes system calls, and loads a byte.
    let child = unsafe {
        fork_child(|| {
            let _ = arena.map(0, &object, 0, 8192);
            place.read_volatile()
        })
    };
    assert_eq!(child.unwrap().wait().unwrap(), ExitOutcome::Code(HANDLED));
}
