//! The suite itself: servers and a carrier that keep all promises, and others that each break one, which the suite must find.

mod carriers;
mod keeper;
mod loopback;
mod servers;
mod wire;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use genie_conformance::machine::raw;
use genie_conformance::{Buffering, Granules, Guard, Setup, Subject, Verdict, promise};

/// What every machine has.
fn plain(buffering: Buffering) -> Setup {
    Setup::new(Granules::Base, Guard::Never, buffering)
}

/// Fails unless the suite finds that the subject breaks a promise, and sees this.
#[track_caller]
fn breaks(subject: Subject<'_>, setup: Setup, name: &str, what: &str) {
    match subject.patience(Duration::from_millis(50)).find(promise(name), setup).verdict {
        Verdict::Broken(seen) | Verdict::Stuck(seen) => {
            assert!(seen.contains(what), "{name} is broken, but not by {what}: {seen}")
        }
        verdict => panic!("{what} went unnoticed: {name} is {verdict}"),
    }
}

/// Changes the byte at an address, as code does that keeps to no rules: the kernel stores it.
fn store(addr: usize) {
    let byte = !raw(addr, 1)[0];
    let memory = OpenOptions::new().write(true).open("/proc/self/mem").expect("/proc is mounted");
    memory.write_all_at(&[byte], addr as u64).expect("memory that can be written");
}
