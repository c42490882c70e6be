//! The hoarder: it takes all huge pages that are free for a moment, so that no other process gets any.

use std::time::Duration;

use genie_sys::{Errno, GranuleKind, Object};

use crate::cast::{ConductorLink, Cue, Word};
use crate::random::Random;
use crate::tally::Tally;

/// How long it has them at most, in milliseconds, and how long it has none.
const HOARD: usize = 300;
const PAUSE: usize = 2000;

/// Plays until the conductor has it end.
pub(crate) fn play(mut link: ConductorLink, most: usize) {
    let mut random = Random::new(link.script.seed);
    link.tell(&Word::Ready);
    loop {
        let hoard = take(most);
        std::thread::sleep(Duration::from_millis(random.below(HOARD) as u64));
        let mut tally = Tally::default();
        tally.count(if hoard.len() < most {
            "hoards of all huge pages"
        } else {
            "hoards of some huge pages"
        });
        drop(hoard);
        link.tell(&Word::Done(tally));
        let pause = Duration::from_millis(random.below(PAUSE) as u64);
        if matches!(link.wait(pause), Some(Cue::Rest)) && !link.rest() {
            return;
        }
    }
}

/// Takes huge pages until there are none, or so many.
fn take(most: usize) -> Vec<Object> {
    let mut hoard = Vec::new();
    while hoard.len() < most {
        match Object::create(GranuleKind::Huge, GranuleKind::Huge.size()) {
            Ok(page) => hoard.push(page),
            // As many descriptors as it may have are as good as all pages.
            Err(error) if [Errno::NOMEM, Errno::NOSPC, Errno::MFILE].contains(&error.errno) => break,
            Err(error) => panic!("{error}"),
        }
    }
    hoard
}
